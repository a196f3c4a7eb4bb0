//! The removal of old daily figures, by changes of single documents: a month becomes a part of the base of its item's total.
//!
//! ```text
//!                                totals                                                   days
//!                                {total 12, base 2}                                       {2026-09: 4, created c}
//!   1 freeze the month                                                                    {2026-09: 4, created c, folding}
//!   2 add it to the base         {total 12, base 6, folded: [{month 2026-09, created c}]}
//!   3 delete the month                                                                    -
//!   4 forget the month           {total 12, base 6, folded: []}
//! ```
//!
//! Each step is made if the document is as it was read. A month whose total has it in `folded` does not count any more. So the total is the base and
//! the sum of the days that count after each step, and a process that finds a frozen month goes on from where it is: another removal, or one that has
//! views for the month. A frozen month is not changed otherwise.
//!
//! A total with the number of a deletion may have months that the deletion has not reached. So nothing is added to its base: the month is freed,
//! and removed when the deletion is forgotten. So is a month with events that may come again, as their ranges would be lost with it.

use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::{Find, StoreExt as _};
use jiff::civil::Date;

use super::super::retention::{PAGE_DOCUMENTS, Trimmed, months_before};
use super::super::{Storage, int, total_id, unreadable};
use super::document::{CountedDocument, Shape};
use super::{ATTEMPTS_MAX, contended};
use crate::{Error, Item, Kind, Result, SequenceNumber};

/// A month that is a part of the base already, although its document may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::storage) struct FoldedMonth {
    pub(in crate::storage) month: String,
    pub(in crate::storage) created: DateTime,
}

/// The result of the removal of a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Folding {
    /// It was removed with this number of views.
    Done(u64),
    /// It is not there.
    Gone,
    /// It cannot be removed yet.
    Later,
}

impl FoldedMonth {
    /// Reads the months in the document of a total.
    pub(in crate::storage) fn all_of(total: &RawDocument) -> Result<Vec<Self>> {
        if total.get("folded").map_err(unreadable)?.is_none() {
            return Ok(Vec::new());
        }
        let months = total.get_array("folded").map_err(unreadable)?.into_iter();
        let months = months.map(|month| {
            let month = month.map_err(unreadable)?;
            let month = month.as_document().ok_or_else(|| Error::damaged(format!("{total:?} has no folded months")))?;
            Ok(FoldedMonth {
                month: month.get_str("month").map_err(unreadable)?.to_owned(),
                created: month.get_datetime("created").map_err(unreadable)?,
            })
        });
        months.collect()
    }

    /// Returns whether a document of the days is this month.
    pub(in crate::storage) fn is(&self, document: &RawDocument) -> Result<bool> {
        let month = document.get_document("_id").map_err(unreadable)?.get_str("month").map_err(unreadable)?;
        let created = document.get("created").map_err(unreadable)?;
        Ok(month == self.month && created.and_then(RawBsonRef::as_datetime) == Some(self.created))
    }

    fn document(&self) -> RawDocumentBuf {
        rawdoc! { "month": self.month.as_str(), "created": self.created }
    }
}

impl Storage {
    /// Removes old daily figures, as [`Storage::trim`] does.
    pub(in crate::storage) async fn trim_single(
        &self,
        before: Date,
        months_max: u64,
        mut progress: impl FnMut(u64),
    ) -> Result<Trimmed> {
        let mut trimmed = Trimmed::default();
        for kind in self.kinds_in(&self.days).await? {
            self.forget_folded(&kind).await?;
            let below = self.bound_of(&kind).await?.map_or(0, |bound| bound.below);
            let mut after = rawdoc! { "kind": kind.as_str() };
            loop {
                let places = months_max - trimmed.months;
                if places == 0 {
                    return Ok(Trimmed { more: true, ..trimmed });
                }
                let mut filter = months_before(&kind, before);
                filter.append(bson::raw::cstr!("_id"), rawdoc! { "$gt": after.clone() });
                let (sort, limit) = (rawdoc! { "_id": 1 }, Some(places.min(PAGE_DOCUMENTS as u64)));
                let page = self.store.find_all(Find { sort, limit, ..Find::new(self.days.clone(), filter) }).await?;
                let Some(last) = page.last() else { break };
                after = last.get_document("_id").map_err(unreadable)?.to_owned();
                for document in &page {
                    let id = document.get_document("_id").map_err(unreadable)?;
                    if let Folding::Done(views) = self.fold(id, below).await? {
                        trimmed.add(views);
                        progress(trimmed.months);
                    }
                }
            }
        }
        Ok(trimmed)
    }

