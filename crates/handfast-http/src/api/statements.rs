//! The changes of an account: a page at a time, and as a file ([`super::exports`]).
//!
//! A place of an account has one change, for ever, so a page begins after the last place of the page before. Times are those of the posters' clocks, and may
//! not be in the order of the places: a search by time looks at all places of a page.

use async_trait::async_trait;
use axum::response::Response;
use bson::{Bson, DateTime, Document, doc};
use csv::{Terminator, WriterBuilder};

use super::exports::{self, ExportFormat, Pages};
use super::login::RequestClient;
use super::reads::{LIMIT, integer};
use super::{Api, Result, answer, path_id};
use crate::id::{extended_json, shown};
use crate::problem::{Problem, ProblemKind};
use crate::request::Call;

/// Limit on the changes of a page.
pub(super) const LINES_MAX: u32 = 500;
/// The places that one request of a command reads.
const PLACES: i64 = 500;
/// The pages of places that a request by time looks at.
const LOOKED_MAX: u32 = 20;

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

/// The pages of an export.
struct Changes {
    account: Account,
    client: RequestClient,
    format: ExportFormat,
    /// The first page, until it is sent.
    first: Option<Lines>,
    next: Option<i64>,
}

impl Account {
    fn of(call: &Call) -> Result<Self> {
        Ok(Account {
            database: call.path("database").to_owned(),
            ledger: call.path("ledger").to_owned(),
            id: path_id(call, "account")?,
            from: exports::time(call, "from")?,
            to: exports::time(call, "to")?,
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
    let format = exports::format(&call)?;
    let mut client = api.client(&call).await?;
    // Before the answer begins, so that it can still be a problem.
    let first = account.lines(&mut client, 0, PLACES).await?;
    let next = first.next;
    let changes = Changes { account, client, format, first: Some(first), next };
    Ok(exports::answer(api, format, "statement", changes))
}

#[async_trait]
impl Pages for Changes {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(Lines { lines, .. }) = self.first.take() {
            return text(self.format, &lines, true).map(Some);
        }
        let Some(after) = self.next else { return Ok(None) };
        let Lines { lines, next } = self.account.lines(&mut self.client, after, PLACES).await?;
        self.next = next;
        text(self.format, &lines, false).map(Some)
    }

    async fn end(&mut self) {}
}

/// Returns lines as the text of a file, which begins with the head if they are its first ones.
fn text(format: ExportFormat, lines: &[Document], are_first: bool) -> Result<Vec<u8>> {
    match format {
        ExportFormat::Json => {
            let line = |line: &Document| format!("{}\n", extended_json(&Bson::Document(line.clone())));
            Ok(lines.iter().map(line).collect::<String>().into_bytes())
        }
        ExportFormat::Csv => {
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
