//! The document of a job.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use serde::de::DeserializeOwned;

use super::{Backoff, JobFields, JobState, requests};
use crate::Result;
use crate::exactly_once::Fence;
use crate::steps::Steps;
use crate::value::integer;

/// A job as its document says.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its `_id`, of any type.
    pub id: Bson,
    /// When it was enqueued.
    pub ts: DateTime,
    /// Its state.
    pub state: JobState,
    /// Which handler it is for.
    pub kind: String,
    /// The details for the handler.
    pub details: Document,
    /// The worker that has it, or had it last.
    pub worker: Option<WorkerMark>,
    /// Failures.
    pub attempts: u32,
    /// Times that its worker fell silent.
    pub crashes: u32,
    /// Times that a worker could not read its details.
    pub unread: u32,
    /// Failures before it is given up, if not those of the queue.
    pub attempts_max: Option<u32>,
    /// How long it waits after a failure, if not as long as the others of the queue.
    pub backoff: Option<Backoff>,
    /// How long its handler may work, if it has a time of its own.
    pub timeout: Option<Duration>,
    /// How often it was claimed, at least: each claim has a greater number than the one before.
    pub claims: i64,
    /// Larger goes first.
    pub priority: i32,
    /// Not before.
    pub run_at: DateTime,
    /// The last error.
    pub error: Option<String>,
    /// The last errors.
    pub errors: Vec<PastError>,
    /// The result of its handler.
    pub result: Option<Bson>,
    /// How far its handler says it is.
    pub progress: Option<Bson>,
    /// When it was done or given up.
    pub finished_at: Option<DateTime>,
    /// It is to be canceled.
    pub cancel: bool,
    /// Its place in an order.
    pub order: Option<String>,
}

/// A failure of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PastError {
    /// When, by the clock of who wrote it.
    pub ts: DateTime,
    /// The reason.
    pub error: String,
}

/// The worker that has a job.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerMark {
    /// The worker's name; empty if it has left none.
    pub name: String,
    /// When it last said that it is at it, by the store's clock; none if it has left no date.
    pub ts: Option<DateTime>,
    /// The claim, fresh each time; none once it was taken away.
    pub claim: Option<ObjectId>,
}

impl Job {
    /// Returns the details as a value of a type.
    ///
    /// # Errors
    /// Says why the details cannot be read as a value of this type.
    pub fn details<T: DeserializeOwned>(&self) -> Result<T, String> {
        bson::deserialize_from_document(self.details.clone()).map_err(|error| error.to_string())
    }

    /// The fence that keeps earlier claims from documents that this claim has written to: [`ExactlyOnce::apply_fenced`].
    ///
    /// [`ExactlyOnce::apply_fenced`]: crate::ExactlyOnce::apply_fenced
    pub fn fence(&self) -> Fence {
        Fence { work: self.id.clone(), number: self.claims }
    }

    /// The claim that it is held by.
    pub(super) fn claim(&self) -> Option<ObjectId> {
        self.worker.as_ref().and_then(|worker| worker.claim)
    }

    pub(super) fn read(steps: &Steps, document: &Document, fields: &JobFields) -> Result<Self> {
        let read = || -> Result<Self, Box<dyn std::error::Error>> {
            let optional = |name: &String| document.get(name).cloned();
            let text = |name: &String| document.get_str(name).ok().map(str::to_owned);
            let worker = match document.get(&fields.worker) {
                None => None,
                Some(Bson::Document(worker)) => Some(WorkerMark {
                    name: worker.get_str(&fields.worker_name).unwrap_or_default().to_owned(),
                    ts: worker.get_datetime(&fields.ts).ok().copied(),
                    claim: worker.get_object_id(&fields.claim).ok(),
                }),
                Some(other) => return Err(format!("{} is {other}, not a document", fields.worker).into()),
            };
            let ts = *document.get_datetime(&fields.ts)?;
            Ok(Job {
                id: document.get("_id").cloned().ok_or("it has no `_id`")?,
                ts,
                state: document.get_str(&fields.state)?.parse()?,
                kind: document.get_str(&fields.kind)?.to_owned(),
                details: document.get_document(&fields.details)?.clone(),
                worker,
                attempts: count(document, &fields.attempts)?,
                crashes: count(document, &fields.crashes)?,
                unread: count(document, &fields.unread)?,
                attempts_max: document
                    .get(&fields.attempts_max)
                    .map(|_| count(document, &fields.attempts_max))
                    .transpose()?,
                backoff: document.get(&fields.backoff).map(Backoff::from_bson).transpose()?,
                timeout: document.get(&fields.timeout).map(|_| millis(document, &fields.timeout)).transpose()?,
                claims: integer(document, &fields.claims)?,
                priority: i32::try_from(integer(document, &fields.priority)?)?,
                run_at: document
                    .get(&fields.run_at)
                    .map_or(Ok(ts), |_| document.get_datetime(&fields.run_at).copied())?,
                error: text(&fields.error),
                errors: past_errors(document, fields),
                result: optional(&fields.result),
                progress: optional(&fields.progress),
                finished_at: document.get_datetime(&fields.finished_at).ok().copied(),
                cancel: requests::is_canceled(fields, document),
                order: text(&fields.order),
            })
        };
        read().map_err(|error| steps.damaged(document, error))
    }
}

/// Leaves out values that are not errors: they are for people.
fn past_errors(document: &Document, fields: &JobFields) -> Vec<PastError> {
    let read = |entry: &Bson| {
        let entry = entry.as_document()?;
        let (ts, error) = (entry.get_datetime(&fields.ts).ok()?, entry.get_str(&fields.error).ok()?);
        Some(PastError { ts: *ts, error: error.to_owned() })
    };
    document.get_array(&fields.errors).map(|entries| entries.iter().filter_map(read).collect()).unwrap_or_default()
}

/// A length of time, written as milliseconds.
pub(super) fn millis(document: &Document, field: &str) -> Result<Duration, Box<dyn std::error::Error>> {
    Ok(Duration::from_millis(u64::try_from(integer(document, field)?)?))
}

/// A count of a job; an error if it is none, or negative.
pub(super) fn count(document: &Document, field: &str) -> Result<u32, Box<dyn std::error::Error>> {
    Ok(u32::try_from(integer(document, field)?)?)
}
