//! Files for what does not fit into the memory of a stage.
//!
//! The crate opens no files: a caller that has a disk gives a [`SpillSpace`] with the memory limits
//! ([`QueryMemory`](crate::context::QueryMemory)). Values are written one after the other, each with what is needed to read it again.

use std::fmt::Debug;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr};

use crate::{Code, Error, Result, filter::MatchPosition, number::Number};

/// A place for temporary files.
pub trait SpillSpace: Debug + Send + Sync {
    /// Creates an empty file. It is removed when it is dropped, and when the process ends.
    ///
    /// # Errors
    /// An error of the file system.
    fn create(&self) -> Result<Box<dyn SpillFile>>;

    /// Returns the bytes of all files that there are now.
    fn used(&self) -> u64;

    /// Returns the bytes that were ever written to files.
    fn written(&self) -> u64;
}

/// A temporary file.
pub trait SpillFile: Debug + Send {
    /// Writes bytes at the end.
    ///
    /// # Errors
    /// `OutOfDiskSpace` (14031), also beyond the limit of the space; other errors of the file system.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Fills the buffer with the bytes from `offset` on.
    ///
    /// # Errors
    /// An error of the file system, also for bytes that were not written.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()>;
}

/// A value that can be kept in a file.
pub trait Spilled: Sized {
    /// Appends the value to `out`.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads a value from the beginning of `bytes`, which moves behind it.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (354) for bytes that [`Spilled::write`] has not written.
    fn read(bytes: &mut &[u8]) -> Result<Self>;
}

/// Returns the first `count` bytes, which are removed from `bytes`.
fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Result<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or_else(damaged)?;
    *bytes = rest;
    Ok(taken)
}

/// Returns the error for a file that has not the bytes that were written.
pub(crate) fn damaged() -> Error {
    Error::new(Code::DataCorruptionDetected, "a temporary file of a query has other bytes than were written")
}

impl Spilled for u64 {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        let taken = take(bytes, size_of::<u64>())?.try_into().map_err(|_| damaged())?;
        Ok(u64::from_le_bytes(taken))
    }
}

impl Spilled for Vec<u8> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        out.extend_from_slice(self);
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        let count = usize::try_from(u64::read(bytes)?).map_err(|_| damaged())?;
        take(bytes, count).map(<[u8]>::to_vec)
    }
}

impl Spilled for RawDocumentBuf {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        let length = bytes.first_chunk().map(|length| u32::from_le_bytes(*length)).ok_or_else(damaged)?;
        let taken = take(bytes, usize::try_from(length).map_err(|_| damaged())?)?;
        RawDocument::from_bytes(taken).map(RawDocument::to_owned).map_err(|_| damaged())
    }
}

impl<T: Spilled> Spilled for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.is_some().into());
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        match take(bytes, 1)? {
            [0] => Ok(None),
            _ => T::read(bytes).map(Some),
        }
    }
}

impl<A: Spilled, B: Spilled> Spilled for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        Ok((A::read(bytes)?, B::read(bytes)?))
    }
}

impl Spilled for MatchPosition {
    fn write(&self, out: &mut Vec<u8>) {
        self.array_index.map(|index| index as u64).write(out);
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        let array_index = Option::<u64>::read(bytes)?.map(usize::try_from).transpose().map_err(|_| damaged())?;
        Ok(MatchPosition { array_index })
    }
}

impl Spilled for Number {
    fn write(&self, out: &mut Vec<u8>) {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("n"), self.to_bson());
        document.write(out);
    }

    fn read(bytes: &mut &[u8]) -> Result<Self> {
        let document = RawDocumentBuf::read(bytes)?;
        let value = document.get("n").ok().flatten().unwrap_or(RawBsonRef::Null);
        Number::of(value).ok_or_else(damaged)
    }
}

#[cfg(test)]
pub(crate) mod testing;
