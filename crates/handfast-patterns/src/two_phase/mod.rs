//! Two-phase commit: several documents change together, each in a step of its own, and any process can continue after a crash.
//!
//! The plan is written down first, as a document of its own. Then one step after the other is made, and each
//! leaves a mark from which anybody can see how far it came. The transfer of the seed, 100 from A to B:
//!
//! ```text
//!                  transactions                            A                       B
//! begin     1  insert {_id: 1, state: initial, ..}         1000                    1000
//! claim     2  initial -> pending, application: me
//! apply     3                                              900, pending: [1]
//!           4                                                                      1100, pending: [1]
//!           5  pending -> applied           (from here on there is no way back)
//! release   6                                              900, pending: []
//!           7                                                                      1100, pending: []
//!           8  applied -> done
//! ```
//!
//! Until step 5 it can be rolled back: pending -> canceling, the inverse for each participant that carries the id, canceling
//! -> canceled. A participant that was never touched is not changed.
//!
//! **There is no isolation.** Others see 900 and 1000 between steps 3 and 4. [`TwoPhase::read`] says of a document whether
//! transactions are under way in it. Who needs more uses a transaction.
//!
//! # What can go wrong, and what then
//!
//! | at | what happens |
//! | --- | --- |
//! | a process dies, anywhere | [`TwoPhase::recover`] finds the transaction after a while, takes it over, and goes on |
//! | an answer is lost | each step is safe to repeat: its filter does not match a second time |
//! | a guard does not hold, a participant is missing or its update is refused | the transaction is rolled back, with the reason |
//! | two work on one transaction | states only go forward, each step once; who finds a state that it did not expect reads again |
//! | a copy of an `apply` arrives after the release | the participant remembers the ids of finished transactions |
//! | the same, after it has forgotten, or after a rollback that did not touch it | it carries the id of a transaction that is over: [`TwoPhase::repair`] finds that and takes the update back |
//! | a participant lacks the update of a transaction that is applied, or is gone | another program has changed it: the process that takes the transaction over leaves it, and [`TwoPhase::verify`] names the participant |
//! | another process has other settings | it is refused: the settings are recorded in the store ([`TwoPhaseOptions::recorded`]) |
//!
//! Only steps 3 and 4 touch what participants are about, and each of them carries its mark in the same step. So the marks
//! always tell the truth, and nothing of this depends on clocks: the recovery's threshold only keeps it from doing what
//! another one is about to do.
//!
//! Source: seed 1 (two-phase commit), seed 0 (solution 3). Ours: the ids of finished transactions, without which a late copy
//! of step 3 is applied twice; `canceling` is recovered, too.

mod drive;
mod escape;
mod options;
mod pending;
mod plan;
mod record;
mod recovery;
mod remedy;
mod requests;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod unread;
mod verify;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc};
use handfast_store::{DocumentStore, IndexSpec, Namespace, Sources};
use settings::Revisions;

pub use options::{Accounts, Fields, PendingFields, TwoPhaseOptions};
pub use plan::{PARTICIPANTS_MAX, Participant, Plan, Transfer};
pub use record::Record;
pub use remedy::Remedy;
pub use state::{Event, NoState, State};
pub use verify::{Finding, StateCount, TwoPhaseStatus, Verified};

use crate::metrics::{self, Event as Counted};
use crate::steps::{Added, Steps, raw};
use crate::value::same_id;
use crate::{CancellationToken, Error, Result, Round, Runner, RunnerOptions};

/// How a transaction ended, as far as this process knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Every participant has its update.
    Done,
    /// No participant has it.
    Canceled {
        /// The reason.
        reason: String,
    },
    /// Another application has taken it over, and will bring it to its end.
    TakenOver {
        /// Its name, if it has left one.
        by: Option<String>,
    },
    /// There is no transaction of this id.
    Missing,
}

/// The result of [`TwoPhase::cancel`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cancel {
    /// No participant has its update.
    Canceled,
    /// All participants have their updates: [`TwoPhase::compensate`] makes a transaction for the way back.
    TooLate,
    /// Another application carries it out, and will bring it to its end.
    TakenOver,
    /// There is no transaction of this id.
    Missing,
}

