//! `handfast jobs`: shows a queue, adds jobs to it, and repeats or removes failed ones.

pub(super) mod arguments;
mod bulk;
mod enqueue;
mod schedules;
mod status;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{Bson, doc};
use handfast_patterns::job_queue::{Job, JobFilter, JobQueueOptions, JobState, Reclaimed, WorkerMark};
use handfast_patterns::{Error, JobQueue, Round};
use serde_json::{Value, json};

use self::arguments::{JobsArguments, JobsFlags};
use crate::command::pattern::{OpenedCollection, rename, report_rounds, rounds, with_collection};
use crate::console::{Console, write_error};
use crate::exit::{Exit, Usage};
use crate::flags::LimitFlags;
use crate::id::{extended_json, shown};
use crate::listing::{Listing, age, counted};

pub(super) fn run(arguments: &JobsArguments) -> Result<Exit> {
    let queue = arguments.queue();
    with_collection(&queue.open, &queue.collection, |collection, console| execute(collection, arguments, console))
}

async fn execute(collection: OpenedCollection, arguments: &JobsArguments, console: Console) -> Result<Exit> {
    let options = options(&collection, arguments).await?;
    let queue = Queue { collection, options };
    // A flag that contradicts the record is refused before it is used.
    queue.attach().await?;
    let states: Vec<_> = JobState::ALL.into_iter().map(JobState::name).collect();
    queue.collection.ensure_holds("jobs", doc! { &queue.options.fields.state: { "$in": states } }).await?;
    match arguments {
        JobsArguments::Status { .. } => queue.status(console).await,
        JobsArguments::List { states, kind, older_than, after, limit, .. } => {
            let states: Vec<JobState> = states.iter().map(|state| (*state).into()).collect();
            let before = older_than.map(|age| queue.collection.before(age.0));
            let filters = |state: &JobState| JobFilter { state: *state, kind: kind.clone(), before };
            let filters: Vec<_> = if states.is_empty() { LISTED.iter() } else { states.iter() }.map(filters).collect();
            queue.list(&filters, after.as_ref().map(|id| &id.0), *limit, console).await
        }
        JobsArguments::Schedules { schedules, limit, .. } => queue.schedules(schedules, *limit, console).await,
        JobsArguments::Show { id, .. } => queue.show(&id.0, console).await,
        JobsArguments::Enqueue { kind, details, job, .. } => queue.enqueue(kind, details, job, console).await,
        JobsArguments::Retry { failed, .. } => queue.retry(failed, console).await,
        JobsArguments::Discard { failed, .. } => queue.discard(failed, console).await,
        JobsArguments::Cancel { ids, .. } => queue.cancel(ids, console).await,
        JobsArguments::Pause { why, .. } => queue.pause(why, console).await,
        JobsArguments::Resume { .. } => queue.resume(console).await,
        JobsArguments::Recover { queue: flags, .. } => queue.recover(flags, console).await,
        JobsArguments::Purge { done, failed, .. } => queue.purge(done.0, failed.0, console).await,
    }
}

/// The states that are listed by default.
const LISTED: [JobState; 3] = [JobState::Failed, JobState::Processing, JobState::Todo];

/// Returns the recorded settings with those of flags. The queue refuses a flag that contradicts the record.
async fn options(collection: &OpenedCollection, arguments: &JobsArguments) -> Result<JobQueueOptions> {
    let flags = arguments.queue();
    let mut options =
        JobQueueOptions::recorded(collection.store.clone(), &collection.namespace).await?.unwrap_or_default();
    if let JobsArguments::Recover { crashes_max: Some(crashes_max), .. } = arguments {
        options.crashes_max = *crashes_max;
    }
    options.lease = flags.lease.map_or(options.lease, |lease| lease.0);
    if options.lease.is_zero() {
        return Err(Usage("--lease must be longer than zero".to_owned()).into());
    }
    rename(&mut options.fields, &flags.open.fields)?;
    Ok(options)
}

struct Queue {
    collection: OpenedCollection,
    options: JobQueueOptions,
}

