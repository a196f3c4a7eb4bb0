//! The writes of a worker while it has a job, and those that end or return the job.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};

use super::requests::{self, ClaimEnd};
use super::{Job, JobEvent, JobQueue, JobState};
use crate::metrics::Event;
use crate::steps::{Request, raw};
use crate::value::equal;
use crate::{Error, Result};

/// Attempts at a cancellation when workers claim the job and return it meanwhile.
const RACES_MAX: u32 = 16;
/// Limit on the characters of an error that are kept: a longer one could make the document too large for the store,
/// and the job would never end.
const ERROR_CHARACTERS_MAX: usize = 2000;

/// Limit on the bytes of a job's progress, and of its result: see the limit on its details.
const VALUE_BYTES_MAX: usize = 512 * 1024;

/// The state of a worker's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ClaimState {
    /// The worker has the job, and its write was made.
    Held,
    /// The worker has the job, but the job is to be canceled: stop, and call [`JobQueue::release`]. Each call that
    /// returns the job undone ([`JobQueue::fail`], [`JobQueue::give_up`], [`JobQueue::snooze`], [`JobQueue::release`])
    /// ends it as canceled.
    CancelRequested,
    /// The claim is over: another worker has the job, or had it. Nothing was written.
    Lost,
}

impl JobQueue {
    /// Returns the job of a claim, for a worker that kept only the `_id` of the job and its claim id: `None` if another claim followed, or the claim was taken
    /// away. A job that was done or returned under this claim is still its job.
    pub async fn claimed(&self, id: impl Into<Bson>, claim: ObjectId) -> Result<Option<Job>> {
        let of_claim = doc! { "_id": equal(&id.into()), self.fields().of_worker(&self.fields().claim): claim };
        self.jobs.find_one(&of_claim).await?.map(|job| self.read(&job)).transpose()
    }

    /// Renews the claim of a worker, and records its progress.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a progress of more than 512 KiB.
    pub async fn renew(&self, job: &Job, progress: Option<Bson>) -> Result<ClaimState> {
        check_value("progress", progress.as_ref())?;
        let Some(claim) = job.claim() else { return Ok(ClaimState::Lost) };
        let held = requests::held(self.fields(), &job.id, claim);
        // A repeated renewal only sets a later time.
        Ok(match self.jobs.find_and_update(&held, &requests::renew(self.fields(), progress)).await? {
            None => {
                self.count(Event::JobLost, 1);
                ClaimState::Lost
            }
            Some(now) if self.read(&now)?.cancel => ClaimState::CancelRequested,
            Some(_) => ClaimState::Held,
        })
    }

    /// Records that the job is done.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: complete the job again, or leave it until its lease is over, after which
    /// it is done again. [`Error::Invalid`] for a result of more than 512 KiB.
    pub async fn complete(&self, job: &Job, result: Option<Bson>) -> Result<ClaimState> {
        check_value("result", result.as_ref())?;
        self.end_claim(job, &ClaimEnd::Completed { result }).await
    }

    /// Records that the job failed: it is tried again after a while, or given up if this was its last attempt.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: call again, or leave the job until its lease is over.
    pub async fn fail(&self, job: &Job, error: &str) -> Result<ClaimState> {
        let (error, failures) = (kept(error), job.attempts.saturating_add(1));
        if failures >= job.attempts_max.unwrap_or(self.options.attempts_max) {
            return self.end_claim(job, &ClaimEnd::GivenUp { error }).await;
        }
        let run_at = self.later(self.wait_after(job, failures));
        self.end_claim(job, &ClaimEnd::Failed { error, run_at }).await
    }

    /// Records that this worker cannot read the details of the job; one of another version may be able to. The job
    /// waits, which does not count as a failure, and is given up after
    /// [`unread_max`](super::JobQueueOptions::unread_max) times.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: call again, or leave the job until its lease is over.
    pub async fn cannot_read(&self, job: &Job, error: &str) -> Result<ClaimState> {
        let (error, times) = (kept(error), job.unread.saturating_add(1));
        if times >= self.options.unread_max {
            tracing::warn!(id = %job.id, kind = job.kind, error, "a job is given up: no worker could read its details");
            return self.end_claim(job, &ClaimEnd::Unreadable { error }).await;
        }
        tracing::warn!(id = %job.id, kind = job.kind, error, "a job goes back to the queue: its details cannot be read here");
        let run_at = self.later(self.wait_after(job, times));
        self.end_claim(job, &ClaimEnd::Unread { error, run_at }).await
    }

    fn wait_after(&self, job: &Job, failures: u32) -> Duration {
        job.backoff.unwrap_or(self.options.backoff).after(failures, self.sources.random.next_u64())
    }

    /// Records that the job will never succeed: it becomes a dead letter.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: call again, or leave the job until its lease is over.
    pub async fn give_up(&self, job: &Job, error: &str) -> Result<ClaimState> {
        self.end_claim(job, &ClaimEnd::GivenUp { error: kept(error) }).await
    }

    /// Puts the job off for a while, which does not count as a failure.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: call again, or leave the job until its lease is over.
    pub async fn snooze(&self, job: &Job, wait: Duration) -> Result<ClaimState> {
        self.end_claim(job, &ClaimEnd::Snoozed { run_at: self.later(wait) }).await
    }

    /// Returns the job to the queue at once, because the worker stops. This does not count as a failure.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: call again, or leave the job until its lease is over.
    pub async fn release(&self, job: &Job) -> Result<ClaimState> {
        self.end_claim(job, &ClaimEnd::Released).await
    }

