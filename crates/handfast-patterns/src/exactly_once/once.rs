//! The form with one round trip.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc};
use handfast_store::{DocumentStore, Namespace, Sources};

use super::fence::Mark;
use super::{Change, Fence, Memory, Token, UpdateOutcome};
use crate::metrics::{self, Span};
use crate::steps::{Steps, is_duplicate_of};
use crate::update::merged;
use crate::value::equal;
use crate::{CancellationToken, Error, Result, Round, Runner, RunnerOptions};

/// Attempts at an update that races with others. At each attempt another one has succeeded.
const RACES_MAX: u32 = 16;

/// Updates that are applied exactly once, in one round trip each. See the [module's documentation](super).
///
/// ```
/// use bson::{doc, rawdoc};
/// use handfast_patterns::{Change, ExactlyOnce, UpdateOutcome};
/// use handfast_store::{MemoryStore, Namespace, Sources, StoreExt};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> handfast_patterns::Result<()> {
/// let sources = Sources::seeded(1);
/// let store = Arc::new(MemoryStore::new(sources.clone()));
/// let accounts = Namespace::new("bank", "accounts")?;
/// store.insert_one(&accounts, rawdoc! { "_id": "ann", "balance": 100 }).await?;
///
/// let once = ExactlyOnce::open_with(store, accounts, sources, Default::default()).await?;
/// let token = once.token();
/// let withdraw = Change::increment("balance", -30).guarded(doc! { "balance": { "$gte": 30 } });
/// assert_eq!(once.apply(token, "ann", &withdraw).await?, UpdateOutcome::Applied);
/// // The answer may have been lost, so the program asks again: the same token never counts twice.
/// assert_eq!(once.apply(token, "ann", &withdraw).await?, UpdateOutcome::AlreadyApplied);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ExactlyOnce {
    steps: Steps,
    sources: Sources,
    memory: Arc<Memory>,
}

impl ExactlyOnce {
    /// Opens the pattern for the documents of a collection; creates the index on the date of the last update.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a memory of no tokens.
    pub async fn open(store: Arc<dyn DocumentStore>, namespace: Namespace, memory: Memory) -> Result<Self> {
        ExactlyOnce::open_with(store, namespace, Sources::system()?, memory).await
    }

    /// Opens it with other sources of time, randomness and ids, for tests that can be repeated.
    ///
    /// # Errors
    /// Returns the errors of [`ExactlyOnce::open`].
    pub async fn open_with(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        sources: Sources,
        memory: Memory,
    ) -> Result<Self> {
        memory.check()?;
        let steps = Steps::new(store, namespace);
        steps.create_indexes([memory.index()?]).await?;
        Ok(ExactlyOnce { steps, sources, memory: Arc::new(memory) })
    }

    /// Returns the same pattern on another store, such as an open transaction.
    #[must_use]
    pub fn within(&self, store: Arc<dyn DocumentStore>) -> Self {
        ExactlyOnce { steps: self.steps.on(store), ..self.clone() }
    }

    /// Returns a fresh token.
    pub fn token(&self) -> Token {
        Token::fresh(&*self.sources.ids)
    }

    /// Applies the change to the document with this `_id`, unless an update with this token was applied to it before.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: if [`Error::applied`] is `Maybe`, call again with the same token.
    /// [`Error::Contended`] if other processes insert and delete the document at each attempt.
    ///
    /// # Cancellation
    /// The change may have been applied: call again with the same token.
    pub async fn apply(&self, token: Token, id: impl Into<Bson>, change: &Change) -> Result<UpdateOutcome> {
        self.apply_marked(token.into(), id.into(), change).await
    }

    /// Applies the change as a step of some work, once for each document: it does nothing if any holder of the work
    /// has made this step, or a later holder has written to the document. The handlers of a queue use it as
    /// [`JobContext::guard`](crate::JobContext::guard).
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails, [`Error::Contended`] if other processes insert and delete the document at
    /// each attempt: call again with the same arguments.
    ///
    /// # Cancellation
    /// The change may have been applied: call again with the same arguments.
    pub async fn apply_fenced(
        &self,
        fence: Fence,
        step: &str,
        id: impl Into<Bson>,
        change: &Change,
    ) -> Result<UpdateOutcome> {
        self.apply_marked(Mark::Step(&fence, step), id.into(), change).await
    }

