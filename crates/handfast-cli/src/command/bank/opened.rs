//! Where the accounts are, and the database over it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bson::rawdoc;
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::decorator::{Fault, Faulty, Operation, Plan};
use handfast_store::routed::ensure_alone;
use handfast_store::{AtomicStore, DocumentStore, ErrorClass, Sources, StoreExt};
use handfast_txn::{Database, PercolatorOptions};

use super::Run;
use super::accounts::Accounts;
use super::arguments::BankMechanism;
use super::doubts::{LostAnswers, Witness};
use super::mechanism::{Mechanism, Tally};
use super::record::Recorder;
use super::server_side::ServerSide;
use crate::store::{self, Connected, Rule, Servers};

/// How often the end of what goes on in the background is asked for.
const FLUSHES_MAX: u32 = 10;

/// Where the accounts are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// In this directory.
    Directory(PathBuf),
    /// On a server, or several.
    Servers(Servers),
}

impl Place {
    /// The stores that the accounts are shared out among.
    pub(super) fn stores(&self) -> u32 {
        match self {
            Place::Directory(_) => 1,
            Place::Servers(servers) => u32::try_from(servers.stores.0.len()).unwrap_or(u32::MAX),
        }
    }
}

/// By whose transactions, and over what: with `--lost-replies`, over a store that loses answers.
pub(super) struct Opened {
    pub(super) mechanism: Mechanism,
    store: Store,
    /// It is a server that has transactions itself, and they are not used.
    pub(super) is_handfast: bool,
}

enum Store {
    Directory(EmbeddedStore),
    Server(Arc<dyn DocumentStore>),
    /// The server's own affair.
    Unseen,
}

/// How many faults a store has met, if it is one that does.
fn counter<S: DocumentStore + ?Sized>(faulty: Option<Arc<Faulty<S>>>) -> LostAnswers {
    Arc::new(move || faulty.as_ref().map_or(0, |faulty| faulty.injected().len() as u64))
}

/// Whose answers may get lost: those of writes, and those to the question what became of one. The library asks it with a
/// flush on a store of its own, and by a look at a document elsewhere. Where both are lost, the worker has to ask.
fn is_in_danger(operation: Operation) -> bool {
    operation.is_write() || matches!(operation, Operation::Flush | Operation::Find)
}

impl Opened {
    pub(super) async fn open(run: &Run, place: &Place, sources: &Sources) -> Result<Self> {
        let per_thousand = run.lost_replies_per_thousand;
        if let (BankMechanism::ServerSide, Place::Servers(servers)) = (run.mechanism, place) {
            let server = ServerSide::connect(servers.only()?, per_thousand, run.seed).await?;
            let mechanism = Mechanism::Server(Arc::new(server));
            return Ok(Opened { mechanism, store: Store::Unseen, is_handfast: false });
        }
        let plan = Plan::seeded(run.seed, per_thousand, [Fault::LoseReply]).only(is_in_danger);
        match place {
            Place::Directory(path) => {
                let store = EmbeddedStore::open(path, sources.clone(), Options::default()).await?;
                ensure_alone(&store).await?;
                let shared: Arc<dyn AtomicStore> = Arc::new(store.clone());
                let faulty = (per_thousand > 0).then(|| Arc::new(Faulty::new(Arc::clone(&shared), plan)));
                let database = match &faulty {
                    None => Database::local(shared, sources.clone()),
                    Some(faulty) => Database::local(Arc::clone(faulty), sources.clone()),
                };
                let mechanism = Mechanism::Library(database, counter(faulty));
                Ok(Opened { mechanism, store: Store::Directory(store), is_handfast: false })
            }
            Place::Servers(servers) => {
                let (store, servers) = store::connect(servers, sources.clone(), Rule::Record).await?;
                let faulty = (per_thousand > 0).then(|| Arc::new(Faulty::new(Arc::clone(&store), plan)));
                let shared = match &faulty {
                    None => Arc::clone(&store),
                    Some(faulty) => faulty.clone(),
                };
                let database = Database::percolator(shared, sources.clone(), PercolatorOptions::default())?;
                let mechanism = Mechanism::Library(database, counter(faulty));
                Ok(Opened {
                    mechanism,
                    store: Store::Server(store),
                    is_handfast: servers.iter().any(Connected::is_handfast),
                })
            }
        }
    }

    /// Who counts what became of lost answers.
    pub(super) fn witness(&self) -> Arc<Witness> {
        Arc::new(Witness::new(self.mechanism.clone()))
    }

    /// Forgets the outcomes of all transactions, and says so; on a server they stay for their time, whoever wants them gone, as a
    /// late request may still look for one.
    pub(super) async fn forget_outcomes(&self) -> Result<bool> {
        match (&self.store, &self.mechanism) {
            (Store::Directory(_), Mechanism::Library(database, _)) => {
                database.forget_outcomes(Duration::ZERO).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Locks that transactions have left on accounts.
    pub(super) async fn locks(&self, accounts: &Accounts, recorder: &Recorder) -> Result<u64> {
        match (&self.store, &self.mechanism) {
            (Store::Server(store), Mechanism::Library(database, _)) => {
                flush(database).await?;
                let locked = rawdoc! { "_hf.lock": { "$exists": true } };
                let mut locks = 0;
                for namespace in accounts.namespaces() {
                    locks += store.count_matching(namespace, locked.clone()).await?;
                }
                Ok(locks)
            }
            (_, Mechanism::Server(server)) => accounts.locked(server, recorder).await,
            // There are none: who commits finds out by comparing.
            (_, Mechanism::Library(..)) => Ok(0),
        }
    }

    pub(super) async fn close(self) -> Result<Tally> {
        let tally = self.mechanism.tally();
        match (self.store, self.mechanism) {
            (Store::Directory(store), mechanism) => {
                drop(mechanism);
                store.close().await?;
            }
            (Store::Server(_), Mechanism::Library(database, _)) => flush(&database).await?,
            _ => {}
        }
        Ok(tally)
    }
}

/// Waits for what goes on in the background; asks again if the answer is one of those that get lost.
async fn flush(database: &Database) -> Result<()> {
    for _ in 0..FLUSHES_MAX {
        match database.flush().await {
            Err(error) if error.class() == ErrorClass::TransientNetwork => {}
            result => return Ok(result?),
        }
    }
    Ok(database.flush().await?)
}
