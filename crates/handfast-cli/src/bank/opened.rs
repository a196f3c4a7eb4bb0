//! Where the accounts are, and the database over it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use bson::rawdoc;
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::decorator::{Fault, Faulty, Operation, Plan};
use handfast_store::{AtomicStore, DocumentStore, Namespace, Sources, StoreExt};
use handfast_txn::{Counts, Database, PercolatorOptions};

use super::Run;
use super::doubts::{LostAnswers, Witness};
use crate::configuration::ConnectionString;
use crate::store;

/// Where the accounts are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// In this directory.
    Directory(PathBuf),
    /// On this server.
    Server {
        uri: ConnectionString,
        /// Nobody else writes there.
        sole_writer: bool,
    },
}

/// The database; with `--lost-replies`, over a store that loses answers.
pub(super) struct Opened {
    pub(super) database: Database,
    store: Store,
    lost_answers: LostAnswers,
}

enum Store {
    Directory(EmbeddedStore),
    Server(Arc<dyn DocumentStore>),
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
        let plan = Plan::seeded(run.seed, per_thousand, [Fault::LoseReply]).only(is_in_danger);
        match place {
            Place::Directory(path) => {
                let store = EmbeddedStore::open(path, sources.clone(), Options::default()).await?;
                let shared: Arc<dyn AtomicStore> = Arc::new(store.clone());
                let faulty = (per_thousand > 0).then(|| Arc::new(Faulty::new(Arc::clone(&shared), plan)));
                let database = match &faulty {
                    None => Database::local(shared, sources.clone()),
                    Some(faulty) => Database::local(Arc::clone(faulty), sources.clone()),
                };
                Ok(Opened { database, store: Store::Directory(store), lost_answers: counter(faulty) })
            }
            Place::Server { uri, sole_writer } => {
                let (store, _) = store::connect(uri, *sole_writer, sources.clone()).await?;
                let faulty = (per_thousand > 0).then(|| Arc::new(Faulty::new(Arc::clone(&store), plan)));
                let shared = match &faulty {
                    None => Arc::clone(&store),
                    Some(faulty) => faulty.clone(),
                };
                let database = Database::percolator(shared, sources.clone(), PercolatorOptions::default())?;
                Ok(Opened { database, store: Store::Server(store), lost_answers: counter(faulty) })
            }
        }
    }

    /// Who counts what became of lost answers.
    pub(super) fn witness(&self) -> Arc<Witness> {
        Arc::new(Witness::new(self.database.clone(), Arc::clone(&self.lost_answers)))
    }

    /// Whether outcomes stay for their time, whoever wants them gone: on a server a late request may still look for one.
    pub(super) fn keeps_outcomes(&self) -> bool {
        matches!(self.store, Store::Server(_))
    }

    /// Locks that transactions have left in the documents.
    pub(super) async fn locks(&self, namespace: &Namespace) -> Result<u64> {
        match &self.store {
            Store::Directory(_) => Ok(0),
            Store::Server(store) => {
                self.database.flush().await?;
                Ok(store.count_matching(namespace, rawdoc! { "_hf.lock": { "$exists": true } }).await?)
            }
        }
    }

    pub(super) async fn close(self) -> Result<Counts> {
        let counts = self.database.counts();
        match self.store {
            Store::Directory(store) => {
                drop((self.database, self.lost_answers));
                store.close().await?;
            }
            Store::Server(_) => self.database.flush().await?,
        }
        Ok(counts)
    }
}
