//! The only thread that writes. Callers queue operations and wait for their answers.
//!
//! ```text
//! callers      a  b  c        d  e  f  g             (an operation is a closure that gets a `Writer`)
//!               \ | /          \  |  | /
//! committer     [ group 1      ][ group 2       ]
//!               decide a, b, c; apply one batch; sync once; publish; answer a, b, c
//! readers       ..the snapshot published last: nothing that a crash could undo..
//! ```
//!
//! As only one thread decides, an operation sees the newest state of each document, a unique key is free or taken, and no
//! lock is needed. All operations of a group share one sync, and so its price. As the snapshot for readers is taken after
//! the sync, no answer shows what a crash could undo, and no reader waits.
//!
//! If a batch cannot be applied, or a sync fails, the state of the disk is unknown: each operation of the group fails with
//! *may be applied*, and every later write is refused until the store is opened again. Readers continue with the last
//! published snapshot.

mod change_log;
mod deletions;
mod published;
mod read_log;
mod recent_changes;
mod staged;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{
    Applied, Clock, CommitTimestamp, Durability, Durations, Error as StoreError, ErrorClass, OperationStatistics,
    Result as StoreResult, Sources,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::Options;
use crate::catalog::Catalog;
use crate::chain::Chain;
use crate::directory::witness::Witness;
use crate::engine::{Engine, Readiness, View};
use crate::error::{Error, Result};
use crate::format::{CollectionId, Verify};

use change_log::LogWriter;
pub(crate) use deletions::Deletions;
pub(crate) use published::{Publisher, Snapshot};
use read_log::ReadLog;
use recent_changes::RecentChanges;
pub(crate) use staged::Staged;
pub(crate) use writer::{Writer, duplicate_id};

/// The pause between two polls whether buffers have been written to data files.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(1);
/// The unit in which the bound of the queue is counted, as a semaphore cannot count to 64 MiB on every platform.
const QUEUE_BLOCK_BYTES: usize = 256;

/// The step after which an operation is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerAfter {
    /// Readers do not see the operation yet: for the steps of a larger request, the last of which waits for the sync of all.
    Applied,
    Published,
    Synced,
}

impl From<Durability> for AnswerAfter {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Journaled => AnswerAfter::Synced,
            Durability::Memory => AnswerAfter::Published,
        }
    }
}

/// An operation in the queue.
struct Operation {
    answer: AnswerAfter,
    work: Box<dyn Work>,
    /// The space in the queue that the operation takes until it is answered.
    _permit: Option<OwnedSemaphorePermit>,
}

/// The closure of an operation, and its result until it may be sent.
trait Work: Send {
    /// Runs the closure. Returns `false` if it failed and its staged writes must be rolled back.
    fn run(&mut self, writer: &mut Writer<'_>) -> bool;

    /// Sends the result, or the error of the group if that failed after the operation ran.
    fn answer(self: Box<Self>, group: Result<(), StoreError>);
}

struct Task<T, F> {
    run: Option<F>,
    result: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
}

impl<T, F> Work for Task<T, F>
where
    T: Send,
    F: FnOnce(&mut Writer<'_>) -> StoreResult<T> + Send,
{
    fn run(&mut self, writer: &mut Writer<'_>) -> bool {
        let Some(run) = self.run.take() else {
            return false;
        };
        // A bug in the query language must not end the only thread that writes.
        let result = catch_unwind(AssertUnwindSafe(|| run(writer))).unwrap_or_else(|_| {
            Err(StoreError::command(Code::InternalError, "an operation panicked and was rolled back; this is a bug"))
        });
        let good = result.is_ok();
        self.result = Some(result);
        good
    }

    fn answer(self: Box<Self>, group: Result<(), StoreError>) {
        let result = match (self.result, group) {
            // An operation that was refused was refused, whether the group failed or not.
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(StoreError::command(Code::InternalError, "an operation did not run")),
        };
        // The caller may have dropped its future.
        let _ = self.reply.send(result);
    }
}

/// The handle of the committer thread.
pub(crate) struct Committer {
    queue: Option<mpsc::Sender<Operation>>,
    permits: Arc<Semaphore>,
    permits_max: u32,
    /// Returns whether everything applied is synced.
    thread: Option<JoinHandle<Result<()>>>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
}

/// The state that the committer and its callers share.
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) publisher: Publisher,
    pub(crate) verify: Verify,
    pub(crate) recent_changes: RecentChanges,
    latest: Mutex<Latest>,
    pub(crate) syncs: AtomicU64,
    /// The durations of the syncs.
    pub(crate) sync_durations: Durations,
    /// Operations answered.
    pub(crate) operations: AtomicU64,
    /// Documents that atomic batches read again before they wrote them.
    pub(crate) reads: AtomicU64,
    /// The last published commit, for readers of the log of changes. It is set while the log is on.
    pub(crate) published: watch::Sender<CommitTimestamp>,
    /// Notified when the log of changes has more bytes than it may have.
    pub(crate) log_is_full: Arc<Notify>,
}

