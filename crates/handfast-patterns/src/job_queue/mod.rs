//! A job queue: a job is a document with a task; a worker claims it and runs it, at least once, until it is done.
//!
//! ```text
//! {_id, ts, state: TODO, type: "ADD_FRIEND", details: {users: [A, B]}, undone: 1, attempts: 0, priority: 0, runAt: ts}
//!   claim     find-and-modify, the first that is due   -> state: PROCESSING, worker: {name, ts, claim: fresh}, claims + 1
//!   renew     while the handler works                  -> worker.ts: now
//!   complete                                           -> state: DONE, result; undone is gone
//!   fail                                               -> state: TODO, attempts + 1, runAt: later, errors;  or FAILED
//!   cannot read                                        -> state: TODO, unread + 1, runAt: later, errors;  or FAILED
//!   cancel                                             -> state: CANCELED
//!   reclaim   worker.ts is too old                     -> state: TODO, crashes + 1;  or FAILED
//!             worker.ts is missing, or far ahead       -> state: TODO, worker is gone
//! ```
//!
//! # Fencing
//!
//! A worker that was slow for longer than the lease has lost its job and does not know it. So every claim writes a
//! fresh *claim id*, and every later write of the worker matches on it. The state, the worker's name or the number of
//! attempts would not do, as the same worker may have claimed the same job again. [`JobContext::guard`] fences what
//! the handler writes elsewhere: it makes an update once for each job, step and document, and not for a worker after a
//! later holder of the job has written there. Two claim ids only differ and have no order, so claims are numbered as
//! well.
//!
//! # Limits over all workers
//!
//! If a queue has [`Limits`] on jobs at the same time, each claim takes one of as many *slots*, and a unique index
//! gives a slot to one job only. The slot is free again when the job leaves its worker, or is reclaimed. The number of
//! jobs that begin within a time is counted in a document beside the queue, before each claim.
//!
//! # Jobs inserted by other programs
//!
//! Another program enqueues a job by inserting `{_id, ts, state: TODO, type, details}`, as the seed shows it. The job
//! is due at once and has the usual priority. The sweep adds the missing fields; until then the job is claimed after
//! the jobs that have a priority.
//!
//! # Failures and their effects
//!
//! | at | what happens |
//! | --- | --- |
//! | enqueue: the answer is lost | the job has its id before it is sent: sent again, it is there |
//! | claim: the answer is lost | the worker looks for its claim id before it claims another job |
//! | a worker dies, anywhere | [`JobQueue::reclaim`] returns the job after the lease, and counts a crash, not a failure |
//! | complete, fail: the answer is lost | sent again; if nothing matches the job says whether it was this claim that ended it |
//! | a slow worker beside a new one | the slow one's writes match nothing; its handler is stopped at the next renewal |
//! | a worker dies after it was counted, before its claim | one job less is begun in that time |
//! | a copy of a claim arrives late | it claims a job for no worker; the job comes back after the lease |
//! | a copy of any other request arrives late | its filter has a claim or a state that is over, or an id that is there |
//! | a process has other settings | it is refused: they are recorded beside the queue ([`JobQueueOptions::recorded`]) |
//!
//! Leases are dated by the store's clock (`$currentDate`), so that no clocks of two workers are compared. A clock that is
//! wrong lets jobs be done twice at a time, which the fence makes harmless; it loses none. A date that is further ahead than the lease says
//! nothing of the worker: the job is returned, and that counts as no crash, as its worker may live.
//!
//! Source: seed 0 (solution 2).

mod blocked;
mod claim;
mod context;
mod finish;
mod job_error;
mod limits;
mod list;
mod options;
mod pause;
mod record;
mod requests;
mod schedule;
mod settings;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use handfast_mql::Code;
use handfast_store::{DocumentStore, IndexSpec, Namespace, Sources};
use tokio::sync::watch;

pub use context::JobContext;
pub use finish::ClaimState;
pub use job_error::JobError;
pub use limits::Limits;
pub use list::{JobFilter, JobPage, ListPosition, StateCount};
pub use options::{Backoff, JobFields, JobQueueOptions, NewJob};
pub use pause::Pause;
pub use record::{Job, PastError, WorkerMark};
pub use schedule::{Missed, Schedule, ScheduleFields, Schedules};
pub use state::{JobEvent, JobState, NoJobState};
pub use sweep::Reclaimed;
pub use worker::{Drained, RateLimit, RunningWorker, Worker, WorkerCounts, WorkerOptions};

