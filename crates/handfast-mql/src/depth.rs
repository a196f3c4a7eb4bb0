//! The check of bytes from outside: a scan of their structure that does not recurse.
//!
//! Everything else in this crate (and in `bson`) may recurse over nested documents and trusts lengths. 12 kB of nested
//! documents overflow a thread's stack there, and a wrong length inside a value may panic. [`check`] therefore comes
//! first: it walks the bytes once, front to back, with an explicit stack of at most [`Limits::nesting_max`] entries,
//! and refuses what is not exactly a document of the BSON specification (bsonspec.org, version 1.1):
//!
//! - lengths that do not fit together, documents and strings that do not end in NUL, values that run past their parent,
//! - names and strings that are not UTF-8, names and patterns without end,
//! - booleans other than 0 and 1, unknown types, old binary values whose inner length disagrees,
//! - nesting beyond the limit, documents beyond the size limit.
//!
//! It does not check whether the names in an array count 0, 1, 2 (no code may rely on that), nor whether a document has a name twice.

use crate::{Code, Error, Result};

/// MongoDB's documented bound on nested documents and arrays.
pub const NESTING_MAX: usize = 100;
/// MongoDB's documented bound on one document, in bytes: 16 MiB.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The size limit of a document in a reply, in bytes: MongoDB allows 16 kB more than for a stored document.
pub const ANSWER_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + 16 * 1024;

/// The limits on the depth and the size of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most levels of documents and arrays inside the outermost document.
    pub nesting_max: usize,
    /// The most bytes of the outermost document.
    pub bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { nesting_max: NESTING_MAX, bytes_max: DOCUMENT_BYTES_MAX }
    }
}

