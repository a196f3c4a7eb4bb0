//! The lock of a directory: one process at a time has a store open. It is a lock on the file `lock`, which the operating
//! system releases however the process ends. The file holds the process's number, for the error message of a second one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::error::{Error, Result};

/// Locks a directory until it is dropped.
pub(crate) struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    pub(crate) fn take(directory: &Path, path: &Path) -> Result<Self> {
        let failed = |error| Error::io(format!("locking {}", path.display()), error);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::InUse { directory: directory.to_owned(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut note = || -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        note().map_err(failed)?;
        Ok(DirectoryLock { file })
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that another thread is starting has it open too, for a moment.
        let _ = self.file.unlock();
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    // A number has at most ten digits.
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{DirectoryLock, Error};

    #[test]
    fn a_lock_is_free_once_it_is_dropped_although_a_child_process_has_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = DirectoryLock::take(directory.path(), &path).unwrap();
        // A process that was forked and has not called exec yet has inherited the lock.
        let inherited = lock.file.try_clone().unwrap();
        assert!(matches!(DirectoryLock::take(directory.path(), &path), Err(Error::InUse { .. })));
        drop(lock);
        DirectoryLock::take(directory.path(), &path).unwrap();
        drop(inherited);
    }
}
