//! Two-phase commit: several documents change together, each in its own step, and any process can continue after a
//! crash.
//!
//! The plan is stored first, as a document of its own. Then one step after the other is made, and each leaves a mark
//! that shows every process how far the transaction is. The transfer of the seed, 100 from A to B:
//!
//! ```text
//!                  transactions                            A                       B
//! begin     1  insert {_id: 1, state: initial, ..}         1000                    1000
//! claim     2  initial -> pending, application: me
//! apply     3                                              900, pending: [1]
//!           4                                                                      1100, pending: [1]
//!           5  pending -> applied           (from here on it cannot be rolled back)
//! release   6                                              900, pending: []
//!           7                                                                      1100, pending: []
//!           8  applied -> done
//! ```
//!
//! Until step 5 the transaction can be rolled back: pending -> canceling, then the inverse update for each participant
//! that has the id, then canceling -> canceled. A participant that was never changed only gets the id as that of a
//! finished transaction: a process that does not know of the rollback yet then cannot make the update any more.
//!
//! **There is no isolation.** Other processes see 900 and 1000 between steps 3 and 4. [`TwoPhase::read`] returns
//! whether transactions are under way in a document. If you need isolation, use a transaction of the store.
//!
//! # Failures and their effects
//!
//! | at | what happens |
//! | --- | --- |
//! | a process dies, anywhere | [`TwoPhase::recover`] finds the transaction after a while, takes it over, and continues |
//! | an answer is lost | each step is safe to repeat: its filter does not match a second time |
//! | a guard does not hold, a participant is missing or its update is refused | the transaction is rolled back, with the reason |
//! | two processes work on one transaction | states only go forward, and each step is made once; a process that finds another state than it expected reads again |
//! | a copy of an `apply` arrives after the release | the participant remembers the ids of finished transactions |
//! | the same after the participant has forgotten the id | the participant has the id of a finished transaction: [`TwoPhase::repair`] finds that and takes the update back |
//! | a process cancels a transaction that another one carries out | the rollback keeps each participant without the update from getting it |
//! | a participant lacks the update of an applied transaction, or is gone | another program has changed it: a process that takes the transaction over does not finish it, and [`TwoPhase::verify`] names the participant |
//! | another process has other settings | it is refused: the settings are recorded in the store ([`TwoPhaseOptions::recorded`]) |
//!
//! Only steps 3 and 4 make the participants' updates, and each of them writes its mark in the same step. So the marks
//! are always right, and the result does not depend on clocks: the threshold of the recovery only keeps it from doing
//! the work of a process that is about to do it.
//!
//! Source: seed 1 (two-phase commit), seed 0 (solution 3). Our additions: the ids of finished transactions, without
//! which a late copy of step 3 is applied twice; the same for participants that a rollback finds unchanged; and the
//! recovery of `canceling`.

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
mod sharing;
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
use crate::steps::{Added, Request, Steps, raw};
use crate::value::{equal, same_id};
use crate::{CancellationToken, Error, Result, Round, Runner, RunnerOptions};

/// The end of a transaction, as far as this process knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum TwoPhaseOutcome {
    /// Every participant has its update.
    Done,
    /// No participant has its update.
    Canceled {
        /// The reason.
        reason: String,
    },
    /// Another application has taken it over, and will finish it.
    TakenOver {
        /// The name of the application; `None` if the document has none.
        by: Option<String>,
    },
    /// There is no transaction with this id.
    Missing,
}

/// The result of [`TwoPhase::cancel`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cancel {
    /// No participant has its update.
    Canceled,
    /// All participants have their updates. [`TwoPhase::compensate`] begins a transaction that takes them back.
    TooLate,
    /// Another application carries it out, and will finish it.
    TakenOver,
    /// There is no transaction with this id.
    Missing,
}

