//! Files that get a line at a time.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::console::write_remark;

/// The file of a flag.
pub(super) struct LineFile {
    flag: &'static str,
    /// `None` after a write has failed.
    file: Option<File>,
}

impl LineFile {
    /// Creates the file, or empties it.
    pub(super) fn create(flag: &'static str, path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write {flag} {}", path.display()))?;
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
