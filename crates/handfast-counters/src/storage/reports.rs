//! Figures per day, and the items with the most views.

use std::collections::HashMap;

use bson::raw::CString;
use bson::{RawDocument, rawdoc};
use handfast_store::{Aggregate, Find, Namespace, StoreExt as _};
use jiff::civil::Date;

use super::changes::{DAYS, Month};
use super::{Storage, count, int, key, month_id, number, unreadable};
use crate::document_name::document_name;
use crate::{Error, Item, ItemId, Kind, Result};

/// The maximum number of days of one report: twenty years.
pub const REPORT_DAYS_MAX: usize = 20 * 366;
/// The maximum number of items in a list of the top ones.
pub const TOP_ITEMS_MAX: usize = 1_000;

/// The views of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayViews {
    /// The day.
    pub day: Date,
    /// The number of views.
    pub views: u64,
}

/// An item in a list of the top ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopItem {
    /// The item.
    pub id: ItemId,
    /// Its views, altogether or on the day.
    pub views: u64,
}

/// The sums over all items of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindSummary {
    /// The saved views.
    pub views: u64,
    /// The number of items.
    pub items: u64,
    /// The saved views of each day.
    pub days: Vec<DayViews>,
}

impl Storage {
    /// Returns the sums over all items of a kind, and of each day from `from` to `to`, both included. It reads all items, which takes a while for
    /// millions of them.
    ///
    /// # Errors
    /// Those of [`Storage::daily`] for the range.
    pub async fn summary(&self, kind: &Kind, from: Date, to: Date) -> Result<KindSummary> {
        let (range, months) = (days_of_range(from, to)?, months_of_range(from, to));
        let pipeline = vec![
            rawdoc! { "$match": { "_id.kind": kind.as_str() } },
            rawdoc! { "$group": { "_id": null, "views": { "$sum": "$total" }, "items": { "$sum": 1_i64 } } },
        ];
        let totals = self.aggregated(&self.totals, pipeline).await?;
        let sum = |document: &RawDocument, name: &str| number(document, name);
        let (views, items) = match totals.first() {
            Some(totals) => (sum(totals, "views")?, sum(totals, "items")?),
            None => (0, 0),
        };
        let mut group = rawdoc! { "_id": "$_id.month" };
        for day in 0..DAYS {
            let views = rawdoc! { "$sum": { "$arrayElemAt": ["$days", int(day as u64)] } };
            let name = CString::try_from(format!("day{day}")).map_err(unreadable)?;
            group.append(name, views);
        }
        let names: bson::RawArrayBuf = months.iter().map(|month| bson::RawBson::String(month.to_string())).collect();
        let pipeline = vec![
            rawdoc! { "$match": { "_id.kind": kind.as_str(), "_id.month": { "$in": names } } },
            rawdoc! { "$group": group },
        ];
        let mut by_month = HashMap::new();
        for document in self.aggregated(&self.days, pipeline).await? {
            by_month.insert(document.get_str("_id").map_err(unreadable)?.to_owned(), document);
        }
        let days = range.map(|day| {
            let views = match by_month.get(&Month::of(day).to_string()) {
                Some(month) => sum(month, &format!("day{}", day.day() - 1))?,
                None => 0,
            };
            Ok(DayViews { day, views })
        });
        Ok(KindSummary { views, items, days: days.collect::<Result<_>>()? })
    }

    /// Returns the saved views of each day from `from` to `to`, both included; 0 for a day without any.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is empty or longer than [`REPORT_DAYS_MAX`].
    pub async fn daily(&self, item: &Item, from: Date, to: Date) -> Result<Vec<DayViews>> {
        let (range, months) = (days_of_range(from, to)?, months_of_range(from, to));
        let ids = months.iter().map(|month| month_id(&item.kind, &item.id, month));
        let found = self.documents_of(&self.store, &self.days, ids).await?;
        range
            .map(|day| {
                let document = found.get(&key(&month_id(&item.kind, &item.id, &Month::of(day))));
                let views = document.map_or(Ok(0), |document| views_of_day(document, day.day()))?;
                Ok(DayViews { day, views })
            })
            .collect()
    }

