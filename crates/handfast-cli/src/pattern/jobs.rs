//! `handfast jobs`: what a queue holds, and what is to be done with what failed.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{Bson, doc};
use handfast_patterns::JobQueue;
use handfast_patterns::job_queue::{Depth, Job, JobFields, JobQueueOptions, JobState};
use serde_json::{Value, json};

use super::{Fates, Subject, fields, report_rounds, rounds};
use crate::arguments::{FailedFlags, JobsArguments, JobsFlags, LimitFlags};
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::id::extended;
use crate::listing::{Listing, age};

pub(super) async fn run(subject: Subject, arguments: &JobsArguments, console: Console) -> Result<Exit> {
    let options = options(arguments)?;
    let states: Vec<_> = JobState::ALL.into_iter().map(JobState::name).collect();
    subject.ensure_holds("jobs", doc! { &options.fields.state: { "$in": states } }).await?;
    let queue = Queue { subject, options };
    match arguments {
        JobsArguments::Status { .. } => queue.status(console).await,
        JobsArguments::List { states, limit, .. } => {
            let states: Vec<JobState> = states.iter().map(|state| (*state).into()).collect();
            queue.list(&states, *limit, console).await
        }
        JobsArguments::Show { id, .. } => queue.show(*id, console).await,
        JobsArguments::Retry { failed, .. } => queue.retry(failed, console).await,
        JobsArguments::Discard { failed, .. } => queue.discard(failed, console).await,
        JobsArguments::Cancel { ids, .. } => queue.cancel(ids, console).await,
        JobsArguments::Recover { queue: flags, .. } => queue.recover(flags, console).await,
        JobsArguments::Purge { done, failed, .. } => queue.purge(done.0, failed.0, console).await,
    }
}

fn options(arguments: &JobsArguments) -> Result<JobQueueOptions> {
    let (flags, default) = (arguments.queue(), JobQueueOptions::default());
    let crashes_max = match arguments {
        JobsArguments::Recover { crashes_max, .. } => *crashes_max,
        _ => default.crashes_max,
    };
    let lease = flags.lease.map_or(default.lease, |lease| lease.0);
    if lease.is_zero() {
        return Err(Usage("--lease must be longer than nothing".to_owned()).into());
    }
    Ok(JobQueueOptions { lease, crashes_max, fields: fields::<JobFields>(&flags.open.fields)?, ..default })
}

struct Queue {
    subject: Subject,
    options: JobQueueOptions,
}

impl Queue {
    /// To look at.
    fn look(&self) -> Result<JobQueue> {
        let Subject { store, sources, namespace } = &self.subject;
        Ok(JobQueue::attach(store.clone(), namespace.clone(), sources.clone(), self.options.clone())?)
    }

    /// To change something.
    async fn open(&self) -> Result<JobQueue> {
        let Subject { store, sources, namespace } = &self.subject;
        Ok(JobQueue::open(store.clone(), namespace.clone(), sources.clone(), self.options.clone()).await?)
    }

    async fn status(&self, console: Console) -> Result<Exit> {
        let Depth { due, scheduled, processing, silent, failed, oldest_due } = self.look()?.depth().await?;
        let all = self.subject.store.collection_stats(&self.subject.namespace).await?.count;
        let done = all.saturating_sub(due + scheduled + processing + failed);
        let lease = age(self.options.lease);
        let mut text = vec![self.subject.namespace.to_string()];
        let mut count = |state: &str, count: u64, remark: String| {
            text.push(format!("  {state:<12}{count:>10}  {remark}").trim_end().to_owned());
        };
        count("due", due, oldest_due.map(|oldest| format!("the oldest for {}", age(oldest))).unwrap_or_default());
        count("scheduled", scheduled, String::new());
        let silence = if silent == 0 { String::new() } else { format!("{silent} silent for longer than {lease}") };
        count("processing", processing, silence);
        count("done", done, String::new());
        count("failed", failed, String::new());
        if silent > 0 {
            text.push(format!(
                "next: `jobs recover --lease {lease}` returns the silent ones, if that is your workers' lease"
            ));
        }
        if failed > 0 {
            text.push(
                "next: `jobs list --state failed` says why they failed, `jobs retry` lets them be done after all"
                    .to_owned(),
            );
        }
        let json = json!({
            "collection": self.subject.namespace.to_string(),
            "due": due,
            "oldest_due_seconds": oldest_due.map(|oldest| oldest.as_secs_f64()),
            "scheduled": scheduled,
            "processing": processing,
            "silent": silent,
            "done": done,
            "failed": failed,
        });
        console.report(|| text.join("\n"), &json)?;
        Ok(Exit::Good)
    }

