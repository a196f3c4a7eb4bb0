//! Workers, which claim jobs, run their handlers and renew the lease meanwhile.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::Bson;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::{JoinHandle, JoinSet};
use tracing::Instrument;

use super::{ClaimState, Job, JobContext, JobError, JobQueue};
use crate::metrics::{self, Span};
use crate::runner::jittered;
use crate::value::serialized;
use crate::{CancellationToken, Error, Result};

/// The number of renewals within a lease, so that one lost request does not lose a job.
const RENEWALS_PER_LEASE: u32 = 3;
/// The largest part by which the pause between two looks at an empty queue is made shorter or longer.
const POLL_JITTER: f64 = 0.2;
/// The time to wait until a handler that has timed out is dropped. One that blocks its thread is not dropped.
const DROP_WAIT: Duration = Duration::from_secs(1);

/// A limit on the jobs that begin within a time.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    /// The number of jobs.
    pub jobs: usize,
    /// The time.
    pub within: Duration,
}

/// Settings of [`Worker`].
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The largest number of jobs at the same time.
    pub concurrency: usize,
    /// The limit on the jobs that begin within a time.
    pub rate: Option<RateLimit>,
    /// The time between two looks at an empty queue. Jobs that this process enqueues through this queue or a clone of
    /// it are seen at once.
    pub poll: Duration,
    /// The time that handlers may still run after the worker was stopped. Then their jobs are returned, which does not
    /// count as an attempt.
    pub grace: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        WorkerOptions { concurrency: 8, rate: None, poll: Duration::from_secs(1), grace: Duration::from_secs(20) }
    }
}

/// The counts of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Jobs that were done.
    pub completed: u64,
    /// Jobs that failed, and are tried again later or were given up.
    pub failed: u64,
    /// Jobs that were put off.
    pub snoozed: u64,
    /// Jobs that another worker has claimed meanwhile, or that were canceled.
    pub lost: u64,
}

/// The counts of a worker since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Jobs claimed.
    pub claimed: u64,
    /// Jobs done.
    pub completed: u64,
    /// Handlers that failed.
    pub failed: u64,
    /// Jobs put off.
    pub snoozed: u64,
    /// Jobs that another worker claimed, or that were canceled, while the handler ran.
    pub lost: u64,
    /// Jobs that were returned when the worker stopped.
    pub released: u64,
    /// Requests to the store that failed.
    pub store_errors: u64,
}

#[derive(Debug, Default)]
struct Counters {
    claimed: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    snoozed: AtomicU64,
    lost: AtomicU64,
    released: AtomicU64,
    store_errors: AtomicU64,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Handler = Arc<dyn Fn(JobContext) -> BoxFuture<Result<Option<Bson>, JobError>> + Send + Sync>;

/// Claims jobs and runs their handlers. See [`JobQueue`] for an example.
#[derive(Clone)]
pub struct Worker {
    queue: JobQueue,
    name: String,
    options: WorkerOptions,
    handlers: HashMap<String, Handler>,
    timeouts: HashMap<String, Duration>,
    kinds: Vec<String>,
    counters: Arc<Counters>,
}

/// The end of one job, as its worker sees it.
enum Ended {
    Completed,
    Failed,
    Snoozed,
    Lost,
    Released,
}

impl Worker {
    /// Creates a worker with this name. Names are for people: several workers may have the same.
    pub fn new(queue: JobQueue, name: impl Into<String>) -> Self {
        Worker {
            queue,
            name: name.into(),
            options: WorkerOptions::default(),
            handlers: HashMap::new(),
            timeouts: HashMap::new(),
            kinds: Vec::new(),
            counters: Arc::default(),
        }
    }

    /// Sets the options.
    #[must_use]
    pub fn with_options(self, options: WorkerOptions) -> Self {
        Worker { options, ..self }
    }

