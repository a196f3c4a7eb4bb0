//! Sums over kinds, and what the counters tell about their queue.

use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{Kind, SavedViews};
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};

use crate::world::{World, ad, ads, first_day, on_both_forms, save_all};

#[tokio::test]
async fn the_sums_of_a_kind_are_those_of_its_items_on_each_day() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    let other = handfast_counters::Item::new("news", "1").expect("an item");
    counters.view(other, 9, None).await.expect("counted");
    counters.view(ad("a"), 2, None).await.expect("counted");
    counters.view(ad("b"), 3, None).await.expect("counted");
    // The next month.
    world.advance(Duration::from_secs(24 * 3_600)).await;
    counters.view(ad("b"), 4, None).await.expect("counted");
    let to = first_day().tomorrow().expect("a day");
    let before = counters.storage().summary(&ads(), first_day(), to).await.expect("sums");
    assert_eq!((before.views, before.items), (0, 0), "nothing is saved");
    save_all(&counters).await;
    let found = counters.storage().summary(&ads(), first_day().yesterday().expect("a day"), to).await.expect("sums");
    assert_eq!((found.views, found.items), (9, 2));
    let days: Vec<u64> = found.days.iter().map(|day| day.views).collect();
    assert_eq!(days, [0, 5, 4]);
    counters.storage().summary(&ads(), to, first_day()).await.expect_err("the range ends before it begins");
    let unknown = counters.storage().summary(&Kind::new("none").expect("a kind"), to, to).await.expect("sums");
    assert_eq!((unknown.views, unknown.items, unknown.days.len()), (0, 0, 1));
}

on_both_forms! {
    the_age_of_the_queue_is_that_of_its_oldest_event,
}

async fn the_age_of_the_queue_is_that_of_its_oldest_event(world: World) {
    let counters = world.healthy(1).await;
    let age = async || {
        let depth = counters.buffer().depth(&ads()).await.expect("a depth");
        depth.oldest_age.map(|age| age.as_secs())
    };
    assert_eq!(age().await, None);
    // Four events, of which a batch takes three.
    for number in 0..4 {
        counters.view(ad("a"), 1, None).await.expect("counted");
        world.advance(Duration::from_secs(5)).await;
        assert_eq!(age().await, Some(5 * (number + 1)));
    }
    let owner = handfast_counters::Owner::new(&world.sources(2));
    let batch = counters.buffer().claim(&ads(), &owner, 3).await.expect("claimed").expect("a batch");
    assert_eq!(age().await, Some(20), "a batch is not saved");
    counters.storage().save(&batch).await.expect("saved");
    counters.buffer().acknowledge(&batch).await.expect("acknowledged");
    assert_eq!(age().await, Some(5));
    world.advance(Duration::from_secs(2)).await;
    assert_eq!(age().await, Some(7));
    save_all(&counters).await;
    assert_eq!(age().await, None);
}

/// The store is away, which ends each pass at the first kind. Nobody but the passes looks at the queues meanwhile.
#[tokio::test]
async fn ext_redis_passes_that_fail_know_the_ages_of_all_kinds() {
    let Some(world) = World::redis().await else { return };
    let plan = Plan::at_request(Address::first(Operation::Find).of("totals"), Fault::CrashBefore);
    let counters = world.start(1, Arc::new(Faulty::new(world.store.clone(), plan))).await.expect("a process");
    for kind in ["ads", "news"] {
        let item = handfast_counters::Item::new(kind, "7").expect("an item");
        counters.view(item, 1, None).await.expect("counted");
    }
    for _ in 0..10 {
        counters.flush().await.expect_err("the store is away");
        world.advance(Duration::from_secs(2)).await;
    }
    let ages: Vec<_> = counters.queues().await.iter().map(|queue| queue.depth.oldest_age).collect();
    assert_eq!(ages, [Some(Duration::from_secs(20)); 2]);
}

#[tokio::test]
async fn what_was_saved_is_told() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    assert_eq!(counters.saved(), SavedViews::default());
    counters.view(ad("a"), 5, None).await.expect("counted");
    counters.flush().await.expect("saved");
    world.advance(Duration::from_secs(10)).await;
    counters.flush().await.expect("nothing to save");
    let saved = counters.saved();
    assert_eq!((saved.batches, saved.views), (1, 5));
    assert_eq!(saved.last_pass, Some(handfast_store::Clock::now(&*world.clock)));
}
