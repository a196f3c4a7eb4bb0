//! Settings of a queue, and jobs to enqueue.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use serde::Serialize;

use super::Limits;
use crate::fields::field_names;
use crate::runner::jittered;
use crate::steps::raw;
use crate::value::{count, millis};
use crate::{Error, FieldNames, Result};

/// Settings of [`JobQueue`](super::JobQueue). The limits on failures, `ordered`, `limits` and `fields` are recorded in
/// the store when the queue is opened for the first time, and must be the same in all processes that open it.
#[derive(Clone, Debug)]
pub struct JobQueueOptions {
    /// The time after which another worker gets the job of a silent worker. A worker renews its claim three times in
    /// it.
    pub lease: Duration,
    /// The failures after which a job is given up.
    pub attempts_max: u32,
    /// The number of times that a worker of a job falls silent before the job is given up, because it seems to kill
    /// its workers.
    pub crashes_max: u32,
    /// The number of times that a worker cannot read the details of a job before it is given up. Between them it waits
    /// as after failures, which gives time to start workers of the version that can.
    pub unread_max: u32,
    /// The wait after a failure.
    pub backoff: Backoff,
    /// The time after which a handler is stopped, which counts as a failure; `None` for no limit. A type of jobs
    /// ([`Worker::timeout`](super::Worker::timeout)) or a single job ([`NewJob::with_timeout`]) may have another time.
    pub timeout: Option<Duration>,
    /// Whether jobs may have an order ([`NewJob::in_order`]). Each claim then takes some more operations.
    pub ordered: bool,
    /// The limits on all workers together.
    pub limits: Limits,
    /// The names of the fields.
    pub fields: JobFields,
}

impl Default for JobQueueOptions {
    fn default() -> Self {
        JobQueueOptions {
            lease: Duration::from_secs(60),
            attempts_max: 20,
            crashes_max: 5,
            unread_max: 10,
            backoff: Backoff::default(),
            timeout: Some(Duration::from_secs(3600)),
            ordered: false,
            limits: Limits::default(),
            fields: JobFields::default(),
        }
    }
}

impl JobQueueOptions {
    pub(super) fn check(&self) -> Result<()> {
        if self.lease.is_zero() {
            return Err(Error::invalid("a job queue needs a lease"));
        }
        if self.attempts_max == 0 || self.crashes_max == 0 || self.unread_max == 0 {
            return Err(Error::invalid("attempts_max, crashes_max and unread_max must be at least 1"));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Error::invalid("the time of handlers must be more than 0"));
        }
        self.backoff.check()?;
        self.fields.check()?;
        self.limits.check()
    }
}

/// The wait after a failure, which doubles with each failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// The largest part by which a wait is made shorter or longer at random, so that jobs that failed together are not
    /// retried together.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_secs(5), longest: Duration::from_secs(3600), jitter: 0.2 }
    }
}

impl Backoff {
    /// Returns the wait after a job's failure number `failures`, which is counted from 1.
    pub fn after(&self, failures: u32, random: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let wait = self.first.saturating_mul(1 << doublings).min(self.longest);
        jittered(wait, self.jitter, random)
    }

    pub(super) fn check(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(Error::invalid(format!(
                "the jitter of a backoff is a number from 0 to 1, not {}",
                self.jitter
            )));
        }
        Ok(())
    }

    fn to_document(self) -> Document {
        doc! { "firstMillis": in_millis(self.first), "longestMillis": in_millis(self.longest), "jitter": self.jitter }
    }

    pub(super) fn from_bson(value: &Bson) -> Result<Self, Box<dyn std::error::Error>> {
        let document = value.as_document().ok_or_else(|| format!("its backoff is {value}, not a document"))?;
        let jitter = document.get("jitter").map_or(Some(0.0), |jitter| match jitter {
            Bson::Double(jitter) => Some(*jitter),
            Bson::Int32(jitter) => Some(f64::from(*jitter)),
            _ => None,
        });
        let backoff = Backoff {
            first: millis(document, "firstMillis")?,
            longest: millis(document, "longestMillis")?,
            jitter: jitter.ok_or("the jitter of its backoff is no number")?,
        };
        backoff.check()?;
        Ok(backoff)
    }
}

