//! Old daily figures: whole months become a part of the base, and no view is lost or counted twice by that.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_counters::jiff::civil::date;
use handfast_counters::{Counters, CountersOptions, Item, Kind, Result, Trimmed};
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{MemoryStore, Namespace, StoreExt as _};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::imports::{add, check_file, file};
use crate::waiting::until_frozen;
use crate::world::{World, ad, first_day, on_both_forms, save_all, total, whole};

const DAY: Duration = Duration::from_secs(24 * 3_600);

on_both_forms! {
    late_views_of_a_removed_day_are_counted,
    a_deletion_drops_what_was_removed,
}

/// The days of an item with views, as `MONTH-DAY` without the year, and its base.
async fn days_of(counters: &Counters, id: &str) -> (Vec<(String, u64)>, u64) {
    let days = counters.daily(&ad(id), date(2026, 1, 1), date(2027, 12, 31)).await.expect("days");
    let days = days.iter().filter(|day| day.views > 0).map(|day| (day.day.strftime("%m-%d").to_string(), day.views));
    (days.collect(), counters.storage().base(&ad(id)).await.expect("a base"))
}

fn days(days: &[(&str, u64)]) -> Vec<(String, u64)> {
    days.iter().map(|(day, views)| ((*day).to_owned(), *views)).collect()
}

#[tokio::test]
async fn embedded_whole_months_become_a_part_of_the_base() {
    whole_months_become_a_part_of_the_base(World::embedded()).await;
}

#[tokio::test]
async fn ext_redis_whole_months_become_a_part_of_the_base() {
    if let Some(world) = World::redis().await {
        whole_months_become_a_part_of_the_base(world).await;
    }
}

async fn whole_months_become_a_part_of_the_base(world: World) {
    let counters = world.healthy(1).await;
    add(&counters, "may", &file()).await.expect("saved");
    let storage = counters.storage();
    // The month of the day is kept, whichever day it is.
    let expected = Trimmed { months: 1, views: 25, more: false };
    assert_eq!(storage.trimmable(date(2026, 10, 31)).await.expect("counted"), expected);
    check_file(&counters).await;
    assert_eq!(storage.trim(date(2026, 10, 31), u64::MAX, |_| ()).await.expect("removed"), expected);
    assert_eq!(days_of(&counters, "a").await, (days(&[("11-30", 100)]), 1_025));
    assert_eq!(days_of(&counters, "b").await, (days(&[("10-01", 7)]), 300));
    let again = storage.trim(date(2026, 10, 31), u64::MAX, |_| ()).await.expect("removed");
    assert_eq!(again, Trimmed::default());
    let rest = Trimmed { months: 1, views: 7, more: true };
    assert_eq!(storage.trim(date(2027, 1, 1), 1, |_| ()).await.expect("removed").months, rest.months);
    let rest = storage.trim(date(2027, 1, 1), u64::MAX, |_| ()).await.expect("removed");
    assert_eq!((rest.months, rest.more), (1, false));
    assert_eq!((days_of(&counters, "a").await, days_of(&counters, "b").await), ((vec![], 1_125), (vec![], 307)));
    assert_eq!([total(&counters, "a").await, total(&counters, "b").await], [whole(1_125), whole(307)]);
    save_all(&counters).await;
}

async fn late_views_of_a_removed_day_are_counted(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("a"), 5, None).await.expect("counted");
    save_all(&counters).await;
    // They wait in the queue while their day gets old and is removed.
    counters.view(ad("a"), 2, None).await.expect("counted");
    counters.view(ad("b"), 1, None).await.expect("counted");
    world.advance(40 * DAY).await;
    let bound = counters.today().expect("a day");
    counters.storage().trim(bound, u64::MAX, |_| ()).await.expect("removed");
    assert_eq!(days_of(&counters, "a").await, (vec![], 5));
    assert_eq!(total(&counters, "a").await, whole(7));
    save_all(&counters).await;
    // They begin the month again, until the next removal.
    assert_eq!(days_of(&counters, "a").await, (days(&[("11-30", 2)]), 5));
    let removed = counters.storage().trim(bound, u64::MAX, |_| ()).await.expect("removed");
    assert_eq!((removed.months, removed.views), (2, 3));
    assert_eq!((days_of(&counters, "a").await, days_of(&counters, "b").await), ((vec![], 7), (vec![], 1)));
    assert_eq!([total(&counters, "a").await, total(&counters, "b").await], [whole(7), whole(1)]);
    save_all(&counters).await;
}

