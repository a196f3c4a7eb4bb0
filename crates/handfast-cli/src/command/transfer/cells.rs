//! The cells of a line of CSV (RFC 4180). A row is a line, so that every row has a number: no cell holds a line end.

use std::io::Read as _;

use csv::{ReaderBuilder, StringRecord, Terminator};

/// Splits a line into its cells.
///
/// # Errors
/// Returns a text that names a misplaced quote: the library would take the quote for a part of the cell, and change a row about money.
pub(in crate::command) fn split(line: &str) -> Result<Vec<String>, &'static str> {
    check_quotes(line)?;
    // The library drops a byte-order mark at the start of its input, `Lines` that of the file: so a line end comes first, which is skipped.
    let input = b"\n".chain(line.as_bytes());
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .terminator(Terminator::Any(b'\n'))
        .buffer_capacity(line.len().max(1))
        .from_reader(input);
    let mut record = StringRecord::new();
    if !reader.read_record(&mut record).map_err(|_| "it is no CSV")? {
        record.push_field("");
    }
    Ok(record.iter().map(str::to_owned).collect())
}

/// Fails unless each quote opens a cell, closes it, or is doubled in between.
fn check_quotes(line: &str) -> Result<(), &'static str> {
    let (mut is_quoted, mut is_start) = (false, true);
    let mut bytes = line.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, is_quoted) {
            (b'"', true) => match bytes.peek() {
                Some(b'"') => drop(bytes.next()),
                Some(b',') | None => is_quoted = false,
                Some(_) => return Err("there is text between the end of a quoted cell and the next comma"),
            },
            (b'"', false) if is_start => is_quoted = true,
            (b'"', false) => {
                return Err("a quote is in the middle of a cell: quote the whole cell, and double the quotes in it");
            }
            _ => {}
        }
        is_start = byte == b',' && !is_quoted;
    }
    if is_quoted { Err("a quoted cell does not end in its line") } else { Ok(()) }
}
