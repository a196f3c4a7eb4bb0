//! The document of a job.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use serde::de::DeserializeOwned;

use super::{JobFields, JobState, requests};
use crate::Result;
use crate::exactly_once::Fence;
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
    /// How often it was claimed, at least: each claim has a greater number than the one before.
    pub claims: i64,
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

    /// What keeps those who had it before from documents that this claim has written to: [`ExactlyOnce::apply_fenced`].
    ///
    /// [`ExactlyOnce::apply_fenced`]: crate::ExactlyOnce::apply_fenced
    pub fn fence(&self) -> Fence {
        Fence { work: self.id, number: self.claims }
    }

    /// Whether it was given up because somebody wanted it canceled.
    pub(super) fn is_canceled(&self) -> bool {
        self.state == JobState::Failed && self.error.as_deref() == Some(requests::CANCELED)
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
                    name: worker.get_str(&fields.worker_name)?.to_owned(),
                    ts: *worker.get_datetime(&fields.ts)?,
                    claim: worker.get_object_id(&fields.claim).ok(),
                }),
                Some(other) => return Err(format!("{} is {other}, not a document", fields.worker).into()),
            };
            Ok(Job {
                id: id(document)?,
                ts: *document.get_datetime(&fields.ts)?,
                state: document.get_str(&fields.state)?.parse()?,
                kind: document.get_str(&fields.kind)?.to_owned(),
                details: document.get_document(&fields.details)?.clone(),
                worker,
                attempts: count(document, &fields.attempts)?,
                crashes: count(document, &fields.crashes)?,
                claims: integer(document, &fields.claims)?,
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

/// Jobs that others wrote have other ids.
fn id(document: &Document) -> Result<ObjectId, Box<dyn std::error::Error>> {
    let what = match document.get("_id") {
        Some(Bson::ObjectId(id)) => return Ok(*id),
        Some(Bson::String(_)) => "a text",
        Some(Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_)) => "a number",
        Some(Bson::Document(_)) => "a document",
        Some(_) => "of another type",
        None => "missing",
    };
    Err(format!("its `_id` is {what}, not an ObjectId").into())
}

/// A failed job that cannot be read, an error that names the document.
fn count(document: &Document, field: &str) -> Result<u32, Box<dyn std::error::Error>> {
    Ok(u32::try_from(integer(document, field)?)?)
}
