//! The counters when all parts work, and when the store is away.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_counters::jiff::civil::date;
use handfast_counters::{COUNTED_TOTAL_MAX, Error, Owner, Total};
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{Applied, Namespace, StoreExt as _};

use crate::world::{World, ad, ads, first_day, key, on_both_forms, save_all, total, whole};

/// Addresses the request that makes the second view durable.
fn second_view() -> Address {
    Address::second(Operation::Insert).of("queue")
}

on_both_forms! {
    views_are_counted_by_item_and_day,
    an_item_that_was_never_viewed_has_no_views,
    a_request_with_a_key_is_counted_once,
    requests_at_once_with_one_key_are_counted_once,
    concurrent_views_are_all_counted_while_they_are_saved,
    a_deleted_item_begins_at_zero,
    a_deletion_with_a_key_is_carried_out_once,
    a_key_that_was_used_before_a_deletion_stays_used,
    a_restart_reads_the_queue_back,
    a_full_queue_refuses_views_and_takes_them_again,
    views_stop_at_the_largest_total,
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn views_are_counted_by_item_and_day(world: World) {
    let counters = world.healthy(1).await;
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(1));
    assert_eq!(counters.view(ad("7"), 4, None).await.expect("counted"), whole(5));
    assert_eq!(counters.view(ad("8"), 1, None).await.expect("counted"), whole(1));
    save_all(&counters).await;
    world.advance(2 * DAY).await;
    assert_eq!(counters.view(ad("7"), 2, None).await.expect("counted"), whole(7));
    save_all(&counters).await;
    let days = counters.daily(&ad("7"), date(2026, 11, 29), date(2026, 12, 3)).await.expect("days");
    let views: Vec<_> = days.iter().map(|day| (day.day, day.views)).collect();
    let expected = [(2026, 11, 29, 0), (2026, 11, 30, 5), (2026, 12, 1, 0), (2026, 12, 2, 2), (2026, 12, 3, 0)];
    assert_eq!(views, expected.map(|(year, month, day, views)| (date(year, month, day), views)));
    let top = counters.top(&ads(), 10, None).await.expect("a list");
    let top: Vec<_> = top.iter().map(|item| (item.id.as_str(), item.views)).collect();
    assert_eq!(top, [("7", 7), ("8", 1)]);
    let of_day = counters.top(&ads(), 1, Some(first_day())).await.expect("a list");
    assert_eq!((of_day[0].id.as_str(), of_day[0].views, of_day.len()), ("7", 5, 1));
}

async fn an_item_that_was_never_viewed_has_no_views(world: World) {
    let counters = world.healthy(1).await;
    assert_eq!(total(&counters, "7").await, whole(0));
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(1));
}

async fn a_request_with_a_key_is_counted_once(world: World) {
    let counters = world.healthy(1).await;
    for _ in 0..3 {
        assert_eq!(counters.view(ad("7"), 1, key("a")).await.expect("counted"), whole(1));
    }
    assert_eq!(counters.view(ad("7"), 1, key("b")).await.expect("counted"), whole(2));
    assert_eq!(counters.view(ad("8"), 1, key("a")).await.expect("counted"), whole(1), "keys belong to items");
    save_all(&counters).await;
    drop(counters);
    let restarted = world.healthy(2).await;
    assert_eq!(restarted.view(ad("7"), 1, key("a")).await.expect("counted"), whole(2), "also after a restart");
    world.advance(DAY).await;
    assert_eq!(restarted.view(ad("7"), 1, key("a")).await.expect("counted"), whole(3), "for a day");
}

async fn requests_at_once_with_one_key_are_counted_once(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 1, None).await.expect("counted");
    let requests = (0..20).map(|_| {
        let counters = counters.clone();
        tokio::spawn(async move { counters.view(ad("7"), 1, key("a")).await })
    });
    for request in requests.collect::<Vec<_>>() {
        assert_eq!(request.await.expect("ended").expect("counted"), whole(2));
    }
}

