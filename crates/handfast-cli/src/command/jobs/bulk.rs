//! Commands about several jobs: they report the outcome of each, and count the jobs that are done, skipped and failed.
//!
//! A job is skipped if it is missing, or not in the state that the command is about. That is a failure if its id was named (exit code 1), and none
//! with `--all`: another process was faster.

use anyhow::Result;
use bson::Bson;
use handfast_patterns::job_queue::{JobFilter, JobState};
use handfast_patterns::{Error, JobQueue};
use serde_json::json;

use super::Queue;
use super::arguments::FailedFlags;
use crate::console::{Console, write_error};
use crate::exit::Exit;
use crate::id::{Id, extended_json, shown};
use crate::listing::Listing;

/// Jobs of a page.
const PAGE: u32 = 500;

/// The outcome of a canceled job whose worker is silent.
const TO_BE_CANCELED: &str = "to be canceled: its worker is silent, and `jobs recover` ends it";

/// The outcome of a command for one job.
enum JobOutcome {
    Done(String),
    Skipped(String),
    Failed(String),
}

struct JobOutcomes {
    listing: Listing,
    done: u64,
    skipped: u64,
    failed: u64,
}

impl JobOutcomes {
    fn new() -> Self {
        JobOutcomes { listing: Listing::new(&["id", "outcome"]), done: 0, skipped: 0, failed: 0 }
    }

    /// Counts an error of one job as its outcome: the jobs after it are handled all the same.
    fn push(&mut self, id: &Bson, result: handfast_patterns::Result<JobOutcome>) {
        let outcome = result.unwrap_or_else(|error| JobOutcome::Failed(error.to_string()));
        let is_done = matches!(outcome, JobOutcome::Done(_));
        let (count, text) = match outcome {
            JobOutcome::Done(text) => (&mut self.done, text),
            JobOutcome::Skipped(text) => (&mut self.skipped, text),
            JobOutcome::Failed(text) => (&mut self.failed, text),
        };
        *count += 1;
        let line = json!({ "id": extended_json(id), "done": is_done, "outcome": text });
        self.listing.push([shown(id), text], line);
    }

    /// Reports all outcomes; `did` is the word for a job that is done.
    fn report(&self, console: Console, did: &str, all: bool) -> Result<Exit> {
        let JobOutcomes { listing, done, skipped, failed } = self;
        console.list(listing)?;
        let text = || format!("{done} {did}, {skipped} skipped, {failed} failed");
        console.report(text, &json!({ "summary": { "done": done, "skipped": skipped, "failed": failed } }))?;
        let good = *failed == 0 && (all || *skipped == 0);
        Ok(if good { Exit::Good } else { Exit::Failed })
    }
}

impl Queue {
    pub(super) async fn retry(&self, flags: &FailedFlags, console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let outcomes = each(&queue, flags, console, async |id| retry_one(&queue, id).await).await?;
        outcomes.report(console, "to be done again", flags.all)
    }

    pub(super) async fn discard(&self, flags: &FailedFlags, console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let outcomes = each(&queue, flags, console, async |id| discard_one(&queue, id).await).await?;
        outcomes.report(console, "removed", flags.all)
    }

    pub(super) async fn cancel(&self, ids: &[Id], console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let mut outcomes = JobOutcomes::new();
        for Id(id) in ids {
            outcomes.push(id, self.cancel_one(&queue, id).await?);
        }
        outcomes.report(console, "canceled", false)
    }

    async fn cancel_one(&self, queue: &JobQueue, id: &Bson) -> Result<handfast_patterns::Result<JobOutcome>> {
        let canceled = match queue.cancel(id.clone()).await {
            Ok(canceled) => canceled,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(match queue.show(id.clone()).await {
            Ok(None) => JobOutcome::Skipped("is not there".to_owned()),
            Ok(Some(job)) if canceled && queue.is_silent(&job) => JobOutcome::Done(TO_BE_CANCELED.to_owned()),
            Ok(Some(job)) if canceled && job.state == JobState::Processing => {
                JobOutcome::Done("canceled; its worker stops at its next sign of life".to_owned())
            }
            Ok(Some(_)) if canceled => JobOutcome::Done("canceled".to_owned()),
            Ok(Some(_)) => JobOutcome::Skipped("was over".to_owned()),
            Err(odd @ Error::Damaged { .. }) if canceled => {
                let document = self.collection.document(id).await?.unwrap_or_default();
                let state = document.get_str(&self.options.fields.state).unwrap_or_default();
                let done = if state == JobState::Processing.name() { TO_BE_CANCELED } else { "canceled" };
                JobOutcome::Done(format!("{done}; {odd}"))
            }
            Err(error) => return Ok(Err(error)),
        }))
    }
}

/// Calls a function for the named jobs, or for failed jobs, the oldest first and up to the limit. A document that is no job counts as failed.
async fn each(
    queue: &JobQueue,
    flags: &FailedFlags,
    console: Console,
    one: impl AsyncFn(&Bson) -> handfast_patterns::Result<JobOutcome>,
) -> Result<JobOutcomes> {
    let mut outcomes = JobOutcomes::new();
    for Id(id) in &flags.ids {
        outcomes.push(id, one(id).await);
    }
    if !flags.all {
        return Ok(outcomes);
    }
    let filter = JobFilter { kind: flags.kind.clone(), ..JobFilter::in_state(JobState::Failed) };
    let (mut left, mut after) = (flags.limit, None);
    while left > 0 {
        let page = queue.page(&filter, after.as_ref(), left.min(PAGE)).await?;
        for job in &page.jobs {
            match job {
                Ok(job) => outcomes.push(&job.id, one(&job.id).await),
                Err(odd) => {
                    write_error(&anyhow::Error::msg(odd.to_string()));
                    outcomes.failed += 1;
                }
            }
        }
        left = left.saturating_sub(u32::try_from(page.jobs.len()).unwrap_or(u32::MAX));
        after = page.next;
        if after.is_none() {
            return Ok(outcomes);
        }
    }
    console.remark("there are more failed jobs: --limit N handles more of them");
    Ok(outcomes)
}

async fn retry_one(queue: &JobQueue, id: &Bson) -> handfast_patterns::Result<JobOutcome> {
    match queue.retry(id.clone()).await {
        Ok(true) => Ok(JobOutcome::Done("to be done again".to_owned())),
        Ok(false) => not_failed(queue, id).await,
        Err(error) if error.code() == handfast_mql::Code::DuplicateKey => {
            Ok(JobOutcome::Failed("another job has its unique key".to_owned()))
        }
        Err(error) => Err(error),
    }
}

async fn discard_one(queue: &JobQueue, id: &Bson) -> handfast_patterns::Result<JobOutcome> {
    match queue.discard(id.clone()).await? {
        true => Ok(JobOutcome::Done("removed".to_owned())),
        false => not_failed(queue, id).await,
    }
}

/// Returns why a job is skipped that has not failed.
async fn not_failed(queue: &JobQueue, id: &Bson) -> handfast_patterns::Result<JobOutcome> {
    let why = match queue.show(id.clone()).await? {
        Some(job) if job.state == JobState::Canceled => "was canceled",
        Some(_) => "has not failed",
        None => "is not there",
    };
    Ok(JobOutcome::Skipped(why.to_owned()))
}
