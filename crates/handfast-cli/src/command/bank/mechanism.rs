//! The two kinds of transactions that move money: those of the library, and those of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bson::rawdoc;
use handfast_store::{DocumentStore, Namespace, StoreExt, Ticket, ticket};
use handfast_txn::Database;

use super::lost_answers::{CommitOutcome, LossCounter, LostAnswers, Tally};
use super::server_side::ServerSide;

#[derive(Clone)]
pub(super) enum Mechanism {
    /// Transactions of the library, over a store that may lose answers.
    Library(Database, LossCounter),
    /// Transactions of a server.
    Server(Arc<ServerSide>),
}

impl Mechanism {
    pub(super) fn tally(&self) -> Tally {
        match self {
            Mechanism::Library(database, lost_answers) => {
                let counts = database.counts();
                Tally {
                    open: counts.open(),
                    conflicts: counts.conflicts,
                    answers_lost: lost_answers(),
                    found_committed: counts.confirmed,
                }
            }
            Mechanism::Server(server) => server.tally(),
        }
    }

    pub(super) async fn drop_collection(&self, namespace: &Namespace) -> Result<()> {
        match self {
            Mechanism::Library(database, _) => Ok(database.drop_collection(namespace).await.map(drop)?),
            Mechanism::Server(server) => server.drop_collection(namespace).await,
        }
    }

    /// Returns how many records of outcomes the store holds.
    pub(super) async fn records(&self) -> Result<u64> {
        let records = Ticket::namespace()?;
        match self {
            Mechanism::Library(database, _) => {
                let of_sessions = rawdoc! { "_id": { "$ne": ticket::forgotten_id() } };
                Ok(database.count_matching(&records, of_sessions).await?)
            }
            Mechanism::Server(server) => server.count(&records).await,
        }
    }
}

/// Counts outcomes while the workers run.
pub(super) struct OutcomeCounter {
    mechanism: Mechanism,
    committed: AtomicU64,
    rolled_back: AtomicU64,
    unknown: AtomicU64,
}

impl OutcomeCounter {
    pub(super) fn new(mechanism: Mechanism) -> Self {
        let [committed, rolled_back, unknown] = Default::default();
        OutcomeCounter { mechanism, committed, rolled_back, unknown }
    }

    /// Counts an outcome that a worker has asked for.
    pub(super) fn count(&self, outcome: CommitOutcome) {
        let counter = match outcome {
            CommitOutcome::Committed => &self.committed,
            CommitOutcome::RolledBack => &self.rolled_back,
            CommitOutcome::Unknown => &self.unknown,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub(super) fn lost_answers(&self) -> LostAnswers {
        let tally = self.mechanism.tally();
        LostAnswers {
            answers_lost: tally.answers_lost,
            found_committed: tally.found_committed,
            asked_committed: self.committed.load(Ordering::Relaxed),
            asked_rolled_back: self.rolled_back.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
        }
    }
}
