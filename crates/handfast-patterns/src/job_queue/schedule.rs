//! Recurring jobs by a cron pattern in a time zone. Each occurrence is enqueued once.
//!
//! ```text
//! {_id: "report", cron: "0 9 * * 1-5", zone: "Europe/Berlin", missed: {last: true}, type, details, priority, next: <date>}
//!   tick   next is due     1  enqueue a job with the key report@<next>, which only one job can have
//!                          2  next: <the occurrence after it>, if next is still what it was
//! ```
//!
//! A process that dies between the two steps leaves an occurrence that is due, and the next tick finds that its job
//! exists. So any number of processes may tick at once.
//!
//! Patterns and zones are those of the crates croner (five fields, or six with seconds) and jiff (the tz database,
//! compiled in). When clocks go forward, a job whose time is skipped on that day runs right after the gap; when they
//! go back, it runs once.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use croner::Cron;
use handfast_store::{IndexSpec, Namespace};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use tracing::Instrument;

use super::{JobQueue, NewJob};
use crate::fields::field_names;
use crate::steps::{Steps, raw};
use crate::{CancellationToken, Error, FieldNames, Result, Round, Runner, RunnerOptions};

/// Limit on the missed occurrences of one schedule that one tick enqueues. The next tick continues.
const CATCH_UP_MAX: u32 = 100;

/// The handling of occurrences that were missed because no process ticked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The last one is enqueued, the others are dropped.
    Last,
    /// Each one is enqueued.
    All,
    /// The last one is enqueued unless it is older than this; the others are dropped.
    Skip {
        /// The largest age of an occurrence.
        older_than: Duration,
    },
}

/// A recurring job.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The unique name.
    pub name: String,
    /// The cron pattern: `minute hour day month weekday`, or with seconds before them.
    pub cron: String,
    /// The time zone: a name of the tz database.
    pub zone: String,
    /// The handling of occurrences that were missed because no process ticked.
    pub missed: Missed,
    /// The job to enqueue. Its time and its unique key are set for each occurrence.
    pub job: NewJob,
}

/// Recurring jobs of a queue, in a collection of their own.
///
/// ```
/// use handfast_patterns::job_queue::{JobQueue, Missed, NewJob, Schedule, Schedules};
/// use handfast_store::{MemoryStore, Namespace, Sources};
/// use std::{sync::Arc, time::Duration};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> handfast_patterns::Result<()> {
/// let (sources, clock) = Sources::manual(1);
/// let store = Arc::new(MemoryStore::new(sources.clone()));
/// let queue = JobQueue::open_with(store, Namespace::new("shop", "jobs")?, sources, Default::default()).await?;
/// let schedules = Schedules::open(queue.clone(), Namespace::new("shop", "schedules")?).await?;
/// let job = NewJob::new("report", &bson::doc! {})?;
/// let (name, cron, zone) = ("report".to_owned(), "0 9 * * *".to_owned(), "Europe/Berlin".to_owned());
/// schedules.set(&Schedule { name, cron, zone, missed: Missed::Last, job }).await?;
///
/// clock.advance(Duration::from_secs(24 * 3600));
/// assert_eq!(schedules.tick(10).await?.done, 1);
/// assert_eq!(queue.depth().await?.due, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Schedules {
    schedules: Steps,
    queue: JobQueue,
    fields: Arc<ScheduleFields>,
}

field_names! {
    /// The names of the fields of schedules.
    pub struct ScheduleFields {
        /// The cron pattern.
        cron: "cron" in "a schedule",
        /// The time zone of the pattern.
        zone: "zone" in "a schedule",
        /// The handling of occurrences that were missed because no process ticked.
        missed: "missed" in "a schedule",
        /// The type of the jobs, which selects their handler.
        kind: "type" in "a schedule",
        /// The details for the handler.
        details: "details" in "a schedule",
        /// The priority of the jobs; larger ones come first.
        priority: "priority" in "a schedule",
        /// The failures after which a job is given up, if the schedule has a limit of its own.
        attempts_max: "attemptsMax" in "a schedule",
        /// The wait after a failure of a job, if the schedule has its own.
        backoff: "backoff" in "a schedule",
        /// The time after which a job's handler is stopped, if the schedule has its own.
        timeout: "timeoutMillis" in "a schedule",
        /// The next occurrence.
        next: "next" in "a schedule",
    }
}

/// A cron pattern in a time zone.
struct Calendar {
    cron: Cron,
    zone: TimeZone,
}

impl Schedules {
    /// Opens the schedules in this collection, in the store of the queue; creates the index on the next occurrences.
    ///
    /// # Errors
    /// [`Error::Invalid`] on a store without sparse unique indexes (FerretDB), and for a queue that was attached,
    /// because each occurrence is a job with a unique key.
    pub async fn open(queue: JobQueue, namespace: Namespace) -> Result<Self> {
        Schedules::open_with(queue, namespace, ScheduleFields::default()).await
    }