use crate::metrics::{self, Event, Level};
use crate::steps::{Added, Steps, is_duplicate_of, raw};
use crate::value::{equal, is_lapsed, one_of, same_id};
use crate::{CancellationToken, Error, Result, Runner, RunnerOptions};

/// Limit on the jobs that are looked up with one request.
const LOOK_MAX: usize = 500;

/// The result of [`JobQueue::enqueue`].
#[derive(Clone, Debug, PartialEq)]
pub enum Enqueued {
    /// The job was added to the queue, with this id.
    New(Bson),
    /// A job with the id that was given ([`NewJob::with_id`]) was in the queue, and stays as it is: this job, if it was enqueued before or by an attempt whose
    /// answer was lost, or another one with the same id.
    Existing(Bson),
    /// Another job has its unique key, and nothing was inserted. That job has this id, unless it was done in the meantime.
    Duplicate(Option<Bson>),
}

/// Returns the result for a job whose id is in the queue. Nobody else has an id that was not given, so an attempt whose answer was lost has inserted such a job.
fn result_for_known(job: &NewJob, id: Bson) -> Enqueued {
    if job.id.is_some() { Enqueued::Existing(id) } else { Enqueued::New(id) }
}

/// The counts of the jobs of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Jobs that are due.
    pub due: u64,
    /// Jobs whose time has not come yet.
    pub scheduled: u64,
    /// Jobs that workers have.
    pub processing: u64,
    /// Jobs whose workers have been silent for the lease, have left no date, or have left one that is further ahead
    /// than that.
    pub silent: u64,
    /// Dead letters.
    pub failed: u64,
    /// Jobs that were canceled.
    pub canceled: u64,
    /// Documents that have the state of waiting jobs but cannot be read as jobs. They are never claimed; another
    /// program has written them.
    pub foreign: u64,
    /// The longest time that a job has been due.
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
/// let queue = JobQueue::open_with(store, Namespace::new("shop", "jobs")?, sources, Default::default()).await?;
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
    shared: Arc<Shared>,
    /// Whether a unique index on the keys is known to exist in the store.
    keys: bool,
}

/// The state that clones of a queue share.
#[derive(Debug, Default)]
struct Shared {
    pause: pause::CachedPause,
    /// Changes when there may be something to claim.
    wake: watch::Sender<u64>,
}

impl JobQueue {
    /// Opens the queue in this collection; records its settings if nothing is recorded, and creates its indexes. Jobs
    /// that are over take up space only in the indexes on `_id` and on their date.
    ///
    /// A store without sparse indexes (FerretDB) cannot have a unique index on a key that only some jobs have. A queue
    /// works there without unique jobs, without an order, and without a limit on jobs at the same time.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if other settings are recorded ([`JobQueueOptions::recorded`],
    /// [`JobQueue::change_settings`]). [`Error::Invalid`] for options that are out of range. [`Error::Store`] if the
    /// store fails or lacks an index that the options need.
    pub async fn open(store: Arc<dyn DocumentStore>, namespace: Namespace, options: JobQueueOptions) -> Result<Self> {
        JobQueue::open_with(store, namespace, Sources::system()?, options).await
    }

    /// Opens it with other sources of time, randomness and ids, for tests that can be repeated.
    ///
    /// # Errors
    /// Returns the errors of [`JobQueue::open`].
    pub async fn open_with(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        sources: Sources,
        options: JobQueueOptions,
    ) -> Result<Self> {
        let mut queue = JobQueue::with_options(store, namespace, sources, options)?;
        let is_recorded = queue.compare_settings().await?;
        queue.create_indexes().await?;
        // Settings are recorded after the indexes were created: if the store does not support these, others can still
        // open the queue without them.
        if !is_recorded {
            queue.record_settings().await?;
        }
        Ok(queue)
    }

    /// Opens the queue without writing to the store: it records no settings and creates no indexes. The queue then
    /// takes no unique jobs, as they need an index.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if other settings are recorded, [`Error::Invalid`] for options that are out of range.
    pub async fn attach(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        sources: Sources,
        options: JobQueueOptions,
    ) -> Result<Self> {
        let queue = JobQueue::with_options(store, namespace, sources, options)?;
        queue.compare_settings().await?;
        Ok(queue)
    }