    /// Keeps earlier holders of the work from the document: they cannot change what is read afterwards.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails, [`Error::Contended`] if other processes insert and delete the document at
    /// each attempt: call again with the same arguments.
    pub async fn fence(&self, fence: Fence, id: impl Into<Bson>) -> Result<UpdateOutcome> {
        self.apply_marked(Mark::Fence(&fence), id.into(), &Change::new(Document::new())).await
    }

    /// Returns whether an update with this token was applied to the document, as far as the document remembers.
    pub async fn is_applied(&self, token: Token, id: impl Into<Bson>) -> Result<bool> {
        Ok(self.steps.find_one(&self.memory.if_applied(&id.into(), token)).await?.is_some())
    }

    async fn apply_marked(&self, mark: Mark<'_>, id: Bson, change: &Change) -> Result<UpdateOutcome> {
        let clock = &*self.sources.clock;
        let begun = clock.elapsed();
        let outcome = self.apply_uncounted(mark, id, change).await?;
        metrics::took_since(Span::Update, self.steps.namespace(), clock, begun);
        metrics::count(outcome.counted(), self.steps.namespace(), 1);
        Ok(outcome)
    }

    async fn apply_uncounted(&self, mark: Mark<'_>, id: Bson, change: &Change) -> Result<UpdateOutcome> {
        let mut filter = self.memory.unless_applied(&id, mark);
        if let Some(guard) = change.guard() {
            filter = doc! { "$and": [filter, guard.clone()] };
        }
        let remember = self.memory.remember(mark);
        let update = match mark {
            Mark::Fence(_) => remember,
            Mark::Token(_) | Mark::Step(..) => merged(&change.update, &remember)?,
        };
        for _ in 0..RACES_MAX {
            if self.send(&filter, &update, change.inserts()).await? {
                return Ok(UpdateOutcome::Applied);
            }
            if let Some(outcome) = self.why_nothing_matched(&id, mark, change).await? {
                return Ok(outcome);
            }
        }
        Err(Error::Contended { what: format!("document {id} was made and deleted by others"), attempts: RACES_MAX })
    }

    /// Sends the update; returns whether it changed or inserted the document.
    async fn send(&self, filter: &Document, update: &Document, insert: bool) -> Result<bool> {
        if !insert {
            return self.steps.update_one(filter, update).await;
        }
        match self.steps.upsert_one(filter, update).await {
            Ok(_) => Ok(true),
            // The document exists: it has the token, or another process was faster to insert it.
            Err(Error::Store(error)) if is_duplicate_of(&error, "_id") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the outcome that explains why the update matched nothing; `None` if the filter would match now.
    async fn why_nothing_matched(&self, id: &Bson, mark: Mark<'_>, change: &Change) -> Result<Option<UpdateOutcome>> {
        // This is checked first: a holder that is kept from the document must learn it, even if it made the step
        // before.
        if let Some(fenced) = self.memory.if_fenced(id, mark)
            && self.steps.find_one(&fenced).await?.is_some()
        {
            return Ok(Some(UpdateOutcome::Fenced));
        }
        if self.steps.find_one(&self.memory.if_applied(id, mark)).await?.is_some() {
            return Ok(Some(UpdateOutcome::AlreadyApplied));
        }
        if change.inserts() {
            return Ok(None);
        }
        let there = self.steps.find_one(&doc! { "_id": equal(id) }).await?.is_some();
        Ok(match (there, change.guard()) {
            (false, _) => Some(UpdateOutcome::Missing),
            (true, Some(_)) => Some(UpdateOutcome::Refused),
            (true, None) => None,
        })
    }

    /// Removes the lists of tokens from documents (at most `batch`) whose last update is older than `age`, which must
    /// be longer than any request can be under way.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the lists that were removed before stay removed.
    pub async fn forget(&self, age: Duration, batch: u32) -> Result<Round> {
        self.memory.forget(&self.steps, self.sources.clock.now(), age, batch).await
    }

    /// Runs [`ExactlyOnce::forget`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_forget(&self, age: Duration, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let once = self.clone();
        Runner::spawn("exactly_once.forget", &self.sources, options, cancel, move |batch| {
            let once = once.clone();
            async move { once.forget(age, batch).await }
        })
    }
}
