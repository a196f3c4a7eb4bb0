//! The changes that a batch makes, as a pure function of its events and of the deletions that the store knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::civil::Date;

use crate::{Batch, Change, ItemId, Result, SequenceNumber};

/// The days of a month document.
pub(super) const DAYS: usize = 31;

/// A month of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Month {
    year: i16,
    month: i8,
}

impl Month {
    /// Returns the month of a day.
    pub(super) fn of(day: Date) -> Self {
        Month { year: day.year(), month: day.month() }
    }

    /// Returns the month after this one.
    pub(super) fn next(self) -> Self {
        match self.month {
            12 => Month { year: self.year + 1, month: 1 },
            month => Month { month: month + 1, ..self },
        }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04}-{:02}", self.year, self.month)
    }
}

/// The change of a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TotalChange {
    /// The views to add; after a deletion, the whole total.
    pub(super) added: u64,
    /// The number of the deletion, if the batch has one.
    pub(super) deleted: Option<SequenceNumber>,
}

/// The changes of one batch, per item, and per item and month.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) totals: BTreeMap<ItemId, TotalChange>,
    pub(super) months: BTreeMap<(ItemId, Month), [u64; DAYS]>,
}

/// Returns the items of a batch.
pub(super) fn items(batch: &Batch) -> BTreeSet<&ItemId> {
    batch.events.iter().map(|event| &event.id).collect()
}

impl Changes {
    /// Sums the events of a batch. `deleted` returns the number of an item's last saved deletion: earlier events have no effect.
    pub(super) fn new(batch: &Batch, deleted: impl Fn(&ItemId) -> Result<SequenceNumber>) -> Result<Self> {
        let mut last: BTreeMap<&ItemId, SequenceNumber> = BTreeMap::new();
        for id in items(batch) {
            last.insert(id, deleted(id)?);
        }
        let mut changes = Changes::default();
        for event in &batch.events {
            if last.get(&event.id).is_some_and(|deleted| event.number <= *deleted) {
                continue;
            }
            match event.change {
                Change::Delete => {
                    let deletion = TotalChange { added: 0, deleted: Some(event.number) };
                    changes.totals.insert(event.id.clone(), deletion);
                    changes.months.retain(|(id, _), _| *id != event.id);
                }
                Change::Views { views, day } => {
                    changes.totals.entry(event.id.clone()).or_default().added += u64::from(views);
                    let month = changes.months.entry((event.id.clone(), Month::of(day))).or_insert([0; DAYS]);
                    if let Some(of_day) = usize::try_from(day.day() - 1).ok().and_then(|day| month.get_mut(day)) {
                        *of_day += u64::from(views);
                    }
                }
            }
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::civil::date;

    use super::{Changes, Month};
    use crate::{Batch, Change, Event, ItemId, Kind};

    fn batch(events: &[(u64, &str, Change)]) -> Batch {
        let event = |(number, id, change): &(u64, &str, Change)| Event {
            number: *number,
            id: ItemId::new(id).expect("an id"),
            change: change.clone(),
        };
        Batch { kind: Kind::new("ads").expect("a kind"), events: events.iter().map(event).collect() }
    }

    fn views(views: u32, month: i8, day: i8) -> Change {
        Change::Views { views, day: date(2026, month, day) }
    }

    /// The change of each total, with the number of a deletion, and the views of each month.
    type Sums = (BTreeMap<String, (u64, Option<u64>)>, BTreeMap<String, u64>);

    fn summed(changes: &Changes) -> Sums {
        let totals = changes.totals.iter().map(|(id, change)| (id.to_string(), (change.added, change.deleted)));
        let months =
            changes.months.iter().map(|((id, month), days)| (format!("{id} {month}"), days.iter().sum::<u64>()));
        (totals.collect(), months.collect())
    }

    #[test]
    fn events_of_an_item_are_summed_by_day() {
        let batch = batch(&[
            (1, "a", views(2, 1, 31)),
            (2, "a", views(3, 1, 31)),
            (3, "b", views(1, 2, 1)),
            (4, "a", views(1, 2, 1)),
        ]);
        let changes = Changes::new(&batch, |_| Ok(0)).expect("changes");
        let (totals, months) = summed(&changes);
        assert_eq!(totals, BTreeMap::from([("a".into(), (6, None)), ("b".into(), (1, None))]));
        let expected = [("a 2026-01".into(), 5), ("a 2026-02".into(), 1), ("b 2026-02".into(), 1)];
        assert_eq!(months, BTreeMap::from(expected));
        let january = changes.months[&(ItemId::new("a").expect("an id"), Month::of(date(2026, 1, 1)))];
        assert_eq!(january[30], 5, "the 31st is the last");
    }

    #[test]
    fn a_deletion_drops_what_is_before_it() {
        let batch = batch(&[(1, "a", views(2, 1, 1)), (2, "a", Change::Delete), (3, "a", views(5, 1, 2))]);
        let (totals, months) = summed(&Changes::new(&batch, |_| Ok(0)).expect("changes"));
        assert_eq!(totals, BTreeMap::from([("a".into(), (5, Some(2)))]));
        assert_eq!(months, BTreeMap::from([("a 2026-01".into(), 5)]));
    }

    #[test]
    fn a_saved_deletion_drops_what_is_before_it() {
        let batch = batch(&[(1, "a", views(2, 1, 1)), (2, "a", Change::Delete), (7, "a", views(5, 1, 2))]);
        let (totals, _) = summed(&Changes::new(&batch, |_| Ok(6)).expect("changes"));
        assert_eq!(totals, BTreeMap::from([("a".into(), (5, None))]));
    }

    #[test]
    fn months_follow_each_other() {
        assert_eq!(Month::of(date(2026, 12, 5)).next().to_string(), "2027-01");
        assert_eq!(Month::of(date(2026, 2, 28)).next().to_string(), "2026-03");
    }
}
