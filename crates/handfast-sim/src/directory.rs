//! Copies the directory of an open store: the files that a killed process leaves.

use std::io;
use std::path::Path;

/// Copies a directory. The copy is consistent only if the store writes nothing meanwhile.
///
/// # Errors
/// Returns the file system's error if a file cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