    /// Adds the handler of a type of jobs; a worker claims only jobs that it has a handler for. A handler runs at
    /// least once for each job, and may be dropped at any `await`: its effects must be safe to repeat
    /// ([`JobContext::guard`]).
    ///
    /// After an error of any type, such as `anyhow`'s, the job is tried again. A [`JobError`] says something else, also
    /// within another error ([`JobError::into_error`]).
    #[must_use]
    pub fn handle<T, R, E, F>(
        mut self,
        kind: impl Into<String>,
        handler: impl Fn(JobContext, T) -> F + Send + Sync + 'static,
    ) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        R: Serialize,
        E: Into<BoxError>,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        let run = move |context: JobContext| -> BoxFuture<_> {
            let started = context.job().details::<T>().map(|details| handler(context, details));
            Box::pin(async move {
                let unreadable = |error| JobError::CannotRead(format!("its details cannot be read: {error}"));
                let reason = |error: E| JobError::of(&*error.into());
                let result = started.map_err(unreadable)?.await.map_err(reason)?;
                let unwritable = |error| JobError::GiveUp(format!("its result cannot be written: {error}"));
                let result = serialized(&result).map_err(unwritable)?;
                Ok((result != Bson::Null).then_some(result))
            })
        };
        let kind = kind.into();
        self.handlers.insert(kind.clone(), Arc::new(run));
        self.kinds.retain(|known| *known != kind);
        self.kinds.push(kind);
        self
    }

    /// Stops handlers of a type of jobs after this time, instead of the queue's; a job may have its own. A handler is
    /// stopped at its next `await`, so blocking code belongs into `tokio::task::spawn_blocking`.
    #[must_use]
    pub fn timeout(mut self, kind: impl Into<String>, timeout: Duration) -> Self {
        self.timeouts.insert(kind.into(), timeout);
        self
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> WorkerCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { claimed, completed, failed, snoozed, lost, released, store_errors } = &*self.counters;
        WorkerCounts {
            claimed: read(claimed),
            completed: read(completed),
            failed: read(failed),
            snoozed: read(snoozed),
            lost: read(lost),
            released: read(released),
            store_errors: read(store_errors),
        }
    }

    /// Runs all jobs that are due, one after the other, until there is none. It is meant for tests.
    pub async fn drain(&self) -> Result<Drained> {
        let (mut drained, never) = (Drained::default(), CancellationToken::new());
        while let Some(job) = self.queue.claim(&self.name, &self.kinds).await? {
            match self.work(job, &never).await? {
                Ended::Completed => drained.completed += 1,
                Ended::Failed => drained.failed += 1,
                Ended::Snoozed => drained.snoozed += 1,
                Ended::Lost | Ended::Released => drained.lost += 1,
            }
        }
        Ok(drained)
    }

    /// Runs the worker in the background until `cancel` is cancelled or [`RunningWorker::stop`] called. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range, and for a worker without handlers.
    pub fn spawn(&self, cancel: &CancellationToken) -> Result<RunningWorker> {
        let WorkerOptions { concurrency, rate, poll, .. } = &self.options;
        if *concurrency == 0 || poll.is_zero() || rate.is_some_and(|rate| rate.jobs == 0) {
            return Err(Error::invalid("a worker needs a concurrency, a poll and a rate of more than 0"));
        }
        if self.timeouts.values().any(Duration::is_zero) {
            return Err(Error::invalid("the time of handlers must be more than 0"));
        }
        if self.kinds.is_empty() {
            return Err(Error::invalid("a worker needs a handler"));
        }
        let cancel = cancel.child_token();
        let work = self.clone().run(cancel.clone());
        let task = tokio::spawn(work.instrument(tracing::info_span!("worker", name = self.name)));
        Ok(RunningWorker { cancel, task: Some(task), worker: self.clone() })
    }

