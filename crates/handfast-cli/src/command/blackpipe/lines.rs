//! Files that get a line at a time.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::OFlags;

use crate::console::write_remark;
use crate::exit::Usage;

/// The file of a flag.
pub(super) struct LineFile {
    flag: &'static str,
    /// `None` after a write has failed.
    file: Option<File>,
}

impl LineFile {
    /// Creates the file. A pipe or a device is written to, and an empty file is filled.
    ///
    /// # Errors
    /// Fails if the file has content, which is not overwritten, if the pipe has no reader, or if the system refuses it.
    pub(super) fn create(flag: &'static str, path: &Path) -> Result<Self> {
        let wrong = || format!("cannot write {flag} {}", path.display());
        let _pipe = pipe_with_reader(path).with_context(wrong)?;
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).open(path).with_context(wrong)?;
        let found = file.metadata().with_context(wrong)?;
        ensure!(
            !found.is_file() || found.len() == 0,
            "{}: the file exists, and is not overwritten: remove it, or name another one",
            wrong()
        );
        Ok(LineFile { flag, file: Some(file) })
    }

    /// Writes a line at once: it is in the file although the process may be killed.
    pub(super) fn write(&mut self, line: &str) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
            write_remark(&format!("{} cannot be written, and ends here: {error}", self.flag));
            self.file = None;
        }
    }
}

/// Opens a pipe that has a reader, if the path is one. Opening it in the usual way would wait for a reader, and the first signal would not
/// end it. As long as the caller keeps the returned file, the reader does not see the end of the pipe.
///
/// # Errors
/// Fails if the pipe has no reader.
pub(super) fn pipe_with_reader(path: &Path) -> Result<Option<File>> {
    if !std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        return Ok(None);
    }
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits())?;
    let opened = OpenOptions::new().write(true).custom_flags(nonblocking).open(path);
    Ok(Some(opened.context("it is a pipe, and nobody reads it: start its reader first")?))
}

/// Checks that no two flags name the same file: the lines of one would be among those of the other.
///
/// # Errors
/// Returns a [`Usage`] that names the two flags.
pub(super) fn ensure_own_files(files: &[(&str, Option<&Path>)]) -> Result<()> {
    let mut seen: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in files {
        let Some(path) = path else { continue };
        let file = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if let Some((other, _)) = seen.iter().find(|(_, other)| *other == file) {
            let text =
                format!("{flag} and {other} name the same file, {}: each needs a file of its own", path.display());
            return Err(Usage(text).into());
        }
        seen.push((flag, file));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::{LineFile, ensure_own_files};

    fn refused(path: &std::path::Path) -> String {
        format!("{:#}", LineFile::create("--log", path).err().expect("a refusal"))
    }

    #[test]
    fn a_file_with_a_content_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        for _ in 0..2 {
            // The second call finds the file, which is empty.
            LineFile::create("--log", &path).unwrap();
        }
        LineFile::create("--log", &path).unwrap().write("one");
        assert!(
            refused(&path).ends_with("log: the file exists, and is not overwritten: remove it, or name another one")
        );
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\n");
        LineFile::create("--log", std::path::Path::new("/dev/null")).unwrap().write("one");
    }

    /// The test hangs if opening the pipe waits for a reader.
    #[test]
    fn a_pipe_needs_a_reader() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(refused(&path).contains("pipe: it is a pipe, and nobody reads it: start its reader first: "));
        let reader = {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut text = String::new();
                std::fs::File::open(path).unwrap().read_to_string(&mut text).map(|_| text)
            })
        };
        let mut file = loop {
            match LineFile::create("--log", &path) {
                Ok(file) => break file,
                Err(_) => std::thread::yield_now(),
            }
        };
        file.write("one");
        drop(file);
        assert_eq!(reader.join().unwrap().unwrap(), "one\n");
    }

    #[test]
    fn a_file_of_two_flags_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (rules, new) = (directory.path().join("rules.toml"), directory.path().join("new"));
        std::fs::write(&rules, "").unwrap();
        let same = directory.path().join(".").join("rules.toml");
        for (first, second) in [(&rules, &same), (&new, &new)] {
            let error = ensure_own_files(&[("--rules", Some(first)), ("--log", Some(second))]).unwrap_err().to_string();
            assert!(error.starts_with("--log and --rules name the same file"), "{error}");
        }
        ensure_own_files(&[("--rules", Some(&rules)), ("--log", Some(&new)), ("--record", None)]).unwrap();
    }
}
