//! The document of a job.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use serde::de::DeserializeOwned;

use super::{JobFields, JobState};
use crate::Result;
use crate::steps::Steps;
use crate::value::integer;

/// A job as its document says.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its `_id`.
    pub id: ObjectId,
    /// When it was enqueued.
    pub ts: DateTime,
    /// Where it is.
    pub state: JobState,
    /// Which handler it is for.
    pub kind: String,
    /// What the handler gets.
    pub details: Document,
    /// Who has it, or had it last.
    pub worker: Option<WorkerMark>,
    /// Failures.
    pub attempts: u32,
    /// Times that its worker fell silent.
    pub crashes: u32,
    /// Larger goes first.
    pub priority: i32,
    /// Not before.
    pub run_at: DateTime,
    /// Why it failed last.
    pub error: Option<String>,
    /// What its handler returned.
    pub result: Option<Bson>,
    /// How far its handler says it is.
    pub progress: Option<Bson>,
    /// When it was done or given up.
    pub finished_at: Option<DateTime>,
    /// Somebody wants it canceled.
    pub cancel: bool,
    /// Its place in an order.
    pub order: Option<String>,
}

/// Who has a job.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerMark {
    /// The worker's name.
    pub name: String,
    /// When it last said that it is at it, by the store's clock.
    pub ts: DateTime,
    /// The claim, fresh each time; none once it was taken away.
    pub claim: Option<ObjectId>,
}

impl Job {
    /// What the handler gets, as a value of a type.
    ///
    /// # Errors
    /// The text says why the details are no such value.
    pub fn details<T: DeserializeOwned>(&self) -> Result<T, String> {
        bson::deserialize_from_document(self.details.clone()).map_err(|error| error.to_string())
    }

    /// The claim that it is held by.
    pub(super) fn claim(&self) -> Option<ObjectId> {
        self.worker.as_ref().and_then(|worker| worker.claim)
    }

    pub(super) fn read(steps: &Steps, document: &Document, fields: &JobFields) -> Result<Self> {
        let read = || -> Result<Self, Box<dyn std::error::Error>> {
            let optional = |name: &String| document.get(name).cloned();
            let text = |name: &String| document.get_str(name).ok().map(str::to_owned);
            let worker = match document.get_document(&fields.worker) {
                Err(_) => None,
                Ok(worker) => Some(WorkerMark {
                    name: worker.get_str("name")?.to_owned(),
                    ts: *worker.get_datetime("ts")?,
                    claim: worker.get_object_id("claim").ok(),
                }),
            };
            Ok(Job {
                id: document.get_object_id("_id")?,
                ts: *document.get_datetime(&fields.ts)?,
                state: document.get_str(&fields.state)?.parse()?,
                kind: document.get_str(&fields.kind)?.to_owned(),
                details: document.get_document(&fields.details)?.clone(),
                worker,
                attempts: count(document, &fields.attempts)?,
                crashes: count(document, &fields.crashes)?,
                priority: i32::try_from(integer(document, &fields.priority)?)?,
                run_at: *document.get_datetime(&fields.run_at)?,
                error: text(&fields.error),
                result: optional(&fields.result),
                progress: optional(&fields.progress),
                finished_at: document.get_datetime(&fields.finished_at).ok().copied(),
                cancel: document.get_bool(&fields.cancel).unwrap_or(false),
                order: text(&fields.order),
            })
        };
        read().map_err(|error| steps.damaged(document, error))
    }
}

/// A failed job that cannot be read, an error that names the document.
fn count(document: &Document, field: &str) -> Result<u32, Box<dyn std::error::Error>> {
    Ok(u32::try_from(integer(document, field)?)?)
}
