//! The self-check: the total of each item is its base and the sum of its days.
//!
//! Totals and days are read in the order of their `_id`s, side by side, in one snapshot: the check needs memory for one page of each,
//! however many items there are, and views that are saved meanwhile do not disturb it.

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{BatchLimit, Cursor, DocumentStore as _, Find, Namespace};
use handfast_txn::Transaction;

use super::reports::days_of;
use super::{Storage, number, unreadable};
use crate::{Item, Kind, Result};

/// How long the snapshot of a check is held.
const SNAPSHOT_LIFETIME: Duration = Duration::from_secs(3_600);
/// The documents of a page.
const PAGE_DOCUMENTS: usize = 1_000;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// The number of items that were checked.
    pub items: u64,
    /// The sum of their totals.
    pub views: u64,
    /// The items whose figures disagree.
    pub differences: Vec<Difference>,
}

/// An item whose total is not its base and the sum of its days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The item.
    pub item: Item,
    /// The stored total.
    pub total: u64,
    /// The part of the total that has no days.
    pub base: u64,
    /// The sum of the days.
    pub days: u64,
}

/// The documents of a cursor, one after the other, with the item of each.
struct Documents {
    cursor: Box<dyn Cursor>,
    page: std::vec::IntoIter<RawDocumentBuf>,
    exhausted: bool,
}

impl Documents {
    async fn open(snapshot: &Transaction, namespace: &Namespace, filter: RawDocumentBuf) -> Result<Self> {
        let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(namespace.clone(), filter) };
        let cursor = snapshot.find(find).await?;
        Ok(Documents { cursor, page: Vec::new().into_iter(), exhausted: false })
    }

    async fn next(&mut self) -> Result<Option<(Item, RawDocumentBuf)>> {
        loop {
            if let Some(document) = self.page.next() {
                let id = document.get_document("_id").map_err(unreadable)?;
                let part = |name| id.get_str(name).map_err(unreadable);
                return Ok(Some((Item::new(part("kind")?, part("id")?)?, document)));
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

impl Storage {
    /// Compares the total of each item, or of each item of a kind, with its base and the sum of its days. `progress` is called with the
    /// number of items so far.
    pub async fn verify(&self, kind: Option<&Kind>, mut progress: impl FnMut(u64)) -> Result<Verification> {
        let snapshot = self.database.begin_reads(SNAPSHOT_LIFETIME).await?;
        let filter = || match kind {
            None => rawdoc! {},
            Some(kind) => {
                let end = rawdoc! { "kind": kind.as_str(), "id": "~~" };
                rawdoc! { "_id": { "$gte": { "kind": kind.as_str() }, "$lt": end } }
            }
        };
        let mut totals = Documents::open(&snapshot, &self.totals, filter()).await?;
        let mut days = Documents::open(&snapshot, &self.days, filter()).await?;
        let (mut total, mut month) = (totals.next().await?, days.next().await?);
        let mut result = Verification::default();
        loop {
            let item = match (&total, &month) {
                (None, None) => return Ok(result),
                (Some((item, _)), None) | (None, Some((item, _))) => item.clone(),
                (Some((of_total, _)), Some((of_month, _))) => of_total.min(of_month).clone(),
            };
            let (mut stored, mut base, mut sum) = (0, 0, 0);
            if let Some((_, document)) = total.take_if(|(of_total, _)| *of_total == item) {
                (stored, base) = (number(&document, "total")?, number(&document, "base")?);
                total = totals.next().await?;
            }
            while let Some((_, document)) = month.take_if(|(of_month, _)| *of_month == item) {
                sum += days_of(&document)?.iter().sum::<u64>();
                month = days.next().await?;
            }
            if stored != base + sum {
                result.differences.push(Difference { item, total: stored, base, days: sum });
            }
            result.items += 1;
            result.views += stored;
            progress(result.items);
        }
    }
}