/// The newest applied state, synced or not: to search in, never to answer from.
#[derive(Clone)]
pub(crate) struct Latest {
    pub(crate) timestamp: CommitTimestamp,
    pub(crate) view: Arc<dyn View>,
    pub(crate) catalog: Arc<Catalog>,
}

impl Shared {
    pub(crate) fn latest(&self) -> Latest {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a snapshot of a state to search in.
    pub(crate) fn snapshot_of(&self, state: Latest) -> Snapshot {
        self.publisher.snapshot_of(state, self.engine.written_bytes())
    }
}

impl Committer {
    /// Starts the thread.
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        witness: Witness,
        chain: Chain,
        options: &Options,
        sources: &Sources,
    ) -> Result<Self> {
        let verify = if options.verify_checksums { Verify::Checksums } else { Verify::Nothing };
        let view = engine.view();
        let catalog = Arc::new(Catalog::load(view.as_ref())?);
        let log = LogWriter::load(view.as_ref(), sources)?;
        let timestamp = chain.last.timestamp;
        let latest = Latest { timestamp, view, catalog: catalog.clone() };
        let publisher = Publisher::new(latest.clone(), engine.written_bytes());
        let shared = Arc::new(Shared {
            engine: engine.clone(),
            publisher,
            verify,
            recent_changes: RecentChanges::new(timestamp),
            latest: Mutex::new(latest),
            syncs: AtomicU64::new(0),
            sync_durations: Durations::default(),
            operations: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            published: watch::Sender::new(timestamp),
            log_is_full: Arc::default(),
        });
        let (queue, operations) = mpsc::channel();
        let mut state = State {
            view: engine.view(),
            engine,
            shared: shared.clone(),
            witness,
            chain,
            timestamp,
            staged: Staged::default(),
            catalog,
            deletions: Deletions::new(timestamp, options.deletions_max),
            read_log: ReadLog::new(options.read_log_bytes_max),
            changes: HashMap::new(),
            dirty: false,
            unpublished: false,
            stopped: None,
            log,
            sources: sources.clone(),
            options: options.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("handfast-committer".to_owned())
            .spawn(move || state.work(&operations))
            .map_err(|error| Error::io("starting the committer thread", error))?;
        let permits_max = u32::try_from(options.queue_bytes_max / QUEUE_BLOCK_BYTES).unwrap_or(u32::MAX).max(1);
        let permits = Arc::new(Semaphore::new((permits_max as usize).min(Semaphore::MAX_PERMITS)));
        let clock = sources.clock.clone();
        Ok(Committer { queue: Some(queue), permits, permits_max, thread: Some(thread), shared, clock })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Queues an operation and waits for its answer. `bytes` is its size in memory while it waits.
    ///
    /// # Cancellation
    /// An operation in the queue runs, whether the caller still waits for the answer or not.
    pub(crate) async fn submit<T, F>(&self, answer: AnswerAfter, bytes: usize, run: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer<'_>) -> StoreResult<T> + Send + 'static,
    {
        let queued_at = self.clock.elapsed();
        let blocks = u32::try_from(bytes / QUEUE_BLOCK_BYTES + 1).unwrap_or(u32::MAX).min(self.permits_max);
        let permit = self.permits.clone().acquire_many_owned(blocks).await.map_err(|_| Error::Closed)?;
        let (reply, answered) = oneshot::channel();
        let (statistics, clock) = (OperationStatistics::current(), self.clock.clone());
        let observed = move |writer: &mut Writer<'_>| {
            if let Some(statistics) = &statistics {
                statistics.add_wait(clock.elapsed().saturating_sub(queued_at));
            }
            OperationStatistics::observe_here(statistics, || run(writer))
        };
        let work = Box::new(Task { run: Some(observed), result: None, reply });
        let queue = self.queue.as_ref().ok_or(Error::Closed)?;
        queue.send(Operation { answer, work, _permit: Some(permit) }).map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| {
            let text = "the committer ended before it answered; the operation may have happened";
            StoreError::new(ErrorClass::Command, Applied::Maybe, Code::InterruptedAtShutdown, text)
        })?
    }

    /// Waits until everything applied before the call is published or synced, as `answer` says.
    pub(crate) async fn barrier(&self, answer: AnswerAfter) -> StoreResult<()> {
        self.submit(answer, 0, |_| Ok(())).await
    }

    /// Waits for the operations in the queue, syncs, and ends the thread.
    ///
    /// # Errors
    /// Returns the error of the last write or sync that failed: not everything applied is synced.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.queue = None;
        // The thread catches panics of operations; one of its own was logged by the runtime.
        let panicked = |_| Err(Error::Engine("the committer thread panicked".to_owned()));
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "the store could not be synced at its end");
        }
    }
}

