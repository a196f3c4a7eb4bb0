//! The values that a document has under several paths, one tuple at a time.
//!
//! Without arrays there is one tuple. An array on the way stands for each of its elements, and all paths that go through
//! the same array go through it together.

use bson::{RawArray, RawBsonRef, RawDocument};

use crate::path::{Component, Path, element, field};
use crate::{Code, Error, Result};

/// The value that one path of a tuple leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SortValue<'d> {
    /// The path leads to nothing.
    Missing,
    /// The path ends at an array without elements.
    EmptyArray,
    /// A value that is no array, or an array in an array.
    Value(RawBsonRef<'d>),
}

/// The position of a walk along a path.
#[derive(Clone, Copy)]
enum Cursor<'d, 'p> {
    Done(SortValue<'d>),
    /// The rest is to be looked up in this document.
    In(&'d RawDocument, &'p [Component]),
    /// The rest begins with an index into this array, which is itself an element of an array.
    At(&'d RawArray, &'p [Component]),
    /// The array stands for each of its elements.
    Each(&'d RawArray, &'p [Component]),
}

/// Calls a function with each tuple.
///
/// # Errors
/// `BadValue` (2) if two paths go through different arrays.
pub(super) fn for_each_tuple<'d>(
    paths: &[&Path],
    document: &'d RawDocument,
    visit: &mut dyn FnMut(&[SortValue<'d>]),
) -> Result<()> {
    let cursors = paths.iter().map(|path| Cursor::In(document, path.components())).collect();
    expand(cursors, visit)
}

fn expand<'d>(mut cursors: Vec<Cursor<'d, '_>>, visit: &mut dyn FnMut(&[SortValue<'d>])) -> Result<()> {
    let mut array: Option<&'d RawArray> = None;
    for cursor in &mut cursors {
        *cursor = walk(*cursor);
        let Cursor::Each(this, _) = *cursor else { continue };
        if array.is_some_and(|other| !std::ptr::eq(other.as_bytes(), this.as_bytes())) {
            return Err(Error::new(Code::BadValue, "cannot sort with keys that are parallel arrays"));
        }
        array = Some(this);
    }
    let Some(array) = array else {
        let tuple: Vec<SortValue<'d>> = cursors.iter().map(Cursor::found).collect();
        visit(&tuple);
        return Ok(());
    };
    if array.is_empty() {
        return expand(cursors.into_iter().map(Cursor::in_empty_array).collect(), visit);
    }
    for element in array {
        let element = element?;
        expand(cursors.iter().map(|cursor| cursor.in_element(element)).collect(), visit)?;
    }
    Ok(())
}

impl<'d, 'p> Cursor<'d, 'p> {
    fn found(&self) -> SortValue<'d> {
        match self {
            Cursor::Done(found) => *found,
            _ => SortValue::Missing,
        }
    }

    /// Returns the cursor into an element of the array at which this cursor stands.
    fn in_element(self, element: RawBsonRef<'d>) -> Cursor<'d, 'p> {
        match (self, element) {
            (Cursor::Each(_, []), value) => Cursor::Done(SortValue::Value(value)),
            (Cursor::Each(_, rest), RawBsonRef::Document(document)) => Cursor::In(document, rest),
            // Only a numeric name enters an array in an array.
            (Cursor::Each(_, rest), RawBsonRef::Array(array)) => Cursor::At(array, rest),
            (Cursor::Each(..), _) => Cursor::Done(SortValue::Missing),
            (other, _) => other,
        }
    }

    fn in_empty_array(self) -> Cursor<'d, 'p> {
        match self {
            Cursor::Each(_, []) => Cursor::Done(SortValue::EmptyArray),
            Cursor::Each(..) => Cursor::Done(SortValue::Missing),
            other => other,
        }
    }
}

/// Walks to the end of the path, or to the next array that stands for its elements.
fn walk<'d, 'p>(cursor: Cursor<'d, 'p>) -> Cursor<'d, 'p> {
    let (mut value, mut rest) = match cursor {
        Cursor::In(document, rest) => (RawBsonRef::Document(document), rest),
        Cursor::At(array, [first, rest @ ..]) => match first.index().and_then(|index| element(array, index)) {
            Some(value) => (value, rest),
            None => return Cursor::Done(SortValue::Missing),
        },
        other => return other,
    };
    loop {
        let (next, after) = match (value, rest) {
            (RawBsonRef::Array(array), []) => return Cursor::Each(array, rest),
            (value, []) => return Cursor::Done(SortValue::Value(value)),
            (RawBsonRef::Document(document), [first, after @ ..]) => (field(document, first.name()), after),
            (RawBsonRef::Array(array), [first, after @ ..]) => {
                match first.index().and_then(|index| element(array, index)) {
                    Some(value) => (Some(value), after),
                    None => return Cursor::Each(array, rest),
                }
            }
            _ => (None, rest),
        };
        match next {
            Some(next) => (value, rest) = (next, after),
            None => return Cursor::Done(SortValue::Missing),
        }
    }
}
