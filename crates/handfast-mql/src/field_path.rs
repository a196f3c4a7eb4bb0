//! MongoDB's rules for the paths of sorts and of find's projections.

use crate::depth::NESTING_MAX;
use crate::{Code, Error, Result};

/// Checks a path.
///
/// # Errors
/// MongoDB's codes for an empty path (40352), an empty name (15998, 40353 at the end) and a name that starts with `$`
/// (16410); `Overflow` (15) for more names than documents can nest.
pub(crate) fn check(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(Error::new(Code(40352), "FieldPath cannot be constructed with empty string"));
    }
    if path.ends_with('.') {
        return Err(Error::new(Code(40353), "FieldPath must not end with a '.'."));
    }
    for (depth, name) in path.split('.').enumerate() {
        if depth > NESTING_MAX {
            return Err(Error::new(Code::Overflow, "FieldPath is too long"));
        }
        if name.is_empty() {
            return Err(Error::new(Code(15998), "FieldPath field names may not be empty strings."));
        }
        // The fields of a DBRef have these names.
        if name.starts_with('$') && !matches!(name, "$id" | "$ref" | "$db") {
            let message = "FieldPath field names may not start with '$'. Consider using $getField or $setField.";
            return Err(Error::new(Code(16410), message));
        }
    }
    Ok(())
}
