//! Looking at everything: how many transactions are where, and whether participants carry what transactions say.

use std::fmt;
use std::time::Duration;

use bson::{Bson, doc};
use handfast_store::Namespace;

use super::{Record, Remedy, State, TwoPhase, requests};
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
    /// Those under way that were left alone for longer than [`abandoned_after`](super::TwoPhaseOptions::abandoned_after).
    pub abandoned: u64,
}

/// A participant that is not as its transaction says.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// It carries the id of a transaction that is over.
    Over {
        /// Where the participant is.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The `_id` of the transaction.
        transaction: Bson,
        /// Where the transaction is.
        state: State,
        /// What can be done about it.
        remedy: Remedy,
    },
    /// It has the update of a transaction that is not there: one that was removed too early, or that is kept elsewhere.
    Unknown {
        /// Where the participant is.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The `_id` of the transaction.
        transaction: Bson,
    },
    /// It does not have the update of a transaction that is applied: somebody else has changed it.
    Lacking {
        /// Where the participant is.
        namespace: Namespace,
        /// Its `_id`.
        participant: Bson,
        /// The `_id` of the transaction.
        transaction: Bson,
    },
    /// Its field for credits or debits under way is not what the transactions add up to that are under way in it: somebody else has
    /// changed it, or finished a transaction without knowing of the field.
    Pending {
        /// Where the account is.
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
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
                write!(f, "{namespace} {participant} lacks the update of transaction {transaction}, which is applied")
            }
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

/// What was verified.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Participants that transactions are under way in.
    pub participants: u64,
    /// Transactions that are applied and not done.
    pub applied: u64,
    /// Accounts with credits or debits under way, if they have fields for those.
    pub accounts: u64,
    /// What is not as it must be.
    pub findings: Findings<Finding>,
}

impl Verified {
    /// Whether everything is as it must be.
    pub fn is_clean(&self) -> bool {
        self.findings.count() == 0
    }

    pub(super) fn found(&mut self, finding: Finding) {
        self.findings.keep(finding);
    }
}

impl TwoPhase {
    /// How many transactions are in which state.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn status(&self) -> Result<TwoPhaseStatus> {
        let (fields, now) = (self.fields(), self.sources.clock.now());
        let mut states = Vec::with_capacity(State::ALL.len());
        for state in State::ALL {
            let count = self.transactions.count(&doc! { &fields.state: state.name() }).await?;
            let oldest = self.list(state, 1).await?;
            let age = |record: &Record| now.timestamp_millis().saturating_sub(record.last_modified.timestamp_millis());
            let oldest = oldest.first().map(|first| Duration::from_millis(u64::try_from(age(first)).unwrap_or(0)));
            states.push(StateCount { state, count, oldest });
        }
        let abandoned = requests::abandoned(fields, self.ago(self.options.abandoned_after));
        let status = TwoPhaseStatus { states, abandoned: self.transactions.count(&abandoned).await? };
        for StateCount { state, count, .. } in &status.states {
            metrics::level(Level::Transactions(state.name()), self.transactions.namespace(), *count as f64);
        }
        metrics::level(Level::Abandoned, self.transactions.namespace(), status.abandoned as f64);
        Ok(status)
    }

    /// Looks at the status in the background, for the gauges of [`metrics`].
    ///
    /// # Errors
    /// For options that make no sense.
    pub fn spawn_status(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let two_phase = self.clone();
        Runner::spawn_look("two_phase.status", &self.sources, options, cancel, move || {
            let two_phase = two_phase.clone();
            async move { two_phase.status().await }
        })
    }

    /// Looks at all participants that transactions are under way in, at all transactions that are applied, and at the accounts' fields of
    /// what is under way, `page` at a time, and tells after each page what has been verified so far. Nothing is changed. It may run beside anything: what is found is
    /// looked at a second time.
    ///
    /// # Errors
    /// Those of the store; a transaction that is none.
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
        let applied = doc! { &self.fields().state: State::Applied.name() };
        let mut pages = self.transactions.pages(&applied, page).await?;
        while let Some(found) = pages.next().await? {
            for document in found {
                verified.applied += 1;
                self.verify_applied(&Record::read(&self.transactions, &document, self.fields())?, &mut verified)
                    .await?;
            }
            tell(&verified);
        }
        self.verify_pending(page, &tell, &mut verified).await?;
        Ok(verified)
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
        let record = self.show(transaction.clone()).await?;
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

    /// Every participant of an applied transaction has the update, or has had it, and remembers that unless it has forgotten
    /// the oldest ones.
    async fn verify_applied(&self, record: &Record, verified: &mut Verified) -> Result<()> {
        let fields = self.fields();
        let by = self.by_settings_of(record)?;
        for participant in by.participants(record)? {
            let documents = self.transactions.at(participant.namespace.clone());
            let full = format!("{}.{}", fields.finished, by.options.finished_max.saturating_sub(1));
            let lacking = doc! {
                "_id": participant.id.clone(),
                &fields.pending: { "$ne": record.id.clone() },
                &fields.finished: { "$ne": record.id.clone() },
                full: { "$exists": false },
            };
            let still_applied = async || {
                let now = self.show(record.id.clone()).await?;
                Ok::<_, crate::Error>(now.is_some_and(|now| now.state == State::Applied))
            };
            if documents.find_one(&lacking).await?.is_some() && still_applied().await? {
                verified.found(Finding::Lacking {
                    namespace: participant.namespace,
                    participant: participant.id,
                    transaction: record.id.clone(),
                });
            }
        }
        Ok(())
    }
}
