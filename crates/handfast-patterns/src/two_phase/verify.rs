//! The verification: counts of the transactions by state, and a comparison of the participants with the transactions.

use std::fmt;
use std::time::Duration;

use bson::{Bson, DateTime, doc};
use handfast_store::Namespace;

use super::unread::unreadable;
use super::{Participant, Record, Remedy, State, TwoPhase, requests};
use crate::metrics::{self, Level};
use crate::steps::Steps;
use crate::value::equal;
use crate::{CancellationToken, Findings, Result, Runner, RunnerOptions};

/// The number of transactions in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCount {
    /// The state.
    pub state: State,
    /// The number.
    pub count: u64,
    /// The age of the one that reached the state first.
    pub oldest: Option<Duration>,
}

/// The counts of the transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoPhaseStatus {
    /// The counts of all states, in the order of [`State::ALL`].
    pub states: Vec<StateCount>,
    /// Transactions under way that [`TwoPhase::recover`] takes over: they were left for
    /// [`abandoned_after`](super::TwoPhaseOptions::abandoned_after), or their date is further ahead than that.
    pub abandoned: u64,
}

/// A participant or a transaction that is not as it must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// A participant has the id of a finished transaction.
    Over {
        /// The collection of the participant.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The `_id` of the transaction.
        transaction: Bson,
        /// The state of the transaction.
        state: State,
        /// The remedy.
        remedy: Remedy,
    },
    /// A participant has the update of a transaction that does not exist: it was removed too early, or is kept
    /// elsewhere.
    Unknown {
        /// The collection of the participant.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The `_id` of the transaction.
        transaction: Bson,
    },
    /// A participant lacks the update of an applied transaction, or does not exist, because another program has
    /// changed it. A process that takes the transaction over does not finish it.
    Lacking {
        /// The collection of the participant.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The `_id` of the transaction.
        transaction: Bson,
    },
    /// A field for amounts under way is not the sum of the transfers that are under way in the account: another
    /// program has changed it, or finished a transaction without knowing of the field.
    Pending {
        /// The collection of the account.
        namespace: Namespace,
        /// Its `_id`.
        account: Bson,
        /// The field.
        field: String,
        /// Its value; `None` if the field is missing.
        found: Option<Bson>,
        /// The sum of the transfers under way.
        expected: i64,
    },
    /// A transaction cannot be carried out, and its participants cannot be checked, because another program has
    /// changed it.
    Unreadable {
        /// The collection of the transaction.
        namespace: Namespace,
        /// Its `_id`.
        transaction: Bson,
        /// Describes the error, for people.
        what: String,
    },
    /// A field of a participant has a value of a wrong type, because another program has changed it.
    WrongType {
        /// The collection of the participant.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The field.
        field: String,
        /// Its value.
        found: Bson,
    },
    /// No account has the fields that the settings name, although transfers were made by these settings: the transfers
    /// were made by other settings than the recorded ones.
    NoSuchField {
        /// The collection of the accounts.
        namespace: Namespace,
        /// The fields, one of which an account should have.
        fields: Vec<String>,
    },
    /// A transaction has none of the states: another program has written it, and no recovery takes it.
    UnknownState {
        /// The collection of the transaction.
        namespace: Namespace,
        /// The `_id` of the transaction.
        transaction: Bson,
        /// Its state; `None` if the field is missing.
        found: Option<Bson>,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::UnknownState { namespace, transaction, found } => {
                let found = found.as_ref().map_or_else(|| "no state".to_owned(), |found| format!("the state {found}"));
                write!(
                    f,
                    "{namespace} {transaction} has {found}, which is not a state of a transaction, so no process runs it"
                )
            }
            Finding::Over { namespace, participant, transaction, state, remedy } => {
                write!(f, "{namespace} {participant} carries the id of transaction {transaction}, which is {state}: ")?;
                f.write_str(match remedy {
                    Remedy::TakeBack => "its update is in once too often",
                    Remedy::Release => "it was not released",
                    Remedy::Unclear => {
                        "it is unknown whether its update is in, as the id is among the finished ones, too"
                    }
                })
            }
            Finding::Unknown { namespace, participant, transaction } => {
                write!(f, "{namespace} {participant} has the update of transaction {transaction}, which is not there")
            }
            Finding::Lacking { namespace, participant, transaction } => {
                write!(
                    f,
                    "{namespace} {participant} is not there, or lacks the update of transaction {transaction}, which is applied"
                )
            }
            Finding::Unreadable { namespace, transaction, what } => {
                write!(f, "{namespace} {transaction} is not what this pattern writes: {what}")
            }
            Finding::WrongType { namespace, participant, field, found } => {
                write!(f, "{namespace} {participant} has {found} in {field}, which is of another type")
            }
            Finding::NoSuchField { namespace, fields } => write!(
                f,
                "no document of {namespace} has {}, which the settings name by which transfers have been made",
                fields.join(" or ")
            ),
            Finding::Pending { namespace, account, field, found, expected } => {
                let found = found.as_ref().map_or_else(|| "no value".to_owned(), ToString::to_string);
                write!(
                    f,
                    "{namespace} {account} has {found} in {field}, and the transfers under way in it add up to {expected}"
                )
            }
        }
    }
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Participants that have transactions under way.
    pub participants: u64,
    /// Transactions that are applied and not done.
    pub applied: u64,
    /// Accounts with amounts under way, if they have fields for those.
    pub accounts: u64,
    /// The inconsistencies.
    pub findings: Findings<Finding>,
}