/// A document of a participant, and whether transactions are under way in it.
#[derive(Clone, Debug, PartialEq)]
pub enum ParticipantDocument {
    /// No transaction is under way in it.
    Settled(Document),
    /// It may have an update that will be taken back, and others of the same transaction may not have theirs.
    UnderWay {
        /// The document as it is now.
        document: Document,
        /// The ids of the transactions.
        transactions: Vec<Bson>,
    },
}

/// Transactions over several documents, step by step. See the [module's documentation](self).
///
/// ```
/// use bson::rawdoc;
/// use handfast_patterns::two_phase::{Outcome, Transfer, TwoPhase, TwoPhaseOptions};
/// use handfast_store::{MemoryStore, Namespace, Sources, StoreExt};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> handfast_patterns::Result<()> {
/// let sources = Sources::seeded(1);
/// let store = Arc::new(MemoryStore::new(sources.clone()));
/// let (accounts, transactions) = (Namespace::new("bank", "accounts")?, Namespace::new("bank", "transactions")?);
/// for id in ["A", "B"] {
///     store.insert_one(&accounts, rawdoc! { "_id": id, "balance": 1000 }).await?;
/// }
///
/// let options = TwoPhaseOptions::new("App1", accounts.clone());
/// let transfers = TwoPhase::open(store.clone(), transactions, sources, options).await?;
/// transfers.begin(1, Transfer::new("A", "B", 100)).await?;
/// assert_eq!(transfers.run(1).await?, Outcome::Done);
/// transfers.begin(2, Transfer::new("A", "B", 901)).await?;
/// assert!(matches!(transfers.run(2).await?, Outcome::Canceled { .. }), "A has 900");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TwoPhase {
    transactions: Steps,
    sources: Sources,
    options: Arc<TwoPhaseOptions>,
    revisions: Revisions,
}

impl TwoPhase {
    /// Opens the transactions of a collection; records the settings if none are recorded, and creates the indexes on states, and on
    /// the participants that transactions are under way in.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if others are recorded ([`TwoPhaseOptions::recorded`], [`TwoPhase::change_settings`]). [`Error::Invalid`]
    /// for options without a name of the application, or with nothing to remember.
    pub async fn open(
        store: Arc<dyn DocumentStore>,
        transactions: Namespace,
        sources: Sources,
        options: TwoPhaseOptions,
    ) -> Result<Self> {
        let two_phase = TwoPhase::with_settings(Steps::new(store, transactions), sources, options, true).await?;
        two_phase.create_indexes().await?;
        Ok(two_phase)
    }

    /// Opens the transactions to read them: records no settings and creates no indexes.
    ///
    /// # Errors
    /// As [`TwoPhase::open`].
    pub async fn attach(
        store: Arc<dyn DocumentStore>,
        transactions: Namespace,
        sources: Sources,
        options: TwoPhaseOptions,
    ) -> Result<Self> {
        TwoPhase::with_settings(Steps::new(store, transactions), sources, options, false).await
    }

    async fn with_settings(
        transactions: Steps,
        sources: Sources,
        options: TwoPhaseOptions,
        to_record: bool,
    ) -> Result<Self> {
        options.check()?;
        let revisions = TwoPhase::revisions(&transactions, options.clone(), to_record).await?;
        Ok(TwoPhase { transactions, sources, options: Arc::new(options), revisions })
    }

    async fn create_indexes(&self) -> Result<()> {
        let Fields { state, last_modified, pending, .. } = self.fields();
        self.transactions.create_indexes([IndexSpec::new(raw(&doc! { state: 1, last_modified: 1 })?)]).await?;
        let under_way =
            IndexSpec { partial_filter: Some(raw(&self.under_way())?), ..IndexSpec::new(raw(&doc! { pending: 1 })?) };
        for namespace in self.collections() {
            self.transactions.at(namespace.clone()).create_indexes([under_way.clone()]).await?;
        }
        Ok(())
    }

