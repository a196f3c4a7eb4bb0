//! What a worker writes while it holds a job, and when it lets go of it.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, doc};

use super::requests::{self, Leave};
use super::{Job, JobQueue, JobState};
use crate::Result;

/// Whether a worker still has its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Held {
    /// It does, and what it wrote is written.
    Yes,
    /// It does, and somebody wants the job canceled: stop, and call [`JobQueue::give_up`].
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
            None => Held::Lost,
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
        let Some(claim) = job.claim() else { return Ok(Held::Lost) };
        let Some(update) = requests::leave(self.fields(), JobState::Processing, leave) else { return Ok(Held::Lost) };
        if self.jobs.update_one(&requests::held(self.fields(), job.id, claim), &update).await? {
            return Ok(Held::Yes);
        }
        // The attempt before, whose answer got lost, was perhaps carried out. Then nobody has taken the claim from the job.
        let by_this_claim = doc! {
            "_id": job.id,
            &self.fields().state: { "$ne": JobState::Processing.name() },
            format!("{}.claim", self.fields().worker): claim,
        };
        Ok(if self.jobs.find_one(&by_this_claim).await?.is_some() { Held::Yes } else { Held::Lost })
    }

    /// Does not let a job be done any more. One that a worker has is stopped when the worker next says that it is at it;
    /// what its handler has done until then is done. Says whether there was anything to cancel.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn cancel(&self, id: ObjectId) -> Result<bool> {
        let fields = self.fields();
        let canceled = Leave::GivenUp { error: "canceled".to_owned() };
        if let Some(update) = requests::leave(fields, JobState::Todo, &canceled) {
            let waiting = doc! { "_id": id, &fields.state: JobState::Todo.name() };
            if self.jobs.update_one(&waiting, &update).await? {
                return Ok(true);
            }
        }
        let claimed = doc! { "_id": id, &fields.state: JobState::Processing.name() };
        if self.jobs.update_one(&claimed, &doc! { "$set": { &fields.cancel: true } }).await? {
            return Ok(true);
        }
        // The attempt before, whose answer got lost, was perhaps carried out.
        Ok(self
            .show(id)
            .await?
            .is_some_and(|job| job.state == JobState::Failed && job.error.as_deref() == Some("canceled")))
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