impl Verified {
    /// Returns whether there are no findings.
    pub fn is_clean(&self) -> bool {
        self.findings.count() == 0
    }

    pub(super) fn found(&mut self, finding: Finding) {
        self.findings.keep(finding);
    }

    /// Keeps a finding that may be found in several ways.
    pub(super) fn found_once(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.found(finding);
        }
    }
}

impl TwoPhase {
    /// Returns the number of transactions in each state, and sets the gauges of [`metrics`] to them.
    pub async fn status(&self) -> Result<TwoPhaseStatus> {
        let (fields, now) = (self.fields(), self.sources.clock.now());
        let mut states = Vec::with_capacity(State::ALL.len());
        for state in State::ALL {
            let count = self.transactions.count(&doc! { &fields.state: state.name() }).await?;
            let (in_state, in_order) = (doc! { &fields.state: state.name() }, doc! { &fields.last_modified: 1 });
            let first = self.transactions.find(&in_state, &in_order, 1).await?;
            let since = first.first().and_then(|first| first.get_datetime(&fields.last_modified).ok());
            let age = |since: &DateTime| now.timestamp_millis().saturating_sub(since.timestamp_millis());
            let oldest = since.map(|since| Duration::from_millis(u64::try_from(age(since)).unwrap_or(0)));
            states.push(StateCount { state, count, oldest });
        }
        let abandoned = requests::abandoned(fields, now, self.options.abandoned_after);
        let status = TwoPhaseStatus { states, abandoned: self.transactions.count_any(&abandoned).await? };
        for StateCount { state, count, .. } in &status.states {
            metrics::level(Level::Transactions(state.name()), self.transactions.namespace(), *count as f64);
        }
        metrics::level(Level::Abandoned, self.transactions.namespace(), status.abandoned as f64);
        Ok(status)
    }

    /// Reads the status regularly in the background, for the gauges of [`metrics`].
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for options that are out of range.
    pub fn spawn_status(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let two_phase = self.clone();
        Runner::spawn_look("two_phase.status", &self.sources, options, cancel, move || {
            let two_phase = two_phase.clone();
            async move { two_phase.status().await }
        })
    }

