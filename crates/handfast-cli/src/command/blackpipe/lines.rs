//! Files that get a line at a time.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::console::write_remark;
use crate::exit::Usage;

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

/// Checks that no two flags name the same file, which one of them would empty for the other.
///
/// # Errors
/// A [`Usage`] that names the two flags.
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
    use super::ensure_own_files;

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
