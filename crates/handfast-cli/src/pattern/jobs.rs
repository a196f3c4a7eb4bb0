//! `handfast jobs`: what a queue holds, and what is to be done with what failed.

mod bulk;
mod status;

use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{Bson, doc};
use handfast_patterns::job_queue::{Job, JobFields, JobFilter, JobQueueOptions, JobState};
use handfast_patterns::{Error, JobQueue};
use serde_json::{Value, json};

use super::{Subject, fields, report_rounds, rounds};
use crate::arguments::{JobsArguments, JobsFlags, LimitFlags};
use crate::console::{Console, write_error};
use crate::exit::{Exit, Usage};
use crate::id::{extended, shown};
use crate::listing::{Listing, age};

pub(super) async fn run(subject: Subject, arguments: &JobsArguments, console: Console) -> Result<Exit> {
    let options = options(arguments)?;
    let states: Vec<_> = JobState::ALL.into_iter().map(JobState::name).collect();
    subject.ensure_holds("jobs", doc! { &options.fields.state: { "$in": states } }).await?;
    let queue = Queue { subject, options };
    match arguments {
        JobsArguments::Status { .. } => queue.status(console).await,
        JobsArguments::List { states, kind, older_than, after, limit, .. } => {
            let states: Vec<JobState> = states.iter().map(|state| (*state).into()).collect();
            let before = older_than.map(|age| queue.subject.before(age.0));
            let filters = |state: &JobState| JobFilter { state: *state, kind: kind.clone(), before };
            let filters: Vec<_> = if states.is_empty() { LISTED.iter() } else { states.iter() }.map(filters).collect();
            queue.list(&filters, after.as_ref().map(|id| &id.0), *limit, console).await
        }
        JobsArguments::Show { id, .. } => queue.show(&id.0, console).await,
        JobsArguments::Retry { failed, .. } => queue.retry(failed, console).await,
        JobsArguments::Discard { failed, .. } => queue.discard(failed, console).await,
        JobsArguments::Cancel { ids, .. } => queue.cancel(ids, console).await,
        JobsArguments::Pause { why, .. } => queue.pause(why, console).await,
        JobsArguments::Resume { .. } => queue.resume(console).await,
        JobsArguments::Recover { queue: flags, .. } => queue.recover(flags, console).await,
        JobsArguments::Purge { done, failed, .. } => queue.purge(done.0, failed.0, console).await,
    }
}

/// States that are listed unless others are asked for.
const LISTED: [JobState; 3] = [JobState::Failed, JobState::Processing, JobState::Todo];

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

    async fn list(
        &self,
        filters: &[JobFilter],
        after: Option<&Bson>,
        limit: LimitFlags,
        console: Console,
    ) -> Result<Exit> {
        if after.is_some() && filters.len() > 1 {
            return Err(Usage("--after goes with one --state: each state is a list of its own".to_owned()).into());
        }
        let queue = self.look()?;
        let after = match after {
            None => None,
            Some(id) => Some(queue.position_of(id.clone()).await?.with_context(|| self.subject.missing(id))?),
        };
        let mut listing = Listing::new(&["id", "state", "type", "age", "attempts", "crashes", "worker", "error"]);
        let mut exit = Exit::Good;
        for filter in filters {
            for job in queue.page(filter, after.as_ref(), limit.and_one()).await?.jobs {
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
            shown(&job.id),
            job.state.to_string(),
            job.kind.clone(),
            age(self.subject.since(job.ts)),
            job.attempts.to_string(),
            job.crashes.to_string(),
            worker.map(|worker| worker.name.clone()).unwrap_or_default(),
            job.error.clone().unwrap_or_default(),
        ]
    }

    async fn show(&self, id: &Bson, console: Console) -> Result<Exit> {
        let job = match self.look()?.show(id.clone()).await {
            Ok(job) => job.with_context(|| self.subject.missing(id))?,
            // Who is to put it right must see what it is.
            Err(odd @ Error::Damaged { .. }) => {
                self.subject.show(console, id, None).await?;
                write_error(&odd.into());
                return Ok(Exit::Failed);
            }
            Err(error) => return Err(error.into()),
        };
        self.subject.show(console, id, Some(self.remark(&job))).await?;
        Ok(Exit::Good)
    }

    async fn pause(&self, why: &str, console: Console) -> Result<Exit> {
        self.look()?.pause(why).await?;
        console.report(
            || format!("{} is paused: `jobs resume` ends it", self.subject.namespace),
            &json!({ "paused": true }),
        )?;
        Ok(Exit::Good)
    }

    async fn resume(&self, console: Console) -> Result<Exit> {
        let was_paused = self.look()?.resume().await?;
        let text = || match was_paused {
            true => format!("{} is resumed", self.subject.namespace),
            false => format!("{} was not paused", self.subject.namespace),
        };
        console.report(text, &json!({ "paused": false, "was_paused": was_paused }))?;
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
            (JobState::Canceled, _) => "canceled: it is not done any more".to_owned(),
            (JobState::Failed, _) => {
                let why = job.error.as_deref().unwrap_or("nobody has said why");
                format!("given up: {why}; `jobs retry` lets it be done after all, `jobs discard` removes it")
            }
        }
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
        "_id": extended(&job.id),
        "state": job.state.name(),
        "type": job.kind,
        "ts": date(job.ts),
        "runAt": date(job.run_at),
        "priority": job.priority,
        "attempts": job.attempts,
        "crashes": job.crashes,
        "worker": job.worker.as_ref().map(|worker| json!({ "name": worker.name, "ts": date(worker.ts) })),
        "unread": job.unread,
        "error": job.error,
        "errors": job.errors.iter().map(|past| json!({ "ts": date(past.ts), "error": past.error })).collect::<Vec<_>>(),
        "progress": optional(&job.progress),
        "finishedAt": job.finished_at.map(date),
        "details": extended(&Bson::Document(job.details.clone())),
    })
}
