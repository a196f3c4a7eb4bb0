//! A document that counts, and the change that a batch makes to it, as pure functions of what was read.
//!
//! ```text
//! totals   {_id: {kind, id}, total: 12, created, version: 3, applied: [{first: 41, last: 60, views: 5}, {first: 81, last: 90, views: 1}]}
//! days     {_id: {.., month}, days: [..], created, version: 2, applied: [{first: 41, last: 60, views: {"29": 5}}]}
//! ```
//!
//! `applied` are the numbers of the events that the document has, of those that may come again, with the views that each range brought. A batch
//! adds those of its events that are in no range. So two batches with common events leave the same document in either order.
//!
//! A deletion drops the views of earlier events. Batches are saved in any order, so a document may have later ones already: they are in ranges
//! behind the deletion, and their sum is what is left. A range never has a deletion within it that the document does not have. So ranges
//! that follow each other without a gap become one, and nothing is lost by that.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use bson::raw::CString;
use bson::{DateTime, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::{UpdateSpec, UpdateStatement};

use super::super::changes::DAYS;
use super::super::reports::days_of;
use super::super::{count, int, number, unreadable};
use crate::document_name::document_name;
use crate::{Error, Result, SequenceNumber};

/// Views by their place in a document: the index of the day, or 0 in a total.
type Places = BTreeMap<usize, u64>;

/// The collection of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Total,
    Month,
}

/// Events that a document has, and the views that they brought to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AppliedRange {
    first: SequenceNumber,
    last: SequenceNumber,
    views: Places,
}

/// The effect of an event on one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Adds views at a place.
    Views { place: usize, views: u64 },
    /// Drops the views of earlier events.
    Delete,
}

/// A document as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CountedDocument {
    shape: Shape,
    /// The time of its creation by the store's clock: a document that was removed and is there again has another one.
    created: DateTime,
    /// The number of changes; `None` before the first one.
    version: Option<u64>,
    counts: Vec<u64>,
    /// The number of the last deletion that the document knows.
    deleted: SequenceNumber,
    applied: Vec<AppliedRange>,
    /// Whether it is a month that becomes a part of the base.
    is_frozen: bool,
}

/// The change of a document by a batch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DocumentChange {
    added: Places,
    /// The number of the last deletion, and the counts that are left with the added ones, if the batch has a deletion that the document had not.
    deletion: Option<(SequenceNumber, Vec<u64>)>,
    applied: Vec<AppliedRange>,
}

impl Shape {
    /// Returns the fields of a new document.
    pub(super) fn empty(self) -> RawDocumentBuf {
        match self {
            Shape::Total => rawdoc! { "total": 0_i64 },
            Shape::Month => rawdoc! { "days": zeros() },
        }
    }
}

fn zeros() -> RawArrayBuf {
    (0..DAYS).map(|_| RawBson::Int64(0)).collect()
}

/// Returns the numbers of ascending events as ranges without gaps.
pub(super) fn ranges(numbers: impl Iterator<Item = SequenceNumber>) -> Vec<RangeInclusive<SequenceNumber>> {
    let mut ranges: Vec<RangeInclusive<SequenceNumber>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if *last.end() + 1 == number => *last = *last.start()..=number,
            _ => ranges.push(number..=number),
        }
    }
    ranges
}

impl CountedDocument {
    /// Reads a document; `None` if it is not prepared for single changes yet, which is what creating it does.
    pub(super) fn read(shape: Shape, document: &RawDocument) -> Result<Option<Self>> {
        let created = match document.get("created").map_err(unreadable)? {
            None => return Ok(None),
            Some(RawBsonRef::DateTime(created)) => created,
            Some(_) => {
                return Err(Error::damaged(format!("field \"created\" of {} is not a date", document_name(document))));
            }
        };
        let version = document.get("version").map_err(unreadable)?;
        let version = version.map(|_| number(document, "version")).transpose()?;
        let counts = match shape {
            Shape::Total => vec![number(document, "total")?],
            Shape::Month => days_of(document)?.to_vec(),
        };
        let mut applied = Vec::new();
        if document.get("applied").map_err(unreadable)?.is_some() {
            for range in document.get_array("applied").map_err(unreadable)? {
                let range = range.map_err(unreadable)?.as_document();
                let range = range.ok_or_else(|| {
                    Error::damaged(format!("field \"applied\" of {} has no ranges", document_name(document)))
                })?;
                applied.push(AppliedRange::read(shape, range)?);
            }
        }
        let deleted = number(document, "deleted")?;
        let is_frozen = document.get("folding").map_err(unreadable)?.is_some();
        Ok(Some(CountedDocument { shape, created, version, counts, deleted, applied, is_frozen }))
    }

