//! The invariants of every ledger, checked from its documents alone, independently of the code that wrote them.

use std::collections::{BTreeMap, HashMap};

use bson::{Bson, Document};

use super::all;
use crate::crash::World;

fn whole(document: &Document, field: &str) -> Option<i64> {
    match document.get(field) {
        Some(Bson::Int64(number)) => Some(*number),
        Some(Bson::Int32(number)) => Some(i64::from(*number)),
        _ => None,
    }
}

/// A change with its entry.
struct BookedChange<'d> {
    entry: &'d Document,
    change: &'d Document,
}

impl BookedChange<'_> {
    fn valid(&self) -> bool {
        self.entry.get_str("state").is_ok_and(|state| state == "VALID")
    }

    fn committed(&self) -> bool {
        self.entry.get_str("proc").is_ok_and(|proc| proc == "COMMITTED")
    }

    fn number(&self, field: &str) -> i64 {
        whole(self.change, field).unwrap_or(0)
    }
}

/// Checks everything that holds at any time: places, order, balances, caches, limits, debits and credits.
pub(super) async fn check(world: &World) -> Result<(), String> {
    let (entries, accounts) = (all(world, "tx").await, all(world, "account").await);
    let mut places: BTreeMap<String, BTreeMap<i64, BookedChange<'_>>> = BTreeMap::new();
    for entry in &entries {
        let mut sum = BTreeMap::<&str, i64>::new();
        for change in entry.get_array("changes").map_err(|error| error.to_string())? {
            let change = change.as_document().ok_or("a change is no document")?;
            *sum.entry(change.get_str("asset").unwrap_or_default()).or_default() +=
                whole(change, "value").ok_or("no value")?;
            let (account, seq_id) = (change.get("account").map(ToString::to_string), whole(change, "seqId"));
            let of_account = places.entry(account.ok_or("no account")?).or_default();
            if of_account.insert(seq_id.ok_or("no place")?, BookedChange { entry, change }).is_some() {
                return Err(format!("a place is taken twice: {entry}"));
            }
        }
        // An abandoned entry has the amounts that accounts had lost.
        let is_given_up = entry.get_str("state").is_ok_and(|state| state == "ABANDONED");
        if !is_given_up && sum.values().any(|sum| *sum != 0) {
            return Err(format!("it does not balance: {entry}"));
        }
    }
    for account in &accounts {
        let id = account.get("_id").map(ToString::to_string).unwrap_or_default();
        let empty = BTreeMap::new();
        check_account(account, places.get(&id).unwrap_or(&empty), &entries)
            .map_err(|what| format!("account {id}: {what}"))?;
    }
    if places.len() > accounts.len() {
        return Err("an account has no document".to_owned());
    }
    Ok(())
}

fn check_account(
    account: &Document,
    places: &BTreeMap<i64, BookedChange<'_>>,
    entries: &[Document],
) -> Result<(), String> {
    let sequence = account.contains_key("lastSeqId");
    let (mut balance, mut held, mut committed, mut expected) = (0, 0, true, 1);
    let cache = account.get_document("cache").ok();
    let mut cache_seen = cache.is_none_or(|cache| whole(cache, "seqId") == Some(0));
    for (place, seen) in places {
        if *place != expected && (!sequence || seen.committed()) {
            return Err(format!("place {expected} has no entry, and place {place} has"));
        }
        expected = place + 1;
        if seen.valid() {
            balance += seen.number("value");
            held += seen.number("hold");
        }
        if !seen.committed() {
            committed = false;
            continue;
        }
        if !committed {
            return Err(format!("place {place} is committed, one before it is not"));
        }
        if whole(seen.change, "cachedBal") != Some(balance) || seen.number("cachedHeld") != held {
            return Err(format!("place {place} should say {balance} with {held} held: {}", seen.change));
        }
        if let Some(cache) = cache.filter(|cache| whole(cache, "seqId") == Some(*place)) {
            cache_seen = whole(cache, "balance") == Some(balance) && whole(cache, "held").unwrap_or(0) == held;
        }
    }
    if !cache_seen {
        return Err(format!("its document is wrong: {account}"));
    }
    if held < 0 {
        return Err(format!("{held} is held"));
    }
    match whole(account, "minimum") {
        Some(minimum) => check_minimum(minimum, places, entries),
        None => Ok(()),
    }
}

/// Recomputes the account's history: the available amount was never less than the minimum. An entry that was canceled
/// counts up to the place that its cancel took.
fn check_minimum(minimum: i64, places: &BTreeMap<i64, BookedChange<'_>>, entries: &[Document]) -> Result<(), String> {
    let by_id: HashMap<String, &Document> =
        entries.iter().filter_map(|entry| Some((entry.get("_id")?.to_string(), entry))).collect();
    let mut counted: HashMap<String, i64> = HashMap::new();
    let mut available = 0;
    let mut in_entry = None;
    for (place, seen) in places {
        let id = seen.entry.get("_id").map(ToString::to_string).unwrap_or_default();
        // All changes of an entry take effect at once.
        if in_entry.as_ref().is_some_and(|before| *before != id) && available < minimum {
            return Err(format!("before place {place} {available} was available"));
        }
        in_entry = Some(id.clone());
        let change = seen.number("value") - seen.number("hold");
        if seen.valid() || change > 0 {
            available += change;
            *counted.entry(id).or_default() += change;
        }
        let canceled = seen.entry.get("cancels").map(ToString::to_string);
        let is_canceled = |id: &String| by_id.get(id).and_then(|entry| entry.get("state")) == Some(&"CANCELED".into());
        if let Some(canceled) = canceled.filter(is_canceled) {
            available -= counted.remove(&canceled).unwrap_or(0);
        }
    }
    if available < minimum { Err(format!("{available} is available in the end")) } else { Ok(()) }
}
