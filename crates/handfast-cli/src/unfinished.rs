//! A file that has its name only once it is whole: until then it is `FILE.unfinished`, which a process that was killed leaves behind.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufWriter, IntoInnerError, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

/// A file that is being written. One that is dropped before it is finished is removed.
#[derive(Debug)]
pub(crate) struct UnfinishedFile {
    /// Locked, so that no other process takes it for one that was left.
    out: Option<BufWriter<File>>,
    paths: Paths,
}

/// Where it is until it is finished.
#[derive(Debug)]
struct Paths {
    target: PathBuf,
    /// None if the target is a pipe or a device, which is written to as it is.
    unfinished: Option<PathBuf>,
}

impl UnfinishedFile {
    /// Begins a file that is not there yet.
    ///
    /// # Errors
    /// It is there; another process is writing it; a file system that fails.
    pub(crate) fn create_new(target: &Path) -> Result<Self> {
        if target.symlink_metadata().is_ok() {
            bail!("cannot write {}: there is a file of this name", target.display());
        }
        UnfinishedFile::begin(target.to_owned())
    }

    /// Begins a file that takes the place of the one that is there, if there is one. A pipe or a device is written to as it is.
    ///
    /// # Errors
    /// Another process is writing it; a file system that fails.
    pub(crate) fn replace(target: &Path) -> Result<Self> {
        match fs::metadata(target) {
            // A link stays one. What is under /dev is what somebody else has opened.
            Ok(found) if found.is_file() && !target.starts_with("/dev") => {
                UnfinishedFile::begin(target.canonicalize().with_context(|| at(target))?)
            }
            Ok(_) => {
                let out = OpenOptions::new().write(true).open(target).with_context(|| at(target))?;
                let paths = Paths { target: target.to_owned(), unfinished: None };
                Ok(UnfinishedFile { out: Some(BufWriter::new(out)), paths })
            }
            Err(_) => UnfinishedFile::begin(target.to_owned()),
        }
    }

    fn begin(target: PathBuf) -> Result<Self> {
        let name = target.file_name().with_context(|| format!("{} is no name of a file", target.display()))?;
        let mut unfinished = name.to_owned();
        unfinished.push(".unfinished");
        let path = target.with_file_name(unfinished);
        let failed = || at(&target);
        // What was left by a process that was killed is written over, once nobody else has it.
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path).with_context(failed)?;
        let being_written = || format!("another process is writing {}", target.display());
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(being_written()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
        }
        // Another process may have finished it, and so renamed it, before it was locked.
        let is_ours = |there: fs::Metadata| {
            file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        ensure!(fs::symlink_metadata(&path).is_ok_and(is_ours), being_written());
        file.set_len(0).with_context(failed)?;
        let out = Some(BufWriter::new(file));
        Ok(UnfinishedFile { out, paths: Paths { unfinished: Some(path), target } })
    }

    /// Makes what was written durable, and gives the file its name.
    ///
    /// # Errors
    /// A file system that fails.
    pub(crate) fn finish(mut self) -> Result<()> {
        let Paths { target, unfinished } = &mut self.paths;
        let Some(out) = self.out.take() else { return Ok(()) };
        let failed = || at(target);
        let file = out.into_inner().map_err(IntoInnerError::into_error).with_context(failed)?;
        let Some(path) = &unfinished else { return Ok(()) };
        file.sync_all().with_context(failed)?;
        fs::rename(path, &*target).with_context(failed)?;
        *unfinished = None;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|directory| directory.sync_all()).with_context(|| at(parent))
    }
}

impl Write for UnfinishedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match &mut self.out {
            Some(out) => out.write(bytes),
            None => Ok(0),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // Nobody is left to tell; the name says what it is.
            let _ = fs::remove_file(unfinished);
        }
    }
}

fn at(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
