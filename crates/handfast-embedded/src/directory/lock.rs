//! One process at a time: a lock on the file `lock`, which the operating system frees when the process ends in
//! whatever way. The file also holds the process's number, for the message that a second one gets.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::error::{Error, Result};

/// A directory that is ours until this is dropped.
pub(super) struct Lock {
    _file: File,
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
        Ok(Lock { _file: file })
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    // A number has at most ten digits.
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
