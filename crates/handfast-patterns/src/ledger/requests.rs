//! The requests to the store, as values.

use bson::{Bson, DateTime, Document, doc};

use super::account::Cache;
use super::{EntryState, LedgerFields, Proc};
use crate::steps::Request;
use crate::value::{equal, one_of};

/// Returns the keys of the index on accounts and places.
pub(super) fn place_key(fields: &LedgerFields) -> Document {
    doc! { fields.of_change(&fields.account): 1, fields.of_change(&fields.seq_id): 1 }
}

/// Matches entries that wait for the committer.
pub(super) fn uncommitted(fields: &LedgerFields) -> Document {
    doc! { &fields.proc: Proc::Uncommitted.name() }
}

/// Matches entries that wait for the committer, without those that change one of these accounts.
pub(super) fn uncommitted_without(fields: &LedgerFields, accounts: &[Bson]) -> Document {
    let mut entries = uncommitted(fields);
    if !accounts.is_empty() {
        entries.insert(fields.of_change(&fields.account), doc! { "$nin": accounts.to_vec() });
    }
    entries
}

/// Matches the entries with places of an account that match `seq_id`: `{$gt: 7}`, `{$in: [1, 2]}`, a number. The two
/// conditions hold for one change, so that an index on both fields serves the filter.
pub(super) fn places(fields: &LedgerFields, account: &Bson, seq_id: impl Into<Bson>) -> Document {
    let place = doc! { &fields.account: equal(account), &fields.seq_id: seq_id.into() };
    doc! { &fields.changes: { "$elemMatch": place } }
}

/// Returns the stages that turn entries into the single places of an account.
fn unwound(fields: &LedgerFields, account: &Bson, seq_id: &Bson) -> Vec<Document> {
    let place = doc! {
        fields.of_change(&fields.account): equal(account),
        fields.of_change(&fields.seq_id): seq_id.clone(),
    };
    vec![
        doc! { "$match": places(fields, account, seq_id.clone()) },
        doc! { "$unwind": format!("${}", fields.changes) },
        doc! { "$match": place },
    ]
}

/// Returns the expression of a field of a change after `$unwind`.
fn change(fields: &LedgerFields, field: &str) -> String {
    format!("${}", fields.of_change(field))
}

fn if_valid(fields: &LedgerFields, value: impl Into<Bson>) -> Document {
    let valid = doc! { "$eq": [format!("${}", fields.state), EntryState::Valid.name()] };
    doc! { "$cond": [valid, value.into(), 0_i64] }
}

/// Returns the pipeline of an account's places that match: their number, the last one, and the sums of those that count
/// and of those that are not committed.
pub(super) fn account_state(
    fields: &LedgerFields,
    account: &Bson,
    seq_id: Document,
    until: Option<DateTime>,
) -> Vec<Document> {
    let hold = doc! { "$ifNull": [change(fields, &fields.hold), 0_i64] };
    let is_uncommitted = doc! { "$ne": [format!("${}", fields.proc), Proc::Committed.name()] };
    let mut pipeline = unwound(fields, account, &Bson::Document(seq_id));
    if let Some(until) = until {
        pipeline.push(doc! { "$match": { &fields.ts: { "$lte": until } } });
    }
    pipeline.push(doc! { "$group": {
        "_id": Bson::Null,
        "places": { "$sum": 1_i64 },
        "last": { "$max": change(fields, &fields.seq_id) },
        "balance": { "$sum": if_valid(fields, change(fields, &fields.value)) },
        "held": { "$sum": if_valid(fields, hold) },
        "uncommitted": { "$sum": { "$cond": [is_uncommitted, if_valid(fields, change(fields, &fields.value)), 0_i64] } },
        "cancels": { "$push": format!("${}", fields.cancels) },
    } });
    pipeline
}

