//! The stored figures of all items, one item after the other.
//!
//! Totals and days are read in the order of their `_id`s, side by side, in one snapshot: this needs memory for one page of each and the months
//! of one item, however many items there are, and views that are saved meanwhile do not disturb it. Without transactions there is no
//! snapshot: each document is as of the moment at which it was read.

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::{BatchLimit, Cursor, DocumentStore, Find, Namespace};
use handfast_txn::Transaction;

use super::changes::DAYS;
use super::reports::days_of;
use super::single::FoldedMonth;
use super::{Storage, number, unreadable};
use crate::document_name::document_name;
use crate::{Error, Item, Kind, Result};

/// How long the snapshot of a walk is held.
const SNAPSHOT_LIFETIME: Duration = Duration::from_secs(3_600);
/// The documents of a page.
const PAGE_DOCUMENTS: usize = 1_000;

/// The documents of a cursor, one after the other, with the item of each. One whose item cannot be read is left out and told.
struct Documents {
    cursor: Box<dyn Cursor>,
    page: std::vec::IntoIter<RawDocumentBuf>,
    exhausted: bool,
}

impl Documents {
    async fn open(store: &dyn DocumentStore, namespace: &Namespace, filter: RawDocumentBuf) -> Result<Self> {
        let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(namespace.clone(), filter) };
        let cursor = store.find(find).await?;
        Ok(Documents { cursor, page: Vec::new().into_iter(), exhausted: false })
    }

    async fn next(&mut self, damaged: &mut Vec<Error>) -> Result<Option<(Item, RawDocumentBuf)>> {
        loop {
            if let Some(document) = self.page.next() {
                match item_of(&document) {
                    Ok(item) => return Ok(Some((item, document))),
                    Err(error) => {
                        damaged.push(Error::damaged(format!("the item of {}: {error}", document_name(&document))));
                    }
                }
                continue;
            }
            if self.exhausted {
                return Ok(None);
            }
            let limit = BatchLimit { documents: PAGE_DOCUMENTS, ..BatchLimit::REPLY };
            let page = self.cursor.next_page(limit).await?;
            (self.page, self.exhausted) = (page.documents.into_iter(), page.exhausted);
        }
    }
}

fn item_of(document: &RawDocument) -> Result<Item> {
    let id = document.get_document("_id").map_err(unreadable)?;
    let part = |name| id.get_str(name).map_err(unreadable);
    Item::new(part("kind")?, part("id")?)
}

/// The days of an item in one month.
pub(super) struct MonthFigures {
    /// The month, such as `2026-11`.
    pub(super) month: String,
    pub(super) days: [u64; DAYS],
}

/// The stored figures of an item.
pub(super) struct ItemFigures {
    pub(super) item: Item,
    pub(super) total: u64,
    /// The part of the total that has no days.
    pub(super) base: u64,
    /// The months, in ascending order.
    pub(super) months: Vec<MonthFigures>,
}

impl MonthFigures {
    /// Reads a document of the days.
    pub(super) fn read(document: &RawDocument) -> Result<Self> {
        let id = document.get_document("_id").map_err(unreadable)?;
        let month = id.get_str("month").map_err(unreadable)?.to_owned();
        Ok(MonthFigures { month, days: days_of(document)? })
    }
}

impl ItemFigures {
    /// Reads the document of the total, if there is one, and those of the days.
    pub(super) fn read(item: Item, total: Option<&RawDocument>, months: &[RawDocumentBuf]) -> Result<Self> {
        let count = |field| total.map_or(Ok(0), |document| number(document, field));
        let figures = || -> Result<_> {
            let folded = total.map_or(Ok(Vec::new()), FoldedMonth::all_of)?;
            let mut of_days = Vec::with_capacity(months.len());
            for document in months {
                let mut is_folded = false;
                for month in &folded {
                    is_folded |= month.is(document)?;
                }
                if !is_folded {
                    of_days.push(MonthFigures::read(document)?);
                }
            }
            let months = of_days;
            Ok((count("total")?, count("base")?, months))
        };
        match figures() {
            Ok((total, base, months)) => Ok(ItemFigures { item, total, base, months }),
            Err(Error::Damaged { what }) => Err(Error::damaged(format!("{item}: {what}"))),
            Err(error) => Err(error),
        }
    }

