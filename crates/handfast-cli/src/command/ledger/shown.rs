//! Formats entries, accounts and balances as cells of a table and as lines of JSON.

use bson::{Bson, DateTime};
use handfast_patterns::ledger::{Account, Balance, Entry, Line, Link};
use serde_json::{Value, json};

use crate::id::{extended_json, shown as id};

/// Returns the changes of an entry as a cell.
pub(super) fn changes(entry: &Entry) -> String {
    let change = |change: &handfast_patterns::ledger::EntryChange| {
        format!("{} {:+} {} (place {})", id(&change.account), change.value, change.asset, change.seq_id)
    };
    entry.changes.iter().map(change).collect::<Vec<_>>().join(", ")
}

pub(super) fn entry(entry: &Entry) -> Value {
    let change = |change: &handfast_patterns::ledger::EntryChange| {
        json!({
            "account": extended_json(&change.account),
            "type": change.kind,
            "value": change.value,
            "asset": change.asset,
            "hold": change.hold,
            "seqId": change.seq_id,
            "cachedBal": change.cached_balance,
        })
    };
    json!({
        "_id": extended_json(&entry.id),
        "ts": extended_json(&Bson::DateTime(entry.ts)),
        "proc": entry.status.proc.name(),
        "state": entry.status.state.name(),
        "changes": entry.changes.iter().map(change).collect::<Vec<_>>(),
        "link": entry.link.as_ref().map(link),
        "reason": entry.reason,
        "metadata": extended_json(&Bson::Document(entry.metadata.clone())),
    })
}

fn link(link: &Link) -> Value {
    match link {
        Link::Reverses(id) => json!({ "reverses": extended_json(id) }),
        Link::Resolves(id) => json!({ "resolves": extended_json(id) }),
        Link::Cancels(id) => json!({ "cancels": extended_json(id) }),
        Link::Authorises { payee, value } => {
            json!({ "authorises": { "account": extended_json(payee), "value": value } })
        }
    }
}

pub(super) fn account_cells(account: &Account) -> [String; 6] {
    let cached = |number: fn(&handfast_patterns::ledger::Cache) -> i64| {
        account.cache.as_ref().map(|cache| number(cache).to_string()).unwrap_or_default()
    };
    [
        id(&account.id),
        account.asset.clone(),
        cached(|cache| cache.balance),
        cached(|cache| cache.held),
        cached(|cache| cache.seq_id),
        account.minimum.map(|minimum| minimum.to_string()).unwrap_or_default(),
    ]
}

pub(super) fn account(account: &Account) -> Value {
    json!({
        "account": extended_json(&account.id),
        "asset": account.asset,
        "minimum": account.minimum,
        "lastSeqId": account.last_seq_id,
        "cache": account.cache.map(|cache| json!({ "balance": cache.balance, "held": cache.held, "seqId": cache.seq_id })),
    })
}

pub(super) fn balance_cells(balance: &Balance) -> [String; 7] {
    let Balance { account, asset, balance, available, held, pending, missing, .. } = balance;
    let number = |number: &i64| number.to_string();
    [id(account), asset.clone(), number(balance), number(available), number(held), number(pending), number(missing)]
}

pub(super) fn balance(balance: &Balance) -> Value {
    json!({
        "account": extended_json(&balance.account),
        "asset": balance.asset,
        "balance": balance.balance,
        "available": balance.available,
        "held": balance.held,
        "pending": balance.pending,
        "missing": balance.missing,
        "seqId": balance.seq_id,
        "anchorSeqId": balance.anchor_seq_id,
    })
}

pub(super) fn line_cells(line: &Line) -> [String; 8] {
    [
        line.change.seq_id.to_string(),
        time(line.ts),
        id(&line.entry),
        line.change.kind.clone(),
        format!("{:+}", line.change.value),
        line.balance.to_string(),
        line.held.to_string(),
        if line.status.state.counts() { line.status.proc.to_string() } else { line.status.state.to_string() },
    ]
}

pub(super) fn line(line: &Line) -> Value {
    json!({
        "seqId": line.change.seq_id,
        "ts": extended_json(&Bson::DateTime(line.ts)),
        "entry": extended_json(&line.entry),
        "proc": line.status.proc.name(),
        "state": line.status.state.name(),
        "type": line.change.kind,
        "value": line.change.value,
        "asset": line.change.asset,
        "balance": line.balance,
        "held": line.held,
    })
}

/// Returns a date as text; as milliseconds if it is later than the text can say, which would be shown as the last one.
fn time(time: DateTime) -> String {
    const LAST: i64 = 253_402_300_799_999; // 9999-12-31T23:59:59.999Z
    if time.timestamp_millis() > LAST {
        return time.timestamp_millis().to_string();
    }
    time.try_to_rfc3339_string().unwrap_or_else(|_| time.timestamp_millis().to_string())
}
