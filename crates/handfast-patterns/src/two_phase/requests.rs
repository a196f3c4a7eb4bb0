//! The filter and the update of each step, as values. The filter has the state that the step expects.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};

use super::options::Fields;
use super::plan::Participant;
use super::state::{Event, State};
use crate::Result;
use crate::steps::Request;
use crate::update::{ensure_untouched, merged};
use crate::value::{equal, lapsed};

/// Moves a transaction from initial to pending, if it is not claimed.
pub(super) fn claim(fields: &Fields, id: &Bson, application: &str, settings: Option<i64>) -> Request {
    let filter = doc! {
        "_id": equal(id),
        &fields.state: State::Initial.name(),
        &fields.application: { "$exists": false },
    };
    let mut set = doc! { &fields.state: State::Pending.name(), &fields.application: application };
    if let Some(revision) = settings {
        set.insert(&fields.settings, revision);
    }
    Request { filter, update: doc! { "$set": set, "$currentDate": { &fields.last_modified: true } } }
}

/// Moves a transaction of this application to its next state. `None` if the event cannot happen in this state.
pub(super) fn advance(fields: &Fields, id: &Bson, application: &str, state: State, event: Event) -> Option<Request> {
    let next = state.after(event)?;
    let filter = doc! { "_id": equal(id), &fields.state: state.name(), &fields.application: application };
    let set = doc! { &fields.state: next.name() };
    Some(Request { filter, update: doc! { "$set": set, "$currentDate": { &fields.last_modified: true } } })
}

/// Claims a transaction that is not to be carried out: it is pending with a reason to refuse it.
pub(super) fn claim_to_refuse(claim: Request, fields: &Fields, reason: &str) -> Request {
    let Request { filter, mut update } = claim;
    if let Ok(set) = update.get_document_mut("$set") {
        set.insert(&fields.reason, reason);
    }
    Request { filter, update }
}

/// Moves a transaction from pending to canceling, whichever application has it; from then on this one has it.
pub(super) fn refuse(fields: &Fields, id: &Bson, application: &str, reason: &str) -> Request {
    let filter = doc! { "_id": equal(id), &fields.state: State::Pending.name() };
    let set = doc! {
        &fields.state: State::Canceling.name(),
        &fields.application: application,
        &fields.reason: reason,
    };
    Request { filter, update: doc! { "$set": set, "$currentDate": { &fields.last_modified: true } } }
}

/// Records in an applied transaction the id of its compensation, unless that field has changed since it was read.
pub(super) fn compensate(fields: &Fields, seen: &super::Record, by: &Bson) -> Request {
    let as_seen = seen.compensation.clone().unwrap_or_else(|| doc! { "$exists": false }.into());
    let filter = doc! {
        "_id": equal(&seen.id),
        &fields.state: { "$in": [State::Applied.name(), State::Done.name()] },
        "$or": [{ &fields.compensation: as_seen }, { &fields.compensation: equal(by) }],
    };
    Request { filter, update: doc! { "$set": { &fields.compensation: by.clone() } } }
}

/// Matches transactions that were left under way for this long, or whose date is this far ahead.
pub(super) fn abandoned(fields: &Fields, now: DateTime, age: Duration) -> [Document; 2] {
    let states = [State::Pending, State::Applied, State::Canceling].map(State::name).to_vec();
    lapsed(now, age).map(|date| doc! { &fields.state: { "$in": &states }, &fields.last_modified: date })
}

/// Takes over a transaction that is still as it was seen.
pub(super) fn take_over(fields: &Fields, seen: &super::Record, application: &str) -> Request {
    let owner = match &seen.application {
        Some(application) => Bson::from(application.as_str()),
        None => Bson::Document(doc! { "$exists": false }),
    };
    let filter = doc! {
        "_id": equal(&seen.id),
        &fields.state: seen.state.name(),
        &fields.application: owner,
        &fields.last_modified: seen.last_modified,
    };
    let set = doc! { &fields.application: application };
    Request { filter, update: doc! { "$set": set, "$currentDate": { &fields.last_modified: true } } }
}

/// Makes the participant's update and adds the transaction's id in one step, unless the id is or was there.
pub(super) fn apply(fields: &Fields, id: &Bson, participant: &Participant) -> Result<Request> {
    let mut filter = doc! {
        "_id": equal(&participant.id),
        &fields.pending: { "$ne": id.clone() },
        &fields.finished: { "$ne": id.clone() },
    };
    if !participant.guard.is_empty() {
        filter.insert("$and", vec![participant.guard.clone()]);
    }
    ensure_untouched(&participant.apply, &[&fields.finished])?;
    Ok(Request { filter, update: merged(&participant.apply, &doc! { "$push": { &fields.pending: id.clone() } })? })
}

/// Matches a participant that has the update.
pub(super) fn has_it(fields: &Fields, id: &Bson, participant: &Participant) -> Document {
    let either = vec![doc! { &fields.pending: equal(id) }, doc! { &fields.finished: equal(id) }];
    doc! { "_id": equal(&participant.id), "$or": either }
}

/// Releases a participant: makes the last part of its update, and moves the id to the finished ones.
pub(super) fn release(fields: &Fields, id: &Bson, participant: &Participant, finished_max: u32) -> Result<Request> {
    leave(fields, id, participant, &participant.finish, finished_max)
}

/// Takes the participant's update back, if it has it.
pub(super) fn undo(fields: &Fields, id: &Bson, participant: &Participant, finished_max: u32) -> Result<Request> {
    leave(fields, id, participant, &participant.inverse, finished_max)
}

/// Adds the id to the finished ones of a participant that does not have the update, which then does not match any more.
pub(super) fn refuse_update(fields: &Fields, id: &Bson, participant: &Participant, finished_max: u32) -> Request {
    let filter = doc! {
        "_id": equal(&participant.id),
        &fields.pending: { "$ne": id.clone() },
        &fields.finished: { "$ne": id.clone() },
    };
    Request { filter, update: doc! { "$push": { &fields.finished: last_finished(id, finished_max) } } }
}

fn last_finished(id: &Bson, max: u32) -> Document {
    doc! { "$each": [id.clone()], "$slice": -i64::from(max) }
}

fn leave(fields: &Fields, id: &Bson, participant: &Participant, update: &Document, max: u32) -> Result<Request> {
    // `$pull` would take an id that is a document for a condition, and remove the ids of other transactions, too.
    let ours =
        doc! { "$pullAll": { &fields.pending: [id.clone()] }, "$push": { &fields.finished: last_finished(id, max) } };
    let filter = doc! { "_id": equal(&participant.id), &fields.pending: equal(id) };
    Ok(Request { filter, update: if update.is_empty() { ours } else { merged(update, &ours)? } })
}
