//! What a worker writes while it holds a job, and when it lets go of it.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, doc};

use super::requests::{self, Leave};
use super::{Job, JobQueue, JobState};
use crate::metrics::Event;
use crate::{Error, Result};

/// How often a job is looked for that workers take and give back meanwhile.
const RACES_MAX: u32 = 16;

/// Whether a worker still has its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Held {
    /// It does, and what it wrote is written.
    Yes,
    /// It does, and somebody wants the job canceled: stop, and call [`JobQueue::give_up`]. What would let the job be done again
    /// ([`JobQueue::fail`], [`JobQueue::snooze`], [`JobQueue::release`]) has ended it as canceled instead.
    CancelWanted,
    /// Its claim is over: somebody else has the job, or had it. Nothing was written.
    Lost,
}

impl JobQueue {
    /// Says that the worker is still at it, and how far.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn renew(&self, job: &Job, progress: Option<Bson>) -> Result<Held> {
        let Some(claim) = job.claim() else { return Ok(Held::Lost) };
        let held = requests::held(self.fields(), job.id, claim);
        // To say it twice is to say it later.
        Ok(match self.jobs.find_and_update(&held, &requests::renew(self.fields(), progress)).await? {
            None => {
                self.count(Event::JobLost, 1);
                Held::Lost
            }
            Some(now) if self.read(&now)?.cancel => Held::CancelWanted,
            Some(_) => Held::Yes,
        })
    }

    /// The job is done.
    ///
    /// # Errors
    /// Those of the store. Complete it again, or leave it to the lease: then it is done again.
    pub async fn complete(&self, job: &Job, result: Option<Bson>) -> Result<Held> {
        self.leave(job, &Leave::Completed { result }).await
    }

    /// The job failed: it is tried again after a while, or given up if it was its last attempt.
    ///
    /// # Errors
    /// As [`JobQueue::complete`].
    pub async fn fail(&self, job: &Job, error: &str) -> Result<Held> {
        let (error, failures) = (error.to_owned(), job.attempts.saturating_add(1));
        if failures >= self.options.attempts_max {
            return self.leave(job, &Leave::GivenUp { error }).await;
        }
        let wait = self.options.backoff.after(failures, self.sources.random.next_u64());
        self.leave(job, &Leave::Failed { error, run_at: self.later(wait) }).await
    }

    /// The job will never succeed: it becomes a dead letter.
    ///
    /// # Errors
    /// As [`JobQueue::complete`].
    pub async fn give_up(&self, job: &Job, error: &str) -> Result<Held> {
        self.leave(job, &Leave::GivenUp { error: error.to_owned() }).await
    }

    /// The job is to be done later, which is no failure.
    ///
    /// # Errors
    /// As [`JobQueue::complete`].
    pub async fn snooze(&self, job: &Job, wait: Duration) -> Result<Held> {
        self.leave(job, &Leave::Snoozed { run_at: self.later(wait) }).await
    }

    /// The job is given back at once, which is no failure: the worker stops.
    ///
    /// # Errors
    /// As [`JobQueue::complete`].
    pub async fn release(&self, job: &Job) -> Result<Held> {
        self.leave(job, &Leave::Released).await
    }

    async fn leave(&self, job: &Job, leave: &Leave) -> Result<Held> {
        let held = self.leave_uncounted(job, leave).await?;
        let event = match held {
            Held::Yes => leave.counted(),
            Held::CancelWanted => Leave::canceled().counted(),
            Held::Lost => Event::JobLost,
        };
        self.count(event, 1);
        Ok(held)
    }

    async fn leave_uncounted(&self, job: &Job, leave: &Leave) -> Result<Held> {
        let (fields, from) = (self.fields(), JobState::Processing);
        let Some(claim) = job.claim() else { return Ok(Held::Lost) };
        let Some(update) = requests::leave(fields, from, leave) else { return Ok(Held::Lost) };
        if leave.returns() {
            let wanted = |canceled| requests::held_and_wanted(fields, job.id, claim, canceled);
            if self.jobs.update_one(&wanted(false), &update).await? {
                return Ok(Held::Yes);
            }
            if let Some(canceled) = requests::leave(fields, from, &Leave::canceled())
                && self.jobs.update_one(&wanted(true), &canceled).await?
            {
                return Ok(Held::CancelWanted);
            }
        } else if self.jobs.update_one(&requests::held(fields, job.id, claim), &update).await? {
            return Ok(Held::Yes);
        }
        // The attempt before, whose answer got lost, was perhaps carried out. Then nobody has taken the claim from the job.
        let by_this_claim = doc! {
            "_id": job.id,
            &fields.state: { "$ne": from.name() },
            fields.of_worker(&fields.claim): claim,
        };
        Ok(match self.jobs.find_one(&by_this_claim).await? {
            None => Held::Lost,
            Some(now) if leave.returns() && self.read(&now)?.is_canceled() => Held::CancelWanted,
            Some(_) => Held::Yes,
        })
    }

    /// Does not let a job be done any more. One that a worker has is stopped when the worker next says that it is at it, or lets go of
    /// it; what its handler has done until then is done. Says whether there was anything to cancel.
    ///
    /// # Errors
    /// Those of the store; [`Error::Contended`] if workers take the job and give it back again and again.
    pub async fn cancel(&self, id: ObjectId) -> Result<bool> {
        let fields = self.fields();
        let canceled = Leave::canceled();
        let Some(update) = requests::leave(fields, JobState::Todo, &canceled) else { return Ok(false) };
        let waiting = doc! { "_id": id, &fields.state: JobState::Todo.name() };
        let claimed = doc! { "_id": id, &fields.state: JobState::Processing.name() };
        for _ in 0..RACES_MAX {
            if self.jobs.update_one(&waiting, &update).await? {
                self.count(canceled.counted(), 1);
                return Ok(true);
            }
            if self.jobs.update_one(&claimed, &doc! { "$set": { &fields.cancel: true } }).await? {
                return Ok(true);
            }
            let Some(job) = self.show(id).await? else { return Ok(false) };
            match job.state {
                // The attempt before, whose answer got lost, was perhaps carried out.
                JobState::Done | JobState::Failed => return Ok(job.is_canceled()),
                // It was with a worker at the first look, and waited at the second.
                JobState::Todo | JobState::Processing => {}
            }
        }
        Err(Error::Contended { what: "a job was claimed and given back".to_owned(), attempts: RACES_MAX })
    }

    /// Lets a dead letter be done after all, with all its attempts again. Says whether it was one.
    ///
    /// # Errors
    /// Those of the store; `DuplicateKey` (11000) if another undone job has its unique key.
    pub async fn retry(&self, id: ObjectId) -> Result<bool> {
        let Some(job) = self.show(id).await? else { return Ok(false) };
        let Some((filter, update)) = requests::again(self.fields(), &job, self.now()) else { return Ok(false) };
        if self.jobs.update_one(&filter, &update).await? {
            return Ok(true);
        }
        Ok(self.show(id).await?.is_some_and(|now| now.state != JobState::Failed))
    }

    /// Removes a dead letter; says whether it was one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn discard(&self, id: ObjectId) -> Result<bool> {
        let failed = doc! { "_id": id, &self.fields().state: JobState::Failed.name() };
        self.jobs.delete_one(&failed).await
    }
}