async fn a_deletion_drops_what_was_removed(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("a"), 5, None).await.expect("counted");
    save_all(&counters).await;
    counters.storage().trim(date(2027, 1, 1), u64::MAX, |_| ()).await.expect("removed");
    counters.delete(&ad("a"), None).await.expect("deleted");
    counters.view(ad("a"), 2, None).await.expect("counted");
    save_all(&counters).await;
    assert_eq!(days_of(&counters, "a").await, (days(&[("11-30", 2)]), 0));
    assert_eq!(total(&counters, "a").await, whole(2));
}

#[tokio::test]
async fn months_of_all_kinds_are_removed() {
    let counters = World::embedded().healthy(1).await;
    let kinds = ["ads", "news", "videos"];
    for kind in kinds {
        counters.view(Item::new(kind, "1").expect("an item"), 1, None).await.expect("counted");
    }
    save_all(&counters).await;
    assert_eq!(counters.storage().item_kinds().await.expect("kinds"), kinds.map(|kind| Kind::new(kind).expect("kind")));
    let mut seen = Vec::new();
    counters.storage().trim(date(2027, 1, 1), u64::MAX, |months| seen.push(months)).await.expect("removed");
    assert_eq!(seen, [1, 2, 3]);
    save_all(&counters).await;
}

/// Starts to remove months in a process that hangs before its first commit.
async fn hanging_removal(world: &World) -> (Arc<Faulty<MemoryStore>>, JoinHandle<Result<Trimmed>>) {
    let plan = Plan::at_request(Address::first(Operation::Commit), Fault::FreezeBefore);
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
    let slow = world.start(2, faulty.clone()).await.expect("a process");
    let removal = tokio::spawn(async move { slow.storage().trim(date(2026, 12, 1), u64::MAX, |_| ()).await });
    until_frozen(&faulty, &removal).await;
    (faulty, removal)
}

#[tokio::test]
async fn two_instances_that_remove_the_same_months_add_each_once() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    add(&counters, "may", &file()).await.expect("saved");
    let (faulty, removal) = hanging_removal(&world).await;
    let removed = counters.storage().trim(date(2026, 12, 1), u64::MAX, |_| ()).await.expect("removed");
    assert_eq!((removed.months, removed.views), (3, 25 + 100 + 7));
    faulty.release();
    assert_eq!(removal.await.expect("ended").expect("nothing is left"), Trimmed::default());
    assert_eq!((days_of(&counters, "a").await, days_of(&counters, "b").await), ((vec![], 1_125), (vec![], 307)));
    assert_eq!([total(&counters, "a").await, total(&counters, "b").await], [whole(1_125), whole(307)]);
    save_all(&counters).await;
}

/// A removal that hangs between its reads and its commit, while views of the same month are saved: it runs again, and has them.
#[tokio::test]
async fn a_removal_beside_a_batch_of_the_same_month_loses_no_view() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    counters.view(ad("a"), 5, None).await.expect("counted");
    save_all(&counters).await;
    let (faulty, removal) = hanging_removal(&world).await;
    counters.view(ad("a"), 2, None).await.expect("counted");
    save_all(&counters).await;
    faulty.release();
    let removed = removal.await.expect("ended").expect("removed");
    assert_eq!((removed.months, removed.views), (1, 7));
    assert_eq!(days_of(&counters, "a").await, (vec![], 7));
    save_all(&counters).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_keeps_days_as_long_as_it_is_told() {
    let world = World::embedded();
    let healthy = world.healthy(1).await;
    let options = CountersOptions { keep_days: Some(30), ..healthy.options().clone() };
    let buffer = Arc::clone(healthy.buffer());
    let counters = Counters::new(buffer, healthy.storage().clone(), world.sources(1), options);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (counters, stop) = (counters.clone(), stop.clone());
        async move { counters.run(stop).await }
    });
    counters.view(ad("a"), 5, None).await.expect("counted");
    let november = async || days_of(&counters, "a").await.0.iter().map(|(_, views)| views).sum::<u64>();
    while november().await != 5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // 2026-12-29: the last day of November is the first of 30 days.
    world.advance(29 * DAY).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(november().await, 5);
    world.advance(DAY).await;
    while november().await != 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(total(&counters, "a").await, whole(5));
    stop.cancel();
    running.await.expect("ended").expect("saved");
    save_all(&counters).await;
    assert_eq!(first_day(), date(2026, 11, 30));
    let kept_for_ever = healthy.trim(u64::MAX).await.expect("nothing");
    assert_eq!(kept_for_ever, Trimmed::default());
}

/// Adds to the stored total of an item what no days have.
pub(crate) async fn break_total(world: &World, id: &str, views: i64) {
    let totals = Namespace::new("counters", "totals").expect("a name");
    let filter = rawdoc! { "_id.id": id };
    world.store.update_one(&totals, filter, rawdoc! { "$inc": { "total": views } }).await.expect("changed");
}
