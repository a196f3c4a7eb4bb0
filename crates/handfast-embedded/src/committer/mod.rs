//! One thread that writes. Everybody else asks it, and waits for the answer.
//!
//! ```text
//! callers      a  b  c        d  e  f  g             (an operation is a closure that gets a `Writer`)
//!               \ | /          \  |  | /
//! committer     [ group 1      ][ group 2       ]
//!               decide a, b, c; apply one batch; sync once; publish; answer a, b, c
//! readers       ..the snapshot published last: nothing that a crash could take back..
//! ```
//!
//! As only one thread decides, an operation judges the newest state of each document, a unique key is free or taken,
//! and no lock is needed. As all who waited share one sync, the price of a sync is shared too. As the snapshot for
//! readers is taken after the sync, no answer shows what a crash could take back, and no reader waits.
//!
//! If a batch cannot be applied, or a sync fails, nobody can say what is on the disk: those who were in the group are
//! told that their operation *may* have happened, and every later write is refused until the store is opened again.
//! Readers go on with the last published snapshot.

mod conflicts;
mod images;
mod published;
mod recent;
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
use handfast_store::{Applied, CommitTimestamp, Durability, Error as StoreError, ErrorClass, Result as StoreResult};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::Options;
use crate::catalog::Catalog;
use crate::chain::Chain;
use crate::directory::witness::Witness;
use crate::engine::{Engine, Readiness, View};
use crate::error::{Error, Result};
use crate::format::{CollectionId, Verify};
use crate::write::target::Latest;

pub(crate) use conflicts::Deletions;
use images::Images;
pub(crate) use published::{Publisher, Snapshot};
use recent::Recent;
pub(crate) use staged::Staged;
pub(crate) use writer::{Writer, duplicate_id};

/// How long the committer waits before it looks again whether buffers have been written to data files.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(1);
/// The queue's bound is counted in blocks, as a semaphore cannot count to 64 MiB on every platform.
const QUEUE_BLOCK_BYTES: usize = 256;

/// When an operation is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Once it is applied. Readers do not see it yet: for the steps of a larger request, the last of which waits for
    /// the sync of all.
    Applied,
    /// Once it is applied and published.
    Published,
    /// Once it is synced and published.
    Synced,
}

impl From<Durability> for Answer {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Journaled => Answer::Synced,
            Durability::Memory => Answer::Published,
        }
    }
}

/// An operation in the queue.
struct Operation {
    answer: Answer,
    work: Box<dyn Work>,
    /// Its place in the queue, free again when the operation is answered.
    _place: Option<OwnedSemaphorePermit>,
}

/// What an operation does, with its answer kept until it may be given.
trait Work: Send {
    /// Runs it. `false` if it failed and what it staged must go.
    fn run(&mut self, writer: &mut Writer<'_>) -> bool;

    /// Answers; `Err` if the group failed after the operation ran.
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
        // A mistake in the language must not take the only writer with it.
        let result = catch_unwind(AssertUnwindSafe(|| run(writer))).unwrap_or_else(|_| {
            Err(StoreError::command(Code::InternalError, "an operation panicked and was taken back; this is a bug"))
        });
        let good = result.is_ok();
        self.result = Some(result);
        good
    }

    fn answer(self: Box<Self>, group: Result<(), StoreError>) {
        let result = match (self.result, group) {
            // What was refused was refused, whatever became of the others.
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(StoreError::command(Code::InternalError, "an operation did not run")),
        };
        // Who asked may have gone away.
        let _ = self.reply.send(result);
    }
}

/// The way to the committer.
pub(crate) struct Committer {
    queue: Option<mpsc::Sender<Operation>>,
    places: Arc<Semaphore>,
    places_max: u32,
    /// Its result is whether all that it applied is synced.
    thread: Option<JoinHandle<Result<()>>>,
    shared: Arc<Shared>,
}

/// What the committer and its callers both look at.
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) publisher: Publisher,
    pub(crate) verify: Verify,
    /// When documents were changed last.
    pub(crate) recent: Recent,
    /// Everything that is applied, synced or not.
    latest: Mutex<Latest>,
    /// Syncs so far, and operations answered: the price of a commit, counted.
    pub(crate) syncs: AtomicU64,
    pub(crate) operations: AtomicU64,
    /// Documents that batches had to read again before they wrote them.
    pub(crate) reads: AtomicU64,
}

