//! Saving without transactions: each document is changed by itself, by operations on one document alone.
//!
//! # The idea
//! Each document has the numbers of the events that it has applied (`document.rs`), so that a batch may be applied to it as often as it takes; what is
//! left to do is what the documents do not have. A batch is written down and admitted first (`admission.rs`), so that it is finished by someone
//! if its process dies, and so that one which comes too late changes nothing.
//!
//! ```text
//!   saving    insert {ads, 41 .. 60, events}                            the record
//!   batches   {ads}: push 41 .. 60 to saving, if below <= 41            admitted
//!   totals    {ads, 7}: inc total 5, applied 41 .. 60                   one request for all items
//!   days      {ads, 7, 2026-11}: inc days.29 5, applied 41 .. 60        one request for all months
//!   batches   {ads}: pull 41 .. 60 from saving                          all documents have it
//!   saving    delete {ads, 41 .. 60}
//! ```
//!
//! A process that dies anywhere leaves a batch that is admitted, or one of which no document has anything. [`Storage::forget_batches`] and any
//! process that saves the batch again go through the same steps, at the same time if need be.
//!
//! # Each change of a document
//! 1. The documents are read; those that are missing are created, with zeros and the time of the store's clock.
//! 2. The batch must still be admitted. If it is not, somebody has finished it, and a document may have been removed and created since.
//! 3. Each document is changed if it is as it was read: the same `created` and `version`. What does not match is read again.
//!
//! A late copy of a request finds another version, or another time of creation, and changes nothing.
//!
//! # Deletions
//! The total is changed first and keeps the number of the deletion. Then all months that the item has are changed. A batch that adds to a month looks for
//! the deletion after it has read the month, or created it:
//!
//! ```text
//!   deletion 50                           views 45
//!                                         read (or create) the month
//!   total: deleted 50                     read the total: deleted 50        45 is dropped
//!   list the months, and change each      change the month                  if it is as it was read: not if the deletion has changed it
//! ```
//!
//! Either the total had the deletion when it was read, or the month was there when the months were listed.

mod admission;
mod document;
mod folding;
mod forget;
mod verification;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use bson::{RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    Applied, DocumentStore as _, Error as StoreError, ErrorClass, Find, Namespace, StoreExt as _, Update, UpdateSpec,
    UpdateStatement,
};

use super::changes::{Month, items};
use super::{Saved, Storage, key, month_id, months_of, number, total_id, unreadable};
use crate::{Batch, Change, Error, ItemId, Kind, Result, SequenceNumber};

use admission::SavingRange;
use document::{CountedDocument, Effect, Shape, ranges};

pub(super) use folding::FoldedMonth;
pub(super) use verification::Checked;

/// The events of one record: with the longest ids about two megabytes, of the sixteen that a document may have.
const RECORD_EVENTS_MAX: usize = 10_000;
/// The statements of one request: a few hundred kilobytes.
const STATEMENTS_MAX: usize = 1_000;
/// How often documents are read again that others have changed in between. Each time, others have got on.
const ATTEMPTS_MAX: usize = 100;

/// The events of a batch for one document.
type Events = Vec<(SequenceNumber, Effect)>;

/// A document of a batch.
struct Target {
    id: RawDocumentBuf,
    item: ItemId,
    events: Events,
    /// Whether it is a month that was there when the months of a deleted item were listed.
    is_listed: bool,
}

/// The last deletions of items, by the bytes of the `_id`s of their totals.
type Deletions = HashMap<Vec<u8>, SequenceNumber>;

impl Target {
    fn new(id: RawDocumentBuf, item: &ItemId) -> Self {
        Target { id, item: item.clone(), events: Events::new(), is_listed: false }
    }

    /// Returns the number of the last deletion of the item; 0 if none is known.
    fn deleted(&self, kind: &Kind, deletions: &Deletions) -> SequenceNumber {
        deletions.get(&key(&total_id(kind, &self.item))).copied().unwrap_or(0)
    }

    /// Returns whether the events have an effect on a document that is not there, or not prepared.
    fn needs_document(&self, shape: Shape, deleted: SequenceNumber) -> bool {
        self.is_listed
            || self.events.iter().any(|(number, effect)| match (effect, shape) {
                (Effect::Views { .. }, _) => *number > deleted,
                // Earlier batches have to find the deletion.
                (Effect::Delete, Shape::Total) => true,
                (Effect::Delete, Shape::Month) => false,
            })
    }
}

/// The end of a round of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// All documents have the batch; whether this process has changed one.
    Complete { changed: bool },
    /// Another process has finished the batch.
    FinishedElsewhere,
}

