//! One process at a time: a lock on the file `lock`, which the operating system frees when the process ends in
//! whatever way. The file also holds the process's number, for the message that a second one gets.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::error::{Error, Result};

/// A directory that is ours until this is dropped.
pub(super) struct Lock {
    file: File,
}

impl Lock {
    pub(super) fn take(directory: &Path, path: &Path) -> Result<Self> {
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
        Ok(Lock { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // To close the file would not do: a child process that another thread is starting has it open, too, for a moment.
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
    use super::*;

    #[test]
    fn a_lock_is_free_once_it_is_dropped_although_a_child_process_has_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = Lock::take(directory.path(), &path).unwrap();
        // As a process has it that was forked and has not yet become another program.
        let inherited = lock.file.try_clone().unwrap();
        assert!(matches!(Lock::take(directory.path(), &path), Err(Error::InUse { .. })));
        drop(lock);
        Lock::take(directory.path(), &path).unwrap();
        drop(inherited);
    }
}
