//! Reads and writes history files, one event per line.

#[cfg(test)]
mod tests;

use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Bank, Event, EventKind, Header, Isolation, MicroOp, Model, Name, Order, ReadValue};
use crate::{Error, Result};

/// The length limit of a line: a scan of a hundred thousand keys fits, and a file that is no history does not fill the memory.
pub const LINE_BYTES_MAX: u64 = 16 << 20;

/// The content of one line.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// The properties of the whole history.
    Header(Header),
    /// The beginning or the end of a transaction.
    Event(Event),
}

/// Reads a history event by event. Skips empty lines and events whose process is not a number.
#[derive(Debug)]
pub struct HistoryReader<R> {
    input: R,
    buffer: Vec<u8>,
    line: u64,
}

/// Writes a history event by event.
#[derive(Debug)]
pub struct HistoryWriter<W> {
    output: W,
    index: u64,
}

/// All fields of a line.
#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(rename = "type")]
    kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    f: Option<String>,
    #[serde(default)]
    process: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    txn: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Vec<(String, Name, ReadValue)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    amounts: Option<Vec<Option<i64>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<Model>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    isolation: Option<Isolation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<Order>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accounts: Option<u64>,
}

/// The fields that decide whether a line is skipped. They are parsed first, because the other fields of skipped lines may hold anything.
#[derive(Deserialize)]
struct LineOrigin {
    f: Option<String>,
    #[serde(default)]
    process: Value,
}

impl<R: BufRead> HistoryReader<R> {
    /// Creates a reader at the start of its input.
    pub fn new(input: R) -> Self {
        HistoryReader { input, buffer: Vec::new(), line: 0 }
    }

    /// Returns the number of the line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns the next header or event, or `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`] if the input cannot be read, [`Error::Line`] if a line does not follow the format.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        loop {
            self.buffer.clear();
            let bytes = (&mut self.input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut self.buffer)?;
            if bytes == 0 {
                return Ok(None);
            }
            self.line += 1;
            if bytes as u64 > LINE_BYTES_MAX {
                return Err(self.wrong(format!("longer than {LINE_BYTES_MAX} bytes")));
            }
            if self.buffer.trim_ascii().is_empty() {
                continue;
            }
            let origin: LineOrigin =
                serde_json::from_slice(&self.buffer).map_err(|error| self.wrong(error.to_string()))?;
            let is_header = origin.f.as_deref() == Some("history");
            let of_transaction = origin.f.as_deref().is_none_or(|f| f == "txn") && origin.process.is_i64();
            if !is_header && !of_transaction {
                continue;
            }
            let line: Line = serde_json::from_slice(&self.buffer).map_err(|error| self.wrong(error.to_string()))?;
            let item = if is_header { header(line).map(Item::Header) } else { event(line).map(Item::Event) };
            return item.map(Some).map_err(|text| self.wrong(text));
        }
    }

    fn wrong(&self, text: String) -> Error {
        Error::Line { line: self.line, text }
    }
}

impl<W: Write> HistoryWriter<W> {
    /// Creates a writer and writes the header.
    ///
    /// # Errors
    /// [`Error::Io`] if the output cannot be written.
    pub fn new(output: W, header: &Header) -> Result<Self> {
        let mut writer = HistoryWriter { output, index: 0 };
        writer.write_line(Line {
            f: Some("history".to_owned()),
            process: "recorder".into(),
            model: header.model,
            isolation: header.isolation,
            order: header.order,
            total: header.bank.map(|bank| bank.total),
            accounts: header.bank.map(|bank| bank.accounts),
            ..Line::of(EventKind::Info)
        })?;
        Ok(writer)
    }

    /// Writes an event.
    ///
    /// # Errors
    /// [`Error::Io`] if the output cannot be written.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        let amounts: Vec<Option<i64>> = event.operations.iter().map(amount).collect();
        self.write_line(Line {
            f: Some("txn".to_owned()),
            process: event.process.into(),
            txn: event.transaction,
            value: Some(event.operations.iter().map(triple).collect()),
            amounts: amounts.iter().any(Option::is_some).then_some(amounts),
            time: event.nanoseconds,
            error: event.error.clone().map(Value::from),
            ..Line::of(event.kind)
        })
    }

    /// Flushes the output and returns it.
    ///
    /// # Errors
    /// [`Error::Io`] if the output cannot be written.
    pub fn finish(mut self) -> Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }

    fn write_line(&mut self, mut line: Line) -> Result<()> {
        line.index = Some(self.index);
        self.index += 1;
        serde_json::to_writer(&mut self.output, &line).map_err(std::io::Error::from)?;
        self.output.write_all(b"\n")?;
        Ok(())
    }
}

impl Line {
    /// Creates a line that has only its type.
    fn of(kind: EventKind) -> Self {
        Line {
            index: None,
            kind,
            f: None,
            process: Value::Null,
            txn: None,
            value: None,
            amounts: None,
            time: None,
            error: None,
            model: None,
            isolation: None,
            order: None,
            total: None,
            accounts: None,
        }
    }
}

fn header(line: Line) -> std::result::Result<Header, String> {
    let bank = match (line.total, line.accounts) {
        (Some(total), Some(accounts)) => Some(Bank { total, accounts }),
        (None, None) => None,
        _ => return Err("the header of a bank says total and accounts, both".to_owned()),
    };
    Ok(Header { model: line.model, isolation: line.isolation, order: line.order, bank })
}

fn event(line: Line) -> std::result::Result<Event, String> {
    let process = line.process.as_i64().ok_or("process: not a number")?;
    let triples = line.value.unwrap_or_default();
    let amounts = match line.amounts {
        Some(amounts) if amounts.len() != triples.len() => {
            return Err("amounts: not one for each micro-operation of value".to_owned());
        }
        Some(amounts) => amounts,
        None => vec![None; triples.len()],
    };
    let operations =
        triples.into_iter().zip(amounts).map(|((kind, key, value), amount)| micro_op(&kind, key, value, amount));
    let error = line.error.map(|error| error.as_str().map_or_else(|| error.to_string(), str::to_owned));
    Ok(Event {
        kind: line.kind,
        process,
        transaction: line.txn,
        operations: operations.collect::<std::result::Result<_, _>>()?,
        nanoseconds: line.time,
        error,
    })
}

fn micro_op(kind: &str, key: Name, value: ReadValue, amount: Option<i64>) -> std::result::Result<MicroOp, String> {
    match (kind, value) {
        ("r", seen) => Ok(MicroOp::Read { key, seen, amount }),
        ("append", ReadValue::Value(value)) => Ok(MicroOp::Append { key, value }),
        ("w", ReadValue::Value(value)) => Ok(MicroOp::Write { key, value, amount }),
        ("append" | "w", _) => Err(format!("value: {kind} of key {key} needs an integer or a string")),
        _ => Err(format!("value: {kind} is none of r, w, append")),
    }
}

fn triple(operation: &MicroOp) -> (String, Name, ReadValue) {
    match operation {
        MicroOp::Append { key, value } => ("append".to_owned(), key.clone(), ReadValue::Value(value.clone())),
        MicroOp::Write { key, value, .. } => ("w".to_owned(), key.clone(), ReadValue::Value(value.clone())),
        MicroOp::Read { key, seen, .. } => ("r".to_owned(), key.clone(), seen.clone()),
    }
}

fn amount(operation: &MicroOp) -> Option<i64> {
    match operation {
        MicroOp::Append { .. } => None,
        MicroOp::Write { amount, .. } | MicroOp::Read { amount, .. } => *amount,
    }
}