field_names! {
    /// The names of the fields.
    pub struct JobFields {
        /// The time when a job was enqueued; in a worker, the time of its last renewal.
        ts: "ts" in "a job" | "a worker",
        /// The state of a job.
        state: "state" in "a job",
        /// The type of a job, which selects its handler.
        kind: "type" in "a job",
        /// The details for the handler.
        details: "details" in "a job",
        /// The worker that has the job, or had it: `{name, ts, claim}`.
        worker: "worker" in "a job",
        /// The name of a worker.
        worker_name: "name" in "a worker",
        /// The claim id of a worker, fresh with each claim.
        claim: "claim" in "a worker",
        /// 1 until the job is done or given up.
        undone: "undone" in "a job",
        /// The number of failures.
        attempts: "attempts" in "a job",
        /// The number of times that its worker fell silent.
        crashes: "crashes" in "a job",
        /// The number of times that a worker could not read its details.
        unread: "unread" in "a job",
        /// The failures after which the job is given up, if it has a limit of its own.
        attempts_max: "attemptsMax" in "a job",
        /// The wait after a failure, if the job has its own: `{firstMillis, longestMillis, jitter}`.
        backoff: "backoff" in "a job",
        /// The time after which its handler is stopped, if the job has its own.
        timeout: "timeoutMillis" in "a job",
        /// The number of claims so far, by which documents recognise a holder that is too late.
        claims: "claims" in "a job",
        /// The priority; larger ones come first.
        priority: "priority" in "a job",
        /// The time before which the job is not claimed.
        run_at: "runAt" in "a job",
        /// The last error.
        error: "error" in "a job",
        /// The last errors: `[{ts, error}, ..]`.
        errors: "errors" in "a job",
        /// The result of its handler.
        result: "result" in "a job",
        /// The progress that its handler has reported.
        progress: "progress" in "a job",
        /// The time when it was done or given up, by the store's clock.
        finished_at: "finishedAt" in "a job",
        /// Whether it is to be canceled while a worker has it.
        cancel: "cancel" in "a job",
        /// The key that no other undone job has.
        unique: "unique" in "a job",
        /// The key that no other job has, done or not.
        unique_window: "uniqueWindow" in "a job",
        /// The key of its order. Jobs of one key are done one after the other.
        order: "order" in "a job",
        /// The key of its order, while a worker has the job.
        running: "running" in "a job",
        /// The slot of the job, while a worker has it, in a queue with a limit on jobs at the same time.
        slot: "slot" in "a job",
    }
}

impl JobFields {
    /// Returns the path of a worker's field in a job.
    pub(super) fn of_worker(&self, field: &str) -> String {
        format!("{}.{field}", self.worker)
    }
}

/// Limit on the bytes of a job's details. A store of single documents keeps a document and its next version in 16 MiB, and each version has progress and
/// result, too.
const DETAILS_BYTES_MAX: usize = 6 * 1024 * 1024;

/// A job to be enqueued.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub(super) id: Option<Bson>,
    pub(super) kind: String,
    pub(super) details: Document,
    pub(super) priority: i32,
    pub(super) run_at: Option<DateTime>,
    pub(super) delay: Option<Duration>,
    pub(super) attempts_max: Option<u32>,
    pub(super) backoff: Option<Backoff>,
    pub(super) timeout: Option<Duration>,
    pub(super) unique: Option<Unique>,
    pub(super) order: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Unique {
    UntilDone(String),
    Window(String, Duration),
    ForEver(String),
}

impl NewJob {
    /// Creates a job for the handler of this type.
    ///
    /// # Errors
    /// [`Error::Invalid`] for details that cannot be written as a document.
    pub fn new(kind: impl Into<String>, details: &impl Serialize) -> Result<Self> {
        let details = bson::serialize_to_raw_document_buf(details)
            .and_then(Document::try_from)
            .map_err(|error| Error::invalid(format!("the details cannot be written as a document: {error}")))?;
        Ok(NewJob {
            id: None,
            kind: kind.into(),
            details,
            priority: 0,
            run_at: None,
            delay: None,
            attempts_max: None,
            backoff: None,
            timeout: None,
            unique: None,
            order: None,
        })
    }

    /// Gives the job an id, such as a text of the caller's. Enqueuing it again does nothing.
    #[must_use]
    pub fn with_id(self, id: impl Into<Bson>) -> Self {
        NewJob { id: Some(id.into()), ..self }
    }

    /// Sets the priority: larger ones come first, and 0 is the usual one.
    #[must_use]
    pub fn with_priority(self, priority: i32) -> Self {
        NewJob { priority, ..self }
    }

    /// Delays the job until this time.
    #[must_use]
    pub fn at(self, run_at: DateTime) -> Self {
        NewJob { run_at: Some(run_at), delay: None, ..self }
    }