    /// Returns the sum of the days.
    pub(super) fn days(&self) -> Result<u64> {
        sum(self.months.iter().flat_map(|month| month.days))
            .ok_or_else(|| Error::damaged(format!("the days of {} have more views than there can be", self.item)))
    }

    /// Returns the total that the base and the days make.
    pub(super) fn right_total(&self) -> Result<u64> {
        sum([self.base, self.days()?])
            .ok_or_else(|| Error::damaged(format!("{} has more views than there can be", self.item)))
    }
}

/// Returns the sum of counts; `None` if it is more than a document can hold.
pub(super) fn sum(counts: impl IntoIterator<Item = u64>) -> Option<u64> {
    let sum = counts.into_iter().try_fold(0_u64, u64::checked_add)?;
    (sum <= i64::MAX.unsigned_abs()).then_some(sum)
}

/// The items, in the order of their kinds and ids.
pub(super) struct Walk {
    totals: Documents,
    days: Documents,
    total: Option<(Item, RawDocumentBuf)>,
    month: Option<(Item, RawDocumentBuf)>,
    /// The errors of documents whose items cannot be read. They are returned by the next calls.
    damaged: Vec<Error>,
    /// The cursors read from it, if there is one.
    _snapshot: Option<Transaction>,
}

impl Walk {
    /// Returns the figures of the next item, or why they cannot be read; the walk goes on behind it.
    pub(super) async fn next(&mut self) -> Result<Option<Result<ItemFigures>>> {
        if let Some(error) = self.damaged.pop() {
            return Ok(Some(Err(error)));
        }
        let item = match (&self.total, &self.month) {
            (None, None) => return Ok(None),
            (Some((item, _)), None) | (None, Some((item, _))) => item.clone(),
            (Some((of_total, _)), Some((of_month, _))) => of_total.min(of_month).clone(),
        };
        let of_total = self.total.take_if(|(of_total, _)| *of_total == item);
        if of_total.is_some() {
            self.total = self.totals.next(&mut self.damaged).await?;
        }
        let mut of_months = Vec::new();
        while let Some((_, document)) = self.month.take_if(|(of_month, _)| *of_month == item) {
            of_months.push(document);
            self.month = self.days.next(&mut self.damaged).await?;
        }
        Ok(Some(ItemFigures::read(item, of_total.as_ref().map(|(_, document)| &**document), &of_months)))
    }
}

impl Storage {
    /// Begins a walk over all items, or over those of a kind.
    pub(super) async fn walk(&self, kind: Option<&Kind>) -> Result<Walk> {
        let snapshot = match &self.database {
            Some(database) => Some(database.begin_reads(SNAPSHOT_LIFETIME).await?),
            None => None,
        };
        let store: &dyn DocumentStore = snapshot.as_ref().map_or(&self.store, |snapshot| snapshot);
        let filter = || match kind {
            None => rawdoc! {},
            Some(kind) => {
                // A document is greater than any text.
                let end = rawdoc! { "kind": kind.as_str(), "id": {} };
                rawdoc! { "_id": { "$gte": { "kind": kind.as_str() }, "$lt": end } }
            }
        };
        let mut totals = Documents::open(store, &self.totals, filter()).await?;
        let mut days = Documents::open(store, &self.days, filter()).await?;
        let mut damaged = Vec::new();
        let (total, month) = (totals.next(&mut damaged).await?, days.next(&mut damaged).await?);
        Ok(Walk { totals, days, total, month, damaged, _snapshot: snapshot })
    }
}
