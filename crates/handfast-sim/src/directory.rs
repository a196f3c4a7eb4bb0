//! What a kill leaves of a store: a copy of its directory, made while it is open.

use std::io;
use std::path::Path;

/// Copies a directory. For a copy of one moment nothing may be under way.
///
/// # Errors
/// Those of the file system.
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
