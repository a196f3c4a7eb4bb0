//! The baseline of the store's figures: the key-value engine alone, with the same group commit and the same bytes, but
//! without documents, checksums, filters or snapshots.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use tokio::sync::{mpsc, oneshot};

/// Writes that one group may share a sync with; the embedded store's own bound is of the same size.
const GROUP_WRITES_MAX: usize = 1024;

/// A key and a value that a batch writes.
pub(crate) struct Put {
    is_index: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Put {
    pub(crate) fn document(key: Vec<u8>, value: Vec<u8>) -> Self {
        Put { is_index: false, key, value }
    }

    pub(crate) fn index(key: Vec<u8>, value: Vec<u8>) -> Self {
        Put { is_index: true, key, value }
    }
}

/// A batch that waits for the committer thread.
struct Write {
    batch: Vec<Put>,
    acknowledge: oneshot::Sender<Result<(), String>>,
}

/// Two keyspaces and a thread that commits in groups.
pub(crate) struct Bare {
    documents: Keyspace,
    writer: mpsc::Sender<Write>,
    syncs: Arc<AtomicU64>,
}

impl Bare {
    /// Opens the engine in an empty directory.
    pub(crate) fn open(directory: &Path, cache_bytes: u64) -> Result<Self> {
        let database = Database::builder(directory).cache_size(cache_bytes).open()?;
        let options = || KeyspaceCreateOptions::default().manual_journal_persist(true);
        let documents = database.keyspace("documents", options)?;
        let indexes = database.keyspace("indexes", options)?;
        let (writer, mut waiting) = mpsc::channel::<Write>(GROUP_WRITES_MAX);
        let syncs = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&syncs);
        let committed = documents.clone();
        std::thread::Builder::new().name("bare-committer".to_owned()).spawn(move || {
            let mut group = Vec::with_capacity(GROUP_WRITES_MAX);
            while waiting.blocking_recv_many(&mut group, GROUP_WRITES_MAX) > 0 {
                let mut acknowledgements = Vec::with_capacity(group.len());
                let mut result = Ok(());
                for write in group.drain(..) {
                    let mut batch = database.batch().durability(None);
                    for Put { is_index, key, value } in write.batch {
                        batch.insert(if is_index { &indexes } else { &committed }, key, value);
                    }
                    result = result.and_then(|()| batch.commit());
                    acknowledgements.push(write.acknowledge);
                }
                let result =
                    result.and_then(|()| database.persist(PersistMode::SyncData)).map_err(|error| error.to_string());
                counted.fetch_add(1, Ordering::Relaxed);
                for acknowledge in acknowledgements {
                    // The receiver may be gone.
                    let _ = acknowledge.send(result.clone());
                }
            }
        })?;
        Ok(Bare { documents, writer, syncs })
    }

    /// Writes one batch and returns when it is synced.
    pub(crate) async fn write(&self, batch: Vec<Put>) -> Result<()> {
        let (acknowledge, acknowledged) = oneshot::channel();
        self.writer.send(Write { batch, acknowledge }).await.context("the committer thread is gone")?;
        acknowledged.await.context("the committer thread is gone")?.map_err(anyhow::Error::msg)
    }

    /// Reads one value.
    pub(crate) fn read(&self, key: &[u8]) -> Result<Option<fjall::UserValue>> {
        Ok(self.documents.get(key)?)
    }

    /// Returns how many syncs there were.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}