    /// Opens the schedules with other field names.
    ///
    /// # Errors
    /// [`Error::Invalid`] for invalid names, on a store without sparse unique indexes, and for a queue that was
    /// attached.
    pub async fn open_with(queue: JobQueue, namespace: Namespace, fields: ScheduleFields) -> Result<Self> {
        queue.check_keys("recurring jobs")?;
        fields.check()?;
        let schedules = Schedules { schedules: queue.jobs.at(namespace), queue, fields: Arc::new(fields) };
        let due = IndexSpec { sparse: true, ..IndexSpec::new(raw(&doc! { &schedules.fields.next: 1 })?) };
        schedules.schedules.create_indexes([due]).await?;
        Ok(schedules)
    }

    /// Makes a schedule, or changes the one with this name. Setting it again without a change does nothing, so that a
    /// program can do so whenever it starts: an occurrence that was missed meanwhile stays due.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid cron pattern and for an unknown time zone.
    pub async fn set(&self, schedule: &Schedule) -> Result<()> {
        let calendar = Calendar::new(&schedule.cron, &schedule.zone)?;
        let Schedule { name, cron, zone, missed, job } = schedule;
        job.check()?;
        let fields = &*self.fields;
        let mut set = doc! {
            &fields.cron: cron,
            &fields.zone: zone,
            &fields.missed: missed.to_document(),
            &fields.kind: &job.kind,
            &fields.details: job.details.clone(),
            &fields.priority: job.priority,
        };
        let mut unset = Document::new();
        let own = job.own_limits();
        for (field, value) in [&fields.attempts_max, &fields.backoff, &fields.timeout].into_iter().zip(own) {
            match value {
                Some(value) => set.insert(field, value),
                None => unset.insert(field, ""),
            };
        }
        let change = |set: Document| {
            let mut change = doc! { "$set": set };
            if !unset.is_empty() {
                change.insert("$unset", unset.clone());
            }
            change
        };
        let same_times = doc! { "_id": name, &fields.cron: cron, &fields.zone: zone };
        if self.schedules.update_one(&same_times, &change(set.clone())).await? {
            return Ok(());
        }
        let change = match calendar.after(self.queue.now()) {
            Some(next) => {
                set.insert(&fields.next, next);
                change(set)
            }
            None => return Err(Error::invalid(format!("{cron} has no occurrence from now on"))),
        };
        self.schedules.upsert_one(&doc! { "_id": name }, &change).await.map(|_| ())
    }

    /// Removes a schedule; jobs that were enqueued stay. Returns whether there was one.
    pub async fn remove(&self, name: &str) -> Result<bool> {
        self.schedules.delete_one(&doc! { "_id": name }).await
    }

    /// Returns the names of schedules with their next occurrences, the nearest first; `None` for a schedule without
    /// further occurrences.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a schedule.
    pub async fn list(&self, limit: u32) -> Result<Vec<(String, Option<DateTime>)>> {
        let found = self.schedules.find(&doc! {}, &doc! { &self.fields.next: 1 }, limit).await?;
        let read = |schedule: &Document| {
            let name = schedule.get_str("_id").map_err(|_| self.schedules.damaged(schedule, "its name is no text"))?;
            Ok((name.to_owned(), schedule.get_datetime(&self.fields.next).ok().copied()))
        };
        found.iter().map(read).collect()
    }

    /// Enqueues the jobs of schedules (at most `batch`) that are due. It may run in any number of processes at any
    /// time.
    ///
    /// # Errors
    /// [`Error::Store`] if the search fails. A failure at a single schedule is logged and counted.
    pub async fn tick(&self, batch: u32) -> Result<Round> {
        let due = doc! { &self.fields.next: { "$lte": self.queue.now() } };
        let found = self.schedules.find(&due, &doc! { &self.fields.next: 1 }, batch).await?;
        let mut round = Round { more: found.len() as u64 >= u64::from(batch), ..Round::default() };
        for schedule in found {
            let name = schedule.get("_id").cloned().unwrap_or(Bson::Null);
            let span = tracing::info_span!("job_queue.schedule", %name);
            match self.tick_one(&schedule).instrument(span.clone()).await {
                Ok(enqueued) => round.done += enqueued,
                Err(error) => {
                    span.in_scope(
                        || tracing::warn!(%error, "a schedule could not be carried out, it is tried again later"),
                    );
                    round.failed += 1;
                }
            }
        }
        Ok(round)
    }