    /// Returns the same pattern on another store. Within an open transaction only [`TwoPhase::begin`] is useful: the two-phase
    /// transaction is there if and only if the other one commits.
    #[must_use]
    pub fn within(&self, store: Arc<dyn DocumentStore>) -> Self {
        TwoPhase { transactions: self.transactions.on(store), ..self.clone() }
    }

    /// Writes a transaction down. Its id is the caller's: to begin again with the same id and the same plan does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a plan that cannot be carried out, and if another transaction has this id.
    ///
    /// # Cancellation
    /// It may have been written: begin again with the same id.
    pub async fn begin(&self, id: impl Into<Bson>, plan: impl Into<Plan>) -> Result<()> {
        let (id, plan) = (id.into(), plan.into());
        self.checked(&id, &plan)?;
        let mut document = doc! { "_id": id.clone() };
        document.extend(plan.to_document(self.fields())?);
        document.insert(&self.fields().state, State::Initial.name());
        document.insert(&self.fields().last_modified, self.sources.clock.now());
        match self.transactions.insert(&document).await? {
            Added::New => {
                self.count(Counted::TransactionBegun);
                Ok(())
            }
            Added::There if self.show(id.clone()).await?.is_some_and(|there| there.plan == Ok(plan)) => Ok(()),
            Added::There => Err(Error::invalid(format!("another transaction has the id {id}"))),
        }
    }

    /// Returns a transaction as its document stores it.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a transaction.
    pub async fn show(&self, id: impl Into<Bson>) -> Result<Option<Record>> {
        let found = self.transactions.find_one(&doc! { "_id": id.into() }).await?;
        found.map(|document| Record::read(&self.transactions, &document, self.fields())).transpose()
    }

    /// Returns the transactions in a state, those first that reached it first.
    ///
    /// # Errors
    /// As [`TwoPhase::show`].
    pub async fn list(&self, state: State, limit: u32) -> Result<Vec<Record>> {
        self.list_each(state, limit).await?.into_iter().collect()
    }

    /// Lists as [`TwoPhase::list`], with an error for each document that is not a transaction.
    pub async fn list_each(&self, state: State, limit: u32) -> Result<Vec<Result<Record>>> {
        let Fields { state: field, last_modified, .. } = self.fields();
        let found = self.transactions.find(&doc! { field: state.name() }, &doc! { last_modified: 1 }, limit).await?;
        Ok(found.iter().map(|document| Record::read(&self.transactions, document, self.fields())).collect())
    }

    /// Reads a document of a participant, and whether transactions are under way in it.
    pub async fn read(&self, namespace: &Namespace, id: impl Into<Bson>) -> Result<Option<ParticipantDocument>> {
        let found = self.transactions.at(namespace.clone()).find_one(&doc! { "_id": id.into() }).await?;
        Ok(found.map(|document| match document.get_array(&self.fields().pending) {
            Ok(pending) if !pending.is_empty() => {
                ParticipantDocument::UnderWay { transactions: pending.clone(), document }
            }
            _ => ParticipantDocument::Settled(document),
        }))
    }

