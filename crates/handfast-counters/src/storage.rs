//! The persistent part: totals, days and the names of saved batches, as documents of a [`Database`], or of a store without transactions.
//!
//! | collection | document |
//! | --- | --- |
//! | `totals` | `{_id: {kind, id}, total}`; `base`, the part of the total that has no days; `deleted`, the number of the last deletion, while older events may still come |
//! | `days` | `{_id: {kind, id, month: "2026-11"}, days: [31 integers]}`, inserted with 31 zeros |
//! | `batches` | `{_id: {kind, number}, first, views, at}` of each batch that was saved and may come again; `{_id: {kind, number: 0}, below}`: all batches below were saved |
//! | `imports` | `{_id: name, lines, hash, beginnings, figures, views, at}` of each [import](Import): the end of the lines that it has added, and of the first ones of them |
//! | `settings` | the [form](StorageForm), and the ids of these documents and of the Redis with their queue |
//!
//! # Exactly once
//! [`Storage::save`] adds a batch in one transaction, which inserts the batch's name. A second transaction with the same batch, by a process
//! that died before it acknowledged, or that was frozen for a week, finds the name or the bound `below`, and changes nothing. What counts is
//! the numbers of the events: of a batch that shares some with a saved one, the others alone are added.
//! The invariant that [`Storage::verify`] checks: `total` is `base` and the sum of the item's days.
//!
//! A storage without transactions ([`Storage::open_single_documents`]) changes each document by itself: see `storage/single`.

mod changes;
mod figures;
mod form;
mod imports;
mod queue_record;
mod reports;
mod retention;
mod single;
mod verification;
mod walk;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    CreateIndexes, Delete, DeleteStatement, Distinct, DocumentStore, Find, IndexSpec, Insert, Namespace, Sources,
    StoreExt as _, Update, UpdateSpec, UpdateStatement, WriteError,
};
use handfast_txn::{Database, Transaction};

use crate::document_name::document_name;
use crate::{Batch, Error, Event, Item, ItemId, Kind, Result, SequenceNumber};

use changes::{Changes, DAYS, Month, TotalChange};
use single::FinishedKinds;

pub use figures::Figures;
pub use form::StorageForm;
pub use imports::{
    EarlierImports, Figure, IMPORT_FIGURES_MAX, IMPORT_NAME_BYTES_MAX, Import, ImportName, ImportPosition,
    ImportRecord, ImportSaved, LineState, LinesHash, SharedBeginning, TOTAL_MAX,
};
pub(crate) use queue_record::QueueRecord;
pub use reports::{DayViews, KindSummary, REPORT_DAYS_MAX, TOP_ITEMS_MAX, TopItem};
pub use retention::Trimmed;
pub(crate) use verification::Repaired;
pub use verification::{Difference, Verification};

/// The result of saving a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The views of the batch were added.
    Now,
    /// The batch was saved before: nothing was changed.
    Before,
}

/// The documents of the counters.
#[derive(Clone)]
pub struct Storage {
    /// The documents, for what needs no transaction.
    store: Arc<dyn DocumentStore>,
    sources: Sources,
    /// The transactions, if there are any.
    database: Option<Database>,
    totals: Namespace,
    days: Namespace,
    batches: Namespace,
    imports: Namespace,
    /// The records of batches that are being saved without transactions.
    saving: Namespace,
    settings: Namespace,
    finished_kinds: FinishedKinds,
}

impl Storage {
    /// Opens the collections in the database of this name, and creates their indexes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that no database can have, and for documents of a storage without transactions; [`Error::Store`] if the indexes
    /// cannot be created.
    pub async fn open(database: Database, name: &str) -> Result<Self> {
        let sources = database.sources().clone();
        let storage = Self::new(Arc::new(database.clone()), Some(database), sources, name)?;
        storage.create_all_indexes().await?;
        storage.ensure_transactions_recorded().await?;
        Ok(storage)
    }

    /// Opens the collections in the database of this name of a store without transactions, and creates their indexes. Each document is changed by
    /// itself, so a batch is seen in part while it is saved.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that no database can have, and for documents of a storage with transactions; [`Error::Store`].
    pub async fn open_single_documents(store: Arc<dyn DocumentStore>, sources: Sources, name: &str) -> Result<Self> {
        let storage = Self::new(store, None, sources, name)?;
        storage.record_single_documents().await?;
        storage.create_all_indexes().await?;
        let deleted = IndexSpec { sparse: true, ..IndexSpec::new(rawdoc! { "deleted": 1 }) };
        storage.create_indexes(&storage.days, vec![deleted]).await?;
        let folded = IndexSpec { sparse: true, ..IndexSpec::new(rawdoc! { "folded.month": 1 }) };
        storage.create_indexes(&storage.totals, vec![folded]).await?;
        Ok(storage)
    }

