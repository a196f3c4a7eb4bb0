//! `handfast jobs`: what a queue holds, and what is to be done with what failed.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{Bson, doc};
use handfast_patterns::job_queue::{Depth, Job, JobFields, JobQueueOptions, JobState};
use handfast_patterns::{Error, JobQueue};
use handfast_store::StoreExt;
use serde_json::{Value, json};

use super::subject::raw;
use super::{Fates, Subject, fields, report_rounds, rounds};
use crate::arguments::{FailedFlags, JobsArguments, JobsFlags, LimitFlags};
use crate::console::{Console, write_error};
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
        let Depth { due, scheduled, processing, silent, failed, foreign, oldest_due } = self.look()?.depth().await?;
        // What waits is not done, whether or not it says when it is to be done.
        let todo = raw(&doc! { &self.options.fields.state: JobState::Todo.name() })?;
        let todo = self.subject.store.count_matching(&self.subject.namespace, todo).await?;
        let all = self.subject.store.collection_stats(&self.subject.namespace).await?.count;
        let done = all.saturating_sub(todo + processing + failed);
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
        if foreign > 0 {
            text.push(format!(
                "{foreign} documents wait that are no jobs, and nobody claims them: `jobs list --state todo` names them"
            ));
        }
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
            "foreign": foreign,
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
        let mut exit = Exit::Good;
        for state in states {
            for job in queue.look(*state, limit.and_one()).await? {
                match job {
                    Ok(job) => listing.push(self.cells(&job), line(&job)),
                    Err(odd) => {
                        write_error(&odd.into());
                        exit = Exit::Failed;
                    }
                }
            }
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(exit)
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
        let job = match self.look()?.show(id).await {
            Ok(job) => job.with_context(|| self.subject.missing(&id.into()))?,
            // Who is to put it right must see what it is.
            Err(odd @ Error::Damaged { .. }) => {
                self.subject.show(console, &id.into(), None).await?;
                write_error(&odd.into());
                return Ok(Exit::Failed);
            }
            Err(error) => return Err(error.into()),
        };
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
        let (chosen, exit) = self.chosen(&queue, failed).await?;
        fates.exit = exit;
        for id in chosen {
            tell(&mut fates, id, retry_one(&queue, id).await);
        }
        fates.report(console)
    }

    async fn discard(&self, failed: &FailedFlags, console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let mut fates = Fates::new();
        let (chosen, exit) = self.chosen(&queue, failed).await?;
        fates.exit = exit;
        for id in chosen {
            tell(&mut fates, id, discard_one(&queue, id).await);
        }
        fates.report(console)
    }

    async fn cancel(&self, ids: &[bson::oid::ObjectId], console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let mut fates = Fates::new();
        for id in ids {
            tell(&mut fates, *id, cancel_one(&queue, *id).await);
        }
        fates.report(console)
    }

    /// Those that were named, or all that failed; a document that is none of a job is told, and left alone.
    async fn chosen(&self, queue: &JobQueue, failed: &FailedFlags) -> Result<(Vec<bson::oid::ObjectId>, Exit)> {
        if !failed.all {
            return Ok((failed.ids.clone(), Exit::Good));
        }
        let (mut chosen, mut exit) = (Vec::new(), Exit::Good);
        for job in queue.look(JobState::Failed, failed.limit).await? {
            match job {
                Ok(job) if failed.kind.as_ref().is_none_or(|kind| job.kind == *kind) => chosen.push(job.id),
                Ok(_) => {}
                Err(odd) => {
                    write_error(&odd.into());
                    exit = Exit::Failed;
                }
            }
        }
        Ok((chosen, exit))
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

/// Whether what was asked for has become of a job, and what has.
type Fate = handfast_patterns::Result<(bool, String)>;

/// A job that nothing could be done about is told like the others: those after it are done all the same.
fn tell(fates: &mut Fates, id: bson::oid::ObjectId, fate: Fate) {
    match fate {
        Ok((asked, outcome)) => fates.push(&id.into(), asked, outcome),
        Err(error) => fates.push(&id.into(), false, error.to_string()),
    }
}

async fn retry_one(queue: &JobQueue, id: bson::oid::ObjectId) -> Fate {
    Ok(match queue.retry(id).await {
        Ok(true) => (true, "to be done again".to_owned()),
        Ok(false) => (false, not_failed(queue, id).await?.to_owned()),
        Err(error) if error.code() == handfast_mql::Code::DuplicateKey => {
            (false, "another job has its unique key".to_owned())
        }
        Err(error) => return Err(error),
    })
}

async fn discard_one(queue: &JobQueue, id: bson::oid::ObjectId) -> Fate {
    Ok(match queue.discard(id).await? {
        true => (true, "removed".to_owned()),
        false => (false, not_failed(queue, id).await?.to_owned()),
    })
}

async fn cancel_one(queue: &JobQueue, id: bson::oid::ObjectId) -> Fate {
    let canceled = queue.cancel(id).await?;
    let outcome = match queue.show(id).await {
        Ok(None) => "is not there".to_owned(),
        Ok(Some(job)) if canceled && job.state == JobState::Processing => {
            "canceled; its worker stops at its next sign of life".to_owned()
        }
        Ok(Some(_)) if canceled => "canceled".to_owned(),
        Ok(Some(_)) => "was over".to_owned(),
        Err(odd @ Error::Damaged { .. }) if canceled => format!("canceled; {odd}"),
        Err(error) => return Err(error),
    };
    Ok((canceled, outcome))
}

/// Why a job that was named is none that failed.
async fn not_failed(queue: &JobQueue, id: bson::oid::ObjectId) -> handfast_patterns::Result<&'static str> {
    Ok(match queue.show(id).await? {
        Some(_) => "has not failed",
        None => "is not there",
    })
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
