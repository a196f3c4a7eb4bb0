//! An index, compiled from its definition: the keys that it holds of a document.

use std::collections::BTreeSet;

use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};
use handfast_mql::key::{self, Direction};
use handfast_mql::{Code, CompileOptions, Context, Filter};

use super::duplicate::key_document;
use super::specification::{cannot_create, direction};
use super::values::{self, Path, Tuple, Tuples};
use crate::{Error, IndexSpec, Namespace, Result, notation};

/// What an index holds of one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexKeys {
    /// The keys, whose byte order is the index's order.
    pub keys: BTreeSet<Vec<u8>>,
    /// Bit n: field n came through an array.
    pub multikey: u32,
}

/// An index of a collection, ready to look at documents.
#[derive(Clone, Debug)]
pub struct Index {
    spec: IndexSpec,
    paths: Vec<Path>,
    directions: Vec<Direction>,
    descending: Vec<bool>,
    partial: Option<Filter>,
}

impl Index {
    /// Checks a definition and prepares it.
    ///
    /// # Errors
    /// Those of [`IndexSpec::validate`].
    pub fn compile(spec: IndexSpec) -> Result<Self> {
        spec.validate()?;
        let (mut paths, mut directions) = (Vec::new(), Vec::new());
        for (name, value) in spec.key.iter().flatten() {
            paths.push(name.as_str().split('.').map(Box::from).collect());
            let descending = direction(value) == Some(-1);
            directions.push(if descending { Direction::Descending } else { Direction::Ascending });
        }
        let partial = match &spec.partial_filter {
            Some(filter) => Some(Filter::compile(filter, &CompileOptions::default()).map_err(|error| {
                cannot_create(format!("the partial filter is not valid: {error}")).with_source(error)
            })?),
            None => None,
        };
        let descending = directions.iter().map(|direction| *direction == Direction::Descending).collect();
        Ok(Index { spec, paths, directions, descending, partial })
    }

    /// The definition.
    pub fn spec(&self) -> &IndexSpec {
        &self.spec
    }

    /// Which way each field goes.
    pub fn directions(&self) -> &[Direction] {
        &self.directions
    }

    /// Which fields go from high to low.
    pub fn descending(&self) -> &[bool] {
        &self.descending
    }

    /// The filter of a partial index.
    pub fn partial(&self) -> Option<&Filter> {
        self.partial.as_ref()
    }

    /// The keys of a document: what the index holds of it.
    ///
    /// # Errors
    /// `CannotIndexParallelArrays` (171), `InvalidBSON` (22).
    pub fn keys(&self, document: &RawDocument) -> Result<IndexKeys> {
        let mut held = IndexKeys::default();
        if !self.holds(document)? {
            return Ok(held);
        }
        let found = self.tuples(document)?;
        held.multikey = found.multikey;
        held.keys =
            found.tuples.iter().filter(|tuple| !self.leaves_out(tuple)).map(|tuple| self.encode(tuple)).collect();
        Ok(held)
    }

    /// Whether a document matches the partial filter, if there is one.
    ///
    /// # Errors
    /// `InvalidBSON` (22).
    pub fn holds(&self, document: &RawDocument) -> Result<bool> {
        let Some(filter) = &self.partial else { return Ok(true) };
        // The operators of a partial filter know neither time nor chance.
        let context = Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0);
        Ok(filter.matches(document, &context)?)
    }

    /// The key of a tuple.
    pub fn encode(&self, tuple: &Tuple<'_>) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(16 * tuple.len());
        for (value, direction) in tuple.iter().zip(&self.directions) {
            match value {
                Some(RawBsonRef::Undefined) => key::encode_empty_array(*direction, &mut encoded),
                value => key::encode_directed(value.unwrap_or(RawBsonRef::Null), *direction, &mut encoded),
            }
        }
        encoded
    }

    /// The key that a bound (`min` or `max` of a find) stands for.
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
        Ok(key::encode_compound(values.into_iter().zip(self.directions.iter().copied())))
    }

    fn bound_mismatch(&self, bound: &RawDocument) -> Error {
        let (bound, pattern) = (notation::document(bound), notation::document(&self.spec.key));
        Error::command(Code(51174), format!("the fields of the bound {bound} are not those of the index {pattern}"))
    }

    /// A key of a document as a document, as `returnKey` shows it; none if the document does not have the key.
    ///
    /// # Errors
    /// See [`Index::keys`].
    pub fn shown(&self, document: &RawDocument, key: &[u8]) -> Result<Option<RawDocumentBuf>> {
        let found = self.tuples(document)?;
        let tuple = found.tuples.iter().find(|tuple| self.encode(tuple) == key);
        Ok(tuple.map(|tuple| key_document(&self.spec.key, tuple)))
    }

    /// The error of a document one of whose keys, this one, is taken.
    pub fn duplicate(&self, namespace: &Namespace, document: &RawDocument, key: &[u8]) -> Error {
        let tuples = self.tuples(document).map(|found| found.tuples).unwrap_or_default();
        let tuple = tuples.into_iter().find(|tuple| self.encode(tuple) == key).unwrap_or_default();
        super::duplicate_key(namespace, &self.spec, &tuple)
    }

    /// Whether a path of this field may name an array's element by its number. A planner must not take bounds from
    /// such a field: a query for `a.0` also looks into documents in the array, the index holds only one of the two.
    pub fn is_positional(&self, field: usize) -> bool {
        self.paths.get(field).is_some_and(|path| path.iter().any(|part| values::position(part).is_some()))
    }

    /// The tuples of a document, before `sparse` and the partial filter have their say.
    ///
    /// # Errors
    /// `CannotIndexParallelArrays` (171), `InvalidBSON` (22).
    pub fn tuples<'d>(&self, document: &'d RawDocument) -> Result<Tuples<'d>> {
        values::tuples(&self.paths, document)
    }

    /// When a TTL index lets a document expire: the earliest date of the field, and the index's lifetime later. A
    /// document without a date does not expire.
    pub fn expires_at(&self, document: &RawDocument) -> Option<DateTime> {
        let lifetime_millis = self.spec.expire_after_seconds?.checked_mul(1000)?;
        let tuples = self.tuples(document).ok()?.tuples;
        let dates = tuples.iter().filter_map(|tuple| match tuple.as_slice() {
            [Some(RawBsonRef::DateTime(date))] => Some(date.timestamp_millis()),
            _ => None,
        });
        Some(DateTime::from_millis(dates.min()?.checked_add(lifetime_millis)?))
    }

    /// Whether `sparse` leaves a tuple out: all its fields are missing.
    pub fn leaves_out(&self, tuple: &Tuple<'_>) -> bool {
        self.spec.sparse && tuple.iter().all(Option::is_none)
    }
}