    async fn run(self, cancel: CancellationToken) {
        let (mut running, mut begun) = (JoinSet::new(), VecDeque::new());
        let mut wake = self.queue.shared.wake.subscribe();
        // Handlers see `stop`, and may still run until `dropped`.
        let dropped = CancellationToken::new();
        while !cancel.is_cancelled() {
            // This must be before the claim, so that a job that is enqueued after it is not overlooked.
            wake.mark_unchanged();
            let free = running.len() < self.options.concurrency && self.may_begin(&mut begun);
            let claimed = if free { self.claim().await } else { None };
            if let Some(job) = claimed {
                begun.push_back(self.queue.sources.clock.elapsed());
                let (worker, cancel, dropped) = (self.clone(), cancel.clone(), dropped.clone());
                running.spawn(async move { worker.work_and_count(job, &cancel, &dropped).await });
                continue;
            }
            let pause = jittered(self.options.poll, POLL_JITTER, self.queue.sources.random.next_u64());
            tokio::select! {
                () = cancel.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
                Some(_) = running.join_next() => {}
                Ok(()) = wake.changed(), if free => {}
            }
        }
        let all_ended = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(self.options.grace, all_ended).await.is_err() {
            dropped.cancel();
            while running.join_next().await.is_some() {}
        }
    }

    /// Returns whether the rate limit allows another job now.
    fn may_begin(&self, begun: &mut VecDeque<Duration>) -> bool {
        let Some(rate) = self.options.rate else {
            begun.clear();
            return true;
        };
        let now = self.queue.sources.clock.elapsed();
        while begun.front().is_some_and(|first| now.saturating_sub(*first) >= rate.within) {
            begun.pop_front();
        }
        begun.len() < rate.jobs
    }