/// Returns the pipeline of the last place of an account.
pub(super) fn last_place(fields: &LedgerFields, account: &Bson) -> Vec<Document> {
    let mut pipeline = unwound(fields, account, &Bson::Document(doc! { "$gt": 0_i64 }));
    let last = doc! { "$max": change(fields, &fields.seq_id) };
    pipeline.push(doc! { "$group": { "_id": Bson::Null, "last": last } });
    pipeline
}

/// Returns the pipeline of the first place of an account after a given one.
pub(super) fn next_place(fields: &LedgerFields, account: &Bson, after: i64) -> Vec<Document> {
    let mut pipeline = unwound(fields, account, &Bson::Document(doc! { "$gt": after }));
    let next = doc! { "$min": change(fields, &fields.seq_id) };
    pipeline.push(doc! { "$group": { "_id": Bson::Null, "next": next } });
    pipeline
}

/// Returns the pipeline of the last place of an account from a given one on, and the last committed one among them.
pub(super) fn ends(fields: &LedgerFields, account: &Bson, from: i64) -> Vec<Document> {
    let mut pipeline = unwound(fields, account, &Bson::Document(doc! { "$gte": from }));
    let place = change(fields, &fields.seq_id);
    let is_committed = doc! { "$eq": [format!("${}", fields.proc), Proc::Committed.name()] };
    let committed = doc! { "$cond": [is_committed, &place, 0_i64] };
    pipeline
        .push(doc! { "$group": { "_id": Bson::Null, "last": { "$max": &place }, "committed": { "$max": committed } } });
    pipeline
}

/// Returns the pipeline of the last place of an account, among those that match, that is committed and has its
/// balance.
pub(super) fn last_committed(fields: &LedgerFields, account: &Bson, seq_id: Document) -> Vec<Document> {
    let committed = doc! { &fields.proc: Proc::Committed.name() };
    let has_balance = doc! { fields.of_change(&fields.cached_balance): { "$ne": Bson::Null } };
    let mut pipeline = unwound(fields, account, &Bson::Document(seq_id));
    pipeline.push(doc! { "$match": committed });
    pipeline.push(doc! { "$match": has_balance });
    // Documents are compared field by field, so the greatest one has the last place.
    let anchor = doc! {
        &fields.seq_id: change(fields, &fields.seq_id),
        &fields.balance: change(fields, &fields.cached_balance),
        &fields.held: { "$ifNull": [change(fields, &fields.cached_held), 0_i64] },
    };
    pipeline.push(doc! { "$group": { "_id": Bson::Null, "anchor": { "$max": anchor } } });
    pipeline
}

/// Takes `count` places of an account's sequence; the document afterwards has the last of them.
pub(super) fn draw(fields: &LedgerFields, account: &Bson, count: i64) -> Request {
    let filter = doc! { "_id": equal(account), &fields.last_seq_id: { "$exists": true } };
    Request { filter, update: doc! { "$inc": { &fields.last_seq_id: count } } }
}

/// Raises a sequence to this place, so that it continues after it.
pub(super) fn raise(fields: &LedgerFields, account: &Bson, last: i64) -> Request {
    let filter = doc! { "_id": equal(account), &fields.last_seq_id: { "$exists": true } };
    Request { filter, update: doc! { "$max": { &fields.last_seq_id: last } } }
}

/// Makes an entry final as it was seen, with the balance at each of its places.
pub(super) fn commit(fields: &LedgerFields, entry: &super::Entry, standings: &[Cache]) -> Request {
    let filter = doc! {
        "_id": equal(&entry.id),
        &fields.proc: Proc::Uncommitted.name(),
        &fields.state: entry.status.state.name(),
    };
    let mut set = doc! { &fields.proc: Proc::Committed.name() };
    for (number, standing) in standings.iter().enumerate() {
        let path = |field: &String| format!("{}.{number}.{field}", fields.changes);
        set.insert(path(&fields.cached_balance), standing.balance);
        if standing.held != 0 {
            set.insert(path(&fields.cached_held), standing.held);
        }
    }
    Request { filter, update: doc! { "$set": set } }
}

