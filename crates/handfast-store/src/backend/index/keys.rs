//! A compiled index, which computes the keys of a document.

use std::collections::BTreeSet;

use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};
use handfast_mql::key::{self, Direction};
use handfast_mql::{Code, Collation, CompileOptions, Context, Filter};

use super::duplicate::key_document;
use super::specification::{cannot_create, direction};
use super::values::{self, Path, Tuple, Tuples};
use crate::{Error, IndexSpec, Namespace, Result, notation};

/// The keys of one document in an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexKeys {
    /// The keys, whose byte order is the index's order.
    pub keys: BTreeSet<Vec<u8>>,
    /// Bit n is set if field n has values from an array.
    pub multikey: u32,
}

/// MongoDB's code for an array in a hashed field.
const ARRAY_IN_HASHED_FIELD: Code = Code(16_766);

/// A compiled index of a collection.
#[derive(Clone, Debug)]
pub struct Index {
    spec: IndexSpec,
    paths: Vec<Path>,
    directions: Vec<Direction>,
    descending: Vec<bool>,
    /// The bit of the hashed field, if there is one.
    hashed: u32,
    partial: Option<Filter>,
    collation: Option<Collation>,
}

impl Index {
    /// Validates and compiles a definition.
    pub fn compile(mut spec: IndexSpec) -> Result<Self> {
        spec.validate()?;
        let (mut paths, mut directions) = (Vec::new(), Vec::new());
        for (name, value) in spec.key.iter().flatten() {
            paths.push(name.as_str().split('.').map(Box::from).collect());
            let descending = direction(value) == Some(-1);
            directions.push(if descending { Direction::Descending } else { Direction::Ascending });
        }
        let collation = spec.collation.as_deref().map(Collation::parse).transpose()?.flatten();
        // The simple collation is none.
        spec.collation = spec.collation.filter(|_| collation.is_some());
        let options = CompileOptions { collation: collation.clone(), ..CompileOptions::default() };
        let partial = match &spec.partial_filter {
            Some(filter) => Some(Filter::compile(filter, &options).map_err(|error| {
                cannot_create(format!("the partial filter is not valid: {error}")).with_source(error)
            })?),
            None => None,
        };
        let descending = directions.iter().map(|direction| *direction == Direction::Descending).collect();
        let hashed = super::specification::hashed(&spec.key).fold(0, |bits, field| bits | 1 << field);
        Ok(Index { spec, paths, directions, descending, hashed, partial, collation })
    }

    /// Returns the definition.
    pub fn spec(&self) -> &IndexSpec {
        &self.spec
    }

    /// Returns the direction of each field.
    pub fn directions(&self) -> &[Direction] {
        &self.directions
    }

    /// Returns for each field whether it is descending.
    pub fn descending(&self) -> &[bool] {
        &self.descending
    }

    /// Returns the collation of the keys.
    pub fn collation(&self) -> Option<&Collation> {
        self.collation.as_ref()
    }

    /// Returns the filter of a partial index.
    pub fn partial(&self) -> Option<&Filter> {
        self.partial.as_ref()
    }

    /// Returns the keys of a document.
    ///
    /// # Errors
    /// `CannotIndexParallelArrays` (171), `InvalidBSON` (22).
    pub fn keys(&self, document: &RawDocument) -> Result<IndexKeys> {
        let held = self.held(document)?;
        Ok(IndexKeys { keys: self.encoded(&held), multikey: held.multikey })
    }

