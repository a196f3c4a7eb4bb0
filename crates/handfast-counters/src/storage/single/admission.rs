//! The batches that are being saved: a record of each, and the list of their ranges beside the bound of their kind.
//!
//! | collection | document |
//! | --- | --- |
//! | `saving` | `{_id: {kind, last, first}, numbers, events, at}`: the events of a batch, until all documents have them |
//! | `batches` | `{_id: {kind, number: 0}, below, last, saving: [{first, last}, ..]}`: no event below `below` may be saved any more; the ranges of the batches that are being saved; the largest number of an event that was ever saved |
//!
//! A batch is *admitted* by one update, which adds its range to `saving` if `below` is not above it. The bound is raised by one update, which finds no range
//! below the new one. So a batch that is admitted can be finished, by any process and at any time, and one that comes too late changes nothing. The
//! record is written before, so that what is admitted can be finished by anyone; the range is taken away when all documents have the events.

use bson::raw::cstr;
use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::StoreExt as _;

use super::super::{Storage, int, number, unreadable};
use super::{ATTEMPTS_MAX, contended};
use crate::document_name::document_name;
use crate::event_document::{read, written};
use crate::{Batch, Error, Event, ItemId, Kind, Result, SequenceNumber};

/// The range of a batch that is being saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavingRange {
    pub(super) first: SequenceNumber,
    pub(super) last: SequenceNumber,
}

/// The document of a kind that has its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KindBound {
    /// The number below which no event comes any more.
    pub(super) below: SequenceNumber,
    /// The ranges of the batches that are being saved.
    pub(super) saving: Vec<SavingRange>,
}

impl SavingRange {
    pub(super) fn of(batch: &Batch) -> Self {
        SavingRange { first: batch.first(), last: batch.number() }
    }

    fn document(self) -> RawDocumentBuf {
        rawdoc! { "first": int(self.first), "last": int(self.last) }
    }
}

impl KindBound {
    fn read(document: &RawDocument) -> Result<Self> {
        let mut saving = Vec::new();
        if document.get("saving").map_err(unreadable)?.is_some() {
            for range in document.get_array("saving").map_err(unreadable)? {
                let range = range.map_err(unreadable)?.as_document();
                let range = range.ok_or_else(|| {
                    Error::damaged(format!("{} has no ranges in \"saving\"", document_name(document)))
                })?;
                saving.push(SavingRange { first: number(range, "first")?, last: number(range, "last")? });
            }
        }
        Ok(KindBound { below: number(document, "below")?, saving })
    }
}

fn bound_id(kind: &Kind) -> RawDocumentBuf {
    rawdoc! { "kind": kind.as_str(), "number": 0_i64 }
}

fn record_id(kind: &Kind, range: SavingRange) -> RawDocumentBuf {
    rawdoc! { "kind": kind.as_str(), "last": int(range.last), "first": int(range.first) }
}

impl Storage {
    /// Returns the bound of a kind; `None` if there is none yet.
    pub(super) async fn bound_of(&self, kind: &Kind) -> Result<Option<KindBound>> {
        let found = self.store.find_one(&self.batches, rawdoc! { "_id": bound_id(kind) }).await?;
        found.as_deref().map(KindBound::read).transpose()
    }

    /// Returns the bound of a kind as long as a batch of this range is admitted; `None` if it was finished.
    pub(super) async fn bound_while_admitted(&self, kind: &Kind, range: SavingRange) -> Result<Option<SequenceNumber>> {
        let bound = self.bound_of(kind).await?;
        Ok(bound.filter(|bound| bound.saving.contains(&range)).map(|bound| bound.below))
    }

    /// Writes the record of a batch and admits it, without the events that come too late; `None` if none is left.
    pub(super) async fn admit(&self, batch: &Batch) -> Result<Option<Batch>> {
        let kind = &batch.kind;
        let mut admitted = batch.clone();
        for _ in 0..ATTEMPTS_MAX {
            if admitted.events.is_empty() {
                return Ok(None);
            }
            self.write_record(&admitted).await?;
            let range = SavingRange::of(&admitted);
            let not_below = rawdoc! { "_id": bound_id(kind), "below": { "$lte": int(range.first) } };
            let add = rawdoc! { "$addToSet": { "saving": range.document() }, "$max": { "last": int(range.last) } };
            if self.store.update_one(&self.batches, not_below, add).await?.matched > 0 {
                return Ok(Some(admitted));
            }
            match self.bound_of(kind).await? {
                Some(bound) => admitted.events.retain(|event| event.number >= bound.below),
                None => {
                    let created = rawdoc! { "$max": { "below": 0_i64 } };
                    let created =
                        self.store.upsert_one(&self.batches, rawdoc! { "_id": bound_id(kind) }, created).await;
                    unless_duplicate(created.map(drop))?;
                }
            }
        }
        Err(contended(kind))
    }

