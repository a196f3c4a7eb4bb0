//! A directory for as long as a command works.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A directory of this process in another one; gone with this value.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    /// Makes it, for what this command does.
    ///
    /// # Errors
    /// Nothing can be made there.
    pub(crate) fn create(parent: &Path, command: &str) -> Result<Self> {
        let path = parent.join(format!("handfast-{command}-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Scratch { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nobody is left to tell; the name says what it is.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