/// A document of a participant, and whether transactions are under way in it.
#[derive(Clone, Debug, PartialEq)]
pub enum ParticipantDocument {
    /// No transaction is under way in it.
    Settled(Document),
    /// The document may have an update that will be taken back, and others of the same transaction may not have
    /// theirs.
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
/// use handfast_patterns::two_phase::{TwoPhaseOutcome, Transfer, TwoPhase, TwoPhaseOptions};
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
/// let transfers = TwoPhase::open_with(store.clone(), transactions, sources, options).await?;
/// transfers.begin(1, Transfer::new("A", "B", 100)).await?;
/// assert_eq!(transfers.run(1).await?, TwoPhaseOutcome::Done);
/// transfers.begin(2, Transfer::new("A", "B", 901)).await?;
/// assert!(matches!(transfers.run(2).await?, TwoPhaseOutcome::Canceled { .. }), "A has 900");
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
    /// Opens the transactions of a collection; records the settings if none are recorded, and creates the indexes on
    /// states and on the participants that have transactions under way.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if other settings are recorded ([`TwoPhaseOptions::recorded`],
    /// [`TwoPhase::change_settings`]). [`Error::Invalid`] for options without a name of the application, or with a
    /// `finished_max` of 0, and if other transactions change documents of the same collections.
    pub async fn open(
        store: Arc<dyn DocumentStore>,
        transactions: Namespace,
        options: TwoPhaseOptions,
    ) -> Result<Self> {
        TwoPhase::open_with(store, transactions, Sources::system()?, options).await
    }

    /// Opens it with other sources of time, randomness and ids, for tests that can be repeated.
    ///
    /// # Errors
    /// Returns the errors of [`TwoPhase::open`].
    pub async fn open_with(
        store: Arc<dyn DocumentStore>,
        transactions: Namespace,
        sources: Sources,
        options: TwoPhaseOptions,
    ) -> Result<Self> {
        let two_phase = TwoPhase::with_settings(Steps::new(store, transactions), sources, options, true).await?;
        two_phase.create_indexes().await?;
        Ok(two_phase)
    }

    /// Opens the transactions to read them. It records no settings and creates no indexes.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if other settings are recorded. [`Error::Invalid`] for options without a name of the
    /// application, or with a `finished_max` of 0.
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

    /// Returns the same pattern on another store. In an open transaction of the store only [`TwoPhase::begin`] is
    /// useful: the two-phase transaction is stored if and only if the other one commits.
    #[must_use]
    pub fn within(&self, store: Arc<dyn DocumentStore>) -> Self {
        TwoPhase { transactions: self.transactions.on(store), ..self.clone() }
    }

    /// Returns the same pattern under another name of the application, which takes over transactions that were left
    /// under way for this time. One process may so work for several applications.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty name.
    pub fn for_application(&self, application: impl Into<String>, abandoned_after: Duration) -> Result<Self> {
        let options = TwoPhaseOptions { application: application.into(), abandoned_after, ..(*self.options).clone() };
        options.check()?;
        Ok(TwoPhase { options: Arc::new(options), ..self.clone() })
    }

    /// Stores a transaction. Its id is the caller's: beginning it again with the same id and the same plan does
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a plan that cannot be carried out, and if another transaction has this id.
    ///
    /// # Cancellation
    /// The transaction may have been stored: begin it again with the same id.
    pub async fn begin(&self, id: impl Into<Bson>, plan: impl Into<Plan>) -> Result<()> {
        self.begin_or_compensate(id.into(), plan.into(), None).await
    }