    fn new(store: Arc<dyn DocumentStore>, database: Option<Database>, sources: Sources, name: &str) -> Result<Self> {
        let namespace = |collection: &str| {
            Namespace::new(name, collection).map_err(|error| Error::invalid(format!("database {name:?}: {error}")))
        };
        Ok(Storage {
            store,
            sources,
            database,
            totals: namespace("totals")?,
            days: namespace("days")?,
            batches: namespace("batches")?,
            imports: namespace("imports")?,
            saving: namespace("saving")?,
            settings: namespace("settings")?,
            finished_kinds: FinishedKinds::default(),
        })
    }

    async fn create_all_indexes(&self) -> Result<()> {
        let by_total = IndexSpec::new(rawdoc! { "_id.kind": 1, "total": -1 });
        let deleted = IndexSpec { sparse: true, ..IndexSpec::new(rawdoc! { "deleted": 1 }) };
        self.create_indexes(&self.totals, vec![by_total, deleted]).await?;
        let by_month = IndexSpec::new(rawdoc! { "_id.kind": 1, "_id.month": 1 });
        self.create_indexes(&self.days, vec![by_month]).await
    }

    /// Returns the transactions of the storage.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a storage without transactions; `what` says what needs them.
    pub(crate) fn transactions(&self, what: &str) -> Result<&Database> {
        let without = || Error::invalid(format!("{what} needs transactions, and these counters are saved without"));
        self.database.as_ref().ok_or_else(without)
    }

    /// Creates indexes as well as the store can: one without sparse indexes gets plain ones, which are larger and find the same. At the next start they are in
    /// the way of sparse ones, and stay.
    async fn create_indexes(&self, namespace: &Namespace, indexes: Vec<IndexSpec>) -> Result<()> {
        const WITHOUT_SPARSE: [Code; 3] =
            [Code::CommandNotSupported, Code::IndexKeySpecsConflict, Code::IndexOptionsConflict];
        let request = CreateIndexes { namespace: namespace.clone(), indexes };
        let created = match self.store.create_indexes(request.clone()).await {
            Err(error) if WITHOUT_SPARSE.contains(&error.code()) => {
                let plain = |index| IndexSpec { sparse: false, ..index };
                let indexes = request.indexes.into_iter().map(plain).collect();
                // Another index may be in the way of both.
                self.store.create_indexes(CreateIndexes { indexes, ..request }).await.map_err(|_| error)
            }
            created => created,
        };
        Ok(created.map(drop)?)
    }

    /// Returns the stored totals of items, in their order; 0 for an item that is not there.
    pub async fn totals(&self, kind: &Kind, ids: &[ItemId]) -> Result<Vec<u64>> {
        let found = self.documents_of(&self.store, &self.totals, ids.iter().map(|id| total_id(kind, id))).await?;
        let totals = ids.iter().map(|id| found.get(&key(&total_id(kind, id))));
        totals.map(|document| document.map_or(Ok(0), |document| number(document, "total"))).collect()
    }

    /// Returns the part of an item's stored total that has no days.
    pub async fn base(&self, item: &Item) -> Result<u64> {
        let id = rawdoc! { "_id": total_id(&item.kind, &item.id) };
        let found = self.store.find_one(&self.totals, id).await?;
        found.map_or(Ok(0), |document| number(&document, "base"))
    }

    /// Adds a batch, once.
    ///
    /// # Errors
    /// [`Error::Store`]; if it may have been applied, save the batch again, which tells.
    pub async fn save(&self, batch: &Batch) -> Result<Saved> {
        let Some(database) = &self.database else { return self.save_single(batch).await };
        let at = self.sources.clock.now();
        database.transaction(|transaction| async move { self.save_in(&transaction, batch, at).await }).await
    }

