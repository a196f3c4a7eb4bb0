//! What the tests of the real program share.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory of one test, removed when the test is over.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the directory. The name is the test's; the process id keeps runs apart.
    pub(crate) fn new(name: &str) -> std::io::Result<Self> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program, to be run in the scratch directory, with nothing of the environment that configures it.
pub(crate) fn handfast(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
    command.args(arguments).current_dir(&scratch.0).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HANDFAST_") {
            command.env_remove(name);
        }
    }
    command
}
