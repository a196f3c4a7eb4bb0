//! The filter and the update of each step, as values.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::{Job, JobEvent, JobFields, JobState};
use crate::metrics::Event;
use crate::steps::Request;
use crate::value::{equal, lapsed};

/// The number of past errors that a job keeps.
const ERRORS_MAX: i32 = 10;

/// Matches jobs that are due and for one of these handlers. Documents of other programs that cannot be read are not
/// claimed.
pub(super) fn due(fields: &JobFields, kinds: &[String], now: DateTime) -> Document {
    let mut due = waiting(fields, not_after(now));
    due.insert(&fields.kind, doc! { "$in": kinds });
    due.extend(shape(fields));
    due
}

/// Matches jobs that are due, for any handler.
pub(super) fn all_due(fields: &JobFields, now: DateTime) -> Document {
    let mut due = waiting(fields, not_after(now));
    due.extend(claimable(fields));
    due
}

/// Matches jobs whose time has not come yet.
pub(super) fn scheduled(fields: &JobFields, now: DateTime) -> Document {
    let mut scheduled = waiting(fields, doc! { "$gt": now });
    scheduled.extend(claimable(fields));
    scheduled
}

fn waiting(fields: &JobFields, run_at: Document) -> Document {
    doc! { &fields.state: JobState::Todo.name(), &fields.run_at: run_at }
}

/// Returns the condition of a field that is not after this time. A job without a time is due from the beginning.
fn not_after(now: DateTime) -> Document {
    doc! { "$not": { "$gt": now } }
}

/// Matches jobs that another program has enqueued without a priority. The filter compares with null, which is a bound
/// of an index; `$exists: false` is not.
pub(super) fn without_priority(fields: &JobFields) -> Document {
    let mut without = doc! { &fields.state: JobState::Todo.name(), &fields.priority: Bson::Null };
    without.extend(claimable(fields));
    without
}

/// Adds the default values to such a job, if it is still as it was seen.
pub(super) fn complete_fields(fields: &JobFields, seen: &Job, has_time: bool) -> Request {
    let is_there = |there: bool| doc! { "$exists": there };
    let filter = doc! {
        "_id": equal(&seen.id),
        &fields.state: JobState::Todo.name(),
        &fields.priority: is_there(false),
        &fields.run_at: is_there(has_time),
    };
    let mut set = doc! { &fields.priority: seen.priority, &fields.undone: 1 };
    // A later time may have been set meanwhile.
    if !has_time {
        set.insert(&fields.run_at, seen.run_at);
    }
    Request { filter, update: doc! { "$set": set } }
}

/// Matches documents that have the state of waiting jobs and cannot be read as jobs.
pub(super) fn foreign(fields: &JobFields) -> Document {
    doc! { &fields.state: JobState::Todo.name(), "$nor": [claimable(fields)] }
}

/// Matches undone jobs of an order. Documents that can never be claimed are left out.
pub(super) fn undone_in(fields: &JobFields, order: &str) -> Document {
    let mut undone = doc! { &fields.order: order, &fields.undone: 1 };
    undone.extend(claimable(fields));
    undone
}

/// Matches jobs that a handler can get at some time.
fn claimable(fields: &JobFields) -> Document {
    let mut claimable = shape(fields);
    claimable.insert(&fields.kind, doc! { "$type": "string" });
    claimable
}

/// Matches documents that a claim can be written to and read from. A claim that always failed on one document would
/// never reach the others.
fn shape(fields: &JobFields) -> Document {
    let is_not = |field: &String, kind: &str| doc! { field: { "$exists": true, "$not": { "$type": kind } } };
    // `$type` matches an array by the types of its elements, too.
    let array = |field: &String| doc! { field: { "$type": "array" } };
    doc! {
        &fields.ts: { "$type": "date" },
        &fields.details: { "$type": "object" },
        "$nor": [
            is_not(&fields.worker, "object"), array(&fields.worker), is_not(&fields.claims, "number"), array(&fields.claims),
            is_not(&fields.run_at, "date"), array(&fields.run_at), is_not(&fields.errors, "array"),
        ],
    }
}

