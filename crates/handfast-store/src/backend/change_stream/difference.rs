//! The difference of two states of a document, as MongoDB's `updateDescription` says it.
//!
//! ```text
//! before  {a: 1, b: {c: 1, d: 2}, e: [1, 2, 3], f: 0}
//! after   {a: 2, b: {c: 1},       e: [1, 5],    g: 9}
//!
//! {updatedFields: {a: 2, "e.1": 5, g: 9}, removedFields: ["b.d", "f"], truncatedArrays: [{field: "e", newSize: 2}]}
//! ```
//!
//! MongoDB derives it from the update; here it is the smallest difference of the two states, so an update that sets a subdocument
//! as a whole shows only the fields of it that have changed.

use std::collections::HashMap;

use bson::raw::{CString, cstr};
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

#[derive(Default)]
struct Difference {
    updated: RawDocumentBuf,
    removed: RawArrayBuf,
    truncated: RawArrayBuf,
    /// The path of the field that is compared, with its dots.
    path: String,
    is_empty: bool,
}

/// Returns the difference of two states; `None` if only the order of fields differs.
pub fn update_description(before: &RawDocument, after: &RawDocument) -> Option<RawDocumentBuf> {
    let mut difference = Difference { is_empty: true, ..Difference::default() };
    difference.documents(before, after);
    if difference.is_empty {
        return None;
    }
    let Difference { updated, removed, truncated, .. } = difference;
    let mut description = RawDocumentBuf::new();
    description.append(cstr!("updatedFields"), updated);
    description.append(cstr!("removedFields"), removed);
    description.append(cstr!("truncatedArrays"), truncated);
    Some(description)
}

impl Difference {
    fn documents(&mut self, before: &RawDocument, after: &RawDocument) {
        let mut old = OldFields::of(before);
        for (name, value) in after.iter().flatten() {
            match old.take(name.as_str()) {
                Some(old) => self.within(name.as_str(), |difference| difference.values(old, value)),
                None => self.within(name.as_str(), |difference| difference.update(value)),
            }
        }
        for name in old.left() {
            self.within(name, Self::remove);
        }
    }

    fn values(&mut self, before: RawBsonRef<'_>, after: RawBsonRef<'_>) {
        match (before, after) {
            (RawBsonRef::Document(before), RawBsonRef::Document(after)) => {
                if before.as_bytes() != after.as_bytes() {
                    let (was_empty, value) = (std::mem::replace(&mut self.is_empty, true), after);
                    self.documents(before, after);
                    if self.is_empty {
                        // Only the order of fields has changed.
                        self.update(RawBsonRef::Document(value));
                    }
                    self.is_empty &= was_empty;
                }
            }
            (RawBsonRef::Double(before), RawBsonRef::Double(after)) if before.to_bits() == after.to_bits() => {}
            (RawBsonRef::Double(_), RawBsonRef::Double(_)) => self.update(after),
            (RawBsonRef::Array(before), RawBsonRef::Array(after)) => {
                if before.as_bytes() != after.as_bytes() {
                    self.arrays(before, after);
                }
            }
            (before, after) if before == after => {}
            (_, after) => self.update(after),
        }
    }

    fn arrays(&mut self, before: &bson::RawArray, after: &bson::RawArray) {
        let (mut old, mut index) = (before.into_iter().flatten(), 0_usize);
        for value in after.into_iter().flatten() {
            let name = index.to_string();
            match old.next() {
                Some(old) => self.within(&name, |difference| difference.values(old, value)),
                None => self.within(&name, |difference| difference.update(value)),
            }
            index += 1;
        }
        if old.next().is_some() {
            self.is_empty = false;
            let size = i32::try_from(index).unwrap_or(i32::MAX);
            self.truncated.push(rawdoc! { "field": self.path.as_str(), "newSize": size });
        }
    }

    fn update(&mut self, value: RawBsonRef<'_>) {
        self.is_empty = false;
        // Names of fields have no zero byte.
        if let Ok(path) = CString::try_from(self.path.as_str()) {
            self.updated.append(path, value);
        }
    }

    fn remove(&mut self) {
        self.is_empty = false;
        self.removed.push(self.path.as_str());
    }

    /// Compares something below a field.
    fn within(&mut self, name: &str, compare: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        compare(self);
        self.path.truncate(length);
    }
}

/// The fields of the former state that were not compared yet. Most updates leave the order of fields as it is, so the next field is tried
/// first.
struct OldFields<'d> {
    fields: Vec<Option<(&'d str, RawBsonRef<'d>)>>,
    next: usize,
    by_name: Option<HashMap<&'d str, usize>>,
}

impl<'d> OldFields<'d> {
    fn of(document: &'d RawDocument) -> Self {
        let fields = document.iter().flatten().map(|(name, value)| Some((name.as_str(), value))).collect();
        OldFields { fields, next: 0, by_name: None }
    }

    /// Removes and returns the field of this name.
    fn take(&mut self, name: &str) -> Option<RawBsonRef<'d>> {
        if let Some(next) = self.fields.get_mut(self.next)
            && next.as_ref().is_some_and(|(old, _)| *old == name)
        {
            self.next += 1;
            return next.take().map(|(_, value)| value);
        }
        let fields = &self.fields;
        let by_name = self.by_name.get_or_insert_with(|| {
            let places = fields.iter().enumerate();
            places.filter_map(|(place, field)| field.as_ref().map(|(name, _)| (*name, place))).collect()
        });
        let place = *by_name.get(name)?;
        let (_, value) = self.fields.get_mut(place)?.take()?;
        self.next = place + 1;
        Some(value)
    }

    fn left(self) -> impl Iterator<Item = &'d str> {
        self.fields.into_iter().flatten().map(|(name, _)| name)
    }
}