    async fn save_in(&self, transaction: &Transaction, batch: &Batch, at: bson::DateTime) -> Result<Saved> {
        let kind = &batch.kind;
        let saved = self.saved_of(transaction, batch).await?;
        let is_saved = |event: &Event| saved.iter().any(|range| range.contains(&event.number));
        let open: Vec<Event> = batch.events.iter().filter(|event| !is_saved(event)).cloned().collect();
        if open.is_empty() {
            return Ok(Saved::Before);
        }
        let name = rawdoc! { "_id": { "kind": kind.as_str(), "number": int(batch.number()) } };
        let open = &Batch { kind: kind.clone(), events: open };
        let (first, views) = (int(batch.first()), int(open.views()));
        if saved.iter().any(|range| *range.end() == batch.number()) {
            let more = rawdoc! { "$min": { "first": first }, "$inc": { "views": views } };
            transaction.update_one(&self.batches, name, more).await?;
        } else {
            let document = rawdoc! { "_id": { "kind": kind.as_str(), "number": int(batch.number()) }, "first": first, "views": views, "at": at };
            self.insert(transaction, &self.batches, vec![document]).await?;
        }
        let batch = open;

        let items = changes::items(batch);
        let stored = self.documents_of(transaction, &self.totals, items.iter().map(|id| total_id(kind, id))).await?;
        let changes = Changes::new(batch, |id| {
            stored.get(&key(&total_id(kind, id))).map_or(Ok(0), |document| number(document, "deleted"))
        })?;
        self.change_totals(transaction, kind, &changes, &stored).await?;
        self.change_days(transaction, kind, &changes).await?;
        Ok(Saved::Now)
    }

    /// Returns the saved ranges of numbers that may have events of this batch: all below the bound, and batches above.
    ///
    /// Usually none or this batch itself. But a queue that comes back as it was some time ago gives its events to other batches than before, of
    /// which the store has some, and of which instances may hold others.
    async fn saved_of(&self, transaction: &Transaction, batch: &Batch) -> Result<Vec<RangeInclusive<SequenceNumber>>> {
        let number_of = |number: i64| rawdoc! { "kind": batch.kind.as_str(), "number": number };
        let bound = self.documents_of(transaction, &self.batches, std::iter::once(number_of(0))).await?;
        let filter = rawdoc! {
            "_id": { "$gte": number_of(int(batch.first().max(1))), "$lte": number_of(i64::MAX) },
            "first": { "$lte": int(batch.number()) },
        };
        let above = transaction.find_all(Find::new(self.batches.clone(), filter)).await?;
        bound.values().chain(&above).map(|document| saved_range(document)).collect()
    }

    /// Changes the totals of a batch; `stored` are those that are there, by their `_id`s.
    async fn change_totals(
        &self,
        transaction: &Transaction,
        kind: &Kind,
        changes: &Changes,
        stored: &HashMap<Vec<u8>, RawDocumentBuf>,
    ) -> Result<()> {
        let (mut inserted, mut statements) = (Vec::new(), Vec::new());
        for (id, TotalChange { added, deleted }) in &changes.totals {
            let id = total_id(kind, id);
            let change = match deleted {
                Some(deleted) => rawdoc! { "total": int(*added), "deleted": int(*deleted) },
                None if stored.contains_key(&key(&id)) => rawdoc! { "$inc": { "total": int(*added) } },
                // An upsert would read it twice.
                None => {
                    inserted.push(rawdoc! { "_id": id, "total": int(*added) });
                    continue;
                }
            };
            let statement = UpdateStatement::one(rawdoc! { "_id": id }, UpdateSpec::Document(change));
            statements.push(UpdateStatement { upsert: true, ..statement });
        }
        self.insert(transaction, &self.totals, inserted).await?;
        self.update(transaction, &self.totals, statements).await
    }

    async fn change_days(&self, transaction: &Transaction, kind: &Kind, changes: &Changes) -> Result<()> {
        let deletions: Vec<DeleteStatement> = changes
            .totals
            .iter()
            .filter(|(_, change)| change.deleted.is_some())
            .map(|(id, _)| DeleteStatement { filter: months_of(kind, id), multi: true, hint: None })
            .collect();
        if !deletions.is_empty() {
            let outcome = transaction.delete(Delete::new(self.days.clone(), deletions)).await?;
            refuse(outcome.errors)?;
        }
        let months = changes.months.iter().map(|((id, month), views)| (month_id(kind, id, month), views));
        self.add_days(transaction, months).await
    }

