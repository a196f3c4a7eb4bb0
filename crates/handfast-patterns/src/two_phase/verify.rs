//! Looking at everything: how many transactions are where, and whether participants carry what transactions say.

use std::fmt;
use std::time::Duration;

use bson::{Bson, DateTime, doc};
use handfast_store::Namespace;

use super::unread::unreadable;
use super::{Participant, Record, Remedy, State, TwoPhase, requests};
use crate::metrics::{self, Level};
use crate::steps::Steps;
use crate::{CancellationToken, Findings, Result, Runner, RunnerOptions};

/// Transactions in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCount {
    /// The state.
    pub state: State,
    /// How many.
    pub count: u64,
    /// How long ago the one came there that came first.
    pub oldest: Option<Duration>,
}

/// How the transactions are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoPhaseStatus {
    /// Each state, in the order of [`State::ALL`].
    pub states: Vec<StateCount>,
    /// Transactions under way that [`TwoPhase::recover`] takes: they were left alone for
    /// [`abandoned_after`](super::TwoPhaseOptions::abandoned_after), or their date is further ahead than that.
    pub abandoned: u64,
}

/// A participant that is not as its transaction says.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// It carries the id of a transaction that is over.
    Over {
        /// The collection of the participant.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The `_id` of the transaction.
        transaction: Bson,
        /// The collection of the transaction.
        state: State,
        /// The remedy.
        remedy: Remedy,
    },
    /// It has the update of a transaction that is not there: one that was removed too early, or that is kept elsewhere.
    Unknown {
        /// The collection of the participant.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The `_id` of the transaction.
        transaction: Bson,
    },
    /// It does not have the update of a transaction that is applied, or is not there: another program has changed it. A process
    /// that takes the transaction over does not finish it.
    Lacking {
        /// The collection of the participant.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The `_id` of the transaction.
        transaction: Bson,
    },
    /// Its field for credits or debits under way is not what the transactions add up to that are under way in it: somebody else has
    /// changed it, or finished a transaction without knowing of the field.
    Pending {
        /// The collection of the account.
        namespace: Namespace,
        /// Its `_id`.
        account: Bson,
        /// The field.
        field: String,
        /// Its value; none if it has no such field.
        found: Option<Bson>,
        /// The sum of the transfers under way.
        expected: i64,
    },
    /// A transaction cannot be carried out, nor its participants be checked: another program has written into it.
    Unreadable {
        /// The collection of the transaction.
        namespace: Namespace,
        /// Its `_id`.
        transaction: Bson,
        /// Describes the error, for people.
        what: String,
    },
    /// A field of a participant has a value that is not of its type: another program has changed it.
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
    /// No account has fields that the settings name, by which transfers have been made: the record of the settings is not what they
    /// were made by.
    NoSuchField {
        /// The collection of the accounts.
        namespace: Namespace,
        /// The fields, each of which would do.
        fields: Vec<String>,
    },
    /// A transaction has none of the states: another program has written it, and no recovery looks at it.
    UnknownState {
        /// The collection of the transaction.
        namespace: Namespace,
        /// The `_id` of the transaction.
        transaction: Bson,
        /// Its state; none if it has no such field.
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
                    "{namespace} {transaction} has {found}, which is none of a transaction: nobody carries it out"
                )
            }
            Finding::Over { namespace, participant, transaction, state, remedy } => {
                write!(f, "{namespace} {participant} carries the id of transaction {transaction}, which is {state}: ")?;
                f.write_str(match remedy {
                    Remedy::TakeBack => "its update is in once too often",
                    Remedy::Release => "it was not released",
                    Remedy::Unclear => {
                        "nobody can tell whether its update is in, as it has the id among the finished ones, too"
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
    /// Participants that transactions are under way in.
    pub participants: u64,
    /// Transactions that are applied and not done.
    pub applied: u64,
    /// Accounts with credits or debits under way, if they have fields for those.
    pub accounts: u64,
    /// The inconsistencies.
    pub findings: Findings<Finding>,
}

impl Verified {
    /// Returns whether everything is as it must be.
    pub fn is_clean(&self) -> bool {
        self.findings.count() == 0
    }

    pub(super) fn found(&mut self, finding: Finding) {
        self.findings.keep(finding);
    }

    /// Keeps what may be found on several ways.
    pub(super) fn found_once(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.found(finding);
        }
    }
}

impl TwoPhase {
    /// Returns how many transactions are in which state.
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

    /// Looks at the status in the background, for the gauges of [`metrics`].
    ///
    /// # Errors
    /// As [`Runner::spawn`].
    pub fn spawn_status(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let two_phase = self.clone();
        Runner::spawn_look("two_phase.status", &self.sources, options, cancel, move || {
            let two_phase = two_phase.clone();
            async move { two_phase.status().await }
        })
    }

    /// Looks at all participants that transactions are under way in, at all transactions that are under way or have a state that is none, and
    /// at the accounts' fields of what is under way, `page` at a time, and tells after each page what has been verified so far; and at the
    /// types of participants' fields. Nothing is changed. It may run at any time: what is found is looked at a second time. A
    /// document that cannot be read is a finding.
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

    /// Every transaction is in one of the states.
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

    /// A transaction is over only after its participants were released, and begins before they are touched: so a mark that is still
    /// there after that was seen should not be.
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
        let marked = doc! { "_id": participant.clone(), &self.fields().pending: transaction.clone() };
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

    /// The participants that lack the update of an applied transaction. Each has it, or has had it, and remembers that unless it has
    /// forgotten the oldest ones.
    pub(super) async fn lacking(&self, record: &Record) -> Result<Vec<Finding>> {
        let fields = self.fields();
        let full = format!("{}.{}", fields.finished, self.remembered_min().saturating_sub(1));
        let (id, mut lacking) = (&record.id, Vec::new());
        for Participant { namespace, id: participant, .. } in self.participants(record)? {
            let has_it = doc! {
                "_id": participant.clone(),
                "$or": [{ &fields.pending: id.clone() }, { &fields.finished: id.clone() }, { &full: { "$exists": true } }],
            };
            if self.transactions.at(namespace.clone()).find_one(&has_it).await?.is_none() {
                lacking.push(Finding::Lacking { namespace, participant, transaction: id.clone() });
            }
        }
        // Who works on it may have finished it meanwhile, and participants may have gone after that.
        let is_applied =
            lacking.is_empty() || self.show(id.clone()).await?.is_some_and(|now| now.state == record.state);
        Ok(if is_applied { lacking } else { Vec::new() })
    }
}
