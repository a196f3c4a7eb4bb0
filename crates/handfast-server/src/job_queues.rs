//! The job queues that clients use by commands.
//!
//! A queue is opened by its first command, as a Rust program opens it: with the recorded settings, or with the defaults, which are then recorded, and with
//! its indexes. It is kept, so that the other commands open nothing.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handfast_patterns::{JobQueue, JobQueueOptions};
use handfast_store::decorator::{DelegatingStore, WithDurability};
use handfast_store::{DocumentStore, Namespace};
use handfast_txn::Transaction;
use lru::LruCache;

use crate::commands::Call;
use crate::error::CommandResult;
use crate::lock::lock;
use crate::request::check_written;
use crate::sessions::OpenTransaction;
use crate::state::Shared;
use crate::transactions::RequestContext;

/// Limit on the queues that are kept. Others are opened again.
const QUEUES_MAX: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
/// The time after which a queue is opened again: another program may have changed its settings, or dropped its collection with the indexes.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);

/// The queues that are open.
pub(crate) struct JobQueues {
    open: Mutex<LruCache<Namespace, OpenQueue>>,
}

struct OpenQueue {
    queue: JobQueue,
    /// The time at which it was opened, since the clock's start.
    since: Duration,
}

/// The store of an open transaction.
struct TransactionStore(Arc<OpenTransaction>);

impl DelegatingStore for TransactionStore {
    type Inner = Transaction;

    fn inner(&self) -> &Transaction {
        &self.0.transaction
    }
}

impl JobQueues {
    pub(crate) fn new() -> Self {
        JobQueues { open: Mutex::new(LruCache::new(QUEUES_MAX)) }
    }

    /// Forgets all queues: a collection or an index was dropped, or a collection was renamed.
    pub(crate) fn forget(&self) {
        lock(&self.open).clear();
    }

    /// Returns the queue that a command names: in its transaction, or with its write concern.
    pub(crate) async fn of(call: &Call<'_>) -> CommandResult<JobQueue> {
        let queue = JobQueues::outside(call).await?;
        Ok(match call.context {
            RequestContext::Transaction { open, .. } => queue.within(Arc::new(TransactionStore(Arc::clone(open)))),
            RequestContext::Plain | RequestContext::RetryableWrite { .. } | RequestContext::Snapshot(_) => queue,
        })
    }

    /// Returns the queue that a command names outside of its transaction, with its write concern.
    pub(crate) async fn outside(call: &Call<'_>) -> CommandResult<JobQueue> {
        let namespace = call.request.namespace()?;
        check_written(&namespace)?;
        let queue = call.shared.job_queues.opened(call.shared, namespace).await?;
        let store = WithDurability::new(Arc::new(call.shared.database.clone()), call.durability());
        Ok(queue.within(Arc::new(store)))
    }

    /// Returns an open queue. It is opened outside of the transaction of the command, which could not create its indexes.
    async fn opened(&self, shared: &Shared, namespace: Namespace) -> CommandResult<JobQueue> {
        let now = shared.now();
        if let Some(open) = lock(&self.open).get(&namespace)
            && now.saturating_sub(open.since) < OPEN_TIME_MAX
        {
            return Ok(open.queue.clone());
        }
        let store: Arc<dyn DocumentStore> = Arc::new(shared.database.clone());
        let options = JobQueueOptions::recorded(Arc::clone(&store), &namespace).await?.unwrap_or_default();
        let queue = JobQueue::open(store, namespace.clone(), shared.sources.clone(), options).await?;
        lock(&self.open).put(namespace, OpenQueue { queue: queue.clone(), since: now });
        Ok(queue)
    }
}
