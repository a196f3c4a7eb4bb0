//! Lists jobs a page at a time, and counts them by state.
//!
//! A list is in the order of age, and of ids among jobs of the same age. A page begins after the last document of the
//! page before, and not at a number, so that jobs that have left the list meanwhile do not shift it. Ids and ages may
//! be of several types, which a comparison in a filter keeps apart and the sort order does not: the values after a
//! given one are the greater ones of its type and all of later types.

use bson::{Bson, DateTime, Document, doc};

use super::{Job, JobFields, JobQueue, JobState};
use crate::value::equal;
use crate::{Error, Result};

/// The types of values in their sort order, from those after null.
const TYPES: [&str; 10] =
    ["number", "string", "object", "array", "binData", "objectId", "bool", "date", "timestamp", "regex"];
/// Limit on the states that are counted separately; a queue itself has five.
const STATES_MAX: u32 = 100;

/// A selection of jobs to list.
#[derive(Clone, Debug)]
pub struct JobFilter {
    /// Jobs in this state.
    pub state: JobState,
    /// Jobs of this type.
    pub kind: Option<String>,
    /// Jobs that were enqueued before this time.
    pub before: Option<DateTime>,
}

impl JobFilter {
    /// Selects all jobs in a state.
    pub fn in_state(state: JobState) -> Self {
        JobFilter { state, kind: None, before: None }
    }

    fn to_document(&self, fields: &JobFields) -> Document {
        let mut filter = doc! { &fields.state: self.state.name() };
        if let Some(kind) = &self.kind {
            filter.insert(&fields.kind, kind);
        }
        if let Some(before) = self.before {
            filter.insert(&fields.ts, doc! { "$lt": before });
        }
        filter
    }
}

/// A position in a list: after a document.
#[derive(Clone, Debug, PartialEq)]
pub struct ListPosition {
    ts: Bson,
    id: Bson,
}

/// A page of a list.
#[derive(Debug)]
pub struct JobPage {
    /// The jobs. A document that is not a job has an error in its place, which names it.
    pub jobs: Vec<Result<Job>>,
    /// The start of the next page; `None` at the end.
    pub next: Option<ListPosition>,
}

/// The number of documents in a state.
#[derive(Clone, Debug, PartialEq)]
pub struct StateCount {
    /// The state as documents have it: the name of a [`JobState`], or another value that some program has written;
    /// null if it is missing.
    pub state: Bson,
    /// The number of documents.
    pub count: u64,
}

impl JobQueue {
    /// Returns the jobs in a state, the oldest first.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not a job.
    pub async fn list(&self, state: JobState, limit: u32) -> Result<Vec<Job>> {
        self.page(&JobFilter::in_state(state), None, limit).await?.jobs.into_iter().collect()
    }

    /// Returns at most `limit` jobs, the oldest first, from a position in the list on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a limit of 0.
    pub async fn page(&self, filter: &JobFilter, after: Option<&ListPosition>, limit: u32) -> Result<JobPage> {
        if limit == 0 {
            return Err(Error::invalid("a page needs a limit of at least 1"));
        }
        let fields = self.fields();
        let mut parts = vec![filter.to_document(fields)];
        if let Some(ListPosition { ts, id }) = after {
            let mut behind = vec![doc! { &fields.ts: ts, "$or": greater("_id", id) }];
            behind.extend(greater(&fields.ts, ts));
            parts.push(doc! { "$or": behind });
        }
        let order = doc! { &fields.ts: 1, "_id": 1 };
        let found = self.jobs.find(&doc! { "$and": parts }, &order, limit.saturating_add(1)).await?;
        let shown = &found[..found.len().min(limit as usize)];
        let next = if found.len() > shown.len() { shown.last().map(|last| self.position(last)) } else { None };
        Ok(JobPage { jobs: shown.iter().map(|job| self.read(job)).collect(), next })
    }

    /// Returns the position after a job, which is valid in every list; `None` if there is no job with this id.
    pub async fn position_of(&self, id: impl Into<Bson>) -> Result<Option<ListPosition>> {
        Ok(self.jobs.find_one(&doc! { "_id": equal(&id.into()) }).await?.map(|job| self.position(&job)))
    }

    fn position(&self, document: &Document) -> ListPosition {
        let value = |field: &str| document.get(field).cloned().unwrap_or(Bson::Null);
        ListPosition { ts: value(&self.fields().ts), id: value("_id") }
    }

    /// Returns the number of documents in each state, including states that no job has, the most frequent first. It
    /// reads all documents, including jobs that are over; call [`JobQueue::depth`] where you need the numbers often.
    pub async fn count_by_state(&self) -> Result<Vec<StateCount>> {
        let pipeline = [
            doc! { "$group": { "_id": format!("${}", self.fields().state), "count": { "$sum": 1_i64 } } },
            doc! { "$sort": { "count": -1, "_id": 1 } },
            doc! { "$limit": STATES_MAX },
        ];
        let counted = self.jobs.aggregate(&pipeline).await?;
        let read = |group: &Document| {
            let count = crate::value::integer(group, "count")?;
            let state = group.get("_id").cloned().unwrap_or(Bson::Null);
            Ok(StateCount { state, count: u64::try_from(count).unwrap_or(0) })
        };
        counted.iter().map(read).collect()
    }
}

/// Returns filters for all values after a given one in the sort order.
fn greater(field: &str, value: &Bson) -> Vec<Document> {
    let later = match value {
        Bson::Null | Bson::Undefined => 0,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => 1,
        Bson::String(_) | Bson::Symbol(_) => 2,
        Bson::Document(_) => 3,
        Bson::Array(_) => 4,
        Bson::Binary(_) => 5,
        Bson::ObjectId(_) => 6,
        Bson::Boolean(_) => 7,
        Bson::DateTime(_) => 8,
        Bson::Timestamp(_) => 9,
        _ => 10,
    };
    let later = TYPES[later..].iter().map(|kind| doc! { field: { "$type": *kind } });
    std::iter::once(doc! { field: { "$gt": value } }).chain(later).collect()
}