    fn with_options(
        store: Arc<dyn DocumentStore>,
        namespace: Namespace,
        sources: Sources,
        options: JobQueueOptions,
    ) -> Result<Self> {
        options.check()?;
        let (jobs, options, shared) = (Steps::new(store, namespace), Arc::new(options), Arc::default());
        Ok(JobQueue { jobs, sources, options, shared, keys: false })
    }

    /// Creates the indexes of the queue, as [`JobQueue::open`] does. It is meant for tools that work on a queue
    /// without recording settings.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails or lacks an index that the options need.
    pub async fn create_indexes(&mut self) -> Result<()> {
        let (searched, unique) = self.indexes()?;
        let all = searched.iter().chain(&unique).cloned();
        match self.jobs.create_indexes(all).await {
            Err(Error::Store(error)) if error.code() == Code::CommandNotSupported => {
                let JobQueueOptions { ordered, limits, .. } = &*self.options;
                if *ordered || limits.concurrency.is_some() {
                    let why = "this store has no sparse unique indexes, and without them no queue with an order or a concurrency";
                    return Err(Error::invalid(format!("{why}: {error}")));
                }
                self.jobs.create_indexes(searched).await
            }
            created => {
                created?;
                self.keys = true;
                Ok(())
            }
        }
    }

    /// Returns the indexes for the search of jobs, and the unique ones.
    fn indexes(&self) -> Result<(Vec<IndexSpec>, Vec<IndexSpec>)> {
        let fields = self.fields();
        // The state comes first, so that the index also serves the number of jobs in a state.
        let of = |state: JobState, then: Document| {
            let mut key = doc! { &fields.state: 1 };
            key.extend(then);
            let partial_filter = Some(raw(&doc! { &fields.state: state.name() })?);
            Ok::<_, Error>(IndexSpec { partial_filter, ..IndexSpec::new(raw(&key)?) })
        };
        let new = |key: Document| raw(&key).map(IndexSpec::new);
        let sparse = |field: &String| Ok::<_, Error>(IndexSpec { sparse: true, ..new(doc! { field: 1 })? });
        let unique = |field: &String| Ok::<_, Error>(IndexSpec { unique: true, ..sparse(field)? });
        let searched = vec![
            of(JobState::Todo, requests::claim_order(fields))?,
            of(JobState::Processing, doc! { fields.of_worker(&fields.ts): 1 })?,
            of(JobState::Failed, doc! { &fields.ts: 1, "_id": 1 })?,
            of(JobState::Canceled, doc! { &fields.ts: 1, "_id": 1 })?,
            sparse(&fields.undone)?,
            sparse(&fields.finished_at)?,
            sparse(&fields.order)?,
        ];
        let keys = [&fields.unique, &fields.unique_window, &fields.running, &fields.slot];
        Ok((searched, keys.into_iter().map(unique).collect::<Result<_>>()?))
    }

    /// Returns the time after which another worker gets the job of a silent worker.
    pub fn lease(&self) -> Duration {
        self.options.lease
    }

    /// Returns the same queue on another store. In an open transaction a job is enqueued if and only if the
    /// transaction commits; workers see it at their next look.
    #[must_use]
    pub fn within(&self, store: Arc<dyn DocumentStore>) -> Self {
        JobQueue { jobs: self.jobs.on(store), ..self.clone() }
    }

    /// Adds a job to the queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an order in a queue without orders, and for a unique key without a unique index: on a
    /// store without sparse unique indexes, or in a queue that was attached.
    ///
    /// # Cancellation
    /// The job may have been inserted. A caller that must know gives it an id ([`NewJob::with_id`]) and enqueues it
    /// again.
    pub async fn enqueue(&self, job: NewJob) -> Result<Enqueued> {
        self.check(&job)?;
        let id = self.id_of(&job);
        let fields = self.fields();
        let document = job.to_document(fields, &id, self.now());
        let enqueued = match self.jobs.insert(&document).await {
            Ok(Added::New) => Ok(Enqueued::New(id)),
            Ok(Added::There) => Ok(result_for_known(&job, id)),
            Err(Error::Store(error))
                if is_duplicate_of(&error, &fields.unique) || is_duplicate_of(&error, &fields.unique_window) =>
            {
                // If the attempt before has inserted the job, the store may report the conflict of either index.
                let ours = self.jobs.find_one(&doc! { "_id": equal(&id) }).await?.is_some();
                Ok(match ours {
                    true => result_for_known(&job, id),
                    false => self.duplicate(&document, &self.holders_of_keys(&[&document]).await?),
                })
            }
            Err(error) => Err(error),
        }?;
        self.count_enqueued(std::slice::from_ref(&enqueued));
        self.wake();
        Ok(enqueued)
    }

