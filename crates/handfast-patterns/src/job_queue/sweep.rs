//! Jobs whose workers fell silent, and jobs that are over.

use std::time::Duration;

use bson::{Bson, Document, doc};
use tracing::Instrument;

use super::requests::{self, Leave};
use super::{JobQueue, JobState};
use crate::{CancellationToken, Result, Round, Runner, RunnerOptions};

impl JobQueue {
    /// Returns jobs (at most `batch`) whose workers have been silent for longer than the lease, or gives them up if that has
    /// happened too often. Jobs that somebody has put into the queue without a priority get the usual one, and so their place among the
    /// others. It may run anywhere, at any time.
    ///
    /// # Errors
    /// Those of the store while it looks for them. What fails for a single job is logged and counted.
    pub async fn reclaim(&self, batch: u32) -> Result<Round> {
        let fields = self.fields();
        let silent = requests::silent(fields, self.ago(self.options.lease));
        let oldest_first = doc! { fields.of_worker(&fields.ts): 1 };
        let found = self.jobs.find(&silent, &oldest_first, batch).await?;
        let mut round = Round { more: found.len() as u64 >= u64::from(batch), ..Round::default() };
        for document in found {
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            let span = tracing::info_span!("job_queue.reclaim", %id);
            match self.reclaim_one(&document).instrument(span.clone()).await {
                Ok(reclaimed) => round.done += u64::from(reclaimed),
                Err(error) => {
                    span.in_scope(|| tracing::warn!(%error, "a job could not be reclaimed, it is tried again later"));
                    round.failed += 1;
                }
            }
        }
        self.complete_fields(batch).await?;
        if round.done > 0 {
            self.wake();
        }
        Ok(round)
    }

    /// A claim takes jobs without a priority after those that have one: without this they would wait for as long as there are others.
    async fn complete_fields(&self, batch: u32) -> Result<()> {
        let fields = self.fields();
        for document in self.jobs.find(&requests::without_priority(fields), &doc! {}, batch).await? {
            // What cannot be read is set aside by who claims it.
            let Ok(seen) = self.read(&document) else { continue };
            let (filter, update) = requests::complete_fields(fields, &seen, document.contains_key(&fields.run_at));
            self.jobs.update_one(&filter, &update).await?;
        }
        Ok(())
    }

    async fn reclaim_one(&self, document: &Document) -> Result<bool> {
        let seen = match self.read(document) {
            Ok(seen) => seen,
            Err(error) => {
                let silent = requests::silent(self.fields(), self.ago(self.options.lease));
                return self.set_aside(document, silent, &error).await;
            }
        };
        let Some(filter) = requests::still_silent(self.fields(), &seen) else { return Ok(false) };
        let name = seen.worker.as_ref().map_or("", |worker| worker.name.as_str());
        let error = format!("its worker {name} fell silent");
        let leave = if seen.cancel {
            Leave::Canceled
        } else if seen.crashes.saturating_add(1) >= self.options.crashes_max {
            tracing::warn!("a job is given up: it has silenced too many workers");
            Leave::Poison { error }
        } else {
            Leave::Crashed { error }
        };
        let Some(update) = self.leaving(JobState::Processing, &leave) else { return Ok(false) };
        let reclaimed = self.jobs.update_one(&filter, &update).await?;
        self.count(leave.counted(), u64::from(reclaimed));
        Ok(reclaimed)
    }

    /// Removes jobs (at most `batch`) that were done, or given up or canceled, at least so long ago, which must be longer than any
    /// request can be under way: a copy of its `enqueue` would put the job into the queue again.
    ///
    /// # Errors
    /// Those of the store; what was removed before stays removed.
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

    /// Reclaims in the background. The interval should be no longer than the lease.
    ///
    /// # Errors
    /// For options that make no sense.
    pub fn spawn_reclaim(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let queue = self.clone();
        Runner::spawn("job_queue.reclaim", &self.sources, options, cancel, move |batch| {
            let queue = queue.clone();
            async move { queue.reclaim(batch).await }
        })
    }

    /// Purges in the background.
    ///
    /// # Errors
    /// For options that make no sense.
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