async fn concurrent_views_are_all_counted_while_they_are_saved(world: World) {
    let counters = world.healthy(1).await;
    let requests: Vec<_> = (0..200_u64)
        .map(|number| {
            let counters = counters.clone();
            tokio::spawn(async move {
                let item = ad(&(number % 3).to_string());
                while let Err(Error::Full { .. }) = counters.view(item.clone(), 1, None).await {
                    tokio::task::yield_now().await;
                }
                counters.flush().await.expect("saved");
            })
        })
        .collect();
    for request in requests {
        request.await.expect("ended");
    }
    save_all(&counters).await;
    let totals = [total(&counters, "0").await, total(&counters, "1").await, total(&counters, "2").await];
    assert_eq!(totals, [whole(67), whole(67), whole(66)]);
}

async fn a_deleted_item_begins_at_zero(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, None).await.expect("counted");
    save_all(&counters).await;
    counters.view(ad("7"), 1, None).await.expect("counted");
    counters.delete(&ad("7"), None).await.expect("deleted");
    assert_eq!(total(&counters, "7").await, whole(0));
    assert_eq!(counters.view(ad("7"), 2, None).await.expect("counted"), whole(2));
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(2));
    let days = counters.daily(&ad("7"), first_day(), first_day()).await.expect("days");
    assert_eq!(days[0].views, 2);
    counters.delete(&ad("7"), None).await.expect("deleted");
    save_all(&counters).await;
    drop(counters);
    let restarted = world.healthy(2).await;
    assert_eq!(total(&restarted, "7").await, whole(0));
    assert_eq!(restarted.top(&ads(), 10, None).await.expect("a list"), []);
}

/// A deletion that arrives again, late, does not take the views with it that came since; nor is its key one of views.
async fn a_deletion_with_a_key_is_carried_out_once(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, key("a")).await.expect("counted");
    save_all(&counters).await;
    counters.delete(&ad("7"), key("a").as_ref()).await.expect("deleted");
    assert_eq!(counters.view(ad("7"), 2, None).await.expect("counted"), whole(2), "another request had the key");
    counters.delete(&ad("7"), key("a").as_ref()).await.expect("answered");
    assert_eq!(total(&counters, "7").await, whole(2));
    save_all(&counters).await;
    drop(counters);
    let restarted = world.healthy(2).await;
    restarted.delete(&ad("7"), key("a").as_ref()).await.expect("answered");
    restarted.view(ad("8"), 3, None).await.expect("counted");
    save_all(&restarted).await;
    assert_eq!(total(&restarted, "7").await, whole(2));
    restarted.delete(&ad("8"), key("a").as_ref()).await.expect("deleted");
    restarted.delete(&ad("7"), key("b").as_ref()).await.expect("deleted");
    let two = [key("c"), key("c")].map(|key| {
        let counters = restarted.clone();
        tokio::spawn(async move { counters.delete(&ad("8"), key.as_ref()).await })
    });
    for deleted in two {
        deleted.await.expect("ended").expect("deleted");
    }
    save_all(&restarted).await;
    let totals = [total(&restarted, "7").await, total(&restarted, "8").await];
    assert_eq!(totals, [whole(0), whole(0)], "a key is one of its item");
}

async fn a_key_that_was_used_before_a_deletion_stays_used(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, key("a")).await.expect("counted");
    counters.delete(&ad("7"), None).await.expect("deleted");
    assert_eq!(counters.view(ad("7"), 5, key("a")).await.expect("answered"), whole(0), "it was counted, and deleted");
    assert_eq!(counters.view(ad("7"), 2, key("b")).await.expect("counted"), whole(2));
    save_all(&counters).await;
    assert_eq!(counters.view(ad("7"), 5, key("a")).await.expect("answered"), whole(2), "also when it is saved");
    drop(counters);
    let restarted = world.healthy(2).await;
    assert_eq!(restarted.view(ad("7"), 5, key("a")).await.expect("answered"), whole(2), "also after a restart");
}

async fn a_restart_reads_the_queue_back(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, None).await.expect("counted");
    save_all(&counters).await;
    counters.view(ad("7"), 2, None).await.expect("counted");
    counters.view(ad("8"), 1, None).await.expect("counted");
    drop(counters);
    let restarted = world.healthy(2).await;
    assert_eq!((total(&restarted, "7").await, total(&restarted, "8").await), (whole(7), whole(1)));
    save_all(&restarted).await;
    assert_eq!((total(&restarted, "7").await, total(&restarted, "8").await), (whole(7), whole(1)));
}