/// Makes a dead letter of a job that has the right shape and still cannot be read, or cancels it if that was
/// requested: the next claim of it would fail as well.
pub(super) fn unreadable(fields: &JobFields, canceled: bool, error: &str) -> Document {
    let state = if canceled { JobState::Canceled } else { JobState::Failed };
    doc! {
        "$set": { &fields.state: state.name(), &fields.error: error },
        "$unset": { &fields.undone: "", &fields.cancel: "", &fields.running: "", &fields.slot: "" },
        "$currentDate": { &fields.finished_at: true },
        "$rename": { &fields.unique: format!("{}Was", fields.unique) },
    }
}

/// Makes a dead letter of a job that is too large for the fields of a claim. An error would not fit either.
pub(super) fn too_large(fields: &JobFields) -> Document {
    doc! { "$set": { &fields.state: JobState::Failed.name() }, "$unset": { &fields.undone: "" } }
}

/// Returns the order in which jobs are claimed.
pub(super) fn claim_order(fields: &JobFields) -> Document {
    doc! { &fields.priority: -1, &fields.run_at: 1, &fields.ts: 1 }
}

/// Returns the update of a claim.
pub(super) fn claim(
    fields: &JobFields,
    worker: &str,
    claim: ObjectId,
    order: Option<&str>,
    slot: Option<u32>,
) -> Document {
    let mut set = doc! {
        &fields.state: JobState::Processing.name(),
        fields.of_worker(&fields.worker_name): worker,
        fields.of_worker(&fields.claim): claim,
    };
    if let Some(order) = order {
        set.insert(&fields.running, order);
    }
    if let Some(slot) = slot {
        set.insert(&fields.slot, i64::from(slot));
    }
    // If an attempt whose answer was lost has counted as well, the number is still greater than before.
    doc! { "$set": set, "$currentDate": { fields.of_worker(&fields.ts): true }, "$inc": { &fields.claims: 1_i64 } }
}

/// Matches the job while this claim holds. Every write of a worker has this filter, as the state, the worker's name
/// and the number of attempts may be the same for another claim.
pub(super) fn held(fields: &JobFields, id: &Bson, claim: ObjectId) -> Document {
    doc! {
        "_id": equal(id),
        &fields.state: JobState::Processing.name(),
        fields.of_worker(&fields.claim): claim,
    }
}

/// Matches the job while this claim holds, and only if it is to be canceled (`canceled`) or is not.
pub(super) fn held_and_wanted(fields: &JobFields, id: &Bson, claim: ObjectId, canceled: bool) -> Document {
    let mut filter = held(fields, id, claim);
    filter.insert(&fields.cancel, wanted(canceled));
    filter
}

/// Returns whether a job is to be canceled.
pub(super) fn is_canceled(fields: &JobFields, job: &Document) -> bool {
    job.get_bool(&fields.cancel).unwrap_or(false)
}

/// Returns the condition on the mark of a cancellation.
pub(super) fn wanted(canceled: bool) -> Bson {
    if canceled { Bson::Boolean(true) } else { bson::bson!({ "$ne": true }) }
}

/// Returns the update that renews a claim.
pub(super) fn renew(fields: &JobFields, progress: Option<Bson>) -> Document {
    let mut update = doc! { "$currentDate": { fields.of_worker(&fields.ts): true } };
    if let Some(progress) = progress {
        update.insert("$set", doc! { &fields.progress: progress });
    }
    update
}

/// The end of a claim, by which a job leaves its worker, or the queue.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimEnd {
    /// Done.
    Completed { result: Option<Bson> },
    /// Failed, and to be tried again at `run_at`.
    Failed { error: String, run_at: DateTime },
    /// Its details could not be read by this worker; another one may be able to from `run_at` on.
    Unread { error: String, run_at: DateTime },
    /// Put off, which does not count as a failure.
    Snoozed { run_at: DateTime },
    /// Returned at once.
    Released,
    /// Its worker fell silent.
    Crashed { error: String },
    /// The date of the last renewal of its worker is missing or wrong.
    Undated { error: String },
    /// Failed for good.
    GivenUp { error: String },
    /// Its worker fell silent once too often.
    Poison { error: String },
    /// More workers than the limit could not read its details.
    Unreadable { error: String },
    /// Canceled.
    Canceled,
}

