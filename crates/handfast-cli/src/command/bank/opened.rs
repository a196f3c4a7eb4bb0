//! The open store of the accounts, with the mechanism that makes transactions over it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bson::rawdoc;
use handfast_store::decorator::{Fault, Faulty, Operation, Plan};
use handfast_store::{AtomicStore, DocumentStore, ErrorClass, Sources, StoreExt};
use handfast_txn::{Database, PercolatorOptions};

use super::Run;
use super::accounts::Accounts;
use super::arguments::BankMechanism;
use super::lost_answers::{LossCounter, Tally};
use super::mechanism::{Mechanism, OutcomeCounter};
use super::record::Recorder;
use super::server_side::ServerSide;
use crate::store::{Access, Location, OpenedStore};

/// Repetitions of a flush whose answer is lost.
const FLUSHES_MAX: u32 = 10;

/// The open store of the accounts, with the mechanism that makes transactions over it. With `--lost-replies` the store loses
/// answers.
pub(super) struct OpenedBank {
    pub(super) mechanism: Mechanism,
    /// The store, unless a server makes the transactions.
    store: Option<OpenedStore>,
}

/// Returns a counter of the faults that a store has met, if it is one that does.
fn counter<S: DocumentStore + ?Sized>(faulty: Option<Arc<Faulty<S>>>) -> LossCounter {
    Arc::new(move || faulty.as_ref().map_or(0, |faulty| faulty.injected().len() as u64))
}

/// Returns whether the answer to an operation may get lost: a write, or the library's query for the outcome of a write, which is
/// a flush on an embedded store and a find elsewhere. If both are lost, the worker has to ask.
fn may_lose_reply(operation: Operation) -> bool {
    operation.is_write() || matches!(operation, Operation::Flush | Operation::Find)
}

impl OpenedBank {
    pub(super) async fn open(run: &Run, location: &Location, sources: &Sources) -> Result<Self> {
        let per_thousand = run.lost_replies_per_thousand;
        if let (BankMechanism::ServerSide, Location::Servers(servers)) = (run.mechanism, location) {
            let server = ServerSide::connect(servers.only()?, per_thousand, run.seed).await?;
            return Ok(OpenedBank { mechanism: Mechanism::Server(Arc::new(server)), store: None });
        }
        let plan = Plan::seeded(run.seed, per_thousand, [Fault::LoseReply]).only(may_lose_reply);
        let opened = OpenedStore::open(location, Access::Transactions, sources.clone()).await?;
        opened.ensure_whole("").await?;
        let mechanism = match &opened {
            OpenedStore::Directory { store, .. } => {
                let shared: Arc<dyn AtomicStore> = Arc::new(store.clone());
                let faulty = (per_thousand > 0).then(|| Arc::new(Faulty::new(Arc::clone(&shared), plan)));
                let database = match &faulty {
                    None => Database::local(shared, sources.clone()),
                    Some(faulty) => Database::local(Arc::clone(faulty), sources.clone()),
                };
                Mechanism::Library(database, counter(faulty))
            }
            OpenedStore::Servers { store, .. } => {
                let faulty = (per_thousand > 0).then(|| Arc::new(Faulty::new(Arc::clone(store), plan)));
                let shared = match &faulty {
                    None => Arc::clone(store),
                    Some(faulty) => faulty.clone(),
                };
                let database = Database::percolator(shared, sources.clone(), PercolatorOptions::default())?;
                Mechanism::Library(database, counter(faulty))
            }
        };
        Ok(OpenedBank { mechanism, store: Some(opened) })
    }

    /// Returns whether the store is a server whose own transactions are not used.
    pub(super) fn leaves_transactions_unused(&self) -> bool {
        self.store.as_ref().is_some_and(OpenedStore::is_on_handfast)
    }

    pub(super) fn outcomes(&self) -> Arc<OutcomeCounter> {
        Arc::new(OutcomeCounter::new(self.mechanism.clone()))
    }

    /// Forgets the outcomes of all transactions, and returns whether it did: a server keeps them for their retention time, because a
    /// late request may look for one.
    pub(super) async fn forget_outcomes(&self) -> Result<bool> {
        match (&self.store, &self.mechanism) {
            (Some(OpenedStore::Directory { .. }), Mechanism::Library(database, _)) => {
                database.forget_outcomes(Duration::ZERO).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Returns how many locks transactions have left on accounts.
    pub(super) async fn locks(&self, accounts: &Accounts, recorder: &Recorder) -> Result<u64> {
        match (&self.store, &self.mechanism) {
            (Some(OpenedStore::Servers { store, .. }), Mechanism::Library(database, _)) => {
                flush(database).await?;
                let locked = rawdoc! { "_hf.lock": { "$exists": true } };
                let mut locks = 0;
                for namespace in accounts.namespaces() {
                    locks += store.count_matching(namespace, locked.clone()).await?;
                }
                Ok(locks)
            }
            (_, Mechanism::Server(server)) => accounts.locked(server, recorder).await,
            // A directory has no locks: commits compare versions.
            (_, Mechanism::Library(..)) => Ok(0),
        }
    }

    pub(super) async fn close(self) -> Result<Tally> {
        let OpenedBank { mechanism, store } = self;
        let tally = mechanism.tally();
        match (&store, mechanism) {
            (Some(OpenedStore::Servers { .. }), Mechanism::Library(database, _)) => flush(&database).await?,
            (_, mechanism) => drop(mechanism),
        }
        if let Some(store) = store {
            store.close().await?;
        }
        Ok(tally)
    }
}

/// Waits for the end of background work, again where the answer is lost.
async fn flush(database: &Database) -> Result<()> {
    for _ in 0..FLUSHES_MAX {
        match database.flush().await {
            Err(error) if error.class() == ErrorClass::TransientNetwork => {}
            result => return Ok(result?),
        }
    }
    Ok(database.flush().await?)
}