/// The kinds whose admitted batches are all finished, as far as this process knows. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct FinishedKinds(Arc<Mutex<BTreeSet<Kind>>>);

impl FinishedKinds {
    fn change<T>(&self, change: impl FnOnce(&mut BTreeSet<Kind>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A batch that is admitted.
struct Admitted<'a> {
    batch: &'a Batch,
    range: SavingRange,
    numbers: Vec<RangeInclusive<SequenceNumber>>,
}

/// The error of documents that others change at each attempt.
fn contended(kind: &Kind) -> Error {
    let text = format!("other processes change the documents of {kind} at each of {ATTEMPTS_MAX} attempts");
    Error::Store(StoreError::new(ErrorClass::Command, Applied::Maybe, Code::WriteConflict, text))
}

impl Storage {
    /// Adds a batch, once, by changes of single documents.
    pub(super) async fn save_single(&self, batch: &Batch) -> Result<Saved> {
        self.finished_kinds.change(|kinds| kinds.remove(&batch.kind));
        let mut saved = Saved::Before;
        for events in batch.events.chunks(RECORD_EVENTS_MAX) {
            let part = Batch { kind: batch.kind.clone(), events: events.to_vec() };
            let Some(admitted) = self.admit(&part).await? else { continue };
            if self.save_admitted(&admitted).await? {
                saved = Saved::Now;
            }
        }
        Ok(saved)
    }

    /// Applies an admitted batch to all documents, and ends its admission; returns whether a document was changed.
    async fn save_admitted(&self, batch: &Batch) -> Result<bool> {
        let numbers = ranges(batch.events.iter().map(|event| event.number));
        let admitted = Admitted { batch, range: SavingRange::of(batch), numbers };
        let Round::Complete { changed: totals } = self.apply_to_totals(&admitted).await? else { return Ok(false) };
        let Round::Complete { changed: months } = self.apply_to_months(&admitted).await? else { return Ok(totals) };
        self.finish(&batch.kind, admitted.range).await?;
        Ok(totals || months)
    }

    async fn apply_to_totals(&self, admitted: &Admitted<'_>) -> Result<Round> {
        let kind = &admitted.batch.kind;
        let mut targets: BTreeMap<&ItemId, Target> = BTreeMap::new();
        for event in &admitted.batch.events {
            let target = targets.entry(&event.id).or_insert_with(|| Target::new(total_id(kind, &event.id), &event.id));
            let effect = match event.change {
                Change::Views { views, .. } => Effect::Views { place: 0, views: u64::from(views) },
                Change::Delete => Effect::Delete,
            };
            target.events.push((event.number, effect));
        }
        self.apply(admitted, Shape::Total, targets.into_values().collect()).await
    }

    async fn apply_to_months(&self, admitted: &Admitted<'_>) -> Result<Round> {
        let kind = &admitted.batch.kind;
        let mut deletions: BTreeMap<&ItemId, Events> = BTreeMap::new();
        let mut targets: BTreeMap<Vec<u8>, Target> = BTreeMap::new();
        for event in &admitted.batch.events {
            let Change::Views { views, day } = event.change else {
                deletions.entry(&event.id).or_default().push((event.number, Effect::Delete));
                continue;
            };
            let id = month_id(kind, &event.id, &Month::of(day));
            let target = targets.entry(key(&id)).or_insert_with(|| Target::new(id.clone(), &event.id));
            let place = usize::try_from(day.day() - 1).map_err(unreadable)?;
            target.events.push((event.number, Effect::Views { place, views: u64::from(views) }));
        }
        // After the totals have the deletions: see the description of this module.
        for item in deletions.keys() {
            let months =
                Find { projection: rawdoc! { "_id": 1 }, ..Find::new(self.days.clone(), months_of(kind, item)) };
            for document in self.store.find_all(months).await? {
                let id = document.get_document("_id").map_err(unreadable)?.to_owned();
                targets.entry(key(&id)).or_insert_with(|| Target::new(id.clone(), item)).is_listed = true;
            }
        }
        for target in targets.values_mut() {
            target.events.extend(deletions.get(&target.item).into_iter().flatten().copied());
        }
        self.apply(admitted, Shape::Month, targets.into_values().collect()).await
    }

    /// Applies the events of a batch to documents until all have them.
    async fn apply(&self, admitted: &Admitted<'_>, shape: Shape, mut targets: Vec<Target>) -> Result<Round> {
        let kind = &admitted.batch.kind;
        let namespace = match shape {
            Shape::Total => &self.totals,
            Shape::Month => &self.days,
        };
        let mut changed = false;
        for _ in 0..ATTEMPTS_MAX {
            let mut documents = self.counted(namespace, shape, &targets).await?;
            let mut deletions = self.deletions(admitted.batch, shape).await?;
            let missing = |target: &&Target| {
                !documents.contains_key(&key(&target.id))
                    && target.needs_document(shape, target.deleted(kind, &deletions))
            };
            let missing: Vec<_> = targets.iter().filter(missing).map(|target| target.id.clone()).collect();
            if !missing.is_empty() {
                self.create(namespace, shape, missing).await?;
                documents = self.counted(namespace, shape, &targets).await?;
                // After the months are there: see the description of this module.
                deletions = self.deletions(admitted.batch, shape).await?;
            }
            let Some(below) = self.bound_while_admitted(kind, admitted.range).await? else {
                return Ok(Round::FinishedElsewhere);
            };
            let (mut statements, mut remaining, mut frozen) = (Vec::new(), Vec::new(), Vec::new());
            for target in targets {
                let deleted = target.deleted(kind, &deletions);
                let Some(document) = documents.get(&key(&target.id)) else {
                    // It was removed since it was read or created.
                    if target.needs_document(shape, deleted) {
                        remaining.push(target);
                    }
                    continue;
                };
                if let Some(change) = document.change(&admitted.numbers, &target.events, deleted, below) {
                    match document.is_frozen() {
                        true => frozen.push(target.id.clone()),
                        false => statements.push(document.statement(&target.id, &change)?),
                    }
                    remaining.push(target);
                }
            }
            for month in frozen {
                self.fold(&month, below).await?;
            }
            let matched = self.send(namespace, statements).await?;
            changed |= matched > 0;
            if matched == remaining.len() as u64 {
                return Ok(Round::Complete { changed });
            }
            targets = remaining;
        }
        Err(contended(kind))
    }

    /// Reads the documents of targets that are prepared, by the bytes of their `_id`s.
    async fn counted(
        &self,
        namespace: &Namespace,
        shape: Shape,
        targets: &[Target],
    ) -> Result<HashMap<Vec<u8>, CountedDocument>> {
        let ids = targets.iter().map(|target| target.id.clone());
        let mut counted = HashMap::new();
        for (id, document) in self.documents_of(&self.store, namespace, ids).await? {
            if let Some(document) = CountedDocument::read(shape, &document)? {
                counted.insert(id, document);
            }
        }
        Ok(counted)
    }

    /// Returns the last deletions of the items of a batch, by the bytes of the `_id`s of their totals.
    async fn deletions(&self, batch: &Batch, shape: Shape) -> Result<Deletions> {
        // A total has its deletion itself.
        if shape == Shape::Total {
            return Ok(Deletions::new());
        }
        let ids = items(batch).into_iter().map(|id| RawBson::Document(total_id(&batch.kind, id)));
        let ids: RawArrayBuf = ids.collect();
        let deleted = rawdoc! { "_id": { "$in": ids }, "deleted": { "$gt": 0_i64 } };
        let find = Find { projection: rawdoc! { "deleted": 1 }, ..Find::new(self.totals.clone(), deleted) };
        let mut deletions = Deletions::new();
        for document in self.store.find_all(find).await? {
            let id = document.get_document("_id").map_err(unreadable)?;
            deletions.insert(key(id), number(&document, "deleted")?);
        }
        Ok(deletions)
    }

    /// Creates documents that are missing, with zeros, and prepares those that have no time of creation, as they were copied from elsewhere.
    async fn create(&self, namespace: &Namespace, shape: Shape, ids: Vec<RawDocumentBuf>) -> Result<()> {
        let statements = ids.into_iter().map(|id| {
            let change = rawdoc! { "$currentDate": { "created": true }, "$setOnInsert": shape.empty() };
            let unprepared = rawdoc! { "_id": id, "created": { "$exists": false } };
            UpdateStatement { upsert: true, ..UpdateStatement::one(unprepared, UpdateSpec::Document(change)) }
        });
        self.send(namespace, statements.collect()).await.map(drop)
    }

    /// Sends statements for one document each, and returns how many have matched. Others may have created a document that a statement creates.
    async fn send(&self, namespace: &Namespace, statements: Vec<UpdateStatement>) -> Result<u64> {
        let mut matched = 0;
        for statements in statements.chunks(STATEMENTS_MAX) {
            let request = Update { ordered: false, ..Update::new(namespace.clone(), statements.to_vec()) };
            let outcome = self.store.update(request).await?;
            let mut errors = outcome.errors.into_iter().map(|refused| refused.error);
            if let Some(error) = errors.find(|error| error.code() != Code::DuplicateKey) {
                return Err(error.into());
            }
            matched += outcome.matched;
        }
        Ok(matched)
    }
}