impl ClaimEnd {
    pub(super) fn event(&self) -> JobEvent {
        match self {
            ClaimEnd::Completed { .. } => JobEvent::Completed,
            ClaimEnd::Failed { .. }
            | ClaimEnd::Unread { .. }
            | ClaimEnd::Snoozed { .. }
            | ClaimEnd::Released
            | ClaimEnd::Crashed { .. }
            | ClaimEnd::Undated { .. } => JobEvent::Returned,
            ClaimEnd::GivenUp { .. } | ClaimEnd::Poison { .. } | ClaimEnd::Unreadable { .. } => JobEvent::GivenUp,
            ClaimEnd::Canceled => JobEvent::Canceled,
        }
    }

    /// Returns the reason why the job was not done.
    fn error(&self) -> Option<&str> {
        match self {
            ClaimEnd::Failed { error, .. }
            | ClaimEnd::Unread { error, .. }
            | ClaimEnd::Crashed { error }
            | ClaimEnd::Undated { error }
            | ClaimEnd::GivenUp { error }
            | ClaimEnd::Poison { error }
            | ClaimEnd::Unreadable { error } => Some(error),
            ClaimEnd::Completed { .. } | ClaimEnd::Snoozed { .. } | ClaimEnd::Released | ClaimEnd::Canceled => None,
        }
    }

    /// Returns its label in metrics.
    pub(super) fn counted(&self) -> Event {
        match self {
            ClaimEnd::Completed { .. } => Event::JobCompleted,
            ClaimEnd::Failed { .. } => Event::JobFailed,
            ClaimEnd::Unread { .. } => Event::JobUnread,
            ClaimEnd::Snoozed { .. } => Event::JobSnoozed,
            ClaimEnd::Released | ClaimEnd::Undated { .. } => Event::JobReleased,
            ClaimEnd::Crashed { .. } => Event::JobCrashed,
            ClaimEnd::GivenUp { .. } | ClaimEnd::Poison { .. } | ClaimEnd::Unreadable { .. } => Event::JobDead,
            ClaimEnd::Canceled => Event::JobCanceled,
        }
    }
}

/// Returns the update for a job that leaves its worker or the queue; `None` if it cannot leave this state in this way.
pub(super) fn end_claim(fields: &JobFields, from: JobState, end: &ClaimEnd, now: DateTime) -> Option<Document> {
    let next = from.after(end.event())?;
    let (mut set, mut count) = (doc! { &fields.state: next.name() }, doc! {});
    let mut unset = doc! { &fields.running: "", &fields.slot: "" };
    let mut update = doc! {};
    if let Some(error) = end.error() {
        set.insert(&fields.error, error);
        let last = doc! { "$each": [{ &fields.ts: now, &fields.error: error }], "$slice": -ERRORS_MAX };
        update.insert("$push", doc! { &fields.errors: last });
    }
    match end {
        ClaimEnd::Completed { result } => {
            if let Some(result) = result {
                set.insert(&fields.result, result.clone());
            }
            unset.insert(&fields.error, "");
        }
        ClaimEnd::Failed { run_at, .. } => {
            set.insert(&fields.run_at, *run_at);
            count.insert(&fields.attempts, 1);
        }
        ClaimEnd::Unread { run_at, .. } => {
            set.insert(&fields.run_at, *run_at);
            count.insert(&fields.unread, 1);
        }
        ClaimEnd::Snoozed { run_at } => {
            set.insert(&fields.run_at, *run_at);
        }
        ClaimEnd::Released | ClaimEnd::Canceled => {}
        // This is no crash: a reclaimer with a wrong clock would make dead letters of jobs whose workers live. The
        // date itself is of no use.
        ClaimEnd::Undated { .. } => {
            unset.insert(&fields.worker, "");
        }
        ClaimEnd::GivenUp { .. } => {
            count.insert(&fields.attempts, 1);
        }
        ClaimEnd::Unreadable { .. } => {
            count.insert(&fields.unread, 1);
        }
        ClaimEnd::Crashed { .. } | ClaimEnd::Poison { .. } => {
            count.insert(&fields.crashes, 1);
            // Without it, its worker's writes match nothing.
            unset.insert(fields.of_worker(&fields.claim), "");
        }
    }
    match next {
        JobState::Done | JobState::Failed | JobState::Canceled => {
            unset.extend(doc! { &fields.undone: "", &fields.cancel: "" });
            update.insert("$currentDate", doc! { &fields.finished_at: true });
            // Another job may have the key from now on. The key is restored if the job is retried.
            update.insert("$rename", doc! { &fields.unique: format!("{}Was", fields.unique) });
        }
        JobState::Todo | JobState::Processing => {}
    }
    update.insert("$set", set);
    update.insert("$unset", unset);
    if !count.is_empty() {
        update.insert("$inc", count);
    }
    Some(update)
}