    /// Returns how many jobs were enqueued.
    async fn tick_one(&self, schedule: &Document) -> Result<u64> {
        let damaged = |what: &str| self.schedules.damaged(schedule, format!("its {what} is missing or invalid"));
        let text = |name: &str| schedule.get_str(name).map_err(|_| damaged(name));
        let fields = &*self.fields;
        let (name, cron, zone) = (text("_id")?, text(&fields.cron)?, text(&fields.zone)?);
        let first = *schedule.get_datetime(&fields.next).map_err(|_| damaged(&fields.next))?;
        let missed = schedule.get_document(&fields.missed).ok().and_then(Missed::from_document);
        let calendar = Calendar::new(cron, zone)?;
        let due = calendar.due(first, self.queue.now(), missed.ok_or_else(|| damaged(&fields.missed))?);

        for at in &due.occurrences {
            let details = schedule.get_document(&fields.details).map_err(|_| damaged(&fields.details))?;
            let mut job = NewJob::new(text(&fields.kind)?, details)?;
            let own = [&fields.attempts_max, &fields.backoff, &fields.timeout].map(String::as_str);
            job.set_own_limits(schedule, own).map_err(|error| self.schedules.damaged(schedule, error))?;
            let priority = schedule.get_i32(&fields.priority).unwrap_or(0);
            let key = format!("{name}@{}", at.timestamp_millis());
            self.queue.enqueue(job.with_priority(priority).at(*at).unique_for_ever(key)).await?;
        }
        let next = match due.next {
            Some(next) => doc! { "$set": { &fields.next: next } },
            None => doc! { "$unset": { &fields.next: "" } },
        };
        // If it does not match, another tick was faster, or the schedule was changed.
        let seen = doc! { "_id": name, &fields.cron: cron, &fields.zone: zone, &fields.next: first };
        self.schedules.update_one(&seen, &next).await?;
        Ok(due.occurrences.len() as u64)
    }

    /// Runs [`Schedules::tick`] in the background. Jobs are late by up to the interval.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_ticks(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let schedules = self.clone();
        Runner::spawn("job_queue.schedules", &self.queue.sources, options, cancel, move |batch| {
            let schedules = schedules.clone();
            async move { schedules.tick(batch).await }
        })
    }
}

/// The occurrences to enqueue, and the next one after them.
struct Due {
    occurrences: Vec<DateTime>,
    next: Option<DateTime>,
}

impl Calendar {
    fn new(cron: &str, zone: &str) -> Result<Self> {
        let cron =
            Cron::from_str(cron).map_err(|error| Error::invalid(format!("{cron} is not a cron pattern: {error}")))?;
        let zone = TimeZoneDatabase::bundled().get(zone);
        Ok(Calendar { cron, zone: zone.map_err(|error| Error::invalid(format!("no such time zone: {error}")))? })
    }

    /// Returns the first occurrence after a time; `None` if there is none for many years.
    fn after(&self, time: DateTime) -> Option<DateTime> {
        let time = Timestamp::from_millisecond(time.timestamp_millis()).ok()?.to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&time, false).ok()?;
        Some(DateTime::from_millis(next.timestamp().as_millisecond()))
    }

    /// Returns the last occurrence that is not after a time.
    fn last_before(&self, time: DateTime) -> Option<DateTime> {
        let time = Timestamp::from_millisecond(time.timestamp_millis()).ok()?.to_zoned(self.zone.clone());
        let last = self.cron.find_previous_occurrence(&time, true).ok()?;
        Some(DateTime::from_millis(last.timestamp().as_millisecond()))
    }

    /// Returns which of the occurrences from `first` until now to enqueue. `first` is one of them.
    fn due(&self, first: DateTime, now: DateTime, missed: Missed) -> Due {
        if missed == Missed::All {
            let mut occurrences = vec![first];
            let mut next = self.after(first);
            while let Some(at) = next.filter(|at| *at <= now && occurrences.len() < CATCH_UP_MAX as usize) {
                occurrences.push(at);
                next = self.after(at);
            }
            return Due { occurrences, next };
        }
        let last = self.last_before(now).map_or(first, |last| last.max(first));
        let age_millis = now.timestamp_millis().saturating_sub(last.timestamp_millis());
        let wanted = match missed {
            Missed::Skip { older_than } => u128::try_from(age_millis).unwrap_or(0) <= older_than.as_millis(),
            Missed::Last | Missed::All => true,
        };
        Due { occurrences: if wanted { vec![last] } else { Vec::new() }, next: self.after(now.max(first)) }
    }
}

impl Missed {
    fn to_document(self) -> Document {
        match self {
            Missed::Last => doc! { "last": true },
            Missed::All => doc! { "all": true },
            Missed::Skip { older_than } => {
                doc! { "skipOlderThanMillis": i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX) }
            }
        }
    }

    fn from_document(document: &Document) -> Option<Self> {
        if let Ok(millis) = document.get_i64("skipOlderThanMillis") {
            return Some(Missed::Skip { older_than: Duration::from_millis(u64::try_from(millis).ok()?) });
        }
        match (document.get_bool("last"), document.get_bool("all")) {
            (Ok(true), _) => Some(Missed::Last),
            (_, Ok(true)) => Some(Missed::All),
            _ => None,
        }
    }
}