async fn a_full_queue_refuses_views_and_takes_them_again(world: World) {
    let counters = world.healthy(1).await;
    for _ in 0..50 {
        counters.view(ad("7"), 1, None).await.expect("counted");
    }
    let refused = counters.view(ad("7"), 1, None).await.expect_err("full");
    assert!(matches!(refused, Error::Full { events: 50 }), "{refused}");
    assert!(matches!(counters.delete(&ad("7"), None).await, Err(Error::Full { .. })));
    assert_eq!(total(&counters, "7").await, whole(50));
    let full = counters.readiness().await;
    assert!(!full.takes_views() && matches!(full.queue, Some(Error::Full { events: 50 })), "{full:?}");
    // Events in batches have their places, too.
    let batch = counters.buffer().claim(&ads(), &Owner::new(&world.sources(5)), 30).await.expect("claimed");
    assert!(matches!(counters.buffer().check().await, Err(Error::Full { .. })));
    assert!(matches!(counters.view(ad("7"), 1, None).await, Err(Error::Full { .. })));
    let batch = batch.expect("a batch");
    counters.storage().save(&batch).await.expect("saved");
    counters.buffer().acknowledge(&batch).await.expect("acknowledged");
    assert!(counters.readiness().await.takes_views());
    save_all(&counters).await;
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(51));
}

async fn views_stop_at_the_largest_total(world: World) {
    let totals = Namespace::new("counters", "totals").expect("a namespace");
    let stored = i64::try_from(COUNTED_TOTAL_MAX - 3).expect("a number of the store");
    let document = rawdoc! { "_id": { "kind": "ads", "id": "7" }, "total": stored, "base": stored };
    world.store.insert_one(&totals, document).await.expect("inserted");
    let counters = world.healthy(1).await;
    let refused = async |views: u32, name: &str, total: u64| {
        let error = counters.view(ad("7"), views, key(name)).await.expect_err("too large");
        assert!(matches!(error, Error::TotalTooLarge { views } if views == total), "{error}");
        assert_eq!(error.applied(), Applied::No);
    };
    // Without an entry, and then with one.
    refused(4, "a", COUNTED_TOTAL_MAX - 3).await;
    assert_eq!(counters.view(ad("7"), 2, None).await.expect("counted"), whole(COUNTED_TOTAL_MAX - 1));
    refused(2, "a", COUNTED_TOTAL_MAX - 1).await;
    for _ in 0..2 {
        let counted = counters.view(ad("7"), 1, key("a")).await.expect("counted");
        assert_eq!(counted, whole(COUNTED_TOTAL_MAX), "its key was not remembered, and is now");
    }
    refused(1, "b", COUNTED_TOTAL_MAX).await;
    save_all(&counters).await;
    refused(1, "b", COUNTED_TOTAL_MAX).await;
    counters.delete(&ad("7"), None).await.expect("deleted");
    assert_eq!(counters.view(ad("7"), 1, key("b")).await.expect("counted"), whole(1));
    save_all(&counters).await;
}

#[tokio::test]
async fn a_queue_in_a_store_that_is_away_refuses_and_loses_nothing() {
    let world = World::embedded();
    let faulty = Arc::new(Faulty::new(world.store.clone(), Plan::at_request(second_view(), Fault::CrashBefore)));
    let counters = world.start(1, faulty.clone()).await.expect("a process");
    counters.view(ad("7"), 5, None).await.expect("counted");
    let refused = counters.view(ad("7"), 1, None).await.expect_err("away");
    assert!(matches!(refused, Error::Buffer { applied: Applied::Maybe, .. }), "{refused}");
    let refused = counters.view(ad("7"), 100, None).await.expect_err("away");
    assert!(matches!(refused, Error::Buffer { applied: Applied::No, .. }), "{refused}");
    assert!(counters.flush().await.is_err());
    assert_eq!(total(&counters, "7").await, whole(5), "from the cache");
    faulty.restart();
    // The view in doubt is written again before anything else.
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(7));
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(7));
}

#[tokio::test]
async fn a_lost_answer_of_the_queue_is_asked_for_again() {
    let world = World::embedded();
    let faulty = Arc::new(Faulty::new(world.store.clone(), Plan::at_request(second_view(), Fault::LoseReply)));
    let counters = world.start(1, faulty.clone()).await.expect("a process");
    counters.view(ad("7"), 1, None).await.expect("counted");
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(2));
    assert_eq!(faulty.injected().len(), 1);
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, Total { views: 2, partial: false });
}
