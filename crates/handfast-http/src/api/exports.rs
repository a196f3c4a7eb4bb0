//! Files of any size, as answers that are sent while they are read, a page at a time.
//!
//! A page is read when the client has taken the one before, so an answer needs the memory of a few pages. An answer that cannot be
//! completed is cut: the client sees that its end is missing.

use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use bson::{DateTime, Document, doc};
use handfast_patterns::FieldNames as _;
use handfast_patterns::ledger::{EntryLines, LedgerFields};
use handfast_store::Namespace;
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(super) use handfast_patterns::ledger::ExportFormat;

use super::found_patterns::{self, LEDGER};
use super::login::RequestClient;
use super::reads::documents_of;
use super::{Api, Result, date};
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

/// The media types of exports.
pub(super) const MEDIA_TYPES: [&str; 2] = ["application/jsonl", "text/csv"];
/// The documents of a page.
const PAGE: i32 = 500;
/// The pages that wait for the client.
const PAGES_AHEAD: usize = 1;

/// The pages of a file.
#[async_trait]
pub(super) trait Pages: Send {
    /// Returns the next page, which may be empty; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>>;

    /// Ends a file that is not read to its end.
    async fn end(&mut self);
}

/// The body of an answer: pages, as the client reads them.
struct ExportBody(mpsc::Receiver<std::result::Result<Bytes, Cut>>);

/// The reason why an export ends before its end.
#[derive(Debug)]
struct Cut(String);

/// Reads the parameter `format` of the query.
pub(super) fn format(call: &Call) -> Result<ExportFormat> {
    match call.query("format") {
        None | Some("" | "jsonl") => Ok(ExportFormat::Json),
        Some("csv") => Ok(ExportFormat::Csv),
        Some(other) => Err(Problem::invalid(format!("format must be jsonl or csv, and is {other:?}"))),
    }
}

/// Reads a parameter of the query that is a time.
pub(super) fn time(call: &Call, name: &str) -> Result<Option<DateTime>> {
    call.query(name).filter(|text| !text.is_empty()).map(|text| date(name, text)).transpose()
}

/// Answers with a file of this name.
pub(super) fn answer(api: &Api, format: ExportFormat, name: &str, pages: impl Pages + 'static) -> Response {
    let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
    tokio::spawn(send(pages, sender, api.stop.clone()));
    let (media_type, suffix) = match format {
        ExportFormat::Json => (MEDIA_TYPES[0], "jsonl"),
        ExportFormat::Csv => ("text/csv; charset=utf-8", "csv"),
    };
    let disposition = format!("attachment; filename=\"{name}.{suffix}\"");
    let headers =
        [(CONTENT_TYPE, media_type), (CONTENT_DISPOSITION, disposition.as_str()), (CACHE_CONTROL, "no-store")];
    (headers, Body::new(ExportBody(receiver))).into_response()
}

async fn send(mut pages: impl Pages, sender: mpsc::Sender<std::result::Result<Bytes, Cut>>, stop: CancellationToken) {
    loop {
        let page = tokio::select! {
            // The client is gone.
            () = sender.closed() => break,
            () = stop.cancelled() => Err(Problem::new(ProblemKind::Unavailable, "the server stops")),
            page = pages.next() => page,
        };
        match page {
            Ok(None) => return,
            // An empty part of an answer would be the end for some clients.
            Ok(Some(page)) if page.is_empty() => {}
            Ok(Some(page)) => {
                if sender.send(Ok(page.into())).await.is_err() {
                    break;
                }
            }
            Err(problem) => {
                tracing::warn!(detail = %problem.detail, "an export ends before its end");
                // The client sees that the answer is cut; if it is gone, nobody needs to know.
                let _ = sender.send(Err(Cut(problem.detail))).await;
                break;
            }
        }
    }
    pages.end().await;
}

/// The entries of a ledger, as `handfast ledger export` writes them.
struct Entries {
    client: RequestClient,
    database: String,
    collection: String,
    lines: EntryLines,
    /// The lines of the first page, until they are sent.
    first: Option<Vec<u8>>,
    /// The cursor; 0 at the end.
    cursor: i64,
}

pub(super) async fn ledger(api: &Api, call: Call) -> Result<Response> {
    let format = format(&call)?;
    let (from, to) = (time(&call, "from")?, time(&call, "to")?);
    let (database, collection) = (call.path("database").to_owned(), call.path("ledger").to_owned());
    let mut client = api.client(&call).await?;
    let found = found_patterns::one(&mut client, &database, &collection, LEDGER).await?;
    let names = found.settings.get_document("fields").cloned().unwrap_or_default();
    let unreadable = |error: &dyn std::fmt::Display| {
        Problem::new(ProblemKind::Failed, format!("the settings of the ledger {collection} cannot be read: {error}"))
    };
    let fields = LedgerFields::from_document(&names).map_err(|error| unreadable(&error))?;
    let entries = Namespace::new(&database, &collection).map_err(|error| Problem::invalid(error.to_string()))?;
    let mut times = Document::new();
    for (operator, time) in [("$gte", from), ("$lt", to)] {
        times.extend(time.map(|time| (operator.to_owned(), time.into())));
    }
    let filter = if times.is_empty() {
        doc! {}
    } else {
        doc! { &fields.ts: times }
    };
    let mut lines = EntryLines::new(entries, fields, format);
    let command = doc! { "find": &collection, "filter": filter, "sort": lines.order(), "batchSize": PAGE };
    // Before the answer begins, so that it can still be a problem.
    let (first, cursor) = documents_of(client.run(&database, &command).await?, "firstBatch");
    let read = lines_of(&mut lines, &first);
    let mut entries = Entries { client, database, collection, lines, first: None, cursor };
    match read {
        Ok(first) => entries.first = Some(first),
        Err(problem) => {
            entries.end().await;
            return Err(problem);
        }
    }
    Ok(answer(api, format, "ledger", entries))
}

/// Writes a page of entries as lines. A document that is no entry is a conflict.
fn lines_of(lines: &mut EntryLines, page: &[Document]) -> Result<Vec<u8>> {
    let text = lines.of(page).map_err(|error| Problem::new(ProblemKind::Conflict, error.to_string()))?;
    Ok(text.into_bytes())
}

#[async_trait]
impl Pages for Entries {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.cursor == 0 {
            return Ok(None);
        }
        let command = doc! { "getMore": self.cursor, "collection": &self.collection, "batchSize": PAGE };
        let (page, cursor) = documents_of(self.client.run(&self.database, &command).await?, "nextBatch");
        self.cursor = cursor;
        lines_of(&mut self.lines, &page).map(Some)
    }

    async fn end(&mut self) {
        if self.cursor != 0 {
            let command = doc! { "killCursors": &self.collection, "cursors": [self.cursor] };
            // If it fails, the cursor ends when nobody has used it for a while.
            let _ = self.client.run(&self.database, &command).await;
        }
    }
}

impl std::fmt::Display for Cut {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Cut {}

impl hyper::body::Body for ExportBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|page| page.map(|page| page.map(Frame::data)))
    }
}
