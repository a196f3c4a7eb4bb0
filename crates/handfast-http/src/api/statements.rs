//! The changes of an account: a page at a time, and as a file that is sent while it is read.
//!
//! A place of an account has one change, for ever, so a page begins after the last place of the page before. Times are those of the posters' clocks, and may
//! not be in the order of the places: a search by time looks at all places of a page.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use bson::{Bson, DateTime, Document, doc};
use csv::{Terminator, WriterBuilder};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::login::RequestClient;
use super::reads::{LIMIT, integer};
use super::{Api, Result, answer, date, path_id};
use crate::id::{extended_json, shown};
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

/// The media types of exports.
pub(super) const MEDIA_TYPES: [&str; 2] = ["application/jsonl", "text/csv"];
/// Limit on the changes of a page.
pub(super) const LINES_MAX: u32 = 500;
/// The places that one request of a command reads.
const PLACES: i64 = 500;
/// The pages of places that a request by time looks at.
const LOOKED_MAX: u32 = 20;
/// The pages of an export that wait for the client.
const PAGES_AHEAD: usize = 1;

/// The columns of an export, which are the fields of its lines.
const COLUMNS: [&str; 11] =
    ["seqId", "ts", "entry", "proc", "state", "type", "value", "hold", "asset", "balance", "held"];

/// The account of a request, and the time that its changes must be of.
struct Account {
    database: String,
    ledger: String,
    id: Bson,
    from: Option<DateTime>,
    to: Option<DateTime>,
}

/// A part of the changes.
struct Lines {
    lines: Vec<Document>,
    /// The place after which the next part begins; `None` at the end.
    next: Option<i64>,
}

/// The format of an export.
#[derive(Clone, Copy)]
enum Format {
    JsonLines,
    Csv,
}

/// The body of an answer: pages, as the client reads them.
struct ExportBody(mpsc::Receiver<std::result::Result<Bytes, Cut>>);

/// The reason why an export ends before its end.
#[derive(Debug)]
struct Cut(String);

impl Account {
    fn of(call: &Call) -> Result<Self> {
        let time =
            |name: &str| call.query(name).filter(|text| !text.is_empty()).map(|text| date(name, text)).transpose();
        Ok(Account {
            database: call.path("database").to_owned(),
            ledger: call.path("ledger").to_owned(),
            id: path_id(call, "account")?,
            from: time("from")?,
            to: time("to")?,
        })
    }

    fn has_time(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Reads the changes at the next places that are of the time.
    async fn lines(&self, client: &mut RequestClient, after: i64, places: i64) -> Result<Lines> {
        let command =
            doc! { "handfastStatement": &self.ledger, "account": self.id.clone(), "after": after, "count": places };
        let mut reply = client.run(&self.database, &command).await?;
        if matches!(reply.get_bool("exists"), Ok(false)) {
            return Err(Problem::new(ProblemKind::Missing, format!("there is no account {}", self.id)));
        }
        let lines = reply.get_array_mut("lines").map(std::mem::take).unwrap_or_default();
        let lines = lines.into_iter().filter_map(|line| match line {
            Bson::Document(line) => Some(line),
            _ => None,
        });
        let in_time = |line: &Document| {
            line.get_datetime("ts")
                .is_ok_and(|ts| self.from.is_none_or(|from| from <= *ts) && self.to.is_none_or(|to| *ts < to))
        };
        Ok(Lines { lines: lines.filter(in_time).collect(), next: reply.get_i64("after").ok() })
    }
}

pub(super) async fn statement(api: &Api, call: Call) -> Result<Response> {
    let account = Account::of(&call)?;
    let limit = number(&call, "limit", 1, LINES_MAX.into())?.unwrap_or(LIMIT.into());
    let after = number(&call, "after", 0, i64::MAX)?.unwrap_or(0);
    let mut client = api.client(&call).await?;
    let (mut found, mut next) = (Vec::new(), Some(after));
    let limit_of_lines = usize::try_from(limit).unwrap_or(usize::MAX);
    for _ in 0..LOOKED_MAX {
        let Some(after) = next else { break };
        let places = if account.has_time() { PLACES } else { limit };
        let part = account.lines(&mut client, after, places).await?;
        next = part.next;
        found.extend(part.lines);
        if found.len() > limit_of_lines {
            found.truncate(limit_of_lines);
            next = found.last().map(|line| integer(line, "seqId"));
        }
        if found.len() == limit_of_lines {
            break;
        }
    }
    let mut reply = doc! { "lines": found };
    if let Some(next) = next {
        reply.insert("next", next);
    }
    Ok(answer(reply))
}

pub(super) async fn export(api: &Api, call: Call) -> Result<Response> {
    let account = Account::of(&call)?;
    let format = match call.query("format") {
        None | Some("" | "jsonl") => Format::JsonLines,
        Some("csv") => Format::Csv,
        Some(other) => return Err(Problem::invalid(format!("format must be jsonl or csv, and is {other:?}"))),
    };
    let mut client = api.client(&call).await?;
    // Before the answer begins, so that it can still be a problem.
    let first = account.lines(&mut client, 0, PLACES).await?;
    let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
    tokio::spawn(send(account, client, first, format, sender, api.stop.clone()));
    let (media_type, name) = match format {
        Format::JsonLines => (MEDIA_TYPES[0], "attachment; filename=\"statement.jsonl\""),
        Format::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"statement.csv\""),
    };
    let headers = [(CONTENT_TYPE, media_type), (CONTENT_DISPOSITION, name), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(ExportBody(receiver))).into_response())
}

