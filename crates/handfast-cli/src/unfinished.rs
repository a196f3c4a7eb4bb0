//! Files that get their name once they are complete: until then a file is `FILE.unfinished`, which a killed process leaves behind.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufWriter, IntoInnerError, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

/// A file that is being written, which is removed if it is dropped before it is finished.
#[derive(Debug)]
pub(crate) struct UnfinishedFile {
    /// Locked, so that no other process takes it for the rest of a killed one.
    out: Option<BufWriter<File>>,
    paths: Paths,
}

/// The final and the temporary name of the file.
#[derive(Debug)]
struct Paths {
    target: PathBuf,
    /// The temporary name. A pipe or a device has none, because it is written to directly.
    unfinished: Option<PathBuf>,
}

impl UnfinishedFile {
    /// Begins a new file.
    ///
    /// # Errors
    /// The file exists; another process is writing it; the file system fails.
    pub(crate) fn create_new(target: &Path) -> Result<Self> {
        if target.symlink_metadata().is_ok() {
            bail!("cannot write {}: the file exists", target.display());
        }
        UnfinishedFile::begin(target.to_owned())
    }

    /// Begins a file that replaces the existing one. A pipe or a device is written to directly.
    ///
    /// # Errors
    /// Another process is writing it; the file system fails.
    pub(crate) fn replace(target: &Path) -> Result<Self> {
        match fs::metadata(target) {
            // A link stays a link. Files under /dev were opened by the parent process.
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
        let name = target.file_name().with_context(|| format!("{} is not the name of a file", target.display()))?;
        let mut unfinished = name.to_owned();
        unfinished.push(".unfinished");
        let path = target.with_file_name(unfinished);
        let failed = || at(&target);
        // The rest of a killed process is overwritten, unless another process has locked it.
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

    /// Syncs the file, and renames it.
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
            // There is no way to report it; the name tells what the rest is.
            let _ = fs::remove_file(unfinished);
        }
    }
}

fn at(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
