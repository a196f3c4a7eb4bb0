//! The two kinds of transactions that move money: those of the library, and those of a server.

use std::sync::Arc;

use anyhow::Result;
use bson::rawdoc;
use handfast_store::{DocumentStore, Namespace, StoreExt, Ticket, ticket};
use handfast_txn::Database;

use super::lost_answers::LossCounter;
use super::server_side::ServerSide;

#[derive(Clone)]
pub(super) enum Mechanism {
    /// Transactions of the library, over a store that may lose answers.
    Library(Database, LossCounter),
    /// Transactions of a server.
    Server(Arc<ServerSide>),
}

/// Counts of transactions in this process so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Neither committed nor rolled back.
    pub(super) open: u64,
    /// Rolled back because of another one.
    pub(super) conflicts: u64,
    pub(super) answers_lost: u64,
    /// Commits whose answer was lost, and that were found to be done.
    pub(super) found_committed: u64,
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
