//! The removal of old daily figures: whole months become a part of the base of their item's total.
//!
//! One transaction for each item and month deletes the document of the month and adds its sum to the base, so that the total is the base and
//! the sum of the days at every moment, and a month that another process has removed first is not there any more: it is not added twice.
//!
//! ```text
//!                       totals                       days
//!                       {ad 7, total 12, base 2}     {ad 7, 2026-09: 4}, {ad 7, 2026-10: 5}, {ad 7, 2026-11: 1}
//!   trim(2026-10-15)    {ad 7, total 12, base 6}                         {ad 7, 2026-10: 5}, {ad 7, 2026-11: 1}
//! ```
//!
//! Views of a removed day that were in the queue until then begin a new document of that month, as all views of a month without a document
//! do. The next removal adds it to the base.
//!
//! Without transactions, the steps are those of `single/folding.rs`.

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::{BatchLimit, DocumentStore as _, Find, Namespace, StoreExt as _};
use handfast_txn::Transaction;
use jiff::civil::Date;

use super::changes::Month;
use super::reports::days_of;
use super::walk::sum;
use super::{Storage, int, unreadable};
use crate::document_name::document_name;
use crate::{Error, ItemId, Kind, Result};

/// The documents of a page.
pub(super) const PAGE_DOCUMENTS: usize = 1_000;

/// The daily figures that were removed, or can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// The number of months, each of one item.
    pub months: u64,
    /// The sum of their views.
    pub views: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl Trimmed {
    pub(super) fn add(&mut self, views: u64) {
        self.months += 1;
        self.views = self.views.saturating_add(views);
    }
}

impl Storage {
    /// Removes the daily figures of the months that end before a day: `months_max` months of an item at most. Their views stay in the totals, as a
    /// part of the base. `progress` is called with the number of months so far.
    pub async fn trim(&self, before: Date, months_max: u64, mut progress: impl FnMut(u64)) -> Result<Trimmed> {
        let Some(database) = &self.database else { return self.trim_single(before, months_max, progress).await };
        let mut trimmed = Trimmed::default();
        for kind in self.kinds_in(&self.days).await? {
            loop {
                let places = months_max - trimmed.months;
                if places == 0 {
                    return Ok(Trimmed { more: true, ..trimmed });
                }
                let limit = Some(places.min(PAGE_DOCUMENTS as u64));
                let old = Find { limit, ..Find::new(self.days.clone(), months_before(&kind, before)) };
                let page = self.store.find_all(old).await?;
                if page.is_empty() {
                    break;
                }
                for document in page {
                    let id = &document.get_document("_id").map_err(unreadable)?.to_owned();
                    let views = database.transaction(|transaction| async move { self.fold_in(&transaction, id).await });
                    if let Some(views) = views.await? {
                        trimmed.add(views);
                        progress(trimmed.months);
                    }
                }
            }
        }
        Ok(trimmed)
    }

    /// Returns what [`Storage::trim`] would remove.
    pub async fn trimmable(&self, before: Date) -> Result<Trimmed> {
        let mut trimmable = Trimmed::default();
        for kind in self.kinds_in(&self.days).await? {
            let old = Find::new(self.days.clone(), months_before(&kind, before));
            let mut cursor = self.store.find(old).await?;
            loop {
                let page = cursor.next_page(BatchLimit { documents: PAGE_DOCUMENTS, ..BatchLimit::REPLY }).await?;
                for document in page.documents {
                    trimmable.add(views_of(&document)?);
                }
                if page.exhausted {
                    break;
                }
            }
        }
        Ok(trimmable)
    }

    /// Makes a month a part of the base, and returns its views; `None` if it is not there.
    async fn fold_in(&self, transaction: &Transaction, id: &RawDocumentBuf) -> Result<Option<u64>> {
        let by_id = rawdoc! { "_id": id.clone() };
        let Some(document) = transaction.find_one(&self.days, by_id.clone()).await? else { return Ok(None) };
        let views = views_of(&document)?;
        transaction.delete_one(&self.days, by_id).await?;
        if views > 0 {
            let part = |name| id.get_str(name).map_err(unreadable);
            let (kind, item) = (Kind::new(part("kind")?)?, ItemId::new(part("id")?)?);
            let total = rawdoc! { "_id": super::total_id(&kind, &item) };
            transaction.upsert_one(&self.totals, total, rawdoc! { "$inc": { "base": int(views) } }).await?;
        }
        Ok(Some(views))
    }

    /// Returns the kinds of the items that have a stored total.
    pub async fn item_kinds(&self) -> Result<Vec<Kind>> {
        self.kinds_in(&self.totals).await
    }

    /// Returns the kinds of the items in a collection that has an index on them, by a look at the first document of each.
    pub(super) async fn kinds_in(&self, namespace: &Namespace) -> Result<Vec<Kind>> {
        let mut kinds: Vec<Kind> = Vec::new();
        loop {
            let last = kinds.last().map_or("", Kind::as_str);
            let later = Find {
                sort: rawdoc! { "_id.kind": 1 },
                limit: Some(1),
                ..Find::new(namespace.clone(), rawdoc! { "_id.kind": { "$gt": last } })
            };
            let Some(document) = self.store.find_all(later).await?.into_iter().next() else { return Ok(kinds) };
            let id = document.get_document("_id").map_err(unreadable)?;
            kinds.push(Kind::new(id.get_str("kind").map_err(unreadable)?)?);
        }
    }
}

/// The filter of the months of a kind that end before a day.
pub(super) fn months_before(kind: &Kind, before: Date) -> RawDocumentBuf {
    let month = Month::of(before).to_string();
    rawdoc! { "_id.kind": kind.as_str(), "_id.month": { "$lt": month } }
}

/// Returns the sum of a month.
fn views_of(document: &RawDocument) -> Result<u64> {
    sum(days_of(document)?)
        .ok_or_else(|| Error::damaged(format!("{} has more views than there can be", document_name(document))))
}