/// Sends the changes a page at a time, each when the client has taken the one before.
async fn send(
    account: Account,
    mut client: RequestClient,
    first: Lines,
    format: Format,
    sender: mpsc::Sender<std::result::Result<Bytes, Cut>>,
    stop: CancellationToken,
) {
    let (mut part, mut are_first): (Result<Lines>, bool) = (Ok(first), true);
    loop {
        let page = part.and_then(|lines| Ok((format.text(&lines.lines, are_first)?, lines.next)));
        let (text, next) = match page {
            Ok(page) => page,
            Err(problem) => {
                tracing::warn!(detail = %problem.detail, "an export of an account ends before its end");
                // The client sees that the answer is cut; if it is gone, nobody needs to know.
                let _ = sender.send(Err(Cut(problem.detail))).await;
                return;
            }
        };
        are_first = false;
        // A page without a change of the time has no text, and an empty one would be the end for some.
        if !text.is_empty() && sender.send(Ok(text.into())).await.is_err() {
            return;
        }
        let Some(after) = next else { return };
        part = tokio::select! {
            // The client is gone.
            () = sender.closed() => return,
            () = stop.cancelled() => Err(Problem::new(ProblemKind::Unavailable, "the server stops")),
            read = account.lines(&mut client, after, PLACES) => read,
        };
    }
}

impl Format {
    /// Returns lines as the text of a file, which begins with the head if they are its first ones.
    fn text(self, lines: &[Document], are_first: bool) -> Result<Vec<u8>> {
        match self {
            Format::JsonLines => {
                let line = |line: &Document| format!("{}\n", extended_json(&Bson::Document(line.clone())));
                Ok(lines.iter().map(line).collect::<String>().into_bytes())
            }
            Format::Csv => {
                let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
                if are_first {
                    writer.write_record(COLUMNS).map_err(unwritable)?;
                }
                for line in lines {
                    writer.write_record(COLUMNS.map(|name| cell(line.get(name)))).map_err(unwritable)?;
                }
                writer.into_inner().map_err(|error| unwritable(error.into_error()))
            }
        }
    }
}

/// Returns the problem of lines that could not be written to memory.
fn unwritable(error: impl std::fmt::Display) -> Problem {
    Problem::new(ProblemKind::Failed, format!("the lines cannot be written: {error}"))
}

/// Returns a value as the text of a cell: ids and texts as they are, times by RFC 3339.
fn cell(value: Option<&Bson>) -> String {
    match value {
        None => String::new(),
        Some(Bson::String(text)) => text.clone(),
        Some(Bson::DateTime(time)) => {
            time.try_to_rfc3339_string().unwrap_or_else(|_| time.timestamp_millis().to_string())
        }
        Some(other) => shown(other),
    }
}

/// Reads a parameter of the query that is an integer in a range.
fn number(call: &Call, name: &str, minimum: i64, maximum: i64) -> Result<Option<i64>> {
    let Some(text) = call.query(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    match text.parse() {
        Ok(number) if (minimum..=maximum).contains(&number) => Ok(Some(number)),
        _ => Err(Problem::invalid(format!("{name} must be an integer from {minimum} to {maximum}, and is {text:?}"))),
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