impl Queue {
    /// Opens the queue without creating indexes or recording settings.
    async fn attach(&self) -> Result<JobQueue> {
        let OpenedCollection { store, sources, namespace } = &self.collection;
        Ok(JobQueue::attach(store.clone(), namespace.clone(), sources.clone(), self.options.clone()).await?)
    }

    /// Opens with all indexes. The application, which knows the settings, records them.
    async fn open(&self) -> Result<JobQueue> {
        let mut queue = self.attach().await?;
        queue.create_indexes().await?;
        Ok(queue)
    }

    async fn list(
        &self,
        filters: &[JobFilter],
        after: Option<&Bson>,
        limit: LimitFlags,
        console: Console,
    ) -> Result<Exit> {
        if after.is_some() && filters.len() > 1 {
            return Err(
                Usage("--after needs exactly one --state, because each state is listed by itself".to_owned()).into()
            );
        }
        let queue = self.attach().await?;
        let after = match after {
            None => None,
            Some(id) => Some(queue.position_of(id.clone()).await?.with_context(|| self.collection.missing(id))?),
        };
        let mut listing = Listing::new(&["id", "state", "type", "age", "attempts", "crashes", "worker", "error"]);
        let mut exit = Exit::Good;
        for filter in filters {
            for job in queue.page(filter, after.as_ref(), limit.and_one()).await?.jobs {
                match job {
                    Ok(job) => {
                        let silent = queue.is_silent(&job);
                        listing.push(self.cells(&job, silent), line(&job, silent));
                    }
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

    fn cells(&self, job: &Job, silent: bool) -> [String; 8] {
        let worker = match (&job.worker, job.state) {
            (Some(worker), JobState::Processing) if silent => format!("{} (silent)", worker.name),
            (Some(worker), JobState::Processing) => worker.name.clone(),
            (None, JobState::Processing) => "none".to_owned(),
            (_, JobState::Todo | JobState::Done | JobState::Failed | JobState::Canceled) => String::new(),
        };
        [
            shown(&job.id),
            job.state.to_string(),
            job.kind.clone(),
            age(self.collection.since(job.ts)),
            job.attempts.to_string(),
            job.crashes.to_string(),
            worker,
            job.error.clone().unwrap_or_default(),
        ]
    }

    async fn show(&self, id: &Bson, console: Console) -> Result<Exit> {
        let queue = self.attach().await?;
        let job = match queue.show(id.clone()).await {
            Ok(job) => job.with_context(|| self.collection.missing(id))?,
            // An operator who repairs the document must see it.
            Err(odd @ Error::Damaged { .. }) => {
                self.collection.show(console, id, None).await?;
                write_error(&odd.into());
                return Ok(Exit::Failed);
            }
            Err(error) => return Err(error.into()),
        };
        self.collection.show(console, id, Some(self.remark(&job, queue.is_silent(&job)))).await?;
        Ok(Exit::Good)
    }

    async fn pause(&self, why: &str, console: Console) -> Result<Exit> {
        self.attach().await?.pause(why).await?;
        console.report(
            || format!("{} is paused: `jobs resume` ends it", self.collection.namespace),
            &json!({ "paused": true }),
        )?;
        Ok(Exit::Good)
    }

    async fn resume(&self, console: Console) -> Result<Exit> {
        let was_paused = self.attach().await?.resume().await?;
        let text = || match was_paused {
            true => format!("{} is resumed", self.collection.namespace),
            false => format!("{} was not paused", self.collection.namespace),
        };
        console.report(text, &json!({ "paused": false, "was_paused": was_paused }))?;
        Ok(Exit::Good)
    }

    /// Returns what the state of a job means, and what can be done.
    fn remark(&self, job: &Job, silent: bool) -> String {
        let now = self.collection.sources.clock.now();
        match (job.state, &job.worker) {
            (JobState::Todo, _) if job.run_at > now => "waits for its time".to_owned(),
            (JobState::Todo, _) => format!("due for {}, waits for a worker", age(self.collection.since(job.run_at))),
            (JobState::Processing, worker) if silent => {
                let name = worker.as_ref().map_or("?", |worker| worker.name.as_str());
                let recover = if job.cancel { "`jobs recover` cancels it" } else { "`jobs recover` returns it" };
                match worker.as_ref().and_then(|worker| worker.ts) {
                    None => format!("its worker {name} has recorded no sign of life: {recover}"),
                    Some(ts) if ts > now => {
                        let ahead = self.collection.ago(ts);
                        format!("the last sign of life of its worker {name} is {ahead} of the clock: {recover}")
                    }
                    Some(ts) => format!("its worker {name} is silent for {}: {recover}", self.collection.ago(ts)),
                }
            }
            (JobState::Processing, worker) => {
                format!("worker {} has it", worker.as_ref().map_or("?", |worker| worker.name.as_str()))
            }
            (JobState::Done, _) => "done".to_owned(),
            (JobState::Canceled, _) => "canceled".to_owned(),
            (JobState::Failed, _) => {
                let why = job.error.as_deref().unwrap_or("no reason is recorded");
                format!("failed: {why}; `jobs retry` puts it back into the queue, `jobs discard` removes it")
            }
        }
    }

    async fn recover(&self, flags: &JobsFlags, console: Console) -> Result<Exit> {
        if flags.lease.is_none() {
            let why =
                "a lease shorter than that of the workers takes jobs away from workers that are still processing them";
            return Err(Usage(format!("recover needs --lease with the value of the application: {why}")).into());
        }
        let queue = self.open().await?;
        let [returned, given_up, canceled] = [const { AtomicU64::new(0) }; 3];
        let tell = |reclaimed| {
            let count = match reclaimed {
                Reclaimed::Returned => &returned,
                Reclaimed::GivenUp => &given_up,
                Reclaimed::Canceled => &canceled,
            };
            count.fetch_add(1, Ordering::Relaxed);
        };
        let Round { failed, .. } = rounds(console, "recover", "jobs", |batch| queue.reclaim_each(batch, tell)).await?;
        let [returned, given_up, canceled] = [returned, given_up, canceled].map(AtomicU64::into_inner);
        let text = || {
            let mut text = format!("returned {}", counted(returned, "jobs"));
            for (count, what) in [(given_up, "given up"), (canceled, "canceled")] {
                if count > 0 {
                    text.push_str(&format!(", {count} {what}"));
                }
            }
            if failed > 0 {
                text.push_str(&format!("; {failed} failed: the log says why; repeat the command"));
            }
            text
        };
        let json = json!({
            "done": returned + given_up + canceled,
            "returned": returned,
            "given_up": given_up,
            "canceled": canceled,
            "failed": failed,
        });
        console.report(text, &json)?;
        Ok(if failed == 0 { Exit::Good } else { Exit::Failed })
    }

    async fn purge(&self, done: Duration, failed: Duration, console: Console) -> Result<Exit> {
        let queue = self.open().await?;
        let round = rounds(console, "purge", "jobs", |batch| queue.purge(done, failed, batch)).await?;
        report_rounds(console, "removed", "jobs", round)
    }
}

fn line(job: &Job, silent: bool) -> Value {
    let worker =
        |worker: &WorkerMark| json!({ "name": worker.name, "ts": worker.ts.map(|ts| extended_json(&ts.into())) });
    let date = |date: bson::DateTime| extended_json(&Bson::DateTime(date));
    let optional = |value: &Option<Bson>| value.as_ref().map(extended_json);
    json!({
        "_id": extended_json(&job.id),
        "state": job.state.name(),
        "type": job.kind,
        "ts": date(job.ts),
        "runAt": date(job.run_at),
        "priority": job.priority,
        "attempts": job.attempts,
        "crashes": job.crashes,
        "worker": job.worker.as_ref().map(worker),
        "silent": silent,
        "unread": job.unread,
        "error": job.error,
        "errors": job.errors.iter().map(|past| json!({ "ts": date(past.ts), "error": past.error })).collect::<Vec<_>>(),
        "progress": optional(&job.progress),
        "finishedAt": job.finished_at.map(date),
        "details": extended_json(&Bson::Document(job.details.clone())),
    })
}
