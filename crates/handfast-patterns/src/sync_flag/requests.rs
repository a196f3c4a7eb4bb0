//! The filter and the update of each step, as values. The filter has the state that the step expects.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};

use super::comparison::{CopyState, compare};
use super::link::{Link, Values};
use super::record::{Copy, FINAL_VERSION, Main};
use super::{MainEvent, MainState, OnDelete, SyncFields};
use crate::Result;
use crate::exactly_once::{Change, Token};
use crate::steps::Request;
use crate::update::{ensure_untouched, merged};
use crate::value::{equal, lapsed};

/// An update or a delete of one document.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Update(Request),
    Remove(Document),
}

/// Makes the caller's change, sets the next version and the flag in one step, unless the token was used.
pub(super) fn begin(fields: &SyncFields, id: &Bson, token: Token, change: &Change, tokens_max: u32) -> Result<Request> {
    let mut filter = doc! { "_id": equal(id), &fields.tokens: { "$ne": token }, &fields.deleted: { "$exists": false } };
    if let Some(guard) = change.guard() {
        filter.insert("$and", vec![guard.clone()]);
    }
    let mut ours = flag(fields);
    ours.insert("$push", doc! { &fields.tokens: { "$each": [token], "$slice": -i64::from(tokens_max) } });
    ensure_untouched(&change.update, &[&fields.deleted])?;
    Ok(Request { filter, update: merged(&change.update, &ours)? })
}

/// Sets the flag alone, in a main document that has never been changed.
pub(super) fn begin_first(fields: &SyncFields, id: &Bson) -> Request {
    let absent = doc! { "$exists": false };
    Request {
        filter: doc! { "_id": equal(id), &fields.version: absent.clone(), &fields.deleted: absent },
        update: flag(fields),
    }
}

/// Marks the document as deleted. From then on readers do not see it, and it cannot be changed.
pub(super) fn begin_delete(fields: &SyncFields, id: &Bson) -> Request {
    let mut update = flag(fields);
    update.insert("$set", doc! { &fields.deleted: true });
    Request { filter: doc! { "_id": equal(id), &fields.deleted: { "$exists": false } }, update }
}

fn flag(fields: &SyncFields) -> Document {
    doc! { "$inc": { &fields.version: 1_i64 }, "$currentDate": { &fields.syncing: true } }
}

/// Removes the flag, or the document, if the flag is still the one that was seen. `None` if there is nothing to
/// finish.
pub(super) fn finish(fields: &SyncFields, seen: &Main) -> Option<Step> {
    let mut filter = doc! { "_id": equal(&seen.id), &fields.version: seen.version, &fields.syncing: seen.since? };
    match seen.state.after(MainEvent::Carried)? {
        MainState::Settled => {
            Some(Step::Update(Request { filter, update: doc! { "$unset": { &fields.syncing: "" } } }))
        }
        MainState::Gone => {
            filter.insert(&fields.deleted, true);
            Some(Step::Remove(filter))
        }
        MainState::Syncing | MainState::Deleting => None,
    }
}

/// Matches documents whose flag is that far from now: left behind, or written by a clock that was ahead, so that no
/// process would find it before its date.
pub(super) fn abandoned(flag: &str, now: DateTime, age: Duration) -> [Document; 2] {
    lapsed(now, age).map(|date| doc! { flag: date })
}

/// Matches the copies of a main document. A list that has its `_id` is not a key, and neither is a value in a list of
/// documents: the fields of the copy would be those of several main documents.
fn copies_of(link: &Link, main: &Bson) -> Document {
    let mut filter = doc! { &link.foreign_key: { "$eq": main.clone(), "$not": { "$type": "array" } } };
    for (end, _) in link.foreign_key.match_indices('.') {
        filter.insert(&link.foreign_key[..end], doc! { "$not": { "$type": "array" } });
    }
    filter
}

/// Changes all copies that were made from an older version, or have no version.
pub(super) fn carry(link: &Link, main: &Main) -> Request {
    let mut filter = copies_of(link, &main.id);
    filter.insert(&link.version, doc! { "$not": { "$gte": main.version } });
    Request { filter, update: copied(link, link.values(&main.content), main.version) }
}

/// Changes all copies of a main document that is being deleted.
pub(super) fn leave(link: &Link, main: &Bson) -> Step {
    let mut filter = copies_of(link, main);
    match link.on_delete {
        OnDelete::Remove => Step::Remove(filter),
        OnDelete::Unset | OnDelete::Set(_) | OnDelete::Keep => {
            filter.insert(&link.version, doc! { "$ne": FINAL_VERSION });
            Step::Update(Request { filter, update: copied(link, link.values_left(), FINAL_VERSION) })
        }
    }
}

/// Brings up to date one copy that was read before its main document was, and removes its own flag. `None` if there is
/// nothing to do.
pub(super) fn refresh_copy(link: &Link, copy: &Copy, main: Option<&Main>) -> Option<Step> {
    if compare(link, copy, main) == CopyState::Equal && copy.syncing.is_none() {
        return None;
    }
    // A flag that another process has set meanwhile must stay.
    let flag = copy.syncing.clone().unwrap_or_else(|| doc! { "$exists": false }.into());
    let mut filter = doc! { "_id": equal(&copy.id), &link.foreign_key: equal(&copy.main), &link.syncing: flag };
    let (values, version) = match main.filter(|main| main.is_alive()) {
        Some(main) => (link.values(&main.content), main.version),
        None if link.on_delete == OnDelete::Remove => return Some(Step::Remove(filter)),
        None => (link.values_left(), FINAL_VERSION),
    };
    // A version that the main document has not reached belongs to an earlier document with this `_id`, and is
    // replaced.
    let expected: Bson =
        if copy.version > version { copy.version.into() } else { doc! { "$not": { "$gt": version } }.into() };
    filter.insert(&link.version, expected);
    let mut update = copied(link, values, version);
    let mut unset = update.get_document("$unset").cloned().unwrap_or_default();
    unset.insert(&link.syncing, "");
    update.insert("$unset", unset);
    Some(Step::Update(Request { filter, update }))
}

fn copied(link: &Link, values: Values, version: i64) -> Document {
    let (mut set, mut unset) = (doc! { &link.version: version }, Document::new());
    for (path, value) in values {
        match value {
            Some(value) => set.insert(path, value),
            None => unset.insert(path, ""),
        };
    }
    let mut update = doc! { "$set": set };
    if !unset.is_empty() {
        update.insert("$unset", unset);
    }
    update
}
