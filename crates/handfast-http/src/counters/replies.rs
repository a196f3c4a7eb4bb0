//! The JSON of replies. Their schemas are in [`schemas`](super::schemas), and a test compares the two.

use handfast_counters::{Item, ItemId, Total};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct TotalReply<'a> {
    kind: &'a str,
    id: &'a str,
    total: u64,
    partial: bool,
}

/// The answer to a request that counts views.
#[derive(Serialize)]
pub(super) struct CountReply<'a> {
    #[serde(flatten)]
    total: TotalReply<'a>,
    counted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// The reason for which a view was not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotCounted {
    Repeated,
    Bot,
}

#[derive(Serialize)]
pub(super) struct TotalsReply<'a> {
    pub(super) kind: &'a str,
    pub(super) totals: Vec<ItemTotal<'a>>,
}

#[derive(Serialize)]
pub(super) struct ItemTotal<'a> {
    id: &'a str,
    total: u64,
    partial: bool,
}

#[derive(Serialize)]
pub(super) struct DailyReply<'a> {
    pub(super) kind: &'a str,
    pub(super) id: &'a str,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) time_zone: String,
    pub(super) views: u64,
    pub(super) days: Vec<DayReply>,
}

#[derive(Serialize)]
pub(super) struct DayReply {
    pub(super) day: String,
    pub(super) views: u64,
}

#[derive(Serialize)]
pub(super) struct TopReply<'a> {
    pub(super) kind: &'a str,
    pub(super) day: Option<String>,
    pub(super) items: Vec<TopItemReply<'a>>,
}

#[derive(Serialize)]
pub(super) struct TopItemReply<'a> {
    pub(super) id: &'a str,
    pub(super) views: u64,
}

impl<'a> TotalReply<'a> {
    pub(super) fn new(item: &'a Item, total: Total) -> Self {
        TotalReply { kind: item.kind.as_str(), id: item.id.as_str(), total: total.views, partial: total.partial }
    }
}

impl<'a> CountReply<'a> {
    /// Creates the reply; `reason` is there if the views were not counted.
    pub(super) fn new(item: &'a Item, total: Total, reason: Option<NotCounted>) -> Self {
        CountReply {
            total: TotalReply::new(item, total),
            counted: reason.is_none(),
            reason: reason.map(NotCounted::name),
        }
    }
}

impl NotCounted {
    pub(super) const ALL: [NotCounted; 2] = [NotCounted::Repeated, NotCounted::Bot];

    pub(super) fn name(self) -> &'static str {
        match self {
            NotCounted::Repeated => "repeated",
            NotCounted::Bot => "bot",
        }
    }
}

impl<'a> ItemTotal<'a> {
    pub(super) fn new(id: &'a ItemId, total: Total) -> Self {
        ItemTotal { id: id.as_str(), total: total.views, partial: total.partial }
    }
}
