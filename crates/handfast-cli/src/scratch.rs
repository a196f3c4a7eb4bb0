//! Scratch directories.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A scratch directory of this process, which is removed when this value is dropped.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    /// Creates a directory in `parent`; its name contains the command.
    pub(crate) fn create(parent: &Path, command: &str) -> Result<Self> {
        let path = parent.join(format!("handfast-{command}-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Scratch { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // There is no way to report it; the name tells what the rest is.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
