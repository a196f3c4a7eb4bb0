//! The parts of an open store that requests and background tasks share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handfast_store::{Durability, Error as StoreError, Result as StoreResult, Sources, Ticket};
use tokio::sync::Notify;

use super::ticketed::TicketedWrite;
use crate::Options;
use crate::committer::{AnswerAfter, Committer, Latest, Shared, Snapshot, Writer};
use crate::format::{CollectionId, IndexId};

/// The size of an operation on the catalog in the queue of the committer.
const CATALOG_OPERATION_BYTES: usize = 1024;

pub(crate) struct WriteContext {
    pub(crate) committer: Committer,
    pub(crate) sources: Sources,
    pub(crate) options: Options,
    /// Notified when something was dropped whose keys are to be removed, and when the context is dropped.
    pub(crate) key_removal: Arc<Notify>,
    pub(crate) builds: Arc<Builds>,
    /// The last handle is being closed: background tasks start no further step.
    pub(crate) closing: AtomicBool,
    /// The time of the clock at which the log of changes was read last, in milliseconds since its start.
    log_read_millis: AtomicU64,
}

/// The index builds that are running.
#[derive(Default)]
pub(crate) struct Builds {
    running: Mutex<HashSet<(CollectionId, IndexId)>>,
    /// Notified when a build has ended.
    pub(crate) ended: Notify,
}

impl Builds {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashSet<(CollectionId, IndexId)>> {
        // No code that holds the lock can panic half way.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteContext {
    pub(crate) fn new(committer: Committer, sources: Sources, options: Options) -> Self {
        let opened_millis = millis(sources.clock.elapsed());
        WriteContext {
            committer,
            sources,
            options,
            key_removal: Arc::default(),
            builds: Arc::default(),
            closing: AtomicBool::new(false),
            log_read_millis: AtomicU64::new(opened_millis),
        }
    }

    /// Notes that the log of changes is read.
    pub(crate) fn note_log_read(&self) {
        self.log_read_millis.store(millis(self.sources.clock.elapsed()), Ordering::Relaxed);
    }

    /// Returns the time since the log of changes was read last, or the store was opened.
    pub(crate) fn log_unread_for(&self) -> Duration {
        let read = Duration::from_millis(self.log_read_millis.load(Ordering::Relaxed));
        self.sources.clock.elapsed().saturating_sub(read)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.committer.shared()
    }

    /// Returns the newest applied state, synced or not: to search in, never to answer from.
    pub(crate) fn latest(&self) -> Latest {
        self.shared().latest()
    }

    /// Returns the published snapshot.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.shared().publisher.current()
    }

    /// Returns a random id for a new collection (a UUID of version 4).
    pub(crate) fn new_uuid(&self) -> [u8; 16] {
        self.sources.uuid()
    }

    /// Returns a ticket with the values for its record.
    pub(crate) fn ticketed(&self, ticket: Option<Ticket>) -> Option<TicketedWrite> {
        ticket.map(|ticket| TicketedWrite::new(ticket, self.new_uuid(), self.sources.steady_now()))
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Runs an operation on the catalog, and syncs it.
    pub(crate) async fn change_catalog<T, F>(&self, run: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer<'_>) -> StoreResult<T> + Send + 'static,
    {
        self.committer.submit(AnswerAfter::Synced, CATALOG_OPERATION_BYTES, run).await
    }

    /// Waits until everything applied before the call has a durability. A request whose steps were answered once applied ends
    /// with this, after a refusal too: the refusal may rest on something that is not synced yet.
    pub(crate) async fn wait_until_durable(&self, durability: Durability) -> StoreResult<()> {
        self.committer.barrier(AnswerAfter::from(durability)).await
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Drop for WriteContext {
    fn drop(&mut self) {
        // The background tasks see that the store is gone.
        self.key_removal.notify_one();
        self.shared().log_is_full.notify_one();
    }
}

/// Returns the error of a request, in doubt if steps of it were applied before: they may not be synced.
pub(crate) fn after_steps(error: StoreError, any_applied: bool) -> StoreError {
    if any_applied { error.in_doubt() } else { error }
}
