//! The sweep: it reclaims jobs whose workers fell silent, and purges jobs that are over.

use std::time::Duration;

use bson::{Bson, Document, doc};
use tracing::Instrument;

use super::requests::{self, ClaimEnd};
use super::{Job, JobQueue, JobState};
use crate::steps::Request;
use crate::{CancellationToken, Result, Round, Runner, RunnerOptions};

/// The result for a job of a silent worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// The job waits again.
    Returned,
    /// The job is a dead letter: its workers fell silent too often, or it cannot be read.
    GivenUp,
    /// The job is canceled, as had been requested.
    Canceled,
}

impl JobQueue {
    /// Returns jobs (at most `batch`) whose workers have been silent for the lease to the queue, or gives them up if
    /// that has happened too often. A job whose worker has recorded no sign of life, or one that is further ahead than the lease,
    /// is returned as well, which does not count as a crash. Jobs that another program has enqueued without a priority
    /// get the usual one, which puts them in order with the others. It may run in any process at any time. A job that
    /// fails is passed over, so that it keeps no others waiting.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the search fails. A failure at a single job is logged and counted.
    pub async fn reclaim(&self, batch: u32) -> Result<Round> {
        self.reclaim_each(batch, |_| ()).await
    }

    /// Reclaims jobs as [`JobQueue::reclaim`] does, and reports the result for each.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the search fails. A failure at a single job is logged and counted.
    pub async fn reclaim_each(&self, batch: u32, tell: impl Fn(Reclaimed)) -> Result<Round> {
        let fields = self.fields();
        let silent = requests::silent(fields, self.now(), self.options.lease);
        let oldest_first = doc! { fields.of_worker(&fields.ts): 1 };
        let mut silent = self.jobs.each_of(silent, oldest_first, batch);
        let mut round = Round::default();
        while round.done < u64::from(batch)
            && let Some(document) = silent.next().await?
        {
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            let span = tracing::info_span!("job_queue.reclaim", %id);
            match self.reclaim_one(&document).instrument(span.clone()).await {
                Ok(Some(reclaimed)) => {
                    tell(reclaimed);
                    round.done += 1;
                }
                // Its worker has renewed its claim meanwhile, or another process was faster.
                Ok(None) => {}
                Err(error) => {
                    span.in_scope(|| tracing::warn!(%error, "a job could not be reclaimed, it is tried again later"));
                    round.failed += 1;
                }
            }
        }
        round.more = round.done >= u64::from(batch);
        self.complete_fields(batch).await?;
        if round.done > 0 {
            self.wake();
        }
        Ok(round)
    }

    /// Adds the missing fields of jobs without a priority. A claim takes these after all others, so that they would
    /// wait for as long as there are others.
    async fn complete_fields(&self, batch: u32) -> Result<()> {
        let fields = self.fields();
        for document in self.jobs.find(&requests::without_priority(fields), &doc! {}, batch).await? {
            // A claim sets aside what cannot be read.
            let Ok(seen) = self.read(&document) else { continue };
            let Request { filter, update } =
                requests::complete_fields(fields, &seen, document.contains_key(&fields.run_at));
            self.jobs.update_one(&filter, &update).await?;
        }
        Ok(())
    }

    /// Reclaims a job; `None` if its worker has renewed it meanwhile, or no worker has it any more.
    async fn reclaim_one(&self, document: &Document) -> Result<Option<Reclaimed>> {
        let seen = match self.read(document) {
            Ok(seen) => seen,
            Err(error) => {
                let silent = requests::silent(self.fields(), self.now(), self.options.lease);
                let set_aside = self.set_aside(document, doc! { "$or": silent.to_vec() }, &error).await?;
                let canceled = requests::is_canceled(self.fields(), document);
                let reclaimed = if canceled { Reclaimed::Canceled } else { Reclaimed::GivenUp };
                return Ok(set_aside.then_some(reclaimed));
            }
        };
        let (end, reclaimed) = self.end_of_silent(&seen);
        let Some(update) = self.claim_end_update(JobState::Processing, &end) else { return Ok(None) };
        let is_ours = self.jobs.update_one(&requests::still_silent(self.fields(), &seen), &update).await?;
        self.count(end.counted(), u64::from(is_ours));
        Ok(is_ours.then_some(reclaimed))
    }

    /// Returns the way in which a job leaves its silent worker.
    fn end_of_silent(&self, seen: &Job) -> (ClaimEnd, Reclaimed) {
        let (name, ts) = seen.worker.as_ref().map_or(("", None), |worker| (&worker.name, worker.ts));
        if seen.cancel {
            return (ClaimEnd::Canceled, Reclaimed::Canceled);
        }
        let undated = match ts {
            None => Some(format!("its worker {name} has recorded no sign of life")),
            Some(ts) if ts > self.now() => {
                Some(format!("its worker {name} has left a date that is ahead of the clock: {ts}"))
            }
            Some(_) => None,
        };
        if let Some(error) = undated {
            tracing::warn!(error, "a job is returned, and its worker may live");
            return (ClaimEnd::Undated { error }, Reclaimed::Returned);
        }
        let error = format!("its worker {name} fell silent");
        if seen.crashes.saturating_add(1) >= self.options.crashes_max {
            tracing::warn!("a job is given up: too many of its workers fell silent");
            return (ClaimEnd::Poison { error }, Reclaimed::GivenUp);
        }
        (ClaimEnd::Crashed { error }, Reclaimed::Returned)
    }

    /// Removes jobs (at most `batch`) that were done at least `done` ago, or given up or canceled at least `failed`
    /// ago. Both ages must be longer than any request can be under way, because a late copy of its `enqueue` would put
    /// the job into the queue again.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the store fails: the jobs that were removed before stay removed.
    pub async fn purge(&self, done: Duration, failed: Duration, batch: u32) -> Result<Round> {
        let (fields, mut round) = (self.fields(), Round::default());
        for (state, age) in [(JobState::Done, done), (JobState::Failed, failed), (JobState::Canceled, failed)] {
            let old = doc! { &fields.finished_at: { "$lt": self.ago(age) }, &fields.state: state.name() };
            let found = self.jobs.find(&old, &doc! { &fields.finished_at: 1 }, batch).await?;
            round.more |= found.len() as u64 >= u64::from(batch);
            for document in found {
                let mut filter = old.clone();
                filter.insert("_id", document.get("_id").cloned().unwrap_or(Bson::Null));
                round.done += u64::from(self.jobs.delete_one(&filter).await?);
            }
        }
        Ok(round)
    }

    /// Runs [`JobQueue::reclaim`] in the background. The interval should be no longer than the lease.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for options that are out of range.
    pub fn spawn_reclaim(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let queue = self.clone();
        Runner::spawn("job_queue.reclaim", &self.sources, options, cancel, move |batch| {
            let queue = queue.clone();
            async move { queue.reclaim(batch).await }
        })
    }

    /// Runs [`JobQueue::purge`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for options that are out of range.
    pub fn spawn_purge(
        &self,
        done: Duration,
        failed: Duration,
        options: RunnerOptions,
        cancel: &CancellationToken,
    ) -> Result<Runner> {
        let queue = self.clone();
        Runner::spawn("job_queue.purge", &self.sources, options, cancel, move |batch| {
            let queue = queue.clone();
            async move { queue.purge(done, failed, batch).await }
        })
    }
}