    /// Begins the transaction that takes another one back: a transfer the other way, or the inverse of each update. It can
    /// be refused like any other. Returns the plan of it. The transaction that is taken back names it, so that another one can do so
    /// only after this one was canceled; to compensate again with the same id does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the transaction is not applied, if another one takes it back, or if its plan cannot be reversed.
    /// [`Error::Store`]: call again with the same id.
    pub async fn compensate(&self, id: impl Into<Bson>, new_id: impl Into<Bson>) -> Result<Plan> {
        let id = id.into();
        let record = self.show(id.clone()).await?;
        let Some(record) = record.filter(|record| matches!(record.state, State::Applied | State::Done)) else {
            return Err(Error::invalid(format!("there is nothing to take back: transaction {id} is not applied")));
        };
        if record.state == State::Applied {
            // What a participant lacks cannot be taken from it.
            self.ensure_applied(&record).await?;
        }
        let (new_id, plan) = (new_id.into(), record.plan()?.clone().reversed()?);
        self.checked(&new_id, &plan)?;
        let takes_back = |other: &Record| other.plan.as_ref() == Ok(&plan);
        if self.show(new_id.clone()).await?.is_some_and(|there| !takes_back(&there)) {
            return Err(Error::invalid(format!("another transaction has the id {new_id}")));
        }
        let taken = |by: &Bson| Error::invalid(format!("transaction {id} is taken back by transaction {by} already"));
        if let Some(other) = record.compensation.as_ref().filter(|other| !same_id(other, &new_id)) {
            // One that is not there may be about to be begun.
            let is_in_the_way = |other: &Record| other.state != State::Canceled && takes_back(other);
            if self.show(other.clone()).await?.as_ref().is_none_or(is_in_the_way) {
                return Err(taken(other));
            }
        }
        let (filter, update) = requests::compensate(self.fields(), &record, &new_id);
        if !self.transactions.update_one(&filter, &update).await? {
            return Err(match self.show(id.clone()).await?.and_then(|record| record.compensation) {
                Some(other) => taken(&other),
                None => Error::invalid(format!("transaction {id} is gone")),
            });
        }
        self.begin(new_id, plan.clone()).await?;
        Ok(plan)
    }

    /// Removes transactions (at most `batch`) that have been over for at least `age`, which must be longer than any
    /// request can be under way.
    ///
    /// # Errors
    /// [`Error::Store`]: the transactions that were removed before it stay removed.
    pub async fn purge(&self, age: Duration, batch: u32) -> Result<Round> {
        let Fields { state, last_modified, .. } = self.fields();
        let over: Vec<_> = State::ALL.into_iter().filter(|state| state.is_final()).map(State::name).collect();
        let old = doc! { state: { "$in": over }, last_modified: { "$lt": self.ago(age) } };
        let found = self.transactions.find(&old, &doc! { last_modified: 1 }, batch).await?;
        let mut round = Round { more: found.len() as u64 >= u64::from(batch), ..Round::default() };
        for document in found {
            // Another one may have its id by now, which is not over.
            let mut filter = old.clone();
            filter.insert("_id", document.get("_id").cloned().unwrap_or(Bson::Null));
            round.done += u64::from(self.transactions.delete_one(&filter).await?);
        }
        Ok(round)
    }

    /// Purges in the background.
    ///
    /// # Errors
    /// As [`Runner::spawn`].
    pub fn spawn_purge(&self, age: Duration, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let two_phase = self.clone();
        Runner::spawn("two_phase.purge", &self.sources, options, cancel, move |batch| {
            let two_phase = two_phase.clone();
            async move { two_phase.purge(age, batch).await }
        })
    }

    /// The participants of a plan all of whose requests can be made.
    fn checked(&self, id: &Bson, plan: &Plan) -> Result<Vec<Participant>> {
        let participants = plan.participants(&self.options)?;
        for participant in &participants {
            requests::apply(self.fields(), id, participant)?;
            requests::undo(self.fields(), id, participant, self.options.finished_max)?;
            requests::release(self.fields(), id, participant, self.options.finished_max)?;
        }
        Ok(participants)
    }

    /// Something happened to a transaction.
    fn count(&self, event: Counted) {
        metrics::count(event, self.transactions.namespace(), 1);
    }

    fn fields(&self) -> &Fields {
        &self.options.fields
    }

    fn application(&self) -> &str {
        &self.options.application
    }

    /// All collections that participants may be in, also by the settings of before.
    fn collections(&self) -> impl Iterator<Item = &Namespace> {
        let all = self.revisions.all();
        let collections = all.flat_map(|options| options.participants.iter().chain([&options.accounts.namespace]));
        collections.collect::<BTreeSet<_>>().into_iter()
    }

    /// Participants that transactions are under way in.
    fn under_way(&self) -> Document {
        doc! { format!("{}.0", self.fields().pending): { "$exists": true } }
    }

    fn ago(&self, age: Duration) -> bson::DateTime {
        crate::value::before(self.sources.clock.now(), age)
    }
}