    async fn write_record(&self, batch: &Batch) -> Result<()> {
        let numbers: RawArrayBuf = batch.events.iter().map(|event| RawBson::Int64(int(event.number))).collect();
        let record = rawdoc! {
            "_id": record_id(&batch.kind, SavingRange::of(batch)),
            "numbers": numbers,
            "events": written(&batch.events),
            "at": self.sources.clock.now(),
        };
        // The record of a batch of this range is the same.
        unless_duplicate(self.store.insert_one(&self.saving, record).await)
    }

    /// Returns the batch of a record; `None` if there is no record, as the batch was finished.
    pub(super) async fn recorded_batch(&self, kind: &Kind, range: SavingRange) -> Result<Option<Batch>> {
        let found = self.store.find_one(&self.saving, rawdoc! { "_id": record_id(kind, range) }).await?;
        let Some(record) = found else { return Ok(None) };
        let damaged = |what: &str| Error::damaged(format!("the record of the batch {range:?} of {kind}: {what}"));
        let mut events = Vec::new();
        let numbers = record.get_array("numbers").map_err(unreadable)?;
        let written = record.get_array("events").map_err(unreadable)?;
        for (number, event) in numbers.into_iter().zip(written) {
            let number = super::super::count(number.map_err(unreadable)?).ok_or_else(|| damaged("a wrong number"))?;
            let event = event.map_err(unreadable)?.as_document().ok_or_else(|| damaged("a wrong event"))?;
            let (id, change) = read(event).map_err(|what| damaged(&what))?;
            events.push(Event { number, id, change });
        }
        Ok(Some(Batch { kind: kind.clone(), events }))
    }

    /// Returns whether there is a record of this range with an event of an item.
    pub(super) async fn record_has(&self, kind: &Kind, range: SavingRange, item: &ItemId) -> Result<bool> {
        let with_item = rawdoc! { "_id": record_id(kind, range), "events.id": item.as_str() };
        Ok(self.store.count_matching(&self.saving, with_item).await? > 0)
    }

    /// Ends the admission of a batch that all documents have, and removes its record.
    pub(super) async fn finish(&self, kind: &Kind, range: SavingRange) -> Result<()> {
        let done = rawdoc! { "$pull": { "saving": range.document() } };
        self.store.update_one(&self.batches, rawdoc! { "_id": bound_id(kind) }, done).await?;
        self.store.delete_one(&self.saving, rawdoc! { "_id": record_id(kind, range) }).await?;
        Ok(())
    }

    /// Raises the bound of a kind if no batch below the new one is admitted; returns whether it is there now.
    pub(super) async fn raise_bound(&self, kind: &Kind, below: SequenceNumber) -> Result<bool> {
        let none_below = rawdoc! { "_id": bound_id(kind), "saving.first": { "$not": { "$lt": int(below) } } };
        let raised =
            self.store.update_one(&self.batches, none_below, rawdoc! { "$max": { "below": int(below) } }).await?;
        Ok(raised.matched > 0)
    }

    /// Removes the records of batches below a bound, which cannot be admitted any more: their process died in between, or a request was late.
    pub(super) async fn remove_records(&self, kind: &Kind, below: SequenceNumber) -> Result<()> {
        let mut first = RawDocumentBuf::new();
        first.append(cstr!("kind"), kind.as_str());
        let end = rawdoc! { "kind": kind.as_str(), "last": int(below) };
        self.store.delete_many(&self.saving, rawdoc! { "_id": { "$gte": first, "$lt": end } }).await?;
        Ok(())
    }
}

/// Takes a duplicate key for success: the document is there.
fn unless_duplicate(result: handfast_store::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.code() == Code::DuplicateKey => Ok(()),
        other => Ok(other?),
    }
}
