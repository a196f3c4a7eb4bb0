//! Field paths: `"$a.b"`, `"$$ROOT.a"`, `"$$variable.a.b"`.
//!
//! A path that meets an array continues in each of its documents and returns the array of their values (an item that is no
//! document, or lacks the field, is left out): `"$a.b"` over `{a: [{b: 1}, {}, 5, {b: 2}]}` is `[1, 2]`.

use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocument};

use super::{
    limits,
    node::Scope,
    value::{self, Value},
};
use crate::error::{Code, Error, Result};
use crate::field_path::is_reference_field;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Base {
    /// `$$ROOT`.
    Root,
    /// `$$CURRENT`, from which `"$a"` starts, unless `$let` binds it to another value.
    Current,
    /// The local variable at `index` in the frame that is `up` frames further out.
    Local { up: usize, index: usize },
    /// A variable whose value is in the context, by name.
    Context(String),
    /// `$$NOW`.
    Now,
    /// `$$CLUSTER_TIME`.
    ClusterTime,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldPath {
    pub(crate) base: Base,
    pub(crate) parts: Vec<String>,
}

impl FieldPath {
    pub(crate) fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let start = match &self.base {
            Base::Root => Some(RawBsonRef::Document(scope.root)),
            Base::Current => Some(RawBsonRef::Document(scope.current)),
            Base::Local { up, index } => scope.local(*up, *index).get(),
            Base::Context(name) => scope.context.variable(name),
            Base::Now => Some(RawBsonRef::DateTime(scope.context.now)),
            Base::ClusterTime => Some(RawBsonRef::Timestamp(scope.context.cluster_time)),
        };
        match start {
            Some(start) => walk(start, &self.parts),
            None => Ok(Value::Missing),
        }
    }
}

/// Follows the parts from a value.
pub(crate) fn walk<'a>(start: RawBsonRef<'a>, parts: &[String]) -> Result<Value<'a>> {
    let mut current = start;
    let mut parts = parts;
    while let [part, rest @ ..] = parts {
        match current {
            RawBsonRef::Document(document) => match field(document, part)? {
                Some(value) => current = value,
                None => return Ok(Value::Missing),
            },
            RawBsonRef::Array(array) => return walk_items(array, parts),
            _ => return Ok(Value::Missing),
        }
        parts = rest;
    }
    Ok(Value::Ref(current))
}

fn walk_items<'a>(array: &RawArray, parts: &[String]) -> Result<Value<'a>> {
    let mut found = RawArrayBuf::new();
    for item in value::items(array) {
        if let item @ RawBsonRef::Document(_) = item?
            && let Some(inner) = walk(item, parts)?.get()
        {
            value::push(&mut found, inner)?;
        }
    }
    Ok(found.into())
}
pub(crate) fn field<'a>(document: &'a RawDocument, name: &str) -> Result<Option<RawBsonRef<'a>>> {
    for element in value::elements(document) {
        let element = element?;
        if element.key().as_str() == name {
            return Ok(Some(element.value()?));
        }
    }
    Ok(None)
}

/// Checks `a.b.c`, and returns its parts.
///
/// # Errors
/// Returns the errors of [`check`].
pub(crate) fn split(path: &str) -> Result<Vec<String>> {
    check(path)?;
    Ok(path.split('.').map(str::to_owned).collect())
}

/// Checks the path of an expression or a stage.
///
/// # Errors
/// MongoDB's codes for an empty part (15998, 40353 at the end), a part that begins with `$` (16410), except those of a DBRef, and a NUL byte (16411);
/// `Overflow` (15) for more than [`limits::PATH_PARTS_MAX`] parts.
pub(crate) fn check(path: &str) -> Result<()> {
    if path.ends_with('.') {
        return Err(Error::new(Code(40_353), "FieldPath must not end with a '.'."));
    }
    if path.split('.').count() > limits::PATH_PARTS_MAX {
        return Err(Error::new(Code::Overflow, "FieldPath is too long"));
    }
    path.split('.').try_for_each(check_part)
}

/// Joins the path of a parent and the path of a field below it. The parent of a document's own fields is "".
pub(crate) fn join(parent: &str, field: &str) -> String {
    if parent.is_empty() { field.to_owned() } else { format!("{parent}.{field}") }
}

fn check_part(part: &str) -> Result<()> {
    if part.is_empty() {
        return Err(Error::new(Code(15_998), "FieldPath field names may not be empty strings."));
    }
    if part.starts_with('$') && !is_reference_field(part) {
        return Err(Error::new(
            Code(16_410),
            format!(
                "FieldPath field names may not start with '$'. Consider using $getField or $setField. Found '{part}'"
            ),
        ));
    }
    if part.contains('\0') {
        return Err(Error::new(Code(16_411), "FieldPath field names may not contain '\\0'."));
    }
    Ok(())
}