    /// Returns the items of a kind with the most saved views, altogether or on a day; the largest first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than [`TOP_ITEMS_MAX`] items.
    pub async fn top(&self, kind: &Kind, items: usize, day: Option<Date>) -> Result<Vec<TopItem>> {
        if items == 0 || items > TOP_ITEMS_MAX {
            return Err(Error::invalid(format!("the number of items must be 1 to {TOP_ITEMS_MAX}, and is {items}")));
        }
        let found = match day {
            None => {
                let filter = rawdoc! { "_id.kind": kind.as_str(), "total": { "$gt": 0_i64 } };
                let sort = rawdoc! { "total": -1, "_id": 1 };
                let find = Find { sort, limit: Some(items as u64), ..Find::new(self.totals.clone(), filter) };
                self.store.find_all(find).await?
            }
            Some(day) => self.top_of_day(kind, items, day).await?,
        };
        let items = found.iter().map(|document| {
            let id = document.get_document("_id").map_err(unreadable)?.get_str("id").map_err(unreadable)?;
            Ok(TopItem { id: ItemId::new(id)?, views: number(document, "total")? })
        });
        items.collect()
    }

    async fn top_of_day(&self, kind: &Kind, items: usize, day: Date) -> Result<Vec<bson::RawDocumentBuf>> {
        let month = Month::of(day).to_string();
        let element = i32::from(day.day()) - 1;
        let pipeline = vec![
            rawdoc! { "$match": { "_id.kind": kind.as_str(), "_id.month": month } },
            rawdoc! { "$project": { "total": { "$arrayElemAt": ["$days", element] } } },
            rawdoc! { "$match": { "total": { "$gt": 0_i64 } } },
            rawdoc! { "$sort": { "total": -1, "_id": 1 } },
            rawdoc! { "$limit": int(items as u64) },
        ];
        self.aggregated(&self.days, pipeline).await
    }

    async fn aggregated(
        &self,
        collection: &Namespace,
        pipeline: Vec<bson::RawDocumentBuf>,
    ) -> Result<Vec<bson::RawDocumentBuf>> {
        Ok(self.store.aggregate_all(Aggregate::new(collection.clone(), pipeline)).await?)
    }
}

/// Returns the days of a report.
fn days_of_range(from: Date, to: Date) -> Result<impl Iterator<Item = Date>> {
    if from > to {
        return Err(Error::invalid(format!("the range of days ends before it begins: from {from} to {to}")));
    }
    let count = from.until(to).map_err(unreadable)?.get_days().unsigned_abs() as usize + 1;
    if count > REPORT_DAYS_MAX {
        return Err(Error::invalid(format!("{count} days are more than {REPORT_DAYS_MAX}, the limit of a report")));
    }
    Ok(from.series(jiff::Span::new().days(1)).take(count))
}

fn months_of_range(from: Date, to: Date) -> Vec<Month> {
    let mut months = vec![Month::of(from)];
    while let Some(last) = months.last().filter(|last| **last < Month::of(to)) {
        months.push(last.next());
    }
    months
}

/// Returns the views of a day, from 1 to 31, in the document of its month.
fn views_of_day(document: &RawDocument, day: i8) -> Result<u64> {
    let views = days_of(document)?;
    Ok(usize::try_from(day - 1).ok().and_then(|day| views.get(day).copied()).unwrap_or(0))
}

/// Returns the 31 counts of a month document.
pub(super) fn days_of(document: &RawDocument) -> Result<[u64; DAYS]> {
    let mut days = [0; DAYS];
    let counts = document.get_array("days").map_err(unreadable)?;
    for (day, views) in counts.into_iter().enumerate() {
        match (days.get_mut(day), count(views.map_err(unreadable)?)) {
            (Some(of_day), Some(views)) => *of_day = views,
            _ => return Err(Error::damaged(format!("{} has not {DAYS} counts", document_name(document)))),
        }
    }
    Ok(days)
}