/// Returns a dead letter to the queue, if it is still as it was seen and has not failed again meanwhile.
pub(super) fn again(fields: &JobFields, seen: &Job, now: DateTime) -> Option<Request> {
    let next = seen.state.after(JobEvent::OrderedAgain)?;
    let finished_at = seen.finished_at.map_or(Bson::Null, Bson::DateTime);
    let filter = doc! { "_id": equal(&seen.id), &fields.state: seen.state.name(), &fields.finished_at: finished_at };
    let set = doc! {
        &fields.state: next.name(),
        &fields.undone: 1,
        &fields.attempts: 0,
        &fields.crashes: 0,
        &fields.unread: 0,
        &fields.run_at: now,
    };
    let update = doc! {
        "$set": set,
        "$unset": { &fields.finished_at: "" },
        "$rename": { format!("{}Was", fields.unique): &fields.unique },
    };
    Some(Request { filter, update })
}

/// Matches jobs whose workers have been silent for the lease, have left no date, or have left one that is further
/// ahead than that. Documents that are not jobs and were never claimed by this pattern belong to another program and
/// are left out.
pub(super) fn silent(fields: &JobFields, now: DateTime, lease: Duration) -> [Document; 3] {
    let processing = |ours: Document| {
        let claimed = doc! { fields.of_worker(&fields.claim): { "$type": "objectId" } };
        doc! { &fields.state: JobState::Processing.name(), "$or": [claimed, ours] }
    };
    let [old, ahead] = lapsed(now, lease).map(|date| {
        let mut silent = processing(claimable(fields));
        silent.insert(fields.of_worker(&fields.ts), date);
        silent
    });
    let mut undated = processing(doc! {
        &fields.ts: { "$type": "date" },
        &fields.details: { "$type": "object" },
        &fields.kind: { "$type": "string" },
    });
    undated.insert(fields.of_worker(&fields.ts), no_date());
    [old, ahead, undated]
}

fn no_date() -> Document {
    doc! { "$not": { "$type": "date" } }
}

/// Matches the job as it was seen, if its worker has not renewed its claim since, and it is not to be canceled.
pub(super) fn still_silent(fields: &JobFields, seen: &Job) -> Document {
    let mut filter = doc! {
        "_id": equal(&seen.id),
        &fields.state: JobState::Processing.name(),
        &fields.cancel: wanted(seen.cancel),
    };
    match seen.worker.as_ref().and_then(|worker| worker.ts) {
        Some(ts) => filter.insert(fields.of_worker(&fields.ts), ts),
        // A filter compares each date of an array separately.
        None => {
            let ts = fields.of_worker(&fields.ts);
            filter.insert("$or", [doc! { &ts: no_date() }, doc! { &ts: { "$type": "array" } }])
        }
    };
    if let Some(claim) = seen.claim() {
        filter.insert(fields.of_worker(&fields.claim), claim);
    }
    filter
}
