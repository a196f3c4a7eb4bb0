//! Files in a directory for sorts and groups that do not fit into memory.
//!
//! A file has no name, or loses it at once, so that it goes with the process, however it ends. A limit is on the bytes of all files
//! together.

use std::fs::File;
use std::io::{Error as IoError, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use handfast_mql::spill::{SpillFile, SpillSpace};
use handfast_mql::{Code, Error, Result};

#[cfg(test)]
mod tests;

/// The default limit on the bytes of all files: 10 GiB.
pub const SPILL_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;
/// The bytes of the disk that the files leave free: 1 GiB. A store on the same disk could write no more without it.
const FREE_BYTES_MIN: u64 = 1024 * 1024 * 1024;
/// Limit on the number of files. Each has a file descriptor, of which the store and connections need others.
const FILES_MAX: usize = 256;

/// A directory for temporary files. Clones share the limit on their bytes.
#[derive(Clone, Debug)]
pub struct SpillDirectory(Arc<Space>);

#[derive(Debug)]
struct Space {
    directory: PathBuf,
    bytes_max: u64,
    free_bytes_min: u64,
    used: AtomicU64,
    written: AtomicU64,
    files: AtomicUsize,
}

impl SpillDirectory {
    /// Creates a space for files of at most `bytes_max` bytes together in a directory. It is not created.
    pub fn new(directory: PathBuf, bytes_max: u64) -> Self {
        SpillDirectory(Arc::new(Space {
            directory,
            bytes_max,
            free_bytes_min: FREE_BYTES_MIN,
            used: AtomicU64::new(0),
            written: AtomicU64::new(0),
            files: AtomicUsize::new(0),
        }))
    }
}

impl SpillSpace for SpillDirectory {
    fn create(&self) -> Result<Box<dyn SpillFile>> {
        let file = CountedFile::new(&self.0)?;
        let opened = tempfile::tempfile_in(&self.0.directory).map_err(|error| self.0.failed("create", error))?;
        Ok(Box::new(TemporaryFile { space: file, file: opened, bytes: 0 }))
    }

    fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }
}

impl Space {
    fn failed(&self, what: &str, error: IoError) -> Error {
        let directory = self.directory.display();
        let code = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::OutOfDiskSpace,
            _ => Code::InternalError,
        };
        Error::new(code, format!("cannot {what} a temporary file of a query in {directory}: {error}"))
    }

    /// Counts bytes before they are written to a file.
    fn reserve(&self, file: &File, bytes: u64) -> Result<()> {
        let disk = rustix::fs::fstatvfs(file).map_err(|error| self.failed("write", error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < self.free_bytes_min.saturating_add(bytes) {
            let text = format!(
                "the temporary files of queries would leave less than {} bytes of the disk of {}: add a limit or an index to the query, \
                 free space, or name another disk with the setting spill-directory",
                self.free_bytes_min,
                self.directory.display()
            );
            return Err(Error::new(Code::OutOfDiskSpace, text));
        }
        let grown = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok() {
            return Ok(());
        }
        let text = format!(
            "the temporary files of all queries would have more than {} bytes together: add a limit or an index to the query, or \
             raise the setting spill-bytes",
            self.bytes_max
        );
        Err(Error::new(Code::OutOfDiskSpace, text))
    }
}

/// The count of a file in its space.
#[derive(Debug)]
struct CountedFile(Arc<Space>);

impl CountedFile {
    fn new(space: &Arc<Space>) -> Result<Self> {
        let grown = |files: usize| (files < FILES_MAX).then_some(files + 1);
        if space.files.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok() {
            return Ok(CountedFile(Arc::clone(space)));
        }
        let text = format!(
            "{FILES_MAX} sorts and groups have temporary files already: close cursors, or add a limit or an index to the query"
        );
        Err(Error::new(Code::QueryExceededMemoryLimitNoDiskUseAllowed, text))
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.0.files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A temporary file.
#[derive(Debug)]
struct TemporaryFile {
    space: CountedFile,
    file: File,
    /// The bytes that are counted in `used`.
    bytes: u64,
}

impl SpillFile for TemporaryFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let count = bytes.len() as u64;
        let space = &self.space.0;
        space.reserve(&self.file, count)?;
        let end = self.bytes;
        self.bytes += count;
        let written = self.file.seek(SeekFrom::Start(end)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| space.failed("write", error))?;
        space.written.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(buffer));
        read.map_err(|error| self.space.0.failed("read", error))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        self.space.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
