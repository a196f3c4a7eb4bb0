//! Export: every entry as a line of JSON, or every change as a line of CSV.

use std::fmt::Write as _;

use bson::{Bson, Document, doc};
use serde_json::{Value, json};

use super::record::{Entry, EntryChange};
use super::{Ledger, LedgerFields, Link, PAGE};
use crate::Result;
use crate::steps::Pages;

/// The first line of CSV.
const CSV_HEADER: &str =
    "entry,ts,proc,state,account,type,asset,value,hold,seqId,cachedBal,link,linked,reason,metadata";

/// How an export is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// A line for each entry: its document, as relaxed Extended JSON. Integers of 64 bits other than the ledger's own numbers are
    /// written as `{"$numberLong": ".."}`, so that [`Ledger::restore`] reads what was there.
    Json,
    /// A line for each change, with a header (RFC 4180). Ids other than texts, and metadata, are relaxed Extended JSON.
    Csv,
}

/// The pages of an export.
pub struct Export<'l> {
    ledger: &'l Ledger,
    pages: Pages<'l>,
    format: ExportFormat,
    begun: bool,
}

impl Ledger {
    /// All entries in the order of their times, and of their ids where those are equal. An index has them in this order, so
    /// that nothing needs to be held in memory.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store): a store without the index, which opening the ledger creates, may refuse to sort a large ledger.
    pub async fn export(&self, format: ExportFormat) -> Result<Export<'_>> {
        let pages = self.entries.pages_in_order(&Document::new(), &by_time(self.fields()), PAGE).await?;
        Ok(Export { ledger: self, pages, format, begun: false })
    }
}

impl Export<'_> {
    /// The next lines, each with its end; none at the end.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) for a document that is not an entry.
    pub async fn next(&mut self) -> Result<Option<String>> {
        let page = self.pages.next().await?.unwrap_or_default();
        let mut text = String::new();
        if !self.begun && self.format == ExportFormat::Csv {
            text = format!("{CSV_HEADER}\r\n");
        }
        self.begun = true;
        for document in &page {
            match self.format {
                ExportFormat::Json => {
                    // Only what can be read as an entry is one.
                    self.ledger.read(document)?;
                    text.push_str(&exact(document, self.ledger.fields()).to_string());
                    text.push('\n');
                }
                ExportFormat::Csv => csv(&self.ledger.read(document)?, &mut text),
            }
        }
        Ok((!text.is_empty()).then_some(text))
    }
}

/// The order of an export; its index.
pub(super) fn by_time(fields: &LedgerFields) -> Document {
    doc! { &fields.ts: 1, "_id": 1 }
}

/// A document without loss, but for the types of the ledger's own numbers, which all are integers.
fn exact(document: &Document, fields: &LedgerFields) -> Value {
    let own = [&fields.value, &fields.seq_id, &fields.cached_balance, &fields.hold, &fields.cached_held];
    let change = |name: &str, value: &Bson| match value {
        Bson::Int64(number) if own.iter().any(|own| *own == name) => json!(number),
        other => typed(other),
    };
    let of_entry = |name: &str, value: &Bson| match value {
        Bson::Array(changes) if name == fields.changes => {
            changes.iter().map(|one| one.as_document().map_or_else(|| typed(one), |one| object(one, change))).collect()
        }
        Bson::Document(inner) if name == fields.authorises => object(inner, change),
        other => typed(other),
    };
    object(document, of_entry)
}

fn object(document: &Document, value: impl Fn(&str, &Bson) -> Value) -> Value {
    document.iter().map(|(name, inner)| (name.clone(), value(name, inner))).collect::<serde_json::Map<_, _>>().into()
}

/// A value with the types of its integers.
fn typed(value: &Bson) -> Value {
    match value {
        Bson::Int64(number) => json!({ "$numberLong": number.to_string() }),
        Bson::Document(inner) => object(inner, |_, value| typed(value)),
        Bson::Array(items) => items.iter().map(typed).collect(),
        other => other.clone().into_relaxed_extjson(),
    }
}

fn json(value: &Bson) -> String {
    value.clone().into_relaxed_extjson().to_string()
}

/// The lines of an entry.
pub(super) fn csv(entry: &Entry, text: &mut String) {
    let id = |id: &Bson| id.as_str().map_or_else(|| json(id), str::to_owned);
    let (link, linked) = match &entry.link {
        None => ("", String::new()),
        Some(Link::Reverses(other)) => ("reverses", id(other)),
        Some(Link::Resolves(other)) => ("resolves", id(other)),
        Some(Link::Cancels(other)) => ("cancels", id(other)),
        Some(Link::Authorises { payee, value }) => ("authorises", format!("{value} {}", id(payee))),
    };
    let metadata =
        if entry.metadata.is_empty() { String::new() } else { json(&Bson::Document(entry.metadata.clone())) };
    let ts = entry.ts.try_to_rfc3339_string().unwrap_or_else(|_| entry.ts.timestamp_millis().to_string());
    for EntryChange { account, kind, value, asset, hold, seq_id, cached_balance, .. } in &entry.changes {
        let cells = [
            id(&entry.id),
            ts.clone(),
            entry.status.proc.to_string(),
            entry.status.state.to_string(),
            id(account),
            kind.clone(),
            asset.clone(),
            value.to_string(),
            hold.to_string(),
            seq_id.to_string(),
            cached_balance.map(|balance| balance.to_string()).unwrap_or_default(),
            link.to_owned(),
            linked.clone(),
            entry.reason.clone().unwrap_or_default(),
            metadata.clone(),
        ];
        for (number, cell) in cells.iter().enumerate() {
            let separator = if number == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}{}", quoted(cell));
        }
        text.push_str("\r\n");
    }
}

/// A cell, quoted if it must be.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\r', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}
