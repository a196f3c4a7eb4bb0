//! Dotted paths through documents, and MongoDB's rules for arrays on a path.
//!
//! A path such as `a.b.0` names a field of a field. If a part of it is an array, MongoDB continues in each of its
//! elements: `{"a.b": 1}` finds `{a: [{b: 1}, {b: 2}]}`. A component that is a number means both an index of an array and a
//! field of that name in an array's documents. One path can therefore lead to many values, or to none at all.
//! [`Path::visit`] calls a function with each of them, without allocating:
//!
//! ```text
//! path   document                    shown
//! a.b    {a: {b: 1}}                 1
//! a.b    {a: {c: 1}}, {a: 5}, {}     missing
//! a.b    {a: [{b: 1}, {c: 1}, 5]}    1, missing       (a scalar in an array shows nothing)
//! a.b    {a: []}, {a: [5]}           nothing at all
//! a      {a: [1, [2]]}               1, [2], the array itself
//! a.0    {a: [7, 8]}                 7
//! a.0    {a: [[7, 8]]}               7, 8, [7, 8]     (where the path ends, the array is looked into)
//! a.0.b  {a: [{b: 1}, {"0": ..}]}    1 by index, then what the elements' own field "0" gives
//! ```
//!
//! Source: the MongoDB manual on "Query an Array of Embedded Documents", "Query an Array", "Query for Null or Missing Fields".

use std::ops::ControlFlow;

use bson::{RawArray, RawBsonRef, RawDocument};

/// A dotted path, split once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    text: String,
    components: Vec<Component>,
}

/// A component of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Component {
    name: String,
    index: Option<usize>,
}

impl Component {
    /// Returns the name as a field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number as an array index: only of a plain decimal number without leading zeros.
    pub fn index(&self) -> Option<usize> {
        self.index
    }
}

/// The treatment of an array at the end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrailingArray {
    /// The visitor gets each element, then the array, as comparisons need it.
    Elements,
    /// The visitor gets the array alone, as `$size`, `$elemMatch` and `$exists` need it.
    Whole,
}

/// A value that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathValue<'a> {
    /// The value; none where the path leads to nothing.
    pub value: Option<RawBsonRef<'a>>,
    /// The index in the outermost array on the path, which a positional `$` stands for.
    pub array_index: Option<usize>,
    /// Whether the value is an element of an array at the end of the path ([`TrailingArray::Elements`]).
    pub is_element: bool,
}

impl Path {
    /// Splits a dotted path. Empty components are fields with an empty name.
    pub fn new(text: &str) -> Self {
        let components = text.split('.').map(|name| Component { name: name.to_owned(), index: array_index(name) });
        Path { text: text.to_owned(), components: components.collect() }
    }

    /// Returns the path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the components, at least one.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Calls `visitor` with every value at the path, until it breaks. The elements of an array at the end come before the array itself.
    pub fn visit<'a, B>(
        &self,
        document: &'a RawDocument,
        trailing_array: TrailingArray,
        visitor: &mut impl FnMut(PathValue<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        in_document(document, &self.components, trailing_array, None, visitor)
    }

    /// Returns where the path leads without looking into arrays, numbers meaning indexes there: how projections and
    /// updates of a single field see it.
    pub fn resolve<'a>(&self, document: &'a RawDocument) -> Option<RawBsonRef<'a>> {
        let (first, rest) = self.components.split_first()?;
        let mut value = field(document, first.name())?;
        for component in rest {
            value = match value {
                RawBsonRef::Document(document) => field(document, component.name())?,
                RawBsonRef::Array(array) => element(array, component.index()?)?,
                _ => return None,
            };
        }
        Some(value)
    }
}

impl From<&str> for Path {
    fn from(text: &str) -> Self {
        Path::new(text)
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads a number that can be an array index: decimal digits without sign or leading zeros.
pub fn array_index(name: &str) -> Option<usize> {
    let plain = name == "0" || !name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| name.parse().ok()).flatten()
}

/// Returns the field of a document; none also if the bytes are malformed before it.
pub fn field<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    crate::element::find(document, name).ok()??.value().ok()
}

/// Returns the element of an array at an index.
pub fn element(array: &RawArray, index: usize) -> Option<RawBsonRef<'_>> {
    array.iter_elements().nth(index)?.ok()?.value().ok()
}

/// Continues in a document. `outer` is the index in the outermost array so far.
fn in_document<'a, B>(
    document: &'a RawDocument,
    components: &[Component],
    trailing_array: TrailingArray,
    outer: Option<usize>,
    visitor: &mut impl FnMut(PathValue<'a>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let mut document = document;
    let mut components = components;
    loop {
        let Some((first, rest)) = components.split_first() else { return ControlFlow::Continue(()) };
        let value = field(document, first.name());
        match value {
            Some(RawBsonRef::Array(array)) => return in_array(array, rest, trailing_array, outer, visitor),
            Some(RawBsonRef::Document(inner)) if !rest.is_empty() => (document, components) = (inner, rest),
            // A scalar has no fields.
            Some(_) if !rest.is_empty() => return show(None, outer, visitor),
            value => return show(value, outer, visitor),
        }
    }
}

/// Continues in an array; `rest` has the remaining components.
fn in_array<'a, B>(
    array: &'a RawArray,
    rest: &[Component],
    trailing_array: TrailingArray,
    outer: Option<usize>,
    visitor: &mut impl FnMut(PathValue<'a>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let Some((first, after)) = rest.split_first() else {
        if trailing_array == TrailingArray::Elements {
            for (index, value) in array.into_iter().map_while(Result::ok).enumerate() {
                let array_index = outer.or(Some(index));
                visitor(PathValue { value: Some(value), array_index, is_element: true })?;
            }
        }
        return show(Some(RawBsonRef::Array(array)), outer, visitor);
    };
    for (index, value) in array.into_iter().map_while(Result::ok).enumerate() {
        let position = outer.or(Some(index));
        if let RawBsonRef::Document(document) = value {
            in_document(document, rest, trailing_array, position, visitor)?;
        }
        if first.index() == Some(index) {
            by_index(value, after, trailing_array, position, visitor)?;
        }
    }
    ControlFlow::Continue(())
}

/// Continues in the element that a numeric component names.
fn by_index<'a, B>(
    value: RawBsonRef<'a>,
    after: &[Component],
    trailing_array: TrailingArray,
    position: Option<usize>,
    visitor: &mut impl FnMut(PathValue<'a>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    match value {
        value if after.is_empty() => show(Some(value), position, visitor),
        RawBsonRef::Array(array) => in_array(array, after, trailing_array, position, visitor),
        RawBsonRef::Document(document) => in_document(document, after, trailing_array, position, visitor),
        _ => ControlFlow::Continue(()),
    }
}

fn show<'a, B>(
    value: Option<RawBsonRef<'a>>,
    array_index: Option<usize>,
    visitor: &mut impl FnMut(PathValue<'a>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    visitor(PathValue { value, array_index, is_element: false })
}

#[cfg(test)]
mod tests;
