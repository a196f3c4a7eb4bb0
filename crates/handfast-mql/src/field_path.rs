//! MongoDB's rules for the paths of sorts and of find's projections.

use crate::depth::NESTING_MAX;
use crate::{Code, Error, Result};

/// Tells whether a name is that of a field of a DBRef, a reference from one document to another: these names are allowed although
/// they start with `$` (MongoDB's manual, "Database References").
pub(crate) fn is_reference_field(name: &str) -> bool {
    matches!(name, "$id" | "$ref" | "$db")
}

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
        if name.starts_with('$') && !is_reference_field(name) {
            let message = "FieldPath field names may not start with '$'. Consider using $getField or $setField.";
            return Err(Error::new(Code(16410), message));
        }
    }
    Ok(())
}