    /// Adds views to the days of months, which are named by their `_id`s. A month that is not there begins with 31 zeros.
    async fn add_days(
        &self,
        transaction: &Transaction,
        months: impl Iterator<Item = (RawDocumentBuf, &[u64; DAYS])>,
    ) -> Result<()> {
        let months: Vec<_> = months.collect();
        let ids = months.iter().map(|(id, _)| id.clone());
        let found = self.documents_of(transaction, &self.days, ids).await?;
        let (mut inserted, mut statements) = (Vec::new(), Vec::new());
        for (id, views) in months {
            if found.contains_key(&key(&id)) {
                let mut increments = RawDocumentBuf::new();
                for (day, views) in views.iter().enumerate().filter(|(_, views)| **views > 0) {
                    increments
                        .append(bson::raw::CString::try_from(format!("days.{day}")).map_err(unreadable)?, int(*views));
                }
                let filter = rawdoc! { "_id": id };
                statements.push(UpdateStatement::one(filter, UpdateSpec::Document(rawdoc! { "$inc": increments })));
            } else {
                let days: RawArrayBuf = views.iter().map(|views| RawBson::Int64(int(*views))).collect();
                inserted.push(rawdoc! { "_id": id, "days": days });
            }
        }
        self.insert(transaction, &self.days, inserted).await?;
        self.update(transaction, &self.days, statements).await
    }

    /// Removes the names of batches below `oldest`, the number of the oldest event that is not acknowledged: they cannot come again,
    /// and if a process that was frozen sends one all the same, it is below the bound. Removes what deletions left, too.
    pub async fn forget_batches(&self, kind: &Kind, oldest: SequenceNumber) -> Result<()> {
        let Some(database) = &self.database else { return self.forget_single(kind, oldest).await };
        database
            .transaction(|transaction| async move {
                let kind_name = kind.as_str();
                let bound = rawdoc! { "kind": kind_name, "number": 0_i64 };
                let raised = rawdoc! { "$max": { "below": int(oldest) } };
                transaction.upsert_one(&self.batches, rawdoc! { "_id": bound.clone() }, raised).await?;
                let end = rawdoc! { "kind": kind_name, "number": int(oldest) };
                let names = rawdoc! { "_id": { "$gt": bound, "$lt": end } };
                transaction.delete_many(&self.batches, names).await?;
                let old = rawdoc! { "$gt": 0_i64, "$lt": int(oldest) };
                // Mostly there are none. The filter names no kind, so that the index of deletions answers it, and not that of the totals of a kind.
                if transaction.find_one(&self.totals, rawdoc! { "deleted": old.clone() }).await?.is_none() {
                    return Ok(());
                }
                let gone = rawdoc! { "_id.kind": kind_name, "deleted": old.clone(), "total": 0_i64 };
                transaction.delete_many(&self.totals, gone).await?;
                let again = rawdoc! { "_id.kind": kind_name, "deleted": old };
                transaction.update_many(&self.totals, again, rawdoc! { "$unset": { "deleted": "" } }).await?;
                Ok(())
            })
            .await
    }

    /// Returns whether [`Storage::forget_batches`] has nothing to finish: batches of a kind that were saved in part, which a storage without transactions
    /// may have.
    pub fn is_finished(&self, kind: &Kind) -> bool {
        self.database.is_some() || self.is_finished_single(kind)
    }

    /// Returns the largest number of an event of this kind that is known to be saved; 0 if there is none.
    pub async fn last_number(&self, kind: &Kind) -> Result<SequenceNumber> {
        let found = self.batches_of(kind).await?;
        let mut numbers = found.iter().map(|document| {
            let name = document.get_document("_id").map_err(unreadable)?;
            let forgotten = number(document, "below")?.saturating_sub(1);
            Ok(number(name, "number")?.max(forgotten).max(number(document, "last")?))
        });
        numbers.try_fold(0, |last, number: Result<u64>| Ok(last.max(number?)))
    }

    /// Returns the kinds of which a batch was saved.
    pub async fn kinds(&self) -> Result<Vec<Kind>> {
        let (namespace, key) = (self.batches.clone(), "_id.kind".to_owned());
        let kinds =
            self.store.distinct(Distinct { namespace, key, filter: rawdoc! {}, hint: None, collation: None }).await?;
        kinds.iter().map(|kind| Kind::new(kind.as_raw_bson_ref().as_str().unwrap_or_default())).collect()
    }