    pub(super) fn created(&self) -> DateTime {
        self.created
    }

    /// Returns whether the document knows of a deletion that is not forgotten.
    pub(super) fn is_deleted(&self) -> bool {
        self.deleted > 0
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Returns whether the document has an event from this number on.
    pub(super) fn has_from(&self, below: SequenceNumber) -> bool {
        self.applied.iter().any(|range| range.last >= below)
    }

    /// Returns the sum of the counts.
    pub(super) fn views(&self) -> u64 {
        self.counts.iter().fold(0, |sum, views| sum.saturating_add(*views))
    }

    /// Returns the change that a batch with these ranges of numbers makes; `None` if it makes none. `deleted` is the number of the item's last
    /// deletion as far as it is known elsewhere, and no event below `below` comes again.
    pub(super) fn change(
        &self,
        batch: &[RangeInclusive<SequenceNumber>],
        events: &[(SequenceNumber, Effect)],
        deleted: SequenceNumber,
        below: SequenceNumber,
    ) -> Option<DocumentChange> {
        let has = |number| self.applied.iter().any(|range| (range.first..=range.last).contains(&number));
        let open: Vec<_> = events.iter().filter(|(number, _)| !has(*number)).collect();
        let deletions = open.iter().filter(|(_, effect)| *effect == Effect::Delete).map(|(number, _)| *number);
        let deletion = deletions.max();
        let last_deletion = deletion.unwrap_or(0).max(deleted).max(self.deleted);
        let mut added = Places::new();
        let mut new: Vec<AppliedRange> = batch.iter().flat_map(|range| self.without_applied(range.clone())).collect();
        for (number, effect) in open {
            let Effect::Views { place, views } = effect else { continue };
            if *number <= last_deletion {
                continue;
            }
            *added.entry(*place).or_default() += views;
            if let Some(range) = new.iter_mut().find(|range| (range.first..=range.last).contains(number)) {
                *range.views.entry(*place).or_default() += views;
            }
        }
        // A month that was created for views which a deletion has dropped since: with its number, it is removed with the deletion.
        let is_unused = self.version.is_none() && self.shape == Shape::Month && self.views() == 0;
        let deletion = deletion.or((is_unused && added.is_empty() && last_deletion > 0).then_some(0));
        if added.is_empty() && deletion.is_none() {
            return None;
        }
        let mut kept: Vec<AppliedRange> = self.applied.iter().filter(|range| range.last >= below).cloned().collect();
        if let Some(deletion) = deletion {
            // A range behind it may have a later deletion within it, which has dropped the views before already.
            kept.iter_mut().filter(|range| range.first < deletion).for_each(|range| range.views.clear());
        }
        kept.append(&mut new);
        let applied = merged(kept);
        let deletion = deletion.map(|_| {
            let mut left = vec![0; self.counts.len()];
            for (place, views) in applied.iter().flat_map(|range| &range.views) {
                if let Some(count) = left.get_mut(*place) {
                    *count += views;
                }
            }
            (last_deletion, left)
        });
        Some(DocumentChange { added, deletion, applied })
    }

    /// Returns the parts of a range that the document does not have.
    fn without_applied(&self, range: RangeInclusive<SequenceNumber>) -> Vec<AppliedRange> {
        let (mut first, last) = range.clone().into_inner();
        let mut parts = Vec::new();
        let part = |first, last| AppliedRange { first, last, views: Places::new() };
        let common = |applied: &&AppliedRange| applied.last >= *range.start() && applied.first <= *range.end();
        for applied in self.applied.iter().filter(common) {
            if applied.first > first {
                parts.push(part(first, applied.first - 1));
            }
            first = first.max(applied.last + 1);
        }
        if first <= last {
            parts.push(part(first, last));
        }
        parts
    }

    /// Returns the condition that the document is as it was read.
    pub(super) fn unchanged(&self, id: &RawDocumentBuf) -> RawDocumentBuf {
        // Null stands for a field that is not there.
        let version = self.version.map_or(RawBson::Null, |version| RawBson::Int64(int(version)));
        rawdoc! { "_id": id.clone(), "created": self.created, "version": version }
    }

    /// Returns the statement that makes a change if the document is as it was read.
    pub(super) fn statement(&self, id: &RawDocumentBuf, change: &DocumentChange) -> Result<UpdateStatement> {
        let ranges = change.applied.iter().map(|range| range.written(self.shape));
        let applied: RawArrayBuf = ranges.collect::<Result<Vec<_>>>()?.into_iter().map(RawBson::Document).collect();
        let update = match (&change.deletion, self.shape) {
            (None, _) => {
                let mut increments = rawdoc! { "version": 1_i64 };
                for (place, views) in &change.added {
                    let name = match self.shape {
                        Shape::Total => "total".to_owned(),
                        Shape::Month => format!("days.{place}"),
                    };
                    increments.append(CString::try_from(name).map_err(unreadable)?, int(*views));
                }
                rawdoc! { "$inc": increments, "$set": { "applied": applied } }
            }
            (Some((deleted, counts)), Shape::Total) => rawdoc! {
                "$inc": { "version": 1_i64 },
                "$set": { "total": int(counts.iter().sum()), "deleted": int(*deleted), "applied": applied },
                "$unset": { "base": "" },
            },
            (Some((deleted, counts)), Shape::Month) => {
                let days: RawArrayBuf = counts.iter().map(|views| RawBson::Int64(int(*views))).collect();
                rawdoc! {
                    "$inc": { "version": 1_i64 },
                    "$set": { "days": days, "deleted": int(*deleted), "applied": applied },
                }
            }
        };
        Ok(UpdateStatement::one(self.unchanged(id), UpdateSpec::Document(update)))
    }
}

impl AppliedRange {
    fn read(shape: Shape, document: &RawDocument) -> Result<Self> {
        let views = match shape {
            Shape::Total => Places::from([(0, number(document, "views")?)]),
            Shape::Month => {
                let mut views = Places::new();
                for entry in document.get_document("views").map_err(unreadable)? {
                    let (place, of_place) = entry.map_err(unreadable)?;
                    let place = place.as_str().parse().ok().filter(|place| *place < DAYS);
                    match (place, count(of_place)) {
                        (Some(place), Some(of_place)) => views.insert(place, of_place),
                        _ => {
                            return Err(Error::damaged(format!(
                                "{} has views that are no counts of days",
                                document_name(document)
                            )));
                        }
                    };
                }
                views
            }
        };
        let views = views.into_iter().filter(|(_, views)| *views > 0).collect();
        Ok(AppliedRange { first: number(document, "first")?, last: number(document, "last")?, views })
    }

    fn written(&self, shape: Shape) -> Result<RawDocumentBuf> {
        let (first, last) = (int(self.first), int(self.last));
        Ok(match shape {
            Shape::Total => rawdoc! { "first": first, "last": last, "views": int(self.views.values().sum()) },
            Shape::Month => {
                let mut views = RawDocumentBuf::new();
                for (place, of_place) in &self.views {
                    views.append(CString::try_from(place.to_string()).map_err(unreadable)?, int(*of_place));
                }
                rawdoc! { "first": first, "last": last, "views": views }
            }
        })
    }
}

/// Orders ranges, and makes one of those that follow each other without a gap.
fn merged(mut ranges: Vec<AppliedRange>) -> Vec<AppliedRange> {
    ranges.sort_by_key(|range| range.first);
    let mut merged: Vec<AppliedRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.last + 1 == range.first => {
                last.last = range.last;
                for (place, views) in range.views {
                    *last.views.entry(place).or_default() += views;
                }
            }
            _ => merged.push(range),
        }
    }
    merged
}