    /// Takes the months out of totals that a process has added to the base and deleted, and deletes those that it has not.
    async fn forget_folded(&self, kind: &Kind) -> Result<()> {
        let with_folded = rawdoc! { "_id.kind": kind.as_str(), "folded.month": { "$gt": "" } };
        for total in self.store.find_all(Find::new(self.totals.clone(), with_folded)).await? {
            let id = total.get_document("_id").map_err(unreadable)?;
            for folded in FoldedMonth::all_of(&total)? {
                self.end_folding(id, &folded).await?;
            }
        }
        Ok(())
    }

    /// Deletes a month that is a part of the base, and then takes it out of the total.
    async fn end_folding(&self, total: &RawDocument, folded: &FoldedMonth) -> Result<()> {
        let mut month = total.to_owned();
        month.append(bson::raw::cstr!("month"), folded.month.as_str());
        self.store.delete_one(&self.days, rawdoc! { "_id": month, "created": folded.created }).await?;
        let forgotten = rawdoc! { "$pull": { "folded": folded.document() }, "$inc": { "version": 1_i64 } };
        let with_month = rawdoc! { "_id": total.to_owned(), "folded.month": folded.month.as_str() };
        self.store.update_one(&self.totals, with_month, forgotten).await?;
        Ok(())
    }

    /// Makes a month a part of the base, or goes on where another process has stopped. A month that is not frozen and has an event from `below` on, which
    /// may come again, is left.
    pub(super) async fn fold(&self, id: &RawDocument, below: SequenceNumber) -> Result<Folding> {
        let part = |name| id.get_str(name).map_err(unreadable);
        let item = Item::new(part("kind")?, part("id")?)?;
        let (id, total_id) = (id.to_owned(), total_id(&item.kind, &item.id));
        let month_name = id.get_str("month").map_err(unreadable)?.to_owned();
        for _ in 0..ATTEMPTS_MAX {
            // The total first: a deletion changes it before the months.
            let total = self.store.find_one(&self.totals, rawdoc! { "_id": total_id.clone() }).await?;
            let Some(month) = self.store.find_one(&self.days, rawdoc! { "_id": id.clone() }).await? else {
                return Ok(Folding::Gone);
            };
            let Some(month) = CountedDocument::read(Shape::Month, &month)? else {
                self.create(&self.days, Shape::Month, vec![id.clone()]).await?;
                continue;
            };
            let counted =
                total.as_deref().map(|total| CountedDocument::read(Shape::Total, total)).transpose()?.flatten();
            let (Some(total), Some(counted)) = (total, counted) else {
                self.create(&self.totals, Shape::Total, vec![total_id.clone()]).await?;
                continue;
            };
            let folded = FoldedMonth { month: month_name.clone(), created: month.created() };
            if FoldedMonth::all_of(&total)?.contains(&folded) {
                self.end_folding(&total_id, &folded).await?;
                return Ok(Folding::Done(month.views()));
            }
            if counted.is_deleted() || (!month.is_frozen() && month.has_from(below)) {
                if month.is_frozen() {
                    let free = rawdoc! { "$unset": { "folding": "" }, "$inc": { "version": 1_i64 } };
                    self.store.update_one(&self.days, month.unchanged(&id), free).await?;
                }
                return Ok(Folding::Later);
            }
            if month.is_frozen() {
                let add = rawdoc! {
                    "$inc": { "base": int(month.views()), "version": 1_i64 },
                    "$push": { "folded": folded.document() },
                };
                self.store.update_one(&self.totals, counted.unchanged(&total_id), add).await?;
            } else {
                let freeze = rawdoc! { "$set": { "folding": true }, "$inc": { "version": 1_i64 } };
                self.store.update_one(&self.days, month.unchanged(&id), freeze).await?;
            }
        }
        Err(contended(&item.kind))
    }
}
