//! Reads values from the front of a byte slice.

use bson::RawDocument;

use crate::{Error, Limits, Result};

/// The smallest document: its length and the closing zero.
const DOCUMENT_BYTES_MIN: usize = 5;

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Error::Truncated(what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or(Error::Truncated(what))?;
        self.rest = rest;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let (&bytes, rest) = self.rest.split_first_chunk().ok_or(Error::Truncated(what))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self, what: &'static str) -> Result<i32> {
        self.array(what).map(i32::from_le_bytes)
    }

    pub(crate) fn i64(&mut self, what: &'static str) -> Result<i64> {
        self.array(what).map(i64::from_le_bytes)
    }

    /// Reads text up to a zero byte.
    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'a str> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Error::Truncated(what))?;
        let text = self.take(end, what)?;
        self.u8(what)?;
        std::str::from_utf8(text).map_err(|_| Error::NotUtf8(what))
    }

    /// Reads a document by its length prefix; does not check its content.
    pub(crate) fn document(&mut self, what: &'static str, limits: &Limits) -> Result<&'a RawDocument> {
        let prefix = self.rest.first_chunk().ok_or(Error::Truncated(what))?;
        let announced = i32::from_le_bytes(*prefix);
        let length = match usize::try_from(announced) {
            Ok(length) if length >= DOCUMENT_BYTES_MIN => length,
            _ => return Err(Error::Document { what, why: format!("its length is {announced}") }),
        };
        if length > limits.document_bytes_max {
            return Err(Error::DocumentTooLarge { what, length, max: limits.document_bytes_max });
        }
        let bytes = self.take(length, what)?;
        RawDocument::from_bytes(bytes).map_err(|error| Error::Document { what, why: error.to_string() })
    }
}
