//! Rows as scripts show them.

use bson::{Bson, Document};

use crate::support::Bank;

/// Returns all rows, a line each.
pub(super) async fn shown(bank: &Bank) -> Vec<String> {
    bank.rows().await.iter().map(row).collect()
}

fn row(row: &Document) -> String {
    let name = row.get_str("_id").unwrap();
    let Ok(hidden) = row.get_document("_hf") else { return format!("{name}  {:>2}", body(row)) };
    let visible = if hidden.contains_key("del") { "-".to_owned() } else { body(row) };
    let mut line = format!("{name}  {visible:>2}  v{} {}", timestamp(hidden, "v"), stamps(hidden));
    if let Ok(lock) = hidden.get_document("lock") {
        line += &format!("  lock{{{}}}", lock_of(lock));
    }
    if let Ok(old) = hidden.get_array("old") {
        line += &format!("  old[{}]", joined(old, |version| version_of(version.as_document().unwrap())));
    }
    if let Ok(records) = hidden.get_array("rb") {
        line += &format!("  rb[{}]", joined(records, |start| moment(start.as_i64().unwrap())));
    }
    if hidden.contains_key("d") {
        line += &format!("  d{}", timestamp(hidden, "d"));
    }
    line
}

fn lock_of(lock: &Document) -> String {
    let of = |key: &Bson| key.as_document().unwrap().get_str("id").unwrap().to_owned();
    let to = match lock.get_document("doc") {
        Ok(document) => format!("put {}", body(document)),
        Err(_) => lock.get_str("op").unwrap().to_owned(),
    };
    let mut line = format!("s{} {to} at {}", timestamp(lock, "s"), of(lock.get("primary").unwrap()));
    if let Ok(keys) = lock.get_array("keys") {
        line += &format!(", with {}", joined(keys, of));
    }
    line
}

fn version_of(version: &Document) -> String {
    let body = match version.get_document("doc") {
        Ok(document) => body(document),
        Err(_) if version.contains_key("del") => "-".to_owned(),
        Err(_) => "cut".to_owned(),
    };
    format!("{body} {}", stamps(version))
}

fn stamps(version: &Document) -> String {
    let decides = if version.contains_key("p") { " p" } else { "" };
    format!("c{} s{}{decides}", timestamp(version, "c"), timestamp(version, "s"))
}

fn body(document: &Document) -> String {
    document.get_i32("balance").map_or("?".to_owned(), |balance| balance.to_string())
}

fn joined(array: &[Bson], shown: impl Fn(&Bson) -> String) -> String {
    array.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn timestamp(document: &Document, name: &str) -> String {
    moment(document.get_i64(name).unwrap())
}

/// Returns a timestamp of the oracle in the notation of scripts.
pub(super) fn moment(at: i64) -> String {
    match (at >> 18, at & ((1 << 18) - 1)) {
        (0, counter) => counter.to_string(),
        (millis, 0) => format!("{millis}ms"),
        (millis, counter) => format!("{millis}ms+{counter}"),
    }
}