impl Shared {
    /// Everything applied, also what is not synced: to look for candidates, never to answer from.
    pub(crate) fn latest(&self) -> Latest {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    /// Holds a state to search in.
    pub(crate) fn hold(&self, state: Latest) -> Snapshot {
        self.publisher.hold(state, self.engine.written_bytes())
    }
}

impl Committer {
    /// Starts the thread.
    pub(crate) fn start(engine: Arc<dyn Engine>, witness: Witness, chain: Chain, options: &Options) -> Result<Self> {
        let verify = if options.verify_checksums { Verify::Checksums } else { Verify::Nothing };
        let view = engine.view();
        let catalog = Arc::new(Catalog::load(view.as_ref())?);
        let timestamp = chain.last.timestamp;
        let latest = Latest { timestamp, view, catalog: catalog.clone() };
        let publisher = Publisher::new(latest.clone(), engine.written_bytes());
        let shared = Arc::new(Shared {
            engine: engine.clone(),
            publisher,
            verify,
            recent: Recent::new(timestamp),
            latest: Mutex::new(latest),
            syncs: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            reads: AtomicU64::new(0),
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
            images: Images::new(options.read_log_bytes_max),
            changes: HashMap::new(),
            dirty: false,
            unpublished: false,
            stopped: None,
            options: options.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("handfast-committer".to_owned())
            .spawn(move || state.work(&operations))
            .map_err(|error| Error::io("starting the committer thread", error))?;
        let places_max = u32::try_from(options.queue_bytes_max / QUEUE_BLOCK_BYTES).unwrap_or(u32::MAX).max(1);
        let places = Arc::new(Semaphore::new((places_max as usize).min(Semaphore::MAX_PERMITS)));
        Ok(Committer { queue: Some(queue), places, places_max, thread: Some(thread), shared })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Has an operation done, and waits for its answer. `bytes` is what it holds in memory while it waits.
    ///
    /// # Cancellation
    /// An operation that is in the queue is done, whether somebody waits for the answer or not.
    pub(crate) async fn submit<T, F>(&self, answer: Answer, bytes: usize, run: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer<'_>) -> StoreResult<T> + Send + 'static,
    {
        let blocks = u32::try_from(bytes / QUEUE_BLOCK_BYTES + 1).unwrap_or(u32::MAX).min(self.places_max);
        let place = self.places.clone().acquire_many_owned(blocks).await.map_err(|_| Error::Closed)?;
        let (reply, answered) = oneshot::channel();
        let work = Box::new(Task { run: Some(run), result: None, reply });
        let queue = self.queue.as_ref().ok_or(Error::Closed)?;
        queue.send(Operation { answer, work, _place: Some(place) }).map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| {
            let text = "the committer ended before it answered; the operation may have happened";
            StoreError::new(ErrorClass::Command, Applied::Maybe, Code::InterruptedAtShutdown, text)
        })?
    }

    /// Waits until everything that is applied is synced and published.
    pub(crate) async fn barrier(&self, answer: Answer) -> StoreResult<()> {
        self.submit(answer, 0, |_| Ok(())).await
    }
}

impl Committer {
    /// Waits for what is in the queue, syncs, and ends the thread.
    ///
    /// # Errors
    /// What is applied could not be synced.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.queue = None;
        // It catches panics of operations; if it ended by one of its own, that was logged by the runtime.
        let panicked = |_| Err(Error::Engine("the committer thread broke off".to_owned()));
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

/// What the thread owns.
struct State {
    engine: Arc<dyn Engine>,
    shared: Arc<Shared>,
    witness: Witness,
    chain: Chain,
    timestamp: CommitTimestamp,
    staged: Staged,
    /// What the engine holds, without what is staged.
    view: Arc<dyn View>,
    catalog: Arc<Catalog>,
    deletions: Deletions,
    images: Images,
    /// The last change of each collection since the store was opened. One that was taken back may stay: it is too late,
    /// never too early.
    changes: HashMap<CollectionId, CommitTimestamp>,
    /// Something is applied and not synced.
    dirty: bool,
    /// Something is applied and not published.
    unpublished: bool,
    /// Why nothing is written any more.
    stopped: Option<Error>,
    options: Options,
}

impl State {
    fn work(&mut self, operations: &mpsc::Receiver<Operation>) -> Result<()> {
        loop {
            let first = if self.dirty && self.stopped.is_none() {
                match operations.recv_timeout(self.options.memory_sync_interval) {
                    Ok(first) => first,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        self.settle();
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
        self.settle();
        if let Some(error) = &self.stopped {
            return Err(error.afterwards());
        }
        self.witness.sync()
    }

    /// Syncs and publishes what is left.
    fn settle(&mut self) {
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

    /// Runs the operations and makes them as durable as they ask for.
    fn commit(&mut self, group: &mut Vec<Operation>) -> Result<()> {
        if let Some(error) = &self.stopped {
            let refused = StoreError::from(error.afterwards());
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
            if let Some(error) = failure {
                return Err(error);
            }
            if good {
                self.staged.keep();
            } else {
                self.staged.take_back();
                self.deletions.take_back(timestamp);
                self.images.take_back(timestamp);
                self.catalog = catalog;
                self.timestamp = timestamp;
            }
            if self.staged.bytes() >= self.options.group_bytes_max {
                self.apply()?;
            }
        }
        self.apply()?;
        if group.iter().any(|operation| operation.answer == Answer::Synced) {
            return self.sync_unless_told_not_to();
        }
        if group.iter().any(|operation| operation.answer == Answer::Published) && self.unpublished {
            self.engine.hand_over()?;
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

    fn sync_unless_told_not_to(&mut self) -> Result<()> {
        if self.options.acknowledge_after_sync {
            return self.sync();
        }
        // The store that the kill test must catch: it says that it has synced.
        self.publish();
        Ok(())
    }

    /// Syncs everything applied, notes it, and shows it to readers.
    fn sync(&mut self) -> Result<()> {
        if self.dirty {
            self.engine.sync()?;
            self.shared.syncs.fetch_add(1, Ordering::Relaxed);
            self.dirty = false;
            self.witness.note(self.chain.numbers())?;
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
        self.unpublished = false;
        let kept_from = written_bytes.saturating_sub(self.options.snapshot_bytes_max);
        let ended = self.shared.publisher.end_before(kept_from);
        if ended > 0 {
            tracing::warn!(ended, "snapshots kept too much memory in use; the oldest were ended");
        }
        let oldest = self.shared.publisher.oldest();
        self.deletions.forget_before(oldest);
        self.images.forget_before(oldest);
    }

    fn stop(&mut self, error: &Error) {
        tracing::error!(%error, "a write or a sync failed; no more writes until the store is opened again");
        self.stopped = Some(error.clone());
    }
}
