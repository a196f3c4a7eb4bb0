//! A job queue: what is to be done is written down, and done by whoever comes first, at least once, until it is done.
//!
//! ```text
//! {_id, ts, state: TODO, type: "ADD_FRIEND", details: {users: [A, B]}, undone: 1, attempts: 0, priority: 0, runAt: ts}
//!   claim     find-and-modify, the first that is due   -> state: PROCESSING, worker: {name, ts, claim: fresh}
//!   renew     while the handler works                  -> worker.ts: now
//!   complete                                           -> state: DONE, result; undone is gone
//!   fail                                               -> state: TODO, attempts + 1, runAt: later;  or FAILED
//!   reclaim   worker.ts is too old                     -> state: TODO, crashes + 1;  or FAILED
//! ```
//!
//! # Fencing
//!
//! A worker that was slow for too long has lost its job, and does not know. So every claim writes a fresh *claim id*, and
//! every later write of the worker matches on it: neither the state nor the worker's name nor a number of attempts would
//! do, as the same worker may have claimed the same job again. What the handler writes elsewhere has its fence in
//! [`JobContext::guard`]: an update that is made once for each job and document, whoever comes first.
//!
//! # What can go wrong, and what then
//!
//! | at | what happens |
//! | --- | --- |
//! | enqueue: the answer is lost | the job has its id before it is sent: sent again, it is there |
//! | claim: the answer is lost | the worker looks for its claim id before it claims another job |
//! | a worker dies, anywhere | [`JobQueue::reclaim`] returns the job after the lease, and counts a crash, not a failure |
//! | complete, fail: the answer is lost | sent again; if nothing matches the job says whether it was this claim that ended it |
//! | a slow worker beside a new one | the slow one's writes match nothing; its handler is stopped at the next renewal |
//! | a copy of a claim arrives late | it takes a job for nobody, which comes back after the lease |
//! | a copy of any other request arrives late | its filter has a claim or a state that is over, or an id that is there |
//!
//! Leases are dated by the store's clock (`$currentDate`), so that no clocks of two workers are compared. A clock that is
//! wrong lets jobs be done twice at a time, which the fence makes harmless; it loses none.
//!
//! Source: seed 0 (solution 2).

mod context;
mod finish;
mod options;
mod record;
mod requests;
mod schedule;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use handfast_store::{DocumentStore, IndexSpec, Namespace, Sources};

pub use context::JobContext;
pub use finish::Held;
pub use options::{Backoff, JobFields, JobQueueOptions, NewJob};
pub use record::{Job, WorkerMark};
pub use schedule::{Missed, Schedule, Schedules};
pub use state::{JobEvent, JobState, NoJobState};
pub use worker::{Drained, JobError, RateLimit, Worker, WorkerCounts, WorkerOptions, Working};

use crate::steps::{Added, Steps, is_duplicate_of, raw};
use crate::{Error, Result};

/// Candidates that a claim in an ordered queue looks at.
const CANDIDATES: u32 = 16;

/// What became of a job that was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It is in the queue.
    New(ObjectId),
    /// Another job has its unique key.
    Duplicate,
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Jobs that are due.
    pub due: u64,
    /// Jobs whose time has not come.
    pub scheduled: u64,
    /// Jobs that workers have.
    pub processing: u64,
    /// Those of them whose workers have been silent for longer than the lease.
    pub silent: u64,
    /// Dead letters.
    pub failed: u64,
    /// How long the job has been due that has been due for longest.
    pub oldest_due: Option<Duration>,
}

/// A queue of jobs in a collection. See the [module's documentation](self).
///
/// ```
/// use handfast_patterns::job_queue::{JobError, JobQueue, JobState, NewJob, Worker};
/// use handfast_store::{MemoryStore, Namespace, Sources};
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
///
/// #[derive(Serialize, Deserialize)]
/// struct Mail {
///     to: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> handfast_patterns::Result<()> {
/// let sources = Sources::seeded(1);
/// let store = Arc::new(MemoryStore::new(sources.clone()));
/// let queue = JobQueue::open(store, Namespace::new("shop", "jobs")?, sources, Default::default()).await?;
/// queue.enqueue(NewJob::new("mail", &Mail { to: "ann".to_owned() })?).await?;
///
/// let worker = Worker::new(queue.clone(), "worker1").handle("mail", |_context, mail: Mail| async move {
///     assert_eq!(mail.to, "ann");
///     Ok::<_, JobError>("sent")
/// });
/// assert_eq!(worker.drain().await?.completed, 1);
/// assert_eq!(queue.list(JobState::Done, 10).await?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct JobQueue {
    jobs: Steps,
    sources: Sources,
    options: Arc<JobQueueOptions>,
}