    async fn end_claim(&self, job: &Job, end: &ClaimEnd) -> Result<ClaimState> {
        let held = self.end_claim_uncounted(job, end).await?;
        let event = match held {
            ClaimState::Held => end.counted(),
            ClaimState::CancelRequested => ClaimEnd::Canceled.counted(),
            ClaimState::Lost => Event::JobLost,
        };
        self.count(event, 1);
        Ok(held)
    }

    async fn end_claim_uncounted(&self, job: &Job, end: &ClaimEnd) -> Result<ClaimState> {
        let fields = self.fields();
        let Some(claim) = job.claim() else { return Ok(ClaimState::Lost) };
        let Some(update) = self.claim_end_update(JobState::Processing, end) else { return Ok(ClaimState::Lost) };
        if end.event() == JobEvent::Completed {
            if self.jobs.update_one(&requests::held(fields, &job.id, claim), &update).await? {
                return Ok(ClaimState::Held);
            }
        } else {
            let wanted = |canceled| requests::held_and_wanted(fields, &job.id, claim, canceled);
            if self.jobs.update_one(&wanted(false), &update).await? {
                return Ok(ClaimState::Held);
            }
            if let Some(canceled) = self.claim_end_update(JobState::Processing, &ClaimEnd::Canceled)
                && self.jobs.update_one(&wanted(true), &canceled).await?
            {
                return Ok(ClaimState::CancelRequested);
            }
        }
        // An attempt before, whose answer was lost, may have been carried out. Then the job still has this claim id.
        let by_this_claim = doc! {
            "_id": equal(&job.id),
            &fields.state: { "$ne": JobState::Processing.name() },
            fields.of_worker(&fields.claim): claim,
        };
        let Some(now) = self.jobs.find_one(&by_this_claim).await? else { return Ok(ClaimState::Lost) };
        let is = |state: JobState| now.get_str(&fields.state).is_ok_and(|name| name == state.name());
        Ok(match end.event() {
            JobEvent::Completed if !is(JobState::Done) => ClaimState::Lost,
            JobEvent::Completed => ClaimState::Held,
            _ if is(JobState::Canceled) => ClaimState::CancelRequested,
            _ => ClaimState::Held,
        })
    }

    /// Returns the update for a job that leaves its state in this way at the current time.
    pub(super) fn claim_end_update(&self, from: JobState, end: &ClaimEnd) -> Option<Document> {
        requests::end_claim(self.fields(), from, end, self.now())
    }

    /// Cancels a job: it is not done any more. If a worker has the job, its handler is stopped when the worker next
    /// renews its claim or returns the job; changes that the handler has made until then remain. Returns whether there was
    /// anything to cancel.
    ///
    /// # Errors
    /// [`Error::Contended`] if workers claim the job and return it at each attempt.
    pub async fn cancel(&self, id: impl Into<Bson>) -> Result<bool> {
        let (fields, id) = (self.fields(), id.into());
        let canceled = ClaimEnd::Canceled;
        let Some(update) = self.claim_end_update(JobState::Todo, &canceled) else { return Ok(false) };
        let waiting = doc! { "_id": equal(&id), &fields.state: JobState::Todo.name() };
        let claimed = doc! { "_id": equal(&id), &fields.state: JobState::Processing.name() };
        for _ in 0..RACES_MAX {
            if self.jobs.update_one(&waiting, &update).await? {
                self.count(canceled.counted(), 1);
                return Ok(true);
            }
            if self.jobs.update_one(&claimed, &doc! { "$set": { &fields.cancel: true } }).await? {
                return Ok(true);
            }
            let Some(job) = self.show(id.clone()).await? else { return Ok(false) };
            match job.state {
                JobState::Done | JobState::Failed => return Ok(false),
                // An attempt before, whose answer was lost, has canceled it, or another caller has.
                JobState::Canceled => return Ok(true),
                // A worker had it at the first look, and it waited at the second one, or the reverse.
                JobState::Todo | JobState::Processing => {}
            }
        }
        Err(Error::Contended { what: "a job was claimed and given back".to_owned(), attempts: RACES_MAX })
    }

    /// Returns a dead letter to the queue, with all its attempts again. Returns whether it was a dead letter.
    ///
    /// # Errors
    /// [`Error::Store`] with `DuplicateKey` (11000) if another undone job has its unique key.
    pub async fn retry(&self, id: impl Into<Bson>) -> Result<bool> {
        let id = id.into();
        let Some(job) = self.show(id.clone()).await? else { return Ok(false) };
        let Some(Request { filter, update }) = requests::again(self.fields(), &job, self.now()) else {
            return Ok(false);
        };
        let waits = self.jobs.update_one(&filter, &update).await?
            || self.show(id).await?.is_some_and(|now| !matches!(now.state, JobState::Failed | JobState::Canceled));
        self.wake();
        Ok(waits)
    }

    /// Removes a dead letter; returns whether it was one.
    pub async fn discard(&self, id: impl Into<Bson>) -> Result<bool> {
        let failed = doc! { "_id": equal(&id.into()), &self.fields().state: JobState::Failed.name() };
        self.jobs.delete_one(&failed).await
    }
}

/// Cuts an error to the length that a job keeps.
fn kept(error: &str) -> String {
    error.chars().take(ERROR_CHARACTERS_MAX).collect()
}

/// Checks the size of a value that is kept with its job.
fn check_value(what: &str, value: Option<&Bson>) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    let bytes = raw(&doc! { "": value })?.as_bytes().len();
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let advice = "keep more in a document of its own";
    Err(Error::invalid(format!(
        "the {what} of a job has {bytes} bytes, and at most {VALUE_BYTES_MAX} are allowed: {advice}"
    )))
}
