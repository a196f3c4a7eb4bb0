//! The state of the parts that the counters need: whether views can be counted, read and saved.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::DateTime;
use tokio::task::JoinSet;

use crate::{Counters, Error, Kind, QueueDepth, Result, time_limit};

/// The time in which a part has to answer: programs that ask whether a service is ready wait no longer than a few seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// The errors of the parts of the counters that do not work.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    /// The error of the cache and the queue: no view can be counted.
    pub queue: Option<Error>,
    /// The error of the store: a total that is not in the cache cannot be read, and views wait in the queue.
    pub store: Option<Error>,
    /// The error of the last pass that saved views, if it failed.
    pub saving: Option<Error>,
}

/// The views that this instance has saved since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedViews {
    /// The number of batches.
    pub batches: u64,
    /// The number of their views.
    pub views: u64,
    /// The end of the last pass over the queues without an error, whether or not there was something to save.
    pub last_pass: Option<DateTime>,
}

/// The queue of a kind at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindQueue {
    /// The kind.
    pub kind: Kind,
    /// The contents of the queue.
    pub depth: QueueDepth,
}

/// The passes of an instance, which clones share.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastPass(Arc<Passes>);

#[derive(Debug, Default)]
struct Passes {
    /// The error of the last pass, and the end of the last one without.
    last: Mutex<(Option<Error>, Option<DateTime>)>,
    batches: AtomicU64,
    views: AtomicU64,
}

impl Readiness {
    /// Returns whether views can be counted.
    pub fn takes_views(&self) -> bool {
        self.queue.is_none()
    }

    /// Returns the names of the parts that do not work, with their errors.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, &Error)> {
        let parts = [("queue", &self.queue), ("store", &self.store), ("saving", &self.saving)];
        parts.into_iter().filter_map(|(part, error)| error.as_ref().map(|error| (part, error)))
    }
}

impl LastPass {
    /// Keeps the result of a pass that ends now.
    pub(crate) fn keep<T>(&self, result: &Result<T>, now: DateTime) {
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.0 = result.as_ref().err().cloned();
        if result.is_ok() {
            last.1 = Some(now);
        }
    }

    /// Counts a batch whose views were added to the store.
    pub(crate) fn saved(&self, views: u64) {
        self.0.batches.fetch_add(1, Ordering::Relaxed);
        self.0.views.fetch_add(views, Ordering::Relaxed);
    }

    fn error(&self) -> Option<Error> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl Counters {
    /// Returns what this instance has saved since its start.
    pub fn saved(&self) -> SavedViews {
        let passes = &self.last_pass().0;
        let last_pass = passes.last.lock().unwrap_or_else(PoisonError::into_inner).1;
        let [batches, views] = [&passes.batches, &passes.views].map(|count| count.load(Ordering::Relaxed));
        SavedViews { batches, views, last_pass }
    }

    /// Returns the queues of all kinds. Those of a buffer that does not answer are left out: [`Counters::readiness`] has its error.
    pub async fn queues(&self) -> Vec<KindQueue> {
        let Ok(Ok(kinds)) = tokio::time::timeout(ANSWER_TIME_MAX, self.buffer().kinds()).await else {
            return Vec::new();
        };
        self.queues_of(kinds).await
    }

    /// Returns the queues of kinds that answer within 2 seconds.
    pub(crate) async fn queues_of(&self, kinds: Vec<Kind>) -> Vec<KindQueue> {
        // All at once, as those on a server that is away are waited for.
        let mut reading = JoinSet::new();
        for kind in kinds {
            let buffer = Arc::clone(self.buffer());
            reading.spawn(async move {
                let depth = tokio::time::timeout(ANSWER_TIME_MAX, buffer.depth(&kind)).await;
                Some(KindQueue { depth: depth.ok()?.ok()?, kind })
            });
        }
        let mut queues: Vec<KindQueue> = reading.join_all().await.into_iter().flatten().collect();
        queues.sort_by(|queue, other| queue.kind.cmp(&other.kind));
        queues
    }

    /// Asks all parts at once whether they work. One that does not answer within 2 seconds does not.
    pub async fn readiness(&self) -> Readiness {
        let queue = time_limit::of_buffer(ANSWER_TIME_MAX, self.buffer().check());
        let (queue, store) = tokio::join!(queue, self.ask_store(ANSWER_TIME_MAX));
        Readiness { queue: queue.err(), store: store.err(), saving: self.last_pass().error() }
    }
}
