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

impl<'a> ItemTotal<'a> {
    pub(super) fn new(id: &'a ItemId, total: Total) -> Self {
        ItemTotal { id: id.as_str(), total: total.views, partial: total.partial }
    }
}