    /// Returns the events that were saved, as ranges of numbers: one range of all below the bound, and one for each batch above.
    pub async fn saved_batches(&self, kind: &Kind) -> Result<Vec<RangeInclusive<SequenceNumber>>> {
        let names = self.batches_of(kind).await?;
        names.iter().map(|document| saved_range(document)).collect()
    }

    async fn batches_of(&self, kind: &Kind) -> Result<Vec<RawDocumentBuf>> {
        let end = rawdoc! { "kind": kind.as_str(), "number": i64::MAX };
        let filter = rawdoc! { "_id": { "$gte": { "kind": kind.as_str() }, "$lte": end } };
        Ok(self.store.find_all(Find::new(self.batches.clone(), filter)).await?)
    }

    /// Returns the documents with these `_id`s, by the bytes of their `_id`.
    async fn documents_of(
        &self,
        store: &dyn DocumentStore,
        namespace: &Namespace,
        ids: impl Iterator<Item = RawDocumentBuf>,
    ) -> Result<HashMap<Vec<u8>, RawDocumentBuf>> {
        let ids: RawArrayBuf = ids.map(RawBson::Document).collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let find = Find::new(namespace.clone(), rawdoc! { "_id": { "$in": ids } });
        let documents = store.find_all(find).await?;
        let by_id = documents.into_iter().map(|document| {
            let id = document.get_document("_id").map_err(unreadable)?;
            Ok((id.as_bytes().to_vec(), document))
        });
        by_id.collect()
    }

    async fn insert(&self, transaction: &Transaction, into: &Namespace, documents: Vec<RawDocumentBuf>) -> Result<()> {
        if documents.is_empty() {
            return Ok(());
        }
        refuse(transaction.insert(Insert::new(into.clone(), documents)).await?.errors)
    }

    async fn update(&self, transaction: &Transaction, of: &Namespace, statements: Vec<UpdateStatement>) -> Result<()> {
        if statements.is_empty() {
            return Ok(());
        }
        refuse(transaction.update(Update::new(of.clone(), statements)).await?.errors)
    }
}

/// Returns the numbers of events that are saved according to a document of the batches.
fn saved_range(document: &RawDocument) -> Result<RangeInclusive<SequenceNumber>> {
    let name = document.get_document("_id").map_err(unreadable)?;
    let (first, last) = (number(document, "first")?, number(name, "number")?);
    // The document of the bound has the number 0.
    Ok(if last == 0 { 0..=number(document, "below")?.saturating_sub(1) } else { first..=last })
}

/// The `_id` of the total of an item.
fn total_id(kind: &Kind, id: &ItemId) -> RawDocumentBuf {
    rawdoc! { "kind": kind.as_str(), "id": id.as_str() }
}

/// The `_id` of the days of an item in a month.
fn month_id(kind: &Kind, id: &ItemId, month: &Month) -> RawDocumentBuf {
    rawdoc! { "kind": kind.as_str(), "id": id.as_str(), "month": month.to_string() }
}

/// The filter of all months of an item.
fn months_of(kind: &Kind, id: &ItemId) -> RawDocumentBuf {
    let end = rawdoc! { "kind": kind.as_str(), "id": id.as_str(), "month": "~" };
    rawdoc! { "_id": { "$gte": total_id(kind, id), "$lt": end } }
}

fn key(id: &RawDocument) -> Vec<u8> {
    id.as_bytes().to_vec()
}

/// Counts are far below 2^63; what is not is kept at the largest number.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a count of a document; 0 if the field is not there.
fn number(document: &RawDocument, field: &str) -> Result<u64> {
    match document.get(field).map_err(unreadable)? {
        None => Ok(0),
        Some(value) => count(value)
            .ok_or_else(|| Error::damaged(format!("field {field:?} of {} is not a count", document_name(document)))),
    }
}

/// Returns a count, which may be of any numeric type.
fn count(value: RawBsonRef<'_>) -> Option<u64> {
    match value {
        RawBsonRef::Int32(value) => u64::try_from(value).ok(),
        RawBsonRef::Int64(value) => u64::try_from(value).ok(),
        RawBsonRef::Double(value) if value >= 0.0 && value.fract() == 0.0 && value < 2_f64.powi(53) => {
            Some(value as u64)
        }
        _ => None,
    }
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::damaged(error.to_string())
}

fn refuse(errors: Vec<WriteError>) -> Result<()> {
    errors.into_iter().next().map_or(Ok(()), |refused| Err(refused.error.into()))
}
