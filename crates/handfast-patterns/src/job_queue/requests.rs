//! Each step's filter and update, as values.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::{Job, JobEvent, JobFields, JobState};

pub(super) type Request = (Document, Document);

/// Jobs that are due and for one of these handlers.
pub(super) fn due(fields: &JobFields, kinds: &[String], now: DateTime) -> Document {
    doc! {
        &fields.state: JobState::Todo.name(),
        &fields.run_at: { "$lte": now },
        &fields.kind: { "$in": kinds },
    }
}

/// The order in which they are claimed.
pub(super) fn claim_order(fields: &JobFields) -> Document {
    doc! { &fields.priority: -1, &fields.run_at: 1, &fields.ts: 1 }
}

/// What a claim writes.
pub(super) fn claim(fields: &JobFields, worker: &str, claim: ObjectId, order: Option<&str>) -> Document {
    let mut set = doc! {
        &fields.state: JobState::Processing.name(),
        format!("{}.name", fields.worker): worker,
        format!("{}.claim", fields.worker): claim,
    };
    if let Some(order) = order {
        set.insert(&fields.running, order);
    }
    doc! { "$set": set, "$currentDate": { format!("{}.ts", fields.worker): true } }
}

/// The job, while this claim holds. Every write of a worker has this filter: not the state alone, not the worker's name,
/// not a number of attempts, as all of these may be the same for another claim.
pub(super) fn held(fields: &JobFields, id: ObjectId, claim: ObjectId) -> Document {
    doc! {
        "_id": id,
        &fields.state: JobState::Processing.name(),
        format!("{}.claim", fields.worker): claim,
    }
}

/// The worker is at it.
pub(super) fn renew(fields: &JobFields, progress: Option<Bson>) -> Document {
    let mut update = doc! { "$currentDate": { format!("{}.ts", fields.worker): true } };
    if let Some(progress) = progress {
        update.insert("$set", doc! { &fields.progress: progress });
    }
    update
}

/// How a job leaves its worker, or the queue.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Leave {
    /// Done.
    Completed { result: Option<Bson> },
    /// Failed, to be tried again then.
    Failed { error: String, run_at: DateTime },
    /// Put off, which is no failure.
    Snoozed { run_at: DateTime },
    /// Given back at once.
    Released,
    /// Its worker fell silent.
    Crashed { error: String },
    /// Failed for good.
    GivenUp { error: String },
    /// Its worker fell silent once too often.
    Poison { error: String },
}

impl Leave {
    fn event(&self) -> JobEvent {
        match self {
            Leave::Completed { .. } => JobEvent::Completed,
            Leave::Failed { .. } | Leave::Snoozed { .. } | Leave::Released | Leave::Crashed { .. } => {
                JobEvent::Returned
            }
            Leave::GivenUp { .. } | Leave::Poison { .. } => JobEvent::GivenUp,
        }
    }
}

/// What is written when a job leaves; none if it cannot leave this state so.
pub(super) fn leave(fields: &JobFields, from: JobState, leave: &Leave) -> Option<Document> {
    let next = from.after(leave.event())?;
    let (mut set, mut unset, mut count) = (doc! { &fields.state: next.name() }, doc! { &fields.running: "" }, doc! {});
    let mut update = doc! {};
    match leave {
        Leave::Completed { result } => {
            if let Some(result) = result {
                set.insert(&fields.result, result.clone());
            }
            unset.insert(&fields.error, "");
        }
        Leave::Failed { error, run_at } => {
            set.extend(doc! { &fields.error: error, &fields.run_at: *run_at });
            count.insert(&fields.attempts, 1);
        }
        Leave::Snoozed { run_at } => {
            set.insert(&fields.run_at, *run_at);
        }
        Leave::Released => {}
        Leave::GivenUp { error } => {
            set.insert(&fields.error, error);
            count.insert(&fields.attempts, 1);
        }
        Leave::Crashed { error } | Leave::Poison { error } => {
            set.insert(&fields.error, error);
            count.insert(&fields.crashes, 1);
            // Its worker will not find its claim any more.
            unset.insert(format!("{}.claim", fields.worker), "");
        }
    }
    match next {
        JobState::Done | JobState::Failed => {
            unset.extend(doc! { &fields.undone: "", &fields.cancel: "" });
            update.insert("$currentDate", doc! { &fields.finished_at: true });
            // Another job may have the key from now on; it comes back when the job is ordered again.
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

/// A dead letter is to be done after all. It is the one that was seen: not one that failed again meanwhile.
pub(super) fn again(fields: &JobFields, seen: &Job, now: DateTime) -> Option<Request> {
    let next = seen.state.after(JobEvent::OrderedAgain)?;
    let finished_at = seen.finished_at.map_or(Bson::Null, Bson::DateTime);
    let filter = doc! { "_id": seen.id, &fields.state: seen.state.name(), &fields.finished_at: finished_at };
    let set = doc! {
        &fields.state: next.name(),
        &fields.undone: 1,
        &fields.attempts: 0,
        &fields.crashes: 0,
        &fields.run_at: now,
    };
    let update = doc! {
        "$set": set,
        "$unset": { &fields.finished_at: "" },
        "$rename": { format!("{}Was", fields.unique): &fields.unique },
    };
    Some((filter, update))
}

/// Jobs whose workers have been silent since then.
pub(super) fn silent(fields: &JobFields, since: DateTime) -> Document {
    doc! { &fields.state: JobState::Processing.name(), format!("{}.ts", fields.worker): { "$lt": since } }
}

/// The job as it was seen, if its worker has not said anything since.
pub(super) fn still_silent(fields: &JobFields, seen: &Job) -> Option<Document> {
    let worker = seen.worker.as_ref()?;
    let mut filter = doc! {
        "_id": seen.id,
        &fields.state: JobState::Processing.name(),
        format!("{}.ts", fields.worker): worker.ts,
    };
    if let Some(claim) = worker.claim {
        filter.insert(format!("{}.claim", fields.worker), claim);
    }
    Some(filter)
}
