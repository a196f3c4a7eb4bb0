//! The values that a document has under an index: one tuple for each key.
//!
//! Without arrays there is one tuple. An array on the way of a path stands for each of its elements, and several paths
//! through the *same* array go through it together:
//!
//! ```text
//! index {"a.b": 1, "a.c": 1}, document {a: [{b: 1, c: 2}, {b: 3}]}  ->  (1, 2), (3, missing)
//! index {a: 1},               document {a: [5, [6], 5]}             ->  5, [6], 5
//! index {a: 1},               document {a: []}                      ->  undefined, so that it is not found as null
//! index {"a.0": 1},           document {a: [5, 6]}                  ->  5: a number that names an element is no array
//! index {a: 1, b: 1},         document {a: [1, 2], b: [3]}          ->  refused: it would be a key for each pair
//! ```
//!
//! Source: MongoDB's documentation, "Multikey Indexes".

use bson::{RawArray, RawBsonRef, RawDocument};
use handfast_mql::Code;

use crate::{Error, Result};

/// MongoDB's `CannotIndexParallelArrays`.
pub const CANNOT_INDEX_PARALLEL_ARRAYS: Code = Code(171);
/// MongoDB's code for a number that names both an element of an array and a field of its documents.
const AMBIGUOUS_ARRAY_FIELD: Code = Code(16746);

/// A dotted path, split.
pub type Path = Box<[Box<str>]>;

/// The values of one key, in the order of the index's fields; `None` is a field that is missing.
pub type Tuple<'d> = Vec<Option<RawBsonRef<'d>>>;

/// The tuples of a document, and the fields that have values from an array.
#[derive(Debug, Default)]
pub struct Tuples<'d> {
    /// Tuples in the order of the arrays, possibly with duplicates.
    pub tuples: Vec<Tuple<'d>>,
    /// Bit n is set if field n has values from an array.
    pub multikey: u32,
}

/// Returns the tuples of a document under these paths.
///
/// # Errors
/// `CannotIndexParallelArrays` (171), `InvalidBSON` (22).
pub fn tuples<'d>(paths: &[Path], document: &'d RawDocument) -> Result<Tuples<'d>> {
    let mut found = Tuples::default();
    let fields = paths.iter().map(|path| Field::Below(RawBsonRef::Document(document), path)).collect();
    expand(paths, fields, &mut found)?;
    Ok(found)
}

/// The state of the walk along one path.
#[derive(Clone, Copy)]
enum Field<'d, 'p> {
    /// The path has ended.
    At(Option<RawBsonRef<'d>>),
    /// The rest of the path continues in this document, or at a position of this array.
    Below(RawBsonRef<'d>, &'p [Box<str>]),
    /// The path has reached an array that counts as its elements, with the rest of the path.
    Array(&'d RawArray, &'p [Box<str>]),
}

fn expand<'d>(paths: &[Path], mut fields: Vec<Field<'d, '_>>, found: &mut Tuples<'d>) -> Result<()> {
    let mut array: Option<(&RawArray, &str)> = None;
    for (index, field) in fields.iter_mut().enumerate() {
        if let Field::Below(value, path) = *field {
            *field = walk(value, path)?;
        }
        if let Field::Array(this, rest) = *field {
            found.multikey |= 1 << index;
            let name = &*paths[index][paths[index].len() - rest.len() - 1];
            match array {
                Some((other, other_name)) if !std::ptr::eq(this.as_bytes().as_ptr(), other.as_bytes().as_ptr()) => {
                    let text = format!("cannot index parallel arrays [{name}] [{other_name}]");
                    return Err(Error::command(CANNOT_INDEX_PARALLEL_ARRAYS, text));
                }
                _ => array = Some((this, name)),
            }
        }
    }
    let Some((array, _)) = array else {
        let end = |field: &Field<'d, '_>| if let Field::At(value) = field { *value } else { None };
        found.tuples.push(fields.iter().map(end).collect());
        return Ok(());
    };
    if array.is_empty() {
        // Neither null nor missing: see the module's documentation.
        return expand(paths, fields.into_iter().map(of_nothing).collect(), found);
    }
    for element in array {
        let element = element.map_err(handfast_mql::Error::from)?;
        expand(paths, fields.iter().map(|field| of_element(*field, element)).collect(), found)?;
    }
    Ok(())
}

/// Returns the state for one element of the array that a path has reached.
fn of_element<'d, 'p>(field: Field<'d, 'p>, element: RawBsonRef<'d>) -> Field<'d, 'p> {
    match field {
        Field::Array(_, []) => at(element),
        Field::Array(_, rest) => match element {
            RawBsonRef::Document(_) => Field::Below(element, rest),
            // The elements of an array in an array are reached by position only.
            RawBsonRef::Array(_) if position(&rest[0]).is_some() => Field::Below(element, rest),
            _ => Field::At(None),
        },
        other => other,
    }
}

/// Returns the state at the end of a path. `undefined` in a document counts as null, as `undefined` stands for empty arrays.
fn at<'d, 'p>(value: RawBsonRef<'d>) -> Field<'d, 'p> {
    Field::At(Some(if value == RawBsonRef::Undefined { RawBsonRef::Null } else { value }))
}

/// Returns the state for an empty array.
fn of_nothing<'d, 'p>(field: Field<'d, 'p>) -> Field<'d, 'p> {
    match field {
        Field::Array(_, []) => Field::At(Some(RawBsonRef::Undefined)),
        Field::Array(_, _) => Field::At(None),
        other => other,
    }
}

fn walk<'d, 'p>(mut value: RawBsonRef<'d>, mut path: &'p [Box<str>]) -> Result<Field<'d, 'p>> {
    // A nested array is entered by position only; the elements of later arrays are used.
    let mut nested = matches!(value, RawBsonRef::Array(_));
    loop {
        let next = match (value, path) {
            (RawBsonRef::Array(array), []) => return Ok(Field::Array(array, path)),
            (_, []) => return Ok(at(value)),
            (RawBsonRef::Document(document), [name, ..]) => document.get(&**name).map_err(handfast_mql::Error::from)?,
            (RawBsonRef::Array(array), [name, ..]) => match by_position(array, name)? {
                Some(element) => Some(element),
                None if nested => None,
                None => return Ok(Field::Array(array, path)),
            },
            _ => None,
        };
        match next {
            Some(next) => (value, path, nested) = (next, &path[1..], false),
            None => return Ok(Field::At(None)),
        }
    }
}

fn by_position<'d>(array: &'d RawArray, name: &str) -> Result<Option<RawBsonRef<'d>>> {
    let Some(position) = position(name) else {
        return Ok(None);
    };
    let Some(element) = array.get(position).map_err(handfast_mql::Error::from)? else {
        return Ok(None);
    };
    for item in array {
        if let RawBsonRef::Document(document) = item.map_err(handfast_mql::Error::from)?
            && document.get(name).map_err(handfast_mql::Error::from)?.is_some()
        {
            return Err(Error::command(
                AMBIGUOUS_ARRAY_FIELD,
                format!(
                    "Ambiguous field name found in array (do not use numeric field names in embedded elements in an \
                     array), field: '{name}'"
                ),
            ));
        }
    }
    Ok(Some(element))
}

/// Returns the position in an array that a part of a path names: `0`, `12`, not `01`.
pub(super) fn position(name: &str) -> Option<usize> {
    let plain = name == "0" || !name.starts_with(['0', '+']);
    if plain { name.parse().ok() } else { None }
}
