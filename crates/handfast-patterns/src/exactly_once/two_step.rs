//! The two-step form of seed 4: one update adds a token to `pending`; a second one removes it and makes the change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use handfast_store::{DocumentStore, IndexSpec, Namespace, Sources};
use tracing::Instrument;

use super::{Change, Memory, Token, UpdateOutcome};
use crate::metrics::{self, Event, Span};
use crate::steps::{Steps, is_duplicate_of, raw};
use crate::update::merged;
use crate::value::{equal, key_of};
use crate::{CancellationToken, Error, Result, Round, Runner, RunnerOptions};

/// Attempts at step 1 when other processes insert the document meanwhile.
const RACES_MAX: u32 = 16;

/// Settings of [`TwoStep`].
#[derive(Clone, Debug)]
pub struct TwoStepOptions {
    /// The field of the tokens whose change has not been made yet.
    pub pending_field: String,
    /// Options for the list of applied tokens.
    pub memory: Memory,
}

impl Default for TwoStepOptions {
    fn default() -> Self {
        TwoStepOptions { pending_field: "pending".to_owned(), memory: Memory::default() }
    }
}

/// An update that is applied exactly once for each token. The caller need not repeat it: the clean-up makes the
/// changes that step 2 did not make. See the [module's documentation](super).
///
/// The change is the same for every token, because the clean-up has nothing but the token.
///
/// ```
/// use handfast_patterns::{Change, TwoStep};
/// use handfast_store::{MemoryStore, Namespace, Sources, StoreExt};
/// use std::{sync::Arc, time::Duration};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> handfast_patterns::Result<()> {
/// let sources = Sources::seeded(1);
/// let store = Arc::new(MemoryStore::new(sources.clone()));
/// let days = Namespace::new("site", "days")?;
/// let count = Change::increment("counter", 1).or_insert();
/// let visits = TwoStep::open_with(store.clone(), days.clone(), sources, count, Default::default()).await?;
///
/// assert!(visits.apply(visits.token(), "2016-06-28").await?.is_applied());
/// visits.clean_up(Duration::from_secs(3600), 100).await?;
///
/// let day = store.find_one(&days, bson::rawdoc! { "_id": "2016-06-28" }).await?.expect("counted");
/// assert_eq!(day.get_i64("counter").ok(), Some(1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TwoStep {
    steps: Steps,
    sources: Sources,
    change: Arc<Change>,
    options: Arc<TwoStepOptions>,
}

impl TwoStep {
    /// Opens the pattern for one kind of change to the documents of a collection; creates the indexes on left-over
    /// tokens and on the date of the last update. Two kinds of changes in one collection need two fields for their
    /// tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a change with a guard (the clean-up could not report a refusal), and for a memory of no tokens.
    pub async fn open(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        change: Change,
        options: TwoStepOptions,
    ) -> Result<Self> {
        TwoStep::open_with(store, namespace, Sources::system()?, change, options).await
    }

    /// Opens it with other sources of time, randomness and ids, for tests that can be repeated.
    ///
    /// # Errors
    /// Returns the errors of [`TwoStep::open`].
    pub async fn open_with(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        sources: Sources,
        change: Change,
        options: TwoStepOptions,
    ) -> Result<Self> {
        if change.guard().is_some() {
            return Err(Error::invalid("a change in two steps has no guard: use the form with one round trip"));
        }
        options.memory.check()?;
        let two_step = TwoStep {
            steps: Steps::new(store, namespace),
            sources,
            change: Arc::new(change),
            options: Arc::new(options),
        };
        two_step.update(two_step.token())?;
        let pending = raw(&doc! { &two_step.options.pending_field: 1 })?;
        let pending = IndexSpec { sparse: true, ..IndexSpec::new(pending) };
        two_step.steps.create_indexes([pending, two_step.options.memory.index()?]).await?;
        Ok(two_step)
    }

    /// Returns a fresh token.
    pub fn token(&self) -> Token {
        Token::fresh(&*self.sources.ids)
    }

    /// Applies the change to the document with this `_id`, unless it was applied for this token before.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: if [`Error::applied`] is `Maybe`, call again with the same token, or leave
    /// it to the clean-up, which applies the change if step 1 was made; otherwise it is never applied.
    /// [`Error::Contended`] if other processes insert and delete the document at each attempt.
    ///
    /// # Cancellation
    /// The change may have been applied: call again with the same token, or leave it to the clean-up.
    pub async fn apply(&self, token: Token, id: impl Into<Bson>) -> Result<UpdateOutcome> {
        let clock = &*self.sources.clock;
        let begun = clock.elapsed();
        let outcome = self.apply_uncounted(token, id.into()).await?;
        metrics::took_since(Span::Update, self.steps.namespace(), clock, begun);
        metrics::count(outcome.counted(), self.steps.namespace(), 1);
        Ok(outcome)
    }

    async fn apply_uncounted(&self, token: Token, id: Bson) -> Result<UpdateOutcome> {
        for _ in 0..RACES_MAX {
            if self.announce(token, &id).await? {
                return self.apply_pending(token, &id).await;
            }
            if self.steps.find_one(&self.options.memory.if_applied(&id, token)).await?.is_some() {
                return Ok(UpdateOutcome::AlreadyApplied);
            }
            if !self.change.inserts() && self.steps.find_one(&doc! { "_id": equal(&id) }).await?.is_none() {
                return Ok(UpdateOutcome::Missing);
            }
        }
        Err(Error::Contended { what: format!("document {id} was made and deleted by others"), attempts: RACES_MAX })
    }