impl JobQueue {
    /// The queue in this collection; creates its indexes. Jobs that are over cost their `_id` and their date alone.
    ///
    /// # Errors
    /// Those of the store; settings that make no sense.
    pub async fn open(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        sources: Sources,
        options: JobQueueOptions,
    ) -> Result<Self> {
        let queue = JobQueue::attach(store, namespace, sources, options)?;
        queue.jobs.create_indexes(queue.indexes()?).await?;
        Ok(queue)
    }

    /// The same queue for those who only look: creates no indexes.
    ///
    /// # Errors
    /// Settings that make no sense.
    pub fn attach(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        sources: Sources,
        options: JobQueueOptions,
    ) -> Result<Self> {
        let Backoff { jitter, .. } = options.backoff;
        if options.lease.is_zero() || !(0.0..=1.0).contains(&jitter) {
            return Err(Error::invalid("a job queue needs a lease, and a jitter from 0 to 1"));
        }
        if options.attempts_max == 0 || options.crashes_max == 0 {
            return Err(Error::invalid("a job needs at least one attempt, and one crash to be given up for"));
        }
        Ok(JobQueue { jobs: Steps::new(store, namespace), sources, options: Arc::new(options) })
    }

    fn indexes(&self) -> Result<Vec<IndexSpec>> {
        let fields = self.fields();
        let only = |state: JobState| raw(&doc! { &fields.state: state.name() }).map(Some);
        let new = |key: Document| raw(&key).map(IndexSpec::new);
        let sparse = |field: &String| Ok::<_, Error>(IndexSpec { sparse: true, ..new(doc! { field: 1 })? });
        let unique = |field: &String| Ok::<_, Error>(IndexSpec { unique: true, ..sparse(field)? });
        Ok(vec![
            IndexSpec { partial_filter: only(JobState::Todo)?, ..new(requests::claim_order(fields))? },
            IndexSpec {
                partial_filter: only(JobState::Processing)?,
                ..new(doc! { format!("{}.ts", fields.worker): 1 })?
            },
            sparse(&fields.undone)?,
            sparse(&fields.finished_at)?,
            sparse(&fields.order)?,
            unique(&fields.unique)?,
            unique(&fields.unique_window)?,
            unique(&fields.running)?,
        ])
    }

    /// The same queue on another store. Within an open transaction a job is enqueued if and only if it commits.
    #[must_use]
    pub fn within(&self, store: Arc<dyn DocumentStore>) -> Self {
        JobQueue { jobs: self.jobs.on(store), ..self.clone() }
    }

    /// Puts a job into the queue.
    ///
    /// # Errors
    /// Those of the store; an order in a queue that is not ordered.
    ///
    /// # Cancellation
    /// The job may be in. Who must know gives it an id ([`NewJob::with_id`]) and enqueues it again.
    pub async fn enqueue(&self, job: NewJob) -> Result<Enqueued> {
        if job.order.is_some() && !self.options.ordered {
            return Err(Error::invalid("a job with an order needs a queue that is ordered"));
        }
        let id = job.id.unwrap_or_else(|| self.sources.ids.object_id());
        let fields = self.fields();
        match self.jobs.insert(&job.to_document(fields, id, self.now())).await {
            Ok(Added::New | Added::There) => Ok(Enqueued::New(id)),
            Err(Error::Store(error))
                if is_duplicate_of(&error, &fields.unique) || is_duplicate_of(&error, &fields.unique_window) =>
            {
                // Which index a store names is its own affair if the attempt before has inserted the job.
                let ours = self.jobs.find_one(&doc! { "_id": id }).await?.is_some();
                Ok(if ours { Enqueued::New(id) } else { Enqueued::Duplicate })
            }
            Err(error) => Err(error),
        }
    }

    /// Puts several jobs into the queue, one after the other.
    ///
    /// # Errors
    /// As [`JobQueue::enqueue`]; the jobs before the one that failed are in.
    pub async fn enqueue_all(&self, jobs: impl IntoIterator<Item = NewJob>) -> Result<Vec<Enqueued>> {
        let mut enqueued = Vec::new();
        for job in jobs {
            enqueued.push(self.enqueue(job).await?);
        }
        Ok(enqueued)
    }