/// The state that only the thread uses.
struct State {
    engine: Arc<dyn Engine>,
    shared: Arc<Shared>,
    witness: Witness,
    chain: Chain,
    timestamp: CommitTimestamp,
    staged: Staged,
    /// The state of the engine, without what is staged.
    view: Arc<dyn View>,
    catalog: Arc<Catalog>,
    deletions: Deletions,
    read_log: ReadLog,
    /// The last change of each collection since the store was opened. A change that was rolled back may stay: the timestamp is
    /// too late, never too early.
    changes: HashMap<CollectionId, CommitTimestamp>,
    /// Something is applied and not synced.
    dirty: bool,
    /// Something is applied and not published.
    unpublished: bool,
    /// The error after which nothing is written any more.
    stopped: Option<Error>,
    /// The log of changes, while it is on.
    log: Option<LogWriter>,
    sources: Sources,
    options: Options,
}

impl State {
    fn work(&mut self, operations: &mpsc::Receiver<Operation>) -> Result<()> {
        loop {
            let first = if self.dirty && self.stopped.is_none() {
                match operations.recv_timeout(self.options.memory_sync_interval) {
                    Ok(first) => first,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        self.sync_or_stop();
                        continue;
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
            } else {
                match operations.recv() {
                    Ok(first) => first,
                    Err(mpsc::RecvError) => break,
                }
            };
            let waiting = operations.try_iter().take(self.options.group_operations_max.saturating_sub(1));
            let group: Vec<Operation> = std::iter::once(first).chain(waiting).collect();
            self.group(group);
        }
        self.sync_or_stop();
        if let Some(error) = &self.stopped {
            return Err(error.after_stop());
        }
        self.witness.sync()
    }

    /// Syncs and publishes everything applied; stops all writes if that fails.
    fn sync_or_stop(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        if let Err(error) = self.sync() {
            self.stop(&error);
        }
    }

    fn group(&mut self, mut group: Vec<Operation>) {
        let outcome = self.commit(&mut group);
        if let Err(error) = &outcome {
            self.stop(error);
        }
        let outcome = outcome.map_err(|error| error.into_store(Applied::Maybe));
        self.shared.operations.fetch_add(group.len() as u64, Ordering::Relaxed);
        for operation in group {
            operation.work.answer(outcome.clone());
        }
    }

    /// Runs the operations and makes them as durable as their callers asked for.
    fn commit(&mut self, group: &mut Vec<Operation>) -> Result<()> {
        if let Some(error) = &self.stopped {
            let refused = StoreError::from(error.after_stop());
            for operation in group.drain(..) {
                operation.work.answer(Err(refused.clone()));
            }
            return Ok(());
        }
        for operation in group.iter_mut() {
            let catalog = self.catalog.clone();
            let timestamp = self.timestamp;
            let mut writer = Writer::new(self);
            let good = operation.work.run(&mut writer);
            let failure = writer.failure.take();
            let records = std::mem::take(&mut writer.records);
            if let Some(error) = failure {
                return Err(error);
            }
            if good {
                if let Some(log) = &mut self.log {
                    log.stage(records, self.timestamp, &mut self.staged, &self.sources);
                }
                self.staged.keep();
            } else {
                self.staged.roll_back();
                self.deletions.roll_back(timestamp);
                self.read_log.roll_back(timestamp);
                self.catalog = catalog;
                self.timestamp = timestamp;
            }
            if self.staged.bytes() >= self.options.group_bytes_max {
                self.apply()?;
            }
        }
        self.apply()?;
        if group.iter().any(|operation| operation.answer == AnswerAfter::Synced) {
            return self.sync_unless_disabled();
        }
        if group.iter().any(|operation| operation.answer == AnswerAfter::Published) && self.unpublished {
            self.engine.write_journal()?;
            self.publish();
        }
        Ok(())
    }

    /// Applies what is staged as one batch.
    fn apply(&mut self) -> Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        while self.engine.readiness()? == Readiness::Busy {
            std::thread::park_timeout(BUSY_PAUSE);
        }
        let writes = self.staged.drain();
        self.dirty = true;
        self.unpublished = true;
        self.chain.apply(self.engine.as_ref(), self.timestamp, writes)?;
        self.view = self.engine.view();
        let latest = Latest { timestamp: self.timestamp, view: self.view.clone(), catalog: self.catalog.clone() };
        *self.shared.latest.lock().unwrap_or_else(PoisonError::into_inner) = latest;
        Ok(())
    }

