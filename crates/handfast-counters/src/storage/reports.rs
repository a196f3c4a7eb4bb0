//! Figures per day, and the items with the most views.

use bson::{RawDocument, rawdoc};
use handfast_store::{Aggregate, BatchLimit, DocumentStore as _, Find, StoreExt as _};
use jiff::civil::Date;

use super::changes::{DAYS, Month};
use super::{Storage, count, int, key, month_id, number, unreadable};
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

impl Storage {
    /// Returns the saved views of each day from `from` to `to`, both included; 0 for a day without any.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is empty or longer than [`REPORT_DAYS_MAX`].
    pub async fn daily(&self, item: &Item, from: Date, to: Date) -> Result<Vec<DayViews>> {
        if from > to {
            return Err(Error::invalid(format!("the range of days ends before it begins: from {from} to {to}")));
        }
        let count = from.until(to).map_err(unreadable)?.get_days().unsigned_abs() as usize + 1;
        if count > REPORT_DAYS_MAX {
            return Err(Error::invalid(format!("{count} days are more than {REPORT_DAYS_MAX}, the limit of a report")));
        }
        let mut months = vec![Month::of(from)];
        while let Some(last) = months.last().filter(|last| **last < Month::of(to)) {
            months.push(last.next());
        }
        let ids = months.iter().map(|month| month_id(&item.kind, &item.id, month));
        let found = self.documents_of(&self.database, &self.days, ids).await?;
        let days = from.series(jiff::Span::new().days(1)).take(count);
        days.map(|day| {
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
                self.database.find_all(find).await?
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
        let mut cursor = self.database.aggregate(Aggregate::new(self.days.clone(), pipeline)).await?;
        let mut found = Vec::new();
        loop {
            let page = cursor.next_page(BatchLimit::REPLY).await?;
            found.extend(page.documents);
            if page.exhausted {
                return Ok(found);
            }
        }
    }
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
            _ => return Err(Error::damaged(format!("{document:?} has not {DAYS} counts"))),
        }
    }
    Ok(days)
}