    fn id_of(&self, job: &NewJob) -> Bson {
        job.id.clone().unwrap_or_else(|| self.sources.ids.object_id().into())
    }

    /// Wakes idle workers of this process, as there may be something to claim.
    fn wake(&self) {
        self.shared.wake.send_modify(|times| *times = times.wrapping_add(1));
    }

    /// Adds several jobs to the queue, with one request for each 500 of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an order in a queue without orders, and for a unique key without a unique index.
    /// [`Error::Store`] if the store fails: some of the jobs may have been inserted.
    pub async fn enqueue_all(&self, jobs: impl IntoIterator<Item = NewJob>) -> Result<Vec<Enqueued>> {
        let jobs: Vec<NewJob> = jobs.into_iter().collect();
        let (mut ids, mut documents) = (Vec::new(), Vec::new());
        for job in &jobs {
            self.check(job)?;
            let id = self.id_of(job);
            documents.push(job.to_document(self.fields(), &id, self.now()));
            ids.push(id);
        }
        let refused = self.jobs.insert_all(&documents).await?;
        let mut enqueued: Vec<_> = ids.iter().cloned().map(Enqueued::New).collect();
        for some in refused.chunks(LOOK_MAX) {
            // Jobs whose `_id` exists were enqueued before, or by an attempt whose answer was lost.
            let of_refused = some.iter().filter_map(|place| ids.get(*place)).cloned();
            let there = self.jobs.find(&doc! { "_id": one_of(of_refused) }, &doc! {}, LOOK_MAX as u32).await?;
            let is_there = |id: &Bson| there.iter().filter_map(|job| job.get("_id")).any(|there| same_id(there, id));
            let of_refused: Vec<_> = some.iter().filter_map(|place| documents.get(*place)).collect();
            let holders = self.holders_of_keys(&of_refused).await?;
            for place in some {
                if let (Some(id), Some(job), Some(document), Some(result)) =
                    (ids.get(*place), jobs.get(*place), documents.get(*place), enqueued.get_mut(*place))
                {
                    *result = match is_there(id) {
                        true => result_for_known(job, id.clone()),
                        false => self.duplicate(document, &holders),
                    };
                }
            }
        }
        self.count_enqueued(&enqueued);
        self.wake();
        Ok(enqueued)
    }

    /// Returns the jobs that have the unique keys of these jobs.
    async fn holders_of_keys(&self, jobs: &[&Document]) -> Result<Vec<Document>> {
        let with_key = |field: &String| {
            let keys: Vec<_> = jobs.iter().filter_map(|job| job.get(field)).collect();
            (!keys.is_empty()).then(|| doc! { field: { "$in": keys } })
        };
        let filters: Vec<_> = self.key_fields().into_iter().filter_map(with_key).collect();
        if filters.is_empty() {
            return Ok(Vec::new());
        }
        self.jobs.find(&doc! { "$or": filters }, &doc! {}, LOOK_MAX as u32).await
    }

    fn duplicate(&self, job: &Document, holders: &[Document]) -> Enqueued {
        let has_same =
            |holder: &Document, field: &String| job.get(field).is_some_and(|key| holder.get(field) == Some(key));
        let holder = holders.iter().find(|holder| self.key_fields().into_iter().any(|field| has_same(holder, field)));
        Enqueued::Duplicate(holder.and_then(|holder| holder.get("_id").cloned()))
    }

    fn key_fields(&self) -> [&String; 2] {
        [&self.fields().unique, &self.fields().unique_window]
    }

    fn count_enqueued(&self, enqueued: &[Enqueued]) {
        let duplicates = enqueued.iter().filter(|job| matches!(job, Enqueued::Duplicate(_))).count() as u64;
        self.count(Event::JobDuplicate, duplicates);
        self.count(Event::JobEnqueued, enqueued.len() as u64 - duplicates);
    }

    fn check(&self, job: &NewJob) -> Result<()> {
        job.check()?;
        if job.unique.is_some() {
            self.check_keys("unique jobs")?;
        }
        if job.order.is_some() && !self.options.ordered {
            return Err(Error::invalid("a job with an order needs a queue that is ordered"));
        }
        Ok(())
    }