    async fn claim(&self) -> Option<Job> {
        match self.queue.claim(&self.name, &self.kinds).await {
            Ok(job) => {
                self.counters.claimed.fetch_add(u64::from(job.is_some()), Ordering::Relaxed);
                job
            }
            Err(error) => {
                self.counters.store_errors.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "no job could be claimed, the worker tries again");
                None
            }
        }
    }

    async fn work_and_count(&self, job: Job, stop: &CancellationToken, dropped: &CancellationToken) {
        let id = job.id.clone();
        let span = tracing::info_span!("job", %id, kind = job.kind, attempt = job.attempts);
        let counter = match self.work_until(job, stop, dropped).instrument(span.clone()).await {
            Ok(Ended::Completed) => &self.counters.completed,
            Ok(Ended::Failed) => &self.counters.failed,
            Ok(Ended::Snoozed) => &self.counters.snoozed,
            Ok(Ended::Lost) => &self.counters.lost,
            Ok(Ended::Released) => &self.counters.released,
            Err(error) => {
                span.in_scope(
                    || tracing::warn!(%error, "the end of a job could not be written, its lease will run out"),
                );
                &self.counters.store_errors
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    async fn work(&self, job: Job, stop: &CancellationToken) -> Result<Ended> {
        self.work_until(job, stop, &CancellationToken::new()).await
    }

    /// Runs the handler until it ends, the job is lost or canceled, or the worker's grace is over.
    async fn work_until(&self, job: Job, stop: &CancellationToken, dropped: &CancellationToken) -> Result<Ended> {
        let clock = &*self.queue.sources.clock;
        let begun = clock.elapsed();
        let ended = self.work_untimed(job, stop, dropped).await;
        metrics::took_since(Span::JobRun, self.queue.jobs.namespace(), clock, begun);
        ended
    }

    async fn work_untimed(&self, job: Job, stop: &CancellationToken, dropped: &CancellationToken) -> Result<Ended> {
        let Some(handler) = self.handlers.get(&job.kind) else {
            let _: ClaimState = self.queue.release(&job).await?;
            return Ok(Ended::Released);
        };
        let context = JobContext { queue: self.queue.clone(), job: job.clone(), stop: stop.clone() };
        // The handler has its own task, so that a panic counts as a failure of its job. The task ends when this
        // function does.
        let mut task = JoinSet::new();
        task.spawn(handler(context).in_current_span());
        let ended = tokio::select! {
            ended = task.join_next() => ended,
            held = self.keep(&job) => {
                task.shutdown().await;
                return match held {
                    ClaimState::CancelRequested => self.queue.release(&job).await.map(|_| Ended::Lost),
                    ClaimState::Held | ClaimState::Lost => Ok(Ended::Lost),
                };
            }
            () = dropped.cancelled() => None,
            limit = self.time_of(&job) => {
                // If the handler cannot be dropped, the fence protects its job like one that was lost.
                let _still_runs = tokio::time::timeout(DROP_WAIT, task.shutdown()).await;
                let error = format!("its handler took longer than {limit:?}");
                let held = self.queue.fail(&job, &error).await?;
                return Ok(if held == ClaimState::Held { Ended::Failed } else { Ended::Lost });
            }
        };
        let held_or = |held: ClaimState, ended: Ended| if held == ClaimState::Held { ended } else { Ended::Lost };
        match ended {
            None => {
                task.shutdown().await;
                Ok(held_or(self.queue.release(&job).await?, Ended::Released))
            }
            Some(Ok(Ok(result))) => match self.queue.complete(&job, result).await {
                // The next attempt would have the same result.
                Err(Error::Invalid { what }) => Ok(held_or(self.queue.give_up(&job, &what).await?, Ended::Failed)),
                held => Ok(held_or(held?, Ended::Completed)),
            },
            Some(Ok(Err(JobError::Retry(error)))) => Ok(held_or(self.queue.fail(&job, &error).await?, Ended::Failed)),
            Some(Ok(Err(JobError::GiveUp(error)))) => {
                Ok(held_or(self.queue.give_up(&job, &error).await?, Ended::Failed))
            }
            Some(Ok(Err(JobError::CannotRead(error)))) => {
                Ok(held_or(self.queue.cannot_read(&job, &error).await?, Ended::Failed))
            }
            Some(Ok(Err(JobError::Snooze(wait)))) => Ok(held_or(self.queue.snooze(&job, wait).await?, Ended::Snoozed)),
            Some(Err(panicked)) => Ok(held_or(self.queue.fail(&job, &panicked.to_string()).await?, Ended::Failed)),
        }
    }

    /// Waits until the time of a job's handler is over, and returns that time.
    async fn time_of(&self, job: &Job) -> Duration {
        let timeout = job.timeout.or_else(|| self.timeouts.get(&job.kind).copied()).or(self.queue.options.timeout);
        let Some(timeout) = timeout else { return std::future::pending().await };
        tokio::time::sleep(timeout).await;
        timeout
    }

    /// Renews the lease until the job is lost, or is to be canceled.
    async fn keep(&self, job: &Job) -> ClaimState {
        let (lease, clock) = (self.queue.options.lease, &self.queue.sources.clock);
        let mut renewed = clock.elapsed();
        loop {
            tokio::time::sleep(lease / RENEWALS_PER_LEASE).await;
            let now = clock.elapsed();
            match self.queue.renew(job, None).await {
                Ok(ClaimState::Held) => renewed = now,
                Ok(held) => return held,
                Err(error) => {
                    tracing::warn!(%error, "a lease could not be renewed");
                    if clock.elapsed().saturating_sub(renewed) >= lease {
                        return ClaimState::Lost;
                    }
                }
            }
        }
    }
}

/// A worker that was started. Dropping it stops the worker without waiting for its handlers.
pub struct RunningWorker {
    cancel: CancellationToken,
    task: Option<JoinHandle<()>>,
    worker: Worker,
}

impl RunningWorker {
    /// Returns the counts so far.
    pub fn counts(&self) -> WorkerCounts {
        self.worker.counts()
    }

    /// Stops claiming, waits for the handlers until their grace is over, and returns the jobs of the others.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::warn!(%error, "a worker ended with a panic");
        }
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