    /// Takes the job that is first: by priority, then by its time, then by its age. Nobody else has it until the lease is
    /// over. [`Worker`] does this and all that follows; this is for programs with workers of their own.
    ///
    /// # Errors
    /// Those of the store. A job may have been claimed; it comes back after the lease.
    ///
    /// # Cancellation
    /// As after an error.
    pub async fn claim(&self, worker: &str, kinds: &[String]) -> Result<Option<Job>> {
        let due = requests::due(self.fields(), kinds, self.now());
        if !self.options.ordered {
            return self.claim_first(worker, &due, None).await;
        }
        for candidate in self.jobs.find(&due, &requests::claim_order(self.fields()), CANDIDATES).await? {
            let candidate = self.read(&candidate)?;
            if !self.is_first_of_its_order(&candidate).await? {
                continue;
            }
            let mut filter = due.clone();
            filter.insert("_id", candidate.id);
            match self.claim_first(worker, &filter, candidate.order.as_deref()).await {
                Ok(Some(job)) => return Ok(Some(job)),
                // Somebody else has it, or another one of its order.
                Ok(None) => {}
                Err(Error::Store(error)) if is_duplicate_of(&error, &self.fields().running) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Takes several jobs, at most `count`.
    ///
    /// # Errors
    /// As [`JobQueue::claim`].
    pub async fn claim_many(&self, worker: &str, kinds: &[String], count: u32) -> Result<Vec<Job>> {
        let mut claimed = Vec::new();
        for _ in 0..count {
            match self.claim(worker, kinds).await? {
                Some(job) => claimed.push(job),
                None => break,
            }
        }
        Ok(claimed)
    }

    async fn claim_first(&self, worker: &str, filter: &Document, order: Option<&str>) -> Result<Option<Job>> {
        let claim = self.sources.ids.object_id();
        let update = requests::claim(self.fields(), worker, claim, order);
        let sort = requests::claim_order(self.fields());
        // If the first attempt was carried out, the second would claim another job.
        let ours = doc! {
            &self.fields().state: JobState::Processing.name(),
            format!("{}.claim", self.fields().worker): claim,
        };
        let claimed = self.jobs.find_first_and_update((filter, &sort), &update, &ours).await?;
        claimed.map(|job| self.read(&job)).transpose()
    }

    async fn is_first_of_its_order(&self, job: &Job) -> Result<bool> {
        let Some(order) = &job.order else { return Ok(true) };
        let fields = self.fields();
        let same = doc! { &fields.order: order, &fields.undone: 1 };
        let first = self.jobs.find(&same, &doc! { &fields.ts: 1, "_id": 1 }, 1).await?;
        Ok(first.first().is_none_or(|first| first.get_object_id("_id").is_ok_and(|id| id == job.id)))
    }

    /// A job as its document says.
    ///
    /// # Errors
    /// Those of the store; a document that is none of a job.
    pub async fn show(&self, id: ObjectId) -> Result<Option<Job>> {
        self.jobs.find_one(&doc! { "_id": id }).await?.map(|job| self.read(&job)).transpose()
    }

    /// Jobs in a state, the oldest first.
    ///
    /// # Errors
    /// As [`JobQueue::show`].
    pub async fn list(&self, state: JobState, limit: u32) -> Result<Vec<Job>> {
        let fields = self.fields();
        let found = self.jobs.find(&doc! { &fields.state: state.name() }, &doc! { &fields.ts: 1 }, limit).await?;
        found.iter().map(|job| self.read(job)).collect()
    }

    /// How full the queue is.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn depth(&self) -> Result<Depth> {
        let (fields, now) = (self.fields(), self.now());
        let todo = |when: Document| doc! { &fields.state: JobState::Todo.name(), &fields.run_at: when };
        let due = todo(doc! { "$lte": now });
        let oldest = self.jobs.find(&due, &doc! { &fields.run_at: 1 }, 1).await?;
        let oldest = oldest.first().map(|job| self.read(job)).transpose()?;
        let age = |since: DateTime| now.timestamp_millis().saturating_sub(since.timestamp_millis());
        Ok(Depth {
            due: self.jobs.count(&due).await?,
            scheduled: self.jobs.count(&todo(doc! { "$gt": now })).await?,
            processing: self.jobs.count(&doc! { &fields.state: JobState::Processing.name() }).await?,
            silent: self.jobs.count(&requests::silent(fields, self.ago(self.options.lease))).await?,
            failed: self.jobs.count(&doc! { &fields.state: JobState::Failed.name() }).await?,
            oldest_due: oldest.map(|job| Duration::from_millis(u64::try_from(age(job.run_at)).unwrap_or(0))),
        })
    }

    fn fields(&self) -> &JobFields {
        &self.options.fields
    }

    fn now(&self) -> DateTime {
        self.sources.clock.now()
    }

    /// So long from now; negative ages are not made.
    fn later(&self, wait: Duration) -> DateTime {
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(self.now().timestamp_millis().saturating_add(millis))
    }

    fn ago(&self, age: Duration) -> DateTime {
        crate::value::before(self.now(), age)
    }

    fn read(&self, document: &Document) -> Result<Job> {
        Job::read(&self.jobs, document, self.fields())
    }
}