    /// Delays the job by this time after it is enqueued.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        NewJob { run_at: None, delay: Some(delay), ..self }
    }

    /// Gives the job up after `attempts_max` failures, at least 1, instead of the queue's number.
    #[must_use]
    pub fn with_attempts(self, attempts_max: u32) -> Self {
        NewJob { attempts_max: Some(attempts_max), ..self }
    }

    /// Sets the wait after a failure, instead of the queue's.
    #[must_use]
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        NewJob { backoff: Some(backoff), ..self }
    }

    /// Stops its handler after this time, at least a millisecond, instead of the times of the queue and the worker.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        NewJob { timeout: Some(timeout), ..self }
    }

    /// Enqueues the job only if no undone job has this key.
    #[must_use]
    pub fn unique(self, key: impl Into<String>) -> Self {
        NewJob { unique: Some(Unique::UntilDone(key.into())), ..self }
    }

    /// Enqueues the job only if no job, done or not, has this key in the same window of time. Windows are counted from
    /// 1970; the job must not be purged within its window.
    #[must_use]
    pub fn unique_within(self, key: impl Into<String>, window: Duration) -> Self {
        NewJob { unique: Some(Unique::Window(key.into(), window)), ..self }
    }

    /// Enqueues the job only if no job that is still kept has this key, done or not.
    #[must_use]
    pub fn unique_for_ever(self, key: impl Into<String>) -> Self {
        NewJob { unique: Some(Unique::ForEver(key.into())), ..self }
    }

    /// Runs the job after all jobs of this key that were enqueued before, one at a time. A job that failed blocks the
    /// others until it is done or given up. The queue must be [`ordered`](JobQueueOptions::ordered).
    #[must_use]
    pub fn in_order(self, key: impl Into<String>) -> Self {
        NewJob { order: Some(key.into()), ..self }
    }

    /// Checks its options.
    pub(super) fn check(&self) -> Result<()> {
        if self.attempts_max == Some(0) {
            return Err(Error::invalid("a job needs at least one attempt"));
        }
        if self.timeout.is_some_and(|timeout| timeout.as_millis() == 0) {
            return Err(Error::invalid("the time of a job's handler must be at least a millisecond"));
        }
        if matches!(self.id, Some(Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined)) {
            return Err(Error::invalid("the id of a job is of a type that no `_id` may have"));
        }
        let bytes = raw(&self.details)?.as_bytes().len();
        if bytes > DETAILS_BYTES_MAX {
            let why = "so that its worker, errors and result fit into its document: keep more in a document of its own";
            return Err(Error::invalid(format!(
                "the details of a job have {bytes} bytes, and at most {DETAILS_BYTES_MAX} are allowed, {why}"
            )));
        }
        self.backoff.map_or(Ok(()), |backoff| backoff.check())
    }

    /// Returns its attempts, backoff and time as they are stored.
    pub(super) fn own_limits(&self) -> [Option<Bson>; 3] {
        [
            self.attempts_max.map(|attempts| Bson::Int64(attempts.into())),
            self.backoff.map(|backoff| Bson::Document(backoff.to_document())),
            self.timeout.map(|timeout| Bson::Int64(in_millis(timeout))),
        ]
    }

    /// Reads its attempts, backoff and time from the fields of these names.
    pub(super) fn set_own_limits(
        &mut self,
        document: &Document,
        [attempts_max, backoff, timeout]: [&str; 3],
    ) -> Result<(), Box<dyn std::error::Error>> {
        self.attempts_max = document.get(attempts_max).map(|_| count(document, attempts_max)).transpose()?;
        self.backoff = document.get(backoff).map(Backoff::from_bson).transpose()?;
        self.timeout = document.get(timeout).map(|_| millis(document, timeout)).transpose()?;
        Ok(())
    }

    pub(super) fn to_document(&self, fields: &JobFields, id: &Bson, now: DateTime) -> Document {
        let delayed = |delay| DateTime::from_millis(now.timestamp_millis().saturating_add(in_millis(delay)));
        let run_at = self.run_at.or_else(|| self.delay.map(delayed)).unwrap_or(now);
        let mut job = doc! {
            "_id": id,
            &fields.ts: now,
            &fields.state: super::JobState::Todo.name(),
            &fields.kind: &self.kind,
            &fields.details: self.details.clone(),
            &fields.undone: 1,
            &fields.attempts: 0,
            &fields.crashes: 0,
            &fields.priority: self.priority,
            &fields.run_at: run_at,
        };
        let own = [&fields.attempts_max, &fields.backoff, &fields.timeout].into_iter().zip(self.own_limits());
        job.extend(own.filter_map(|(field, value)| Some((field.clone(), value?))));
        match &self.unique {
            Some(Unique::UntilDone(key)) => {
                job.insert(&fields.unique, key);
            }
            Some(Unique::Window(key, window)) => {
                let number = now.timestamp_millis() / i64::try_from(window.as_millis()).unwrap_or(i64::MAX).max(1);
                job.insert(&fields.unique_window, Bson::String(format!("{key}@{number}")));
            }
            Some(Unique::ForEver(key)) => {
                job.insert(&fields.unique_window, key);
            }
            None => {}
        }
        if let Some(order) = &self.order {
            job.insert(&fields.order, order);
        }
        job
    }
}

fn in_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
