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
use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

/// The bytes of a description that are always allowed.
const BYTES_MIN: usize = 64 * 1024;
/// The bytes of a part of a description beside its path and its value.
const PART_BYTES: usize = 16;

struct Difference<'d> {
    parts: Vec<Part<'d>>,
    /// The bytes that the parts take in a description, about.
    bytes: usize,
    /// The path of the field that is compared, with its dots.
    path: String,
    is_empty: bool,
}

/// A part of a description, with the path that it is about.
enum Part<'d> {
    Updated(String, RawBsonRef<'d>),
    Removed(String),
    Truncated(String, usize),
}

/// Returns the difference of two states; `None` if the order of fields differs, or a description would be larger than the new state: each part
/// has its whole path.
pub fn update_description(before: &RawDocument, after: &RawDocument) -> Option<RawDocumentBuf> {
    let mut difference = Difference { parts: Vec::new(), bytes: 0, path: String::new(), is_empty: true };
    let is_whole = difference.documents(before, after, bytes_max(after.as_bytes()));
    if difference.is_empty || !is_whole {
        return None;
    }
    let (mut updated, mut removed, mut truncated) = (RawDocumentBuf::new(), RawArrayBuf::new(), RawArrayBuf::new());
    for part in difference.parts {
        match part {
            Part::Updated(path, value) => {
                // Names of fields have no zero byte.
                if let Ok(path) = CString::try_from(path) {
                    updated.append(path, value);
                }
            }
            Part::Removed(path) => removed.push(path),
            Part::Truncated(path, size) => {
                let size = i32::try_from(size).unwrap_or(i32::MAX);
                truncated.push(rawdoc! { "field": path, "newSize": size });
            }
        }
    }
    let mut description = RawDocumentBuf::new();
    description.append(cstr!("updatedFields"), updated);
    description.append(cstr!("removedFields"), removed);
    description.append(cstr!("truncatedArrays"), truncated);
    Some(description)
}

/// Returns the bytes that the difference to a new value may have.
fn bytes_max(after: &[u8]) -> usize {
    after.len().max(BYTES_MIN)
}

impl<'d> Difference<'d> {
    /// Adds the difference of two documents; returns `false` where it would be larger than `bytes_max`, or does not say the order of the fields.
    fn documents(&mut self, before: &'d RawDocument, after: &'d RawDocument, bytes_max: usize) -> bool {
        let bytes_max = self.bytes.saturating_add(bytes_max);
        let mut old = OldFields::of(before);
        // Whoever applies the description keeps the order of the fields that stay, and adds new ones behind them.
        let (mut last, mut has_new) = (None, false);
        for (name, value) in after.iter().flatten() {
            match old.take(name.as_str()) {
                Some((place, _)) if has_new || last.is_some_and(|last| place < last) => return false,
                Some((place, old)) => {
                    last = Some(place);
                    self.within(name.as_str(), |difference| difference.values(old, value));
                }
                None => {
                    has_new = true;
                    self.within(name.as_str(), |difference| difference.update(value));
                }
            }
            if self.bytes > bytes_max {
                return false;
            }
        }
        for name in old.left() {
            self.within(name, Self::remove);
            if self.bytes > bytes_max {
                return false;
            }
        }
        true
    }

    fn values(&mut self, before: RawBsonRef<'d>, after: RawBsonRef<'d>) {
        match (before, after) {
            (RawBsonRef::Document(before), RawBsonRef::Document(inner)) => {
                if before.as_bytes() != inner.as_bytes() {
                    let was_empty = std::mem::replace(&mut self.is_empty, true);
                    self.or_whole(after, |difference| {
                        let is_whole = difference.documents(before, inner, bytes_max(inner.as_bytes()));
                        // Otherwise only the order of fields has changed.
                        is_whole && !difference.is_empty
                    });
                    self.is_empty &= was_empty;
                }
            }
            (RawBsonRef::Double(before), RawBsonRef::Double(after)) if before.to_bits() == after.to_bits() => {}
            (RawBsonRef::Double(_), RawBsonRef::Double(_)) => self.update(after),
            (RawBsonRef::Array(before), RawBsonRef::Array(inner)) => {
                if before.as_bytes() != inner.as_bytes() {
                    self.or_whole(after, |difference| difference.arrays(before, inner));
                }
            }
            (before, after) if before == after => {}
            (_, after) => self.update(after),
        }
    }

    /// Adds the parts of a value, or the whole value if that returns `false`.
    fn or_whole(&mut self, value: RawBsonRef<'d>, parts: impl FnOnce(&mut Self) -> bool) {
        let (length, bytes) = (self.parts.len(), self.bytes);
        if !parts(self) {
            self.parts.truncate(length);
            self.bytes = bytes;
            self.update(value);
        }
    }

    /// Adds the difference of two arrays; returns `false` where it would be larger than the new one.
    fn arrays(&mut self, before: &'d RawArray, after: &'d RawArray) -> bool {
        let bytes_max = self.bytes.saturating_add(bytes_max(after.as_bytes()));
        let (mut old, mut index) = (before.into_iter().flatten(), 0_usize);
        for value in after.into_iter().flatten() {
            let name = index.to_string();
            match old.next() {
                Some(old) => self.within(&name, |difference| difference.values(old, value)),
                None => self.within(&name, |difference| difference.update(value)),
            }
            if self.bytes > bytes_max {
                return false;
            }
            index += 1;
        }
        if old.next().is_some() {
            let path = self.path.clone();
            self.add(Part::Truncated(path, index), 0);
        }
        true
    }

    fn update(&mut self, value: RawBsonRef<'d>) {
        let path = self.path.clone();
        self.add(Part::Updated(path, value), bytes_of(value));
    }

    fn remove(&mut self) {
        let path = self.path.clone();
        self.add(Part::Removed(path), 0);
    }

    fn add(&mut self, part: Part<'d>, value_bytes: usize) {
        self.is_empty = false;
        self.bytes = self.bytes.saturating_add(self.path.len() + value_bytes + PART_BYTES);
        self.parts.push(part);
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

/// Returns the bytes of a value of variable length; those of others are small.
fn bytes_of(value: RawBsonRef<'_>) -> usize {
    match value {
        RawBsonRef::Document(document) => document.as_bytes().len(),
        RawBsonRef::Array(array) => array.as_bytes().len(),
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) | RawBsonRef::JavaScriptCode(text) => text.len(),
        RawBsonRef::Binary(binary) => binary.bytes.len(),
        _ => 0,
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

    /// Removes the field of this name, and returns its place and its value.
    fn take(&mut self, name: &str) -> Option<(usize, RawBsonRef<'d>)> {
        if let Some(next) = self.fields.get_mut(self.next)
            && next.as_ref().is_some_and(|(old, _)| *old == name)
        {
            self.next += 1;
            return next.take().map(|(_, value)| (self.next - 1, value));
        }
        let fields = &self.fields;
        let by_name = self.by_name.get_or_insert_with(|| {
            let places = fields.iter().enumerate();
            places.filter_map(|(place, field)| field.as_ref().map(|(name, _)| (*name, place))).collect()
        });
        let place = *by_name.get(name)?;
        let (_, value) = self.fields.get_mut(place)?.take()?;
        self.next = place + 1;
        Some((place, value))
    }

    fn left(self) -> impl Iterator<Item = &'d str> {
        self.fields.into_iter().flatten().map(|(name, _)| name)
    }
}
