//! The document of a job.

use std::any::{Any, TypeId};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use serde::de::DeserializeOwned;

use super::{Backoff, JobFields, JobState, requests};
use crate::exactly_once::Fence;
use crate::steps::Steps;
use crate::value::{count, date, integer, millis, parsed, string, subdocument};
use crate::{Error, Result};

/// A job as its document describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its `_id`, of any type.
    pub id: Bson,
    /// The time when it was enqueued.
    pub ts: DateTime,
    /// Its state.
    pub state: JobState,
    /// The type of the job, which selects its handler.
    pub kind: String,
    /// The details for the handler.
    pub details: Document,
    /// The worker that has the job, or had it last.
    pub worker: Option<WorkerMark>,
    /// The number of failures.
    pub attempts: u32,
    /// The number of times that its worker fell silent.
    pub crashes: u32,
    /// The number of times that a worker could not read its details.
    pub unread: u32,
    /// The failures after which it is given up, if it has a limit of its own.
    pub attempts_max: Option<u32>,
    /// The wait after a failure, if it has its own.
    pub backoff: Option<Backoff>,
    /// The time after which its handler is stopped, if it has its own.
    pub timeout: Option<Duration>,
    /// A number that increases with each claim, at least by 1.
    pub claims: i64,
    /// The priority; larger ones come first.
    pub priority: i32,
    /// The time before which the job is not claimed.
    pub run_at: DateTime,
    /// The last error.
    pub error: Option<String>,
    /// The last errors.
    pub errors: Vec<PastError>,
    /// The result of its handler.
    pub result: Option<Bson>,
    /// The progress that its handler has reported.
    pub progress: Option<Bson>,
    /// The time when it was done or given up.
    pub finished_at: Option<DateTime>,
    /// Whether it is to be canceled.
    pub cancel: bool,
    /// The key of its order.
    pub order: Option<String>,
}

/// A failure of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PastError {
    /// The time, by the clock of the process that recorded it.
    pub ts: DateTime,
    /// The reason.
    pub error: String,
}

/// The worker that has a job.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerMark {
    /// The worker's name; empty if the document has none.
    pub name: String,
    /// The time of its last renewal, by the store's clock; `None` if the document has no date.
    pub ts: Option<DateTime>,
    /// The claim id, fresh with each claim; `None` once the claim was taken away.
    pub claim: Option<ObjectId>,
}

impl Job {
    /// Returns the details as a value of a type. A [`Document`] is returned as it is stored.
    ///
    /// # Errors
    /// Returns a text that says why the details cannot be read as a value of this type.
    pub fn details<T: DeserializeOwned + 'static>(&self) -> Result<T, String> {
        // It would be read with sub-documents such as `{"$oid": ".."}` as the values that they stand for in Extended JSON.
        if TypeId::of::<T>() == TypeId::of::<Document>() {
            let details: Box<dyn Any> = Box::new(self.details.clone());
            return details.downcast().map(|details| *details).map_err(|_| "they are no document".to_owned());
        }
        bson::deserialize_from_document(self.details.clone()).map_err(|error| error.to_string())
    }

    /// Returns the fence that keeps earlier holders from documents that this claim has written to:
    /// [`ExactlyOnce::apply_fenced`].
    ///
    /// [`ExactlyOnce::apply_fenced`]: crate::ExactlyOnce::apply_fenced
    pub fn fence(&self) -> Fence {
        Fence { work: self.id.clone(), number: self.claims }
    }

    /// Returns the claim id of its worker.
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
            let ts = date(document, &fields.ts)?;
            Ok(Job {
                id: document.get("_id").cloned().ok_or("it has no `_id`")?,
                ts,
                state: parsed(document, &fields.state)?,
                kind: string(document, &fields.kind)?.to_owned(),
                details: subdocument(document, &fields.details)?.clone(),
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
                priority: priority(document, &fields.priority)?,
                run_at: document.get(&fields.run_at).map_or(Ok(ts), |_| date(document, &fields.run_at))?,
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

/// Reads the past errors. Values of another form are left out, as the list is for people.
fn past_errors(document: &Document, fields: &JobFields) -> Vec<PastError> {
    let read = |entry: &Bson| {
        let entry = entry.as_document()?;
        let (ts, error) = (entry.get_datetime(&fields.ts).ok()?, entry.get_str(&fields.error).ok()?);
        Some(PastError { ts: *ts, error: error.to_owned() })
    };
    document.get_array(&fields.errors).map(|entries| entries.iter().filter_map(read).collect()).unwrap_or_default()
}

/// Reads the priority of a job.
fn priority(document: &Document, field: &str) -> Result<i32> {
    let number = integer(document, field)?;
    let out_of_range = |_| Error::invalid(format!("its {field} is {number}, not from {} to {}", i32::MIN, i32::MAX));
    i32::try_from(number).map_err(out_of_range)
}
