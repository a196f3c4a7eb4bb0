//! Bounds on the values that one evaluation makes, so that a small hostile expression cannot fill the memory or the stack.

use bson::{RawBsonRef, RawDocument};

use crate::error::{Code, Error, Result};

/// The most bytes one value made by an expression may have: MongoDB's bound for one blocking operator, 100 MB.
pub(crate) const VALUE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// The least bytes of a value that counts among the large ones that one evaluation makes.
pub(crate) const LARGE_BYTES: usize = 1024 * 1024;
/// The bytes of a value that take about as long to make as a step of a loop: a handful of numbers of an array.
pub(crate) const STEP_BYTES: usize = 64;

/// The most levels of an expression. Input documents are bounded to 100 levels; each level of an expression takes one or more.
pub(crate) const EXPRESSION_DEPTH_MAX: usize = 100;

/// The most levels of a value made by expressions: MongoDB's bound for a stored document (100), doubled for the stages.
pub(crate) const VALUE_DEPTH_MAX: usize = 200;
pub(crate) const PATH_PARTS_MAX: usize = 200;

/// Refuses a value that grows beyond [`VALUE_BYTES_MAX`].
pub(crate) fn check_bytes(bytes: usize) -> Result<()> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(
        Code::ExceededMemoryLimit,
        format!("expression would use too much memory ({bytes} bytes), the limit is {VALUE_BYTES_MAX} bytes"),
    ))
}

/// Refuses a value that nests deeper than [`VALUE_DEPTH_MAX`], without recursion.
pub(crate) fn check_depth(value: RawBsonRef<'_>) -> Result<()> {
    let document = match value {
        RawBsonRef::Document(document) => document,
        RawBsonRef::Array(array) => RawDocument::from_bytes(array.as_bytes())?,
        _ => return Ok(()),
    };
    let mut open = vec![document.iter_elements()];
    while let Some(top) = open.last_mut() {
        let Some(element) = top.next() else {
            open.pop();
            continue;
        };
        let inner = match element?.value()? {
            RawBsonRef::Document(inner) => inner,
            RawBsonRef::Array(inner) => RawDocument::from_bytes(inner.as_bytes())?,
            _ => continue,
        };
        if open.len() >= VALUE_DEPTH_MAX {
            return Err(Error::new(
                Code::Overflow,
                format!("value exceeds the limit of {VALUE_DEPTH_MAX} levels of nesting"),
            ));
        }
        open.push(inner.iter_elements());
    }
    Ok(())
}
