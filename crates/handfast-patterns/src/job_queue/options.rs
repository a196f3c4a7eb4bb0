//! Settings of a queue, and jobs to put into it.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use serde::Serialize;

use super::Limits;
use crate::fields::field_names;
use crate::runner::jittered;
use crate::{Error, Result};

/// Settings of [`JobQueue`](super::JobQueue).
#[derive(Clone, Debug)]
pub struct JobQueueOptions {
    /// How long a worker may be silent before its job is given to another one. A worker speaks up three times in it.
    pub lease: Duration,
    /// Failures of a job before it is given up.
    pub attempts_max: u32,
    /// Times that a job's worker fell silent before it is given up: a job that kills whoever works on it.
    pub crashes_max: u32,
    /// How long a failed job waits.
    pub backoff: Backoff,
    /// Jobs may have an order ([`NewJob::in_order`]); each claim then costs some more operations.
    pub ordered: bool,
    /// What all workers together may do.
    pub limits: Limits,
    /// Names of fields.
    pub fields: JobFields,
}

impl Default for JobQueueOptions {
    fn default() -> Self {
        JobQueueOptions {
            lease: Duration::from_secs(60),
            attempts_max: 20,
            crashes_max: 5,
            backoff: Backoff::default(),
            ordered: false,
            limits: Limits::default(),
            fields: JobFields::default(),
        }
    }
}

/// How long a failed job waits: twice as long after each failure.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub longest: Duration,
    /// By how much it may be shorter or longer, at random, so that what failed together does not come back together.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_secs(5), longest: Duration::from_secs(3600), jitter: 0.2 }
    }
}

impl Backoff {
    /// How long to wait after so many failures.
    pub fn after(&self, failures: u32, random: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let wait = self.first.saturating_mul(1 << doublings).min(self.longest);
        jittered(wait, self.jitter, random)
    }
}

field_names! {
    /// Names of fields.
    pub struct JobFields {
        /// When it was enqueued. Of a worker: when it last said that it is at it.
        ts: "ts",
        /// Where it is.
        state: "state",
        /// Which handler it is for.
        kind: "type",
        /// What the handler gets.
        details: "details",
        /// Who has it, or had it: `{name, ts, claim}`.
        worker: "worker",
        /// Of a worker: its name.
        worker_name: "name",
        /// Of a worker: its claim, fresh each time.
        claim: "claim",
        /// 1 until it is done or given up.
        undone: "undone",
        /// Failures.
        attempts: "attempts",
        /// Times that its worker fell silent.
        crashes: "crashes",
        /// How often it was claimed: the number of the claim, by which documents know who comes too late.
        claims: "claims",
        /// Larger goes first.
        priority: "priority",
        /// Not before.
        run_at: "runAt",
        /// Why it failed last.
        error: "error",
        /// What its handler returned.
        result: "result",
        /// How far its handler says it is.
        progress: "progress",
        /// When it was done or given up, by the store's clock.
        finished_at: "finishedAt",
        /// Somebody wants it canceled while a worker has it.
        cancel: "cancel",
        /// No other undone job has this key.
        unique: "unique",
        /// No other job has this key, done or not.
        unique_window: "uniqueWindow",
        /// Jobs of one key are done one after the other.
        order: "order",
        /// The key of the order, while a worker has the job.
        running: "running",
        /// Which of the jobs that may run at once it is, while a worker has it, in a queue with such a limit.
        slot: "slot",
    }
}

impl JobFields {
    /// The path of a field of the worker, from the job.
    pub(super) fn of_worker(&self, field: &str) -> String {
        format!("{}.{field}", self.worker)
    }
}

/// A job to be enqueued.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub(super) id: Option<ObjectId>,
    pub(super) kind: String,
    pub(super) details: Document,
    pub(super) priority: i32,
    pub(super) run_at: Option<DateTime>,
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
    /// A job for the handler of this type.
    ///
    /// # Errors
    /// [`Error::Invalid`] for details that cannot be written as a document.
    pub fn new(kind: impl Into<String>, details: &impl Serialize) -> Result<Self> {
        let details = bson::serialize_to_document(details)
            .map_err(|error| Error::invalid(format!("the details cannot be written as a document: {error}")))?;
        let (id, run_at, unique, order) = (None, None, None, None);
        Ok(NewJob { id, kind: kind.into(), details, priority: 0, run_at, unique, order })
    }

    /// With an id of the caller's: to enqueue it again does nothing.
    #[must_use]
    pub fn with_id(self, id: ObjectId) -> Self {
        NewJob { id: Some(id), ..self }
    }

    /// Larger goes first; 0 is the usual one.
    #[must_use]
    pub fn with_priority(self, priority: i32) -> Self {
        NewJob { priority, ..self }
    }

    /// Not before this time.
    #[must_use]
    pub fn at(self, run_at: DateTime) -> Self {
        NewJob { run_at: Some(run_at), ..self }
    }

    /// Not if an undone job has this key.
    #[must_use]
    pub fn unique(self, key: impl Into<String>) -> Self {
        NewJob { unique: Some(Unique::UntilDone(key.into())), ..self }
    }

    /// Not if a job has this key in the same window of time, done or not. Windows are counted from 1970; the job must not
    /// be purged within it.
    #[must_use]
    pub fn unique_within(self, key: impl Into<String>, window: Duration) -> Self {
        NewJob { unique: Some(Unique::Window(key.into(), window)), ..self }
    }

    /// Not if a job has this key, done or not, as long as it is kept.
    #[must_use]
    pub fn unique_for_ever(self, key: impl Into<String>) -> Self {
        NewJob { unique: Some(Unique::ForEver(key.into())), ..self }
    }

    /// After all jobs of this key that were enqueued before: one at a time, and one that failed is waited for until it is
    /// done or given up. The queue must be [`ordered`](JobQueueOptions::ordered).
    #[must_use]
    pub fn in_order(self, key: impl Into<String>) -> Self {
        NewJob { order: Some(key.into()), ..self }
    }

    /// The document of the job.
    pub(super) fn to_document(&self, fields: &JobFields, id: ObjectId, now: DateTime) -> Document {
        let mut job = bson::doc! {
            "_id": id,
            &fields.ts: now,
            &fields.state: super::JobState::Todo.name(),
            &fields.kind: &self.kind,
            &fields.details: self.details.clone(),
            &fields.undone: 1,
            &fields.attempts: 0,
            &fields.crashes: 0,
            &fields.priority: self.priority,
            &fields.run_at: self.run_at.unwrap_or(now),
        };
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
