//! An export of the ledger: each entry as a line of JSON, or each change as a line of CSV.

use bson::{Bson, Document, doc};
use csv::{Terminator, WriterBuilder};
use handfast_mql::Code;
use handfast_store::{Error as StoreError, Namespace};
use serde_json::{Value, json};

use super::record::{Entry, EntryChange};
use super::{Ledger, LedgerFields, Link, PAGE};
use crate::steps::Pages;
use crate::value::extended_json;
use crate::{Error, Result};

const CSV_COLUMNS: [&str; 15] = [
    "entry",
    "ts",
    "proc",
    "state",
    "account",
    "type",
    "asset",
    "value",
    "hold",
    "seqId",
    "cachedBal",
    "link",
    "linked",
    "reason",
    "metadata",
];

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// A line for each entry: its document, as relaxed Extended JSON. 64-bit integers other than the ledger's own
    /// numbers are written as `{"$numberLong": ".."}`, so that [`Ledger::restore`] restores the same types.
    Json,
    /// A line for each change, with a header (RFC 4180). Ids other than texts, and metadata, are relaxed Extended JSON.
    Csv,
}

/// The pages of an export.
pub struct Export<'l> {
    pages: Pages<'l>,
    lines: EntryLines,
}

/// The documents of entries as lines of text, for callers that read the documents themselves.
pub struct EntryLines {
    entries: Namespace,
    fields: LedgerFields,
    format: ExportFormat,
    begun: bool,
}

impl Ledger {
    /// Returns all entries in the order of their times, and of their ids if the times are equal. An index has them in
    /// this order, so that the export needs little memory.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: a store without the index, which opening the ledger creates, may refuse to
    /// sort a large ledger.
    pub async fn export(&self, format: ExportFormat) -> Result<Export<'_>> {
        let lines = EntryLines::new(self.entries.namespace().clone(), self.fields().clone(), format);
        let pages = self.entries.pages_in_order(&Document::new(), &lines.order(), PAGE).await?;
        Ok(Export { pages, lines })
    }
}

impl Export<'_> {
    /// Returns the next lines, each with its end; `None` at the end of the export.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not an entry.
    pub async fn next(&mut self) -> Result<Option<String>> {
        let page = self.pages.next().await?.unwrap_or_default();
        let text = self.lines.of(&page)?;
        Ok((!text.is_empty()).then_some(text))
    }
}

impl EntryLines {
    /// Begins the lines of the entries of a collection.
    pub fn new(entries: Namespace, fields: LedgerFields, format: ExportFormat) -> Self {
        EntryLines { entries, fields, format, begun: false }
    }

    /// Returns the order of an export, as the sort of a find.
    pub fn order(&self) -> Document {
        by_time(&self.fields)
    }

    /// Returns the lines of the next documents, each with its end; the first ones begin with the header of the format, if it has one.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not an entry.
    pub fn of(&mut self, page: &[Document]) -> Result<String> {
        let is_first = !std::mem::replace(&mut self.begun, true);
        match self.format {
            ExportFormat::Json => self.json_lines(page),
            ExportFormat::Csv => self.csv_lines(page, is_first),
        }
    }

    fn json_lines(&self, page: &[Document]) -> Result<String> {
        let mut text = String::new();
        for document in page {
            // The export has only entries that can be read.
            Entry::read(&self.entries, document, &self.fields)?;
            text.push_str(&exact(document, &self.fields).to_string());
            text.push('\n');
        }
        Ok(text)
    }

    fn csv_lines(&self, page: &[Document], has_header: bool) -> Result<String> {
        let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
        if has_header {
            writer.write_record(CSV_COLUMNS).map_err(unwritable)?;
        }
        for document in page {
            for cells in csv_rows(&Entry::read(&self.entries, document, &self.fields)?) {
                writer.write_record(&cells).map_err(unwritable)?;
            }
        }
        let bytes = writer.into_inner().map_err(|error| unwritable(error.into_error()))?;
        String::from_utf8(bytes).map_err(unwritable)
    }
}

/// Returns the order of an export, which is the key of its index.
pub(super) fn by_time(fields: &LedgerFields) -> Document {
    doc! { &fields.ts: 1, "_id": 1 }
}

/// Returns a document without loss, except for the types of the ledger's own numbers, which all are integers.
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

/// Returns a value with the types of its integers.
fn typed(value: &Bson) -> Value {
    match value {
        Bson::Int64(number) => json!({ "$numberLong": number.to_string() }),
        Bson::Document(inner) => object(inner, |_, value| typed(value)),
        Bson::Array(items) => items.iter().map(typed).collect(),
        other => extended_json(other),
    }
}

fn json(value: &Bson) -> String {
    extended_json(value).to_string()
}

/// Returns the error for lines that could not be written to memory.
fn unwritable(error: impl std::fmt::Display) -> Error {
    StoreError::command(Code::InternalError, format!("an export cannot be written: {error}")).into()
}

/// Returns a row for each change of an entry.
fn csv_rows(entry: &Entry) -> Vec<[String; CSV_COLUMNS.len()]> {
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
    let row = |place: &EntryChange| {
        let EntryChange { account, kind, value, asset, hold, seq_id, cached_balance, .. } = place;
        [
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
        ]
    };
    entry.changes.iter().map(row).collect()
}