    /// Returns the tuples of a document; none if the partial filter leaves it out. Two documents with the same tuples have the same keys.
    ///
    /// # Errors
    /// `CannotIndexParallelArrays` (171), `InvalidBSON` (22).
    pub fn held<'d>(&self, document: &'d RawDocument) -> Result<Tuples<'d>> {
        if self.holds(document)? { self.tuples(document) } else { Ok(Tuples::default()) }
    }

    /// Returns the keys of these tuples.
    pub fn encoded(&self, held: &Tuples<'_>) -> BTreeSet<Vec<u8>> {
        held.tuples.iter().filter(|tuple| !self.leaves_out(tuple)).map(|tuple| self.encode(tuple)).collect()
    }

    /// Returns whether a document matches the partial filter, if there is one.
    pub fn holds(&self, document: &RawDocument) -> Result<bool> {
        let Some(filter) = &self.partial else { return Ok(true) };
        // The operators of a partial filter know neither time nor chance.
        let context = Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0);
        Ok(filter.matches(document, &context)?)
    }

    /// Encodes the key of a tuple.
    pub fn encode(&self, tuple: &Tuple<'_>) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(16 * tuple.len());
        for (value, direction) in tuple.iter().zip(&self.directions) {
            match value {
                Some(RawBsonRef::Undefined) => key::encode_empty_array(*direction, &mut encoded),
                value => {
                    let (value, collation) = (value.unwrap_or(RawBsonRef::Null), self.collation.as_ref());
                    key::encode_directed_under(value, *direction, collation, &mut encoded);
                }
            }
        }
        encoded
    }

    /// Encodes a bound of a find (`min` or `max`).
    ///
    /// # Errors
    /// 51174 if its fields are not those of the index.
    pub fn bound(&self, bound: &RawDocument) -> Result<Vec<u8>> {
        let mut elements = bound.iter().flatten();
        let mut values = Vec::with_capacity(self.paths.len());
        for (name, _) in self.spec.key.iter().flatten() {
            match elements.next() {
                Some((given, value)) if given.as_str() == name.as_str() => values.push(value),
                _ => return Err(self.bound_mismatch(bound)),
            }
        }
        if elements.next().is_some() {
            return Err(self.bound_mismatch(bound));
        }
        let mut encoded = Vec::new();
        for (value, direction) in values.into_iter().zip(&self.directions) {
            key::encode_directed_under(value, *direction, self.collation.as_ref(), &mut encoded);
        }
        Ok(encoded)
    }

    fn bound_mismatch(&self, bound: &RawDocument) -> Error {
        let (bound, pattern) = (notation::document(bound), notation::document(&self.spec.key));
        Error::command(Code(51174), format!("the fields of the bound {bound} are not those of the index {pattern}"))
    }

    /// Returns a key of a document in the form that `returnKey` shows; `None` if the document does not have the key.
    pub fn shown(&self, document: &RawDocument, key: &[u8]) -> Result<Option<RawDocumentBuf>> {
        let found = self.tuples(document)?;
        let tuple = found.tuples.iter().find(|tuple| self.encode(tuple) == key);
        Ok(tuple.map(|tuple| key_document(&self.spec.key, tuple)))
    }

    /// Returns the duplicate key error of a document for one of its keys.
    pub fn duplicate(&self, namespace: &Namespace, document: &RawDocument, key: &[u8]) -> Error {
        let tuples = self.tuples(document).map(|found| found.tuples).unwrap_or_default();
        let tuple = tuples.into_iter().find(|tuple| self.encode(tuple) == key).unwrap_or_default();
        super::duplicate_key(namespace, &self.spec, &tuple)
    }

    /// Returns whether the path of a field may name an array's element by its number. A planner must not derive bounds from such
    /// a field: a query for `a.0` also matches fields `0` of documents in the array, and the index holds only one of the two.
    pub fn is_positional(&self, field: usize) -> bool {
        self.paths.get(field).is_some_and(|path| path.iter().any(|part| values::position(part).is_some()))
    }

    /// Returns the tuples of a document, before `sparse` and the partial filter are applied.
    ///
    /// # Errors
    /// `CannotIndexParallelArrays` (171), `InvalidBSON` (22), 16766 for an array in a hashed field, as MongoDB.
    pub fn tuples<'d>(&self, document: &'d RawDocument) -> Result<Tuples<'d>> {
        let found = values::tuples(&self.paths, document)?;
        if found.multikey & self.hashed != 0 {
            let text = "hashed indexes do not currently support array values";
            return Err(Error::command(ARRAY_IN_HASHED_FIELD, text));
        }
        Ok(found)
    }

    /// Returns when a TTL index lets a document expire: the earliest date of the field plus the lifetime. A document without a
    /// date does not expire.
    pub fn expires_at(&self, document: &RawDocument) -> Option<DateTime> {
        let lifetime_millis = self.spec.expire_after_seconds?.checked_mul(1000)?;
        let tuples = self.tuples(document).ok()?.tuples;
        let dates = tuples.iter().filter_map(|tuple| match tuple.as_slice() {
            [Some(RawBsonRef::DateTime(date))] => Some(date.timestamp_millis()),
            _ => None,
        });
        Some(DateTime::from_millis(dates.min()?.checked_add(lifetime_millis)?))
    }

    /// Returns whether `sparse` leaves a tuple out, which has no field at all.
    pub fn leaves_out(&self, tuple: &Tuple<'_>) -> bool {
        self.spec.sparse && tuple.iter().all(Option::is_none)
    }
}
