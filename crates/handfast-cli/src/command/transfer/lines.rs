//! Lines of a file, numbered, each of a bounded length.

use std::io::{self, BufRead};

/// Bytes of a line: a row of a few ids and a number is far shorter, and a file without line ends must not fill the memory.
pub(in crate::command) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Characters that are shown of an unreadable line.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// The mark that some programs write at the beginning of a file in UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A line without its end.
#[derive(Debug, PartialEq)]
pub(in crate::command) struct Line {
    /// Counts from 1.
    pub(in crate::command) number: u64,
    pub(in crate::command) text: Result<String, UnreadableLine>,
}

/// A line that cannot be read as text, and why.
#[derive(Debug, PartialEq)]
pub(in crate::command) struct UnreadableLine {
    pub(in crate::command) reason: String,
    /// The beginning of the line, for the report.
    pub(in crate::command) shown: String,
}

/// The lines of an input.
pub(in crate::command) struct Lines<R> {
    input: R,
    number: u64,
    /// Bytes that were read so far.
    pub(in crate::command) bytes: u64,
}

impl<R: BufRead> Lines<R> {
    pub(in crate::command) fn new(input: R) -> Self {
        Lines { input, number: 0, bytes: 0 }
    }

    /// Returns the next line that is not empty; none at the end.
    pub(in crate::command) fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let Some((bytes, whole)) = self.read()? else { return Ok(None) };
            self.number += 1;
            let number = self.number;
            if !whole {
                let reason = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                return Ok(Some(Line { number, text: Err(UnreadableLine { reason, shown: shown(&bytes) }) }));
            }
            let text = match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => {
                    let at = error.utf8_error().valid_up_to() + 1;
                    let reason = format!("the line is not UTF-8, from byte {at} on");
                    return Ok(Some(Line {
                        number,
                        text: Err(UnreadableLine { reason, shown: shown(error.as_bytes()) }),
                    }));
                }
            };
            let text = text.strip_suffix('\r').unwrap_or(&text);
            let text = if number == 1 { text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text) } else { text };
            if !text.trim().is_empty() {
                return Ok(Some(Line { number, text: Ok(text.to_owned()) }));
            }
        }
    }

    /// Returns the bytes up to the next line end, and whether these are all; none at the end.
    fn read(&mut self) -> io::Result<Option<(Vec<u8>, bool)>> {
        let (mut line, mut whole, mut any) = (Vec::new(), true, false);
        loop {
            let available = self.input.fill_buf()?;
            if available.is_empty() {
                return Ok(any.then_some((line, whole)));
            }
            any = true;
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
            let room = LINE_BYTES_MAX - line.len();
            line.extend_from_slice(part.get(..part.len().min(room)).unwrap_or_default());
            whole &= part.len() <= room;
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            self.bytes += used as u64;
            if end.is_some() {
                return Ok(Some((line, whole)));
            }
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(SHOWN_CHARACTERS_MAX).collect()
}