    /// Verifies all participants with transactions under way, all transactions that are under way or in an unknown
    /// state, the accounts' fields for amounts under way, and the types of participants' fields, `page` documents at a
    /// time. After each page it calls `tell` with the result so far. Nothing is changed. It may run at any time: each
    /// finding is read a second time. A document that cannot be read is a finding.
    pub async fn verify(&self, page: u32, tell: impl Fn(&Verified)) -> Result<Verified> {
        let mut verified = Verified::default();
        for namespace in self.collections() {
            let documents = self.transactions.at(namespace.clone());
            let mut pages = documents.pages(&self.under_way(), page).await?;
            while let Some(found) = pages.next().await? {
                for document in found {
                    verified.participants += 1;
                    let participant = document.get("_id").cloned().unwrap_or(Bson::Null);
                    for transaction in self.pending(&document) {
                        self.verify_mark(&documents, &participant, transaction, &mut verified).await?;
                    }
                }
                tell(&verified);
            }
        }
        self.verify_under_way(page, &tell, &mut verified).await?;
        self.verify_states(page, &mut verified).await?;
        self.verify_pending(page, &tell, &mut verified).await?;
        self.verify_lists(page, &mut verified).await?;
        self.verify_accounts(page, &mut verified).await?;
        Ok(verified)
    }

    /// Reports transactions in an unknown state.
    async fn verify_states(&self, page: u32, verified: &mut Verified) -> Result<()> {
        let known: Vec<_> = State::ALL.into_iter().map(State::name).collect();
        let unknown = doc! { &self.fields().state: { "$nin": known } };
        let mut pages = self.transactions.pages(&unknown, page).await?;
        while let Some(found) = pages.next().await? {
            for document in found {
                verified.found(Finding::UnknownState {
                    namespace: self.transactions.namespace().clone(),
                    transaction: document.get("_id").cloned().unwrap_or(Bson::Null),
                    found: document.get(&self.fields().state).cloned(),
                });
            }
        }
        Ok(())
    }

    /// Verifies the id of a transaction in a participant. A transaction ends only after its participants were
    /// released, and begins before they are changed. So an id that is still there after the transaction was seen to be
    /// finished or missing is wrong.
    async fn verify_mark(
        &self,
        documents: &Steps,
        participant: &Bson,
        transaction: &Bson,
        verified: &mut Verified,
    ) -> Result<()> {
        let record = match unreadable(self.show(transaction.clone()).await)? {
            Ok(record) => record,
            Err(what) => {
                self.found_unreadable(transaction, what, verified);
                return Ok(());
            }
        };
        if record.as_ref().is_some_and(|record| !record.state.is_final()) {
            return Ok(());
        }
        let marked = doc! { "_id": equal(participant), &self.fields().pending: equal(transaction) };
        let Some(marked) = documents.find_one(&marked).await? else { return Ok(()) };
        let (namespace, participant, transaction) =
            (documents.namespace().clone(), participant.clone(), transaction.clone());
        verified.found(match record {
            Some(Record { state, .. }) => {
                let remedy = self.remedy(&marked, &transaction, state);
                Finding::Over { namespace, participant, transaction, state, remedy }
            }
            None => Finding::Unknown { namespace, participant, transaction },
        });
        Ok(())
    }

    /// Returns the participants that lack the update of an applied transaction. Each has its id, or has had it and
    /// keeps it in the finished ones, unless it has forgotten the oldest of these.
    pub(super) async fn lacking(&self, record: &Record) -> Result<Vec<Finding>> {
        let fields = self.fields();
        let full = format!("{}.{}", fields.finished, self.remembered_min().saturating_sub(1));
        let (id, mut lacking) = (&record.id, Vec::new());
        for Participant { namespace, id: participant, .. } in self.participants(record)? {
            let has_it = doc! {
                "_id": equal(&participant),
                "$or": [{ &fields.pending: equal(id) }, { &fields.finished: equal(id) }, { &full: { "$exists": true } }],
            };
            if self.transactions.at(namespace.clone()).find_one(&has_it).await?.is_none() {
                lacking.push(Finding::Lacking { namespace, participant, transaction: id.clone() });
            }
        }
        // The process that works on it may have finished it meanwhile, after which participants may have been deleted.
        let is_applied =
            lacking.is_empty() || self.show(id.clone()).await?.is_some_and(|now| now.state == record.state);
        Ok(if is_applied { lacking } else { Vec::new() })
    }
}