    /// Makes step 1, which adds the token to the list; returns whether it is there.
    async fn announce(&self, token: Token, id: &Bson) -> Result<bool> {
        let filter = self.options.memory.unless_applied(id, token);
        let add = doc! { "$addToSet": { &self.options.pending_field: token } };
        if !self.change.inserts() {
            return self.steps.update_one(&filter, &add).await;
        }
        match self.steps.upsert_one(&filter, &add).await {
            Ok(_) => Ok(true),
            // The document exists: it has applied the token, or another process was faster to insert it.
            Err(Error::Store(error)) if is_duplicate_of(&error, "_id") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes step 2, which removes the token from the list and makes the change. It matches once.
    async fn apply_pending(&self, token: Token, id: &Bson) -> Result<UpdateOutcome> {
        let filter = doc! { "_id": equal(id), &self.options.pending_field: token };
        if self.steps.update_one(&filter, &self.update(token)?).await? {
            return Ok(UpdateOutcome::Applied);
        }
        // An earlier attempt whose answer was lost, or a clean-up, has made it; or the document was deleted.
        let there = self.steps.find_one(&doc! { "_id": equal(id) }).await?.is_some();
        Ok(if there { UpdateOutcome::AlreadyApplied } else { UpdateOutcome::Missing })
    }

    fn update(&self, token: Token) -> Result<Document> {
        let mut ours = self.options.memory.remember(token);
        ours.insert("$pull", doc! { &self.options.pending_field: token });
        merged(&self.change.update, &ours)
    }

    /// Makes the changes of tokens (at most `batch`) that are older than `age` and still pending. It may run at any
    /// time and beside any other request, as its update is that of step 2. The age keeps it from doing the work of
    /// callers that are about to make step 2. A token that fails is passed over, so that it keeps no others waiting.
    ///
    /// # Errors
    /// [`Error::Store`] if the search for tokens fails, [`Error::Damaged`] for a list that holds other values. A failure at a single token
    /// is logged and counted.
    pub async fn clean_up(&self, age: Duration, batch: u32) -> Result<Round> {
        let mut round = Round::default();
        // The tokens that were tried, without those before the first one of the next page.
        let mut tried = BTreeSet::new();
        let mut from = Token(ObjectId::from_bytes([0; 12]));
        loop {
            let passed = u32::try_from(tried.len()).unwrap_or(u32::MAX);
            let left = self.left(from, age, batch.saturating_add(passed)).await?;
            let Some((_, last)) = left.last() else { return Ok(round) };
            from = *last;
            let mut next = BTreeSet::new();
            let mut is_new = false;
            for (id, token) in left {
                let key = (token.0, key_of(&id)?);
                if token == from {
                    next.insert(key.clone());
                }
                if tried.contains(&key) {
                    continue;
                }
                is_new = true;
                self.finish_left(token, &id, &mut round).await;
                if round.done >= u64::from(batch) {
                    return Ok(Round { more: true, ..round });
                }
            }
            if !is_new {
                return Ok(round);
            }
            tried = next;
        }
    }

    async fn finish_left(&self, token: Token, id: &Bson, round: &mut Round) {
        let span = tracing::info_span!("exactly_once.clean_up", %id, token = %token.0);
        match self.apply_pending(token, id).instrument(span.clone()).await {
            Ok(outcome) => {
                let applied = u64::from(outcome == UpdateOutcome::Applied);
                metrics::count(Event::TokenSettled, self.steps.namespace(), applied);
                round.done += 1;
            }
            Err(error) => {
                let _in_span = span.enter();
                tracing::warn!(%error, "a left-over token could not be finished, it is tried again later");
                round.failed += 1;
            }
        }
    }

    /// Returns pending tokens from this one on with their documents, the oldest first.
    async fn left(&self, from: Token, age: Duration, limit: u32) -> Result<Vec<(Bson, Token)>> {
        let field = &self.options.pending_field;
        let old = doc! { "$gte": from, "$lt": first_id_of(self.sources.clock.now(), age) };
        let pipeline = [
            doc! { "$match": { field: old.clone() } },
            doc! { "$project": { "token": format!("${field}") } },
            doc! { "$unwind": "$token" },
            doc! { "$match": { "token": old } },
            doc! { "$sort": { "token": 1 } },
            doc! { "$limit": i64::from(limit) },
        ];
        let tokens = self.steps.aggregate(&pipeline).await?;
        let read = |mut document: Document| match (document.remove("_id"), document.get_object_id("token")) {
            (Some(id), Ok(token)) => Ok((id, Token(token))),
            _ => Err(self.steps.damaged(&document, format!("its {field} has a value that is not a token"))),
        };
        tokens.into_iter().map(read).collect()
    }

    /// Removes the lists of tokens from documents, as [`ExactlyOnce::forget`](super::ExactlyOnce::forget) does.
    pub async fn forget(&self, age: Duration, batch: u32) -> Result<Round> {
        self.options.memory.forget(&self.steps, self.sources.clock.now(), age, batch).await
    }

    /// Runs [`TwoStep::forget`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_forget(&self, age: Duration, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let two_step = self.clone();
        Runner::spawn("exactly_once.forget", &self.sources, options, cancel, move |batch| {
            let two_step = two_step.clone();
            async move { two_step.forget(age, batch).await }
        })
    }

    /// Runs [`TwoStep::clean_up`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_clean_up(&self, age: Duration, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let two_step = self.clone();
        Runner::spawn("exactly_once.clean_up", &self.sources, options, cancel, move |batch| {
            let two_step = two_step.clone();
            async move { two_step.clean_up(age, batch).await }
        })
    }
}

/// Returns the smallest ObjectId that can be made in the second `age` before `now`.
fn first_id_of(now: DateTime, age: Duration) -> ObjectId {
    let seconds = crate::value::before(now, age).timestamp_millis() / 1000;
    let seconds = u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    ObjectId::from_bytes(bytes)
}