/// Checks that `bytes` are exactly one well-formed document within the limits.
///
/// # Errors
/// `InvalidBSON` (22) with the offset, `Overflow` (15) if it is nested too deeply, `BSONObjectTooLarge` (10334).
pub fn check(bytes: &[u8], limits: Limits) -> Result<()> {
    if bytes.len() > limits.bytes_max {
        return Err(Error::new(
            Code::BSONObjectTooLarge,
            format!("document of {} bytes exceeds the maximum of {} bytes", bytes.len(), limits.bytes_max),
        ));
    }
    let mut scan = Scan { bytes, at: 0 };
    let end = scan.open(bytes.len())?;
    if end != bytes.len() {
        return Err(invalid(0, "length of the document differs from the number of bytes"));
    }
    // The ends of the outer documents, NUL included. That of the innermost is `end`.
    let mut parents: Vec<usize> = Vec::new();
    let mut end = end;
    loop {
        let tag_at = scan.at;
        let tag = scan.byte(end)?;
        if tag == 0 {
            if scan.at != end {
                return Err(invalid(tag_at, "document ends before its length"));
            }
            match parents.pop() {
                Some(parent) => end = parent,
                None => return Ok(()),
            }
            continue;
        }
        // The last byte of a document is its NUL: no value may use it.
        let body = end - 1;
        scan.cstring(body)?;
        if let Some(inner) = scan.value(tag, tag_at, body)? {
            if parents.len() >= limits.nesting_max {
                return Err(Error::new(
                    Code::Overflow,
                    format!("document exceeds the maximum nesting of {} levels", limits.nesting_max),
                ));
            }
            parents.push(end);
            end = inner;
        }
    }
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    /// Reads past a value. A document or array is only opened: its end is returned.
    fn value(&mut self, tag: u8, tag_at: usize, end: usize) -> Result<Option<usize>> {
        match tag {
            0x03 | 0x04 => return self.open(end).map(Some),
            // Double, date, timestamp, long.
            0x01 | 0x09 | 0x11 | 0x12 => self.skip(8, end)?,
            // String, code, symbol.
            0x02 | 0x0d | 0x0e => self.string(end)?,
            0x05 => self.binary(end)?,
            // Undefined, null, the two ends of the order.
            0x06 | 0x0a | 0x7f | 0xff => {}
            0x07 => self.skip(12, end)?,
            0x08 => {
                if self.byte(end)? > 1 {
                    return Err(invalid(self.at - 1, "boolean that is neither 0 nor 1"));
                }
            }
            0x0b => {
                self.cstring(end)?;
                self.cstring(end)?;
            }
            0x0c => {
                self.string(end)?;
                self.skip(12, end)?;
            }
            0x0f => return self.code_with_scope(end).map(Some),
            0x10 => self.skip(4, end)?,
            0x13 => self.skip(16, end)?,
            _ => return Err(invalid(tag_at, "unknown type")),
        }
        Ok(None)
    }

    /// Opens a document, and returns its end, NUL included.
    fn open(&mut self, end: usize) -> Result<usize> {
        let start = self.at;
        let length = self.length(end)?;
        let inner = start.checked_add(length).filter(|inner| length >= 5 && *inner <= end);
        let inner = inner.ok_or_else(|| invalid(start, "document whose length does not fit"))?;
        if self.bytes.get(inner - 1) != Some(&0) {
            return Err(invalid(inner - 1, "document that does not end in NUL"));
        }
        Ok(inner)
    }

    /// Reads past the code, and opens the scope, which ends where the value ends.
    fn code_with_scope(&mut self, end: usize) -> Result<usize> {
        let start = self.at;
        let length = self.length(end)?;
        let whole = start.checked_add(length).filter(|whole| *whole <= end);
        let whole = whole.ok_or_else(|| invalid(start, "code with scope whose length does not fit"))?;
        self.string(whole)?;
        let scope_at = self.at;
        let inner = self.open(whole)?;
        if inner != whole {
            return Err(invalid(scope_at, "scope that ends before its code with scope"));
        }
        Ok(inner)
    }

    fn string(&mut self, end: usize) -> Result<()> {
        let start = self.at;
        let length = self.length(end)?;
        let text_at = self.at;
        self.skip(length, end)?;
        let text = self.bytes.get(text_at..self.at).and_then(<[u8]>::split_last);
        let Some((0, text)) = text else {
            return Err(invalid(start, "string that does not end in NUL"));
        };
        if !text.is_ascii() {
            std::str::from_utf8(text).map_err(|_| invalid(text_at, "string that is not UTF-8"))?;
        }
        Ok(())
    }

    fn binary(&mut self, end: usize) -> Result<()> {
        let start = self.at;
        let length = self.length(end)?;
        let subtype = self.byte(end)?;
        let data_at = self.at;
        self.skip(length, end)?;
        // The old subtype 2 repeats its length inside.
        if subtype == 2 {
            let after = std::mem::replace(&mut self.at, data_at);
            let inner = self.length(after)?;
            self.at = after;
            if inner.checked_add(4) != Some(length) {
                return Err(invalid(start, "old binary value whose inner length differs"));
            }
        }
        Ok(())
    }

    fn cstring(&mut self, end: usize) -> Result<()> {
        let start = self.at;
        let rest = self.bytes.get(start..end).unwrap_or_default();
        // The disjunction of all bytes shows whether the name is ASCII, as most are.
        let mut bits = 0;
        let end = rest.iter().position(|byte| {
            bits |= *byte;
            *byte == 0
        });
        let Some(length) = end else {
            return Err(invalid(start, "name or pattern without end"));
        };
        if !bits.is_ascii() {
            let text = rest.get(..length).unwrap_or_default();
            std::str::from_utf8(text).map_err(|_| invalid(start, "name or pattern that is not UTF-8"))?;
        }
        self.at = start + length + 1;
        Ok(())
    }

    /// Reads a length of four bytes, little end first, which must not be negative.
    fn length(&mut self, end: usize) -> Result<usize> {
        let start = self.at;
        self.skip(4, end)?;
        let bytes = self.bytes.get(start..self.at).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        usize::try_from(i32::from_le_bytes(bytes)).map_err(|_| invalid(start, "negative length"))
    }

    fn byte(&mut self, end: usize) -> Result<u8> {
        let start = self.at;
        self.skip(1, end)?;
        Ok(self.bytes.get(start).copied().unwrap_or_default())
    }

    fn skip(&mut self, length: usize, end: usize) -> Result<()> {
        match self.at.checked_add(length) {
            Some(after) if after <= end && after <= self.bytes.len() => {
                self.at = after;
                Ok(())
            }
            _ => Err(invalid(self.at, "value that runs past its document")),
        }
    }
}

fn invalid(at: usize, what: &str) -> Error {
    Error::new(Code::InvalidBSON, format!("invalid BSON at byte {at}: {what}"))
}

#[cfg(test)]
mod tests;