    /// Stores a transaction. With `compensates` it takes back the transaction with that id.
    async fn begin_or_compensate(&self, id: Bson, plan: Plan, compensates: Option<Bson>) -> Result<()> {
        self.checked(&id, &plan)?;
        plan.check_operators()?;
        let mut document = doc! { "_id": id.clone() };
        document.extend(plan.to_document(self.fields())?);
        if let Some(compensated) = &compensates {
            document.insert(&self.fields().compensates, compensated.clone());
        }
        document.insert(&self.fields().state, State::Initial.name());
        document.insert(&self.fields().last_modified, self.sources.clock.now());
        match self.transactions.insert(&document).await? {
            Added::New => {
                self.count(Counted::TransactionBegun);
                Ok(())
            }
            Added::There => match self.show(id.clone()).await? {
                Some(there) if there.plan == Ok(plan) && is_same(&there.compensates, &compensates) => Ok(()),
                _ => Err(Error::invalid(format!("another transaction has the id {id}"))),
            },
        }
    }

    /// Returns a transaction; `None` if there is none with this id.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a transaction.
    pub async fn show(&self, id: impl Into<Bson>) -> Result<Option<Record>> {
        let found = self.transactions.find_one(&doc! { "_id": equal(&id.into()) }).await?;
        found.map(|document| Record::read(&self.transactions, &document, self.fields())).transpose()
    }

    /// Returns the transactions in a state, those that reached it first at the front.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a transaction.
    pub async fn list(&self, state: State, limit: u32) -> Result<Vec<Record>> {
        self.list_each(state, limit).await?.into_iter().collect()
    }

    /// Returns the transactions in a state as [`TwoPhase::list`] does, with an error in the place of each document
    /// that is not a transaction.
    pub async fn list_each(&self, state: State, limit: u32) -> Result<Vec<Result<Record>>> {
        let Fields { state: field, last_modified, .. } = self.fields();
        let found = self.transactions.find(&doc! { field: state.name() }, &doc! { last_modified: 1 }, limit).await?;
        Ok(found.iter().map(|document| Record::read(&self.transactions, document, self.fields())).collect())
    }

    /// Returns a document of a participant, and whether transactions are under way in it.
    pub async fn read(&self, namespace: &Namespace, id: impl Into<Bson>) -> Result<Option<ParticipantDocument>> {
        let found = self.transactions.at(namespace.clone()).find_one(&doc! { "_id": equal(&id.into()) }).await?;
        Ok(found.map(|document| match document.get_array(&self.fields().pending) {
            Ok(pending) if !pending.is_empty() => {
                ParticipantDocument::UnderWay { transactions: pending.clone(), document }
            }
            _ => ParticipantDocument::Settled(document),
        }))
    }

    /// Begins a transaction that takes another one back, by a transfer in the other direction or the inverse of each
    /// update, and returns its plan. It can be refused like any other. The transaction that is taken back names it, so
    /// that a further one can take its place only after this one was canceled. Compensating again with the same id
    /// does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the transaction is not applied, if another one takes it back, or if its plan cannot be
    /// reversed. [`Error::Store`] if the store fails: call again with the same id.
    pub async fn compensate(&self, id: impl Into<Bson>, new_id: impl Into<Bson>) -> Result<Plan> {
        let id = id.into();
        let record = self.show(id.clone()).await?;
        let Some(record) = record.filter(|record| matches!(record.state, State::Applied | State::Done)) else {
            return Err(Error::invalid(format!("there is nothing to take back: transaction {id} is not applied")));
        };
        if record.state == State::Applied {
            // An update that a participant lacks cannot be taken back.
            self.ensure_applied(&record).await?;
        }
        let (new_id, plan) = (new_id.into(), record.plan()?.clone().reversed()?);
        self.checked(&new_id, &plan)?;
        plan.check_operators()?;
        let compensates = Some(id.clone());
        // One that is there may take another one back, or none.
        if self.show(new_id.clone()).await?.is_some_and(|there| !is_same(&there.compensates, &compensates)) {
            return Err(Error::invalid(format!("another transaction has the id {new_id}")));
        }
        let taken = |by: &Bson| Error::invalid(format!("transaction {id} is taken back by transaction {by} already"));
        if let Some(other) = record.compensation.as_ref().filter(|other| !same_id(other, &new_id)) {
            let takes_back = |other: &Record| match &other.compensates {
                Some(compensated) => same_id(compensated, &id),
                // An earlier version did not record which one it takes back.
                None => other.plan.as_ref() == Ok(&plan),
            };
            // A transaction that does not exist yet may be about to begin.
            let is_in_the_way = |other: &Record| other.state != State::Canceled && takes_back(other);
            if self.show(other.clone()).await?.as_ref().is_none_or(is_in_the_way) {
                return Err(taken(other));
            }
        }
        let Request { filter, update } = requests::compensate(self.fields(), &record, &new_id);
        if !self.transactions.update_one(&filter, &update).await? {
            return Err(match self.show(id.clone()).await?.and_then(|record| record.compensation) {
                Some(other) => taken(&other),
                None => Error::invalid(format!("transaction {id} is gone")),
            });
        }
        self.begin_or_compensate(new_id, plan.clone(), compensates).await?;
        Ok(plan)
    }