    /// Checks that the store has the unique index on the keys.
    fn check_keys(&self, what: &str) -> Result<()> {
        if self.keys {
            return Ok(());
        }
        let why = "this store has no sparse unique indexes, or the queue was attached and not opened";
        Err(Error::invalid(format!("{why}: without them there are no {what}")))
    }

    /// Returns a job; `None` if there is none with this id.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a job.
    pub async fn show(&self, id: impl Into<Bson>) -> Result<Option<Job>> {
        self.jobs.find_one(&doc! { "_id": equal(&id.into()) }).await?.map(|job| self.read(&job)).transpose()
    }

    /// Returns the counts of the jobs of the queue, and sets the gauges of [`metrics`] to them.
    pub async fn depth(&self) -> Result<Depth> {
        let (fields, now) = (self.fields(), self.now());
        let due = requests::all_due(fields, now);
        let age = |since: DateTime| now.timestamp_millis().saturating_sub(since.timestamp_millis());
        let in_state = |state: JobState| doc! { &fields.state: state.name() };
        let depth = Depth {
            due: self.jobs.count(&due).await?,
            scheduled: self.jobs.count(&requests::scheduled(fields, now)).await?,
            processing: self.jobs.count(&in_state(JobState::Processing)).await?,
            silent: self.jobs.count_any(&requests::silent(fields, now, self.options.lease)).await?,
            failed: self.jobs.count(&in_state(JobState::Failed)).await?,
            canceled: self.jobs.count(&in_state(JobState::Canceled)).await?,
            foreign: self.jobs.count(&requests::foreign(fields)).await?,
            oldest_due: self
                .oldest(due)
                .await?
                .map(|since| Duration::from_millis(u64::try_from(age(since)).unwrap_or(0))),
        };
        let namespace = self.jobs.namespace();
        for (state, jobs) in [
            ("due", depth.due),
            ("scheduled", depth.scheduled),
            ("processing", depth.processing),
            ("silent", depth.silent),
            ("failed", depth.failed),
            ("canceled", depth.canceled),
            ("foreign", depth.foreign),
        ] {
            metrics::level(Level::Jobs(state), namespace, jobs as f64);
        }
        metrics::age(Level::OldestDue, namespace, depth.oldest_due);
        Ok(depth)
    }

    /// Returns the time since which the first of the due jobs has been due: its own time, or the time when it was
    /// enqueued.
    async fn oldest(&self, due: Document) -> Result<Option<DateTime>> {
        let fields = self.fields();
        let mut oldest = None;
        for (field, has_time) in [(&fields.run_at, true), (&fields.ts, false)] {
            let filter = doc! { "$and": [due.clone(), { &fields.run_at: { "$exists": has_time } }] };
            let first = self.jobs.find(&filter, &doc! { field: 1 }, 1).await?;
            let since = first.first().and_then(|job| job.get_datetime(field).ok()).copied();
            oldest = [oldest, since].into_iter().flatten().min();
        }
        Ok(oldest)
    }

    /// Reads the depth regularly in the background, for the gauges of [`metrics`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_depth(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let queue = self.clone();
        Runner::spawn_look("job_queue.depth", &self.sources, options, cancel, move || {
            let queue = queue.clone();
            async move { queue.depth().await }
        })
    }

    /// Counts an event that happened to jobs of this queue.
    fn count(&self, event: Event, jobs: u64) {
        metrics::count(event, self.jobs.namespace(), jobs);
    }

    fn fields(&self) -> &JobFields {
        &self.options.fields
    }

    fn now(&self) -> DateTime {
        self.sources.clock.now()
    }

    /// Returns the time `wait` from now.
    fn later(&self, wait: Duration) -> DateTime {
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(self.now().timestamp_millis().saturating_add(millis))
    }

    fn ago(&self, age: Duration) -> DateTime {
        crate::value::before(self.now(), age)
    }

    /// Returns whether [`JobQueue::reclaim`] would return the job: its worker has been silent for the lease, has left
    /// no date, or has left one that is further ahead than that.
    pub fn is_silent(&self, job: &Job) -> bool {
        let ts = job.worker.as_ref().and_then(|worker| worker.ts);
        job.state == JobState::Processing && ts.is_none_or(|ts| is_lapsed(ts, self.now(), self.options.lease))
    }

    fn read(&self, document: &Document) -> Result<Job> {
        Job::read(&self.jobs, document, self.fields())
    }
}
