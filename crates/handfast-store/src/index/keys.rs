//! An index, compiled from its definition: the keys that it holds of a document.

use bson::{DateTime, RawBsonRef, RawDocument};

use super::specification::direction;
use super::values::{self, Path, Tuple, Tuples};
use crate::{IndexSpec, Result};

/// An index of a collection, ready to look at documents.
#[derive(Clone, Debug)]
pub struct Index {
    spec: IndexSpec,
    paths: Vec<Path>,
    descending: Vec<bool>,
}

impl Index {
    /// Checks a definition and prepares it.
    ///
    /// # Errors
    /// Those of [`IndexSpec::validate`].
    pub fn compile(spec: IndexSpec) -> Result<Self> {
        spec.validate()?;
        let (mut paths, mut descending) = (Vec::new(), Vec::new());
        for (name, value) in spec.key.iter().flatten() {
            paths.push(name.as_str().split('.').map(Box::from).collect());
            descending.push(direction(value) == Some(-1));
        }
        Ok(Index { spec, paths, descending })
    }

    /// The definition.
    pub fn spec(&self) -> &IndexSpec {
        &self.spec
    }

    /// Which fields go from high to low.
    pub fn descending(&self) -> &[bool] {
        &self.descending
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