    /// Removes transactions (at most `batch`) that have been over for at least `age`, which must be longer than any
    /// request can be under way.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the transactions that were removed before stay removed.
    pub async fn purge(&self, age: Duration, batch: u32) -> Result<Round> {
        let Fields { state, last_modified, .. } = self.fields();
        let over: Vec<_> = State::ALL.into_iter().filter(|state| state.is_final()).map(State::name).collect();
        let old = doc! { state: { "$in": over }, last_modified: { "$lt": self.ago(age) } };
        let found = self.transactions.find(&old, &doc! { last_modified: 1 }, batch).await?;
        let mut round = Round { more: found.len() as u64 >= u64::from(batch), ..Round::default() };
        for document in found {
            // Another transaction, which is not finished, may have its id by now.
            let mut filter = old.clone();
            filter.insert("_id", document.get("_id").cloned().unwrap_or(Bson::Null));
            round.done += u64::from(self.transactions.delete_one(&filter).await?);
        }
        Ok(round)
    }

    /// Runs [`TwoPhase::purge`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_purge(&self, age: Duration, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let two_phase = self.clone();
        Runner::spawn("two_phase.purge", &self.sources, options, cancel, move |batch| {
            let two_phase = two_phase.clone();
            async move { two_phase.purge(age, batch).await }
        })
    }

    /// Returns the participants of a plan, after a check that all of its requests can be made.
    fn checked(&self, id: &Bson, plan: &Plan) -> Result<Vec<Participant>> {
        let participants = plan.participants(&self.options)?;
        for participant in &participants {
            requests::apply(self.fields(), id, participant)?;
            requests::undo(self.fields(), id, participant, self.options.finished_max)?;
            requests::release(self.fields(), id, participant, self.options.finished_max)?;
        }
        Ok(participants)
    }

    /// Counts an event that happened to a transaction.
    fn count(&self, event: Counted) {
        metrics::count(event, self.transactions.namespace(), 1);
    }

    fn fields(&self) -> &Fields {
        &self.options.fields
    }

    fn application(&self) -> &str {
        &self.options.application
    }

    /// Returns all collections that may have participants, including those of earlier settings.
    pub fn collections(&self) -> impl Iterator<Item = &Namespace> {
        let all = self.revisions.all();
        let collections = all.flat_map(|options| options.participants.iter().chain([&options.accounts.namespace]));
        collections.collect::<BTreeSet<_>>().into_iter()
    }

    /// Matches participants that have transactions under way.
    fn under_way(&self) -> Document {
        doc! { format!("{}.0", self.fields().pending): { "$exists": true } }
    }

    fn ago(&self, age: Duration) -> bson::DateTime {
        crate::value::before(self.sources.clock.now(), age)
    }
}

/// Returns whether both are the same id, or none.
fn is_same(one: &Option<Bson>, other: &Option<Bson>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => same_id(one, other),
        (None, None) => true,
        _ => false,
    }
}