    fn sync_unless_disabled(&mut self) -> Result<()> {
        if self.options.acknowledge_after_sync {
            return self.sync();
        }
        // The kill test shows that it detects this store, which answers without a sync.
        self.publish();
        Ok(())
    }

    /// Syncs everything applied, records the batch in the witness, and publishes the state.
    fn sync(&mut self) -> Result<()> {
        if self.dirty {
            let begun = self.sources.clock.elapsed();
            self.engine.sync()?;
            self.shared.syncs.fetch_add(1, Ordering::Relaxed);
            self.shared.sync_durations.add(self.sources.clock.elapsed().saturating_sub(begun));
            self.dirty = false;
            self.witness.record(self.chain.numbers())?;
        }
        if self.unpublished {
            self.publish();
        }
        Ok(())
    }

    fn publish(&mut self) {
        let state = Latest { timestamp: self.timestamp, view: self.engine.view(), catalog: self.catalog.clone() };
        let written_bytes = self.engine.written_bytes();
        self.shared.publisher.publish(state, written_bytes);
        self.sources.cluster_clock.release();
        self.unpublished = false;
        if let Some(log) = &self.log {
            self.shared.published.send_replace(self.timestamp);
            if log.bytes() > self.options.change_log_bytes_max {
                self.shared.log_is_full.notify_one();
            }
        }
        let kept_from = written_bytes.saturating_sub(self.options.snapshot_bytes_max);
        let ended = self.shared.publisher.end_before(kept_from);
        if ended > 0 {
            tracing::warn!(ended, "snapshots kept too much memory in use; the oldest were ended");
        }
        let oldest = self.shared.publisher.oldest();
        self.deletions.forget_before(oldest);
        self.read_log.forget_before(oldest);
    }

    fn stop(&mut self, error: &Error) {
        tracing::error!(%error, "a write or a sync failed; no more writes until the store is opened again");
        self.stopped = Some(error.clone());
    }
}