/// Writes a later cache into an account; an earlier one does not match.
pub(super) fn advance_cache(fields: &LedgerFields, account: &Bson, cache: Cache) -> Request {
    let filter = doc! {
        "_id": equal(account),
        fields.of_cache(&fields.seq_id): { "$not": { "$gte": cache.seq_id } },
    };
    Request { filter, update: doc! { "$set": { &fields.cache: cache.to_document(fields) } } }
}

/// Changes the state from VALID to CANCELED, in an entry that is not committed.
pub(super) fn cancel(fields: &LedgerFields, id: &Bson, reason: &str) -> Request {
    let filter = doc! {
        "_id": equal(id),
        &fields.proc: Proc::Uncommitted.name(),
        &fields.state: EntryState::Valid.name(),
    };
    let set = doc! { &fields.state: EntryState::Canceled.name(), &fields.reason: reason };
    Request { filter, update: doc! { "$set": set } }
}

/// Matches those of these entries that still count and can still be canceled.
pub(super) fn still_valid(fields: &LedgerFields, ids: Vec<Bson>) -> Document {
    doc! {
        "_id": one_of(ids),
        &fields.proc: Proc::Uncommitted.name(),
        &fields.state: EntryState::Valid.name(),
    }
}

/// Removes the balance from a change after a place whose entry is not committed.
pub(super) fn reset_behind(fields: &LedgerFields, account: &Bson, seq_id: i64) -> Request {
    let stale = doc! {
        &fields.account: equal(account),
        &fields.seq_id: { "$gt": seq_id },
        &fields.cached_balance: { "$ne": Bson::Null },
    };
    let mut filter = uncommitted(fields);
    filter.insert(&fields.changes, doc! { "$elemMatch": stale });
    Request {
        filter,
        update: doc! { "$set": { format!("{}.$.{}", fields.changes, fields.cached_balance): Bson::Null } },
    }
}

/// Writes the balance at a place of a committed entry.
pub(super) fn rebuild_balance(fields: &LedgerFields, line: &super::Line, at: Cache) -> Request {
    let place = doc! { &fields.account: equal(&line.change.account), &fields.seq_id: line.change.seq_id };
    let filter = doc! {
        "_id": equal(&line.entry),
        &fields.proc: Proc::Committed.name(),
        &fields.changes: { "$elemMatch": place },
    };
    let path = |field: &String| format!("{}.$.{field}", fields.changes);
    let mut update = doc! { "$set": { path(&fields.cached_balance): at.balance } };
    if at.held == 0 {
        update.insert("$unset", doc! { path(&fields.cached_held): "" });
    } else if let Ok(set) = update.get_document_mut("$set") {
        set.insert(path(&fields.cached_held), at.held);
    }
    Request { filter, update }
}

/// Returns the stages that yield every account that has an entry.
pub(super) fn account_ids(fields: &LedgerFields) -> Vec<Document> {
    vec![
        doc! { "$unwind": format!("${}", fields.changes) },
        doc! { "$group": { "_id": change(fields, &fields.account) } },
    ]
}

/// Returns the pipeline of the sums by asset: of what was taken from accounts, and of what was given.
pub(super) fn totals(fields: &LedgerFields) -> Vec<Document> {
    let value = change(fields, &fields.value);
    let if_negative = |negative: bool| {
        let is = doc! { "$lt": [&value, 0_i64] };
        let (yes, no): (Bson, Bson) =
            if negative { (value.as_str().into(), 0_i64.into()) } else { (0_i64.into(), value.as_str().into()) };
        doc! { "$sum": { "$cond": [is, yes, no] } }
    };
    vec![
        doc! { "$match": { &fields.state: EntryState::Valid.name() } },
        doc! { "$unwind": format!("${}", fields.changes) },
        doc! { "$group": {
            "_id": { "$ifNull": [change(fields, &fields.asset), ""] },
            "debits": if_negative(true),
            "credits": if_negative(false),
            "held": { "$sum": { "$ifNull": [change(fields, &fields.hold), 0_i64] } },
        } },
        doc! { "$sort": { "_id": 1 } },
    ]
}