    async fn list(&self, states: &[JobState], limit: LimitFlags, console: Console) -> Result<Exit> {
        let states = match states {
            [] => &[JobState::Failed, JobState::Processing, JobState::Todo],
            states => states,
        };
        let queue = self.look()?;
        let mut listing = Listing::new(&["id", "state", "type", "age", "attempts", "crashes", "worker", "error"]);
        for state in states {
            for job in queue.list(*state, limit.and_one()).await? {
                listing.push(self.cells(&job), line(&job));
            }
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(Exit::Good)
    }

    fn cells(&self, job: &Job) -> [String; 8] {
        let worker = job.worker.as_ref().filter(|_| job.state == JobState::Processing);
        [
            job.id.to_hex(),
            job.state.to_string(),
            job.kind.clone(),
            age(self.subject.since(job.ts)),
            job.attempts.to_string(),
            job.crashes.to_string(),
            worker.map(|worker| worker.name.clone()).unwrap_or_default(),
            job.error.clone().unwrap_or_default(),
        ]
    }

    async fn show(&self, id: bson::oid::ObjectId, console: Console) -> Result<Exit> {
        let job = self.look()?.show(id).await?.with_context(|| self.subject.missing(&id.into()))?;
        self.subject.show(console, &id.into(), Some(self.remark(&job))).await?;
        Ok(Exit::Good)
    }

    /// What the state of a job means, and what can be done.
    fn remark(&self, job: &Job) -> String {
        let (lease, now) = (self.options.lease, self.subject.sources.clock.now());
        match (job.state, &job.worker) {
            (JobState::Todo, _) if job.run_at > now => "waits for its time".to_owned(),
            (JobState::Todo, _) => format!("due for {}, waits for a worker", age(self.subject.since(job.run_at))),
            (JobState::Processing, Some(worker)) if self.subject.since(worker.ts) > lease => {
                let (name, silent) = (&worker.name, age(self.subject.since(worker.ts)));
                format!("its worker {name} is silent for {silent}: `jobs recover` returns it")
            }
            (JobState::Processing, worker) => {
                format!("worker {} has it", worker.as_ref().map_or("?", |worker| worker.name.as_str()))
            }
            (JobState::Done, _) => "done".to_owned(),
            (JobState::Failed, _) => {
                let why = job.error.as_deref().unwrap_or("nobody has said why");
                format!("given up: {why}; `jobs retry` lets it be done after all, `jobs discard` removes it")
            }
        }
    }

    async fn retry(&self, failed: &FailedFlags, console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let mut fates = Fates::new();
        for id in self.chosen(&queue, failed).await? {
            match queue.retry(id).await {
                Ok(true) => fates.push(&id.into(), true, "to be done again"),
                Ok(false) => fates.push(&id.into(), false, "has not failed"),
                // Another undone job has its unique key: the others can be done all the same.
                Err(error) if error.code() == handfast_mql::Code::DuplicateKey => {
                    fates.push(&id.into(), false, "another job has its unique key");
                }
                Err(error) => return Err(error.into()),
            }
        }
        fates.report(console)
    }

    async fn discard(&self, failed: &FailedFlags, console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let mut fates = Fates::new();
        for id in self.chosen(&queue, failed).await? {
            let discarded = queue.discard(id).await?;
            fates.push(&id.into(), discarded, if discarded { "removed" } else { "has not failed" });
        }
        fates.report(console)
    }

    async fn cancel(&self, ids: &[bson::oid::ObjectId], console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let mut fates = Fates::new();
        for id in ids {
            let canceled = queue.cancel(*id).await?;
            let outcome = match queue.show(*id).await?.map(|job| job.state) {
                None => "is not there",
                Some(JobState::Processing) if canceled => "canceled; its worker stops at its next sign of life",
                Some(_) if canceled => "canceled",
                Some(_) => "was over",
            };
            fates.push(&(*id).into(), canceled, outcome);
        }
        fates.report(console)
    }

    /// Those that were named, or all that failed.
    async fn chosen(&self, queue: &JobQueue, failed: &FailedFlags) -> Result<Vec<bson::oid::ObjectId>> {
        if !failed.all {
            return Ok(failed.ids.clone());
        }
        let jobs = queue.list(JobState::Failed, failed.limit).await?;
        let wanted = |job: &&Job| failed.kind.as_ref().is_none_or(|kind| job.kind == *kind);
        Ok(jobs.iter().filter(wanted).map(|job| job.id).collect())
    }

    async fn recover(&self, flags: &JobsFlags, console: Console) -> Result<Exit> {
        if flags.lease.is_none() {
            let why = "a shorter one than that of the workers takes jobs from them that they are at";
            return Err(Usage(format!("recover needs --lease, as the application has it: {why}")).into());
        }
        let queue = self.open().await?;
        let round = rounds(console, "recover", "jobs", |batch| queue.reclaim(batch)).await?;
        report_rounds(console, "returned", "jobs", round)
    }

    async fn purge(&self, done: Duration, failed: Duration, console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let round = rounds(console, "purge", "jobs", |batch| queue.purge(done, failed, batch)).await?;
        report_rounds(console, "removed", "jobs", round)
    }
}

fn line(job: &Job) -> Value {
    let date = |date: bson::DateTime| extended(&Bson::DateTime(date));
    let optional = |value: &Option<Bson>| value.as_ref().map(extended);
    json!({
        "_id": extended(&job.id.into()),
        "state": job.state.name(),
        "type": job.kind,
        "ts": date(job.ts),
        "runAt": date(job.run_at),
        "priority": job.priority,
        "attempts": job.attempts,
        "crashes": job.crashes,
        "worker": job.worker.as_ref().map(|worker| json!({ "name": worker.name, "ts": date(worker.ts) })),
        "error": job.error,
        "progress": optional(&job.progress),
        "finishedAt": job.finished_at.map(date),
        "details": extended(&Bson::Document(job.details.clone())),
    })
}
