//! The recorded settings of a queue, which its documents depend on.
//!
//! ```text
//! db.jobs.settings   {_id: "job-queue", revision: 1, settings: {
//!                       ordered: false, attemptsMax: 20, crashesMax: 5, unreadMax: 10,
//!                       limits: {concurrency: 3, rate: {jobs: 10, withinMillis: 1000}}, fields: {ts: "ts", state: "state", ..}}}
//! ```
//!
//! Each worker chooses its lease, its backoff and the time limit of its handlers itself: the fence protects a job that
//! is claimed under another lease.

use std::sync::Arc;

use bson::{Document, doc};
use handfast_store::{DocumentStore, Namespace};

use super::{JobFields, JobQueue, JobQueueOptions, JobState, Limits, RateLimit};
use crate::ledger::parts::ensure_no_ledger;
use crate::settings::SettingsRecord;
use crate::steps::Steps;
use crate::value::{boolean, count, integer, millis, subdocument};
use crate::{Error, FieldNames, Result};

impl JobQueueOptions {
    /// Reads the recorded settings of a queue, with defaults for those that each process chooses for itself; `None` if
    /// nothing is recorded.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a record that cannot be read.
    pub async fn recorded(store: Arc<dyn DocumentStore>, jobs: &Namespace) -> Result<Option<Self>> {
        let recorded = record(&Steps::new(store, jobs.clone()))?.read().await?;
        recorded.map(|recorded| read(&recorded.settings, jobs)).transpose()
    }
}

impl JobQueue {
    /// Changes the recorded settings of a queue to those of `options`; records them if nothing is recorded. Processes
    /// that have opened the queue before keep the old settings: stop them first if `ordered` or the limits change.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other field names while there are jobs, for another order or concurrency while workers
    /// have jobs, and for a queue without orders while jobs with an order wait. [`Error::Store`] if the store fails:
    /// call again.
    pub async fn change_settings(
        store: Arc<dyn DocumentStore>,
        jobs: Namespace,
        options: &JobQueueOptions,
    ) -> Result<()> {
        options.check()?;
        let steps = Steps::new(store, jobs);
        let (record, new) = (record(&steps)?, written(options));
        let Some(recorded) = record.read().await? else { return record.open(&new).await.map(|_| ()) };
        let old = read(&recorded.settings, steps.namespace())?;
        let (fields, place) = (&old.fields, steps.namespace());
        if fields.to_document() != options.fields.to_document() && steps.count(&Document::new()).await? > 0 {
            return Err(Error::invalid(format!(
                "{place} has jobs by other names of fields: let them be done and purged first, or begin another queue"
            )));
        }
        let of_claims = |options: &JobQueueOptions| (options.ordered, options.limits.concurrency);
        let with_workers = doc! { &fields.state: JobState::Processing.name() };
        if of_claims(&old) != of_claims(options) && steps.count(&with_workers).await? > 0 {
            return Err(Error::invalid(format!(
                "workers have jobs of {place} by the recorded order and concurrency: pause the queue until they are done"
            )));
        }
        let in_order = doc! { &fields.order: { "$exists": true }, &fields.undone: { "$exists": true } };
        if old.ordered && !options.ordered && steps.count(&in_order).await? > 0 {
            return Err(Error::invalid(format!("{place} has jobs that wait for their order: let them be done first")));
        }
        record.change(&recorded, &new).await.map(|_| ())
    }

    /// Records the settings if nothing is recorded, and compares them with the record otherwise.
    ///
    /// # Errors
    /// [`Error::Invalid`] if nothing is recorded and the collection belongs to a ledger.
    pub(super) async fn record_settings(&self) -> Result<()> {
        let (record, ours) = (record(&self.jobs)?, written(&self.options));
        if record.compare(&ours).await?.is_some() {
            return Ok(());
        }
        ensure_no_ledger(&self.jobs).await?;
        record.open(&ours).await.map(|_| ())
    }

    /// Compares the settings with the record. Returns whether there is one.
    pub(super) async fn compare_settings(&self) -> Result<bool> {
        let recorded = record(&self.jobs)?.compare(&written(&self.options)).await?;
        Ok(recorded.is_some())
    }
}

fn record(jobs: &Steps) -> Result<SettingsRecord> {
    SettingsRecord::new(jobs, "job-queue", doc! { "fields": JobFields::default().to_document() })
}

fn written(options: &JobQueueOptions) -> Document {
    let JobQueueOptions { ordered, attempts_max, crashes_max, unread_max, limits, fields, .. } = options;
    let mut of_limits = Document::new();
    if let Some(concurrency) = limits.concurrency {
        of_limits.insert("concurrency", i64::from(concurrency));
    }
    if let Some(RateLimit { jobs, within }) = limits.rate {
        let within = i64::try_from(within.as_millis()).unwrap_or(i64::MAX);
        of_limits.insert("rate", doc! { "jobs": i64::try_from(jobs).unwrap_or(i64::MAX), "withinMillis": within });
    }
    let mut written = doc! {
        "ordered": *ordered,
        "attemptsMax": i64::from(*attempts_max),
        "crashesMax": i64::from(*crashes_max),
        "unreadMax": i64::from(*unread_max),
        "fields": fields.to_document(),
    };
    if !of_limits.is_empty() {
        written.insert("limits", of_limits);
    }
    written
}

fn read(settings: &Document, jobs: &Namespace) -> Result<JobQueueOptions> {
    let parsed = || -> std::result::Result<JobQueueOptions, Box<dyn std::error::Error>> {
        let none = Document::new();
        let limits = settings.get_document("limits").unwrap_or(&none);
        let rate = match limits.get_document("rate") {
            Ok(rate) => {
                let jobs = integer(rate, "jobs")?;
                let jobs = usize::try_from(jobs).map_err(|_| format!("its jobs is {jobs}, less than 0"))?;
                Some(RateLimit { jobs, within: millis(rate, "withinMillis")? })
            }
            Err(_) => None,
        };
        let concurrency = limits.get("concurrency").map(|_| count(limits, "concurrency")).transpose()?;
        let options = JobQueueOptions {
            ordered: boolean(settings, "ordered")?,
            attempts_max: count(settings, "attemptsMax")?,
            crashes_max: count(settings, "crashesMax")?,
            unread_max: count(settings, "unreadMax")?,
            limits: Limits { concurrency, rate },
            fields: JobFields::from_document(subdocument(settings, "fields")?)?,
            ..JobQueueOptions::default()
        };
        options.check()?;
        Ok(options)
    };
    parsed().map_err(|error| Error::invalid(format!("the recorded settings of {jobs} cannot be read: {error}")))
}
