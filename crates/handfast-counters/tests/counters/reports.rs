//! Sums over kinds, and what the counters tell about their queue.

use std::time::Duration;

use handfast_counters::{Kind, SavedViews};

use crate::world::{World, ad, ads, first_day, save_all};

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

#[tokio::test]
async fn the_age_of_the_queue_is_that_of_its_oldest_event() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    let age = async || counters.buffer().oldest_age(&ads()).await.expect("an age").map(|age| age.as_secs());
    assert_eq!(age().await, None);
    // Four events, of which a batch takes three.
    for seconds in [0, 5, 5, 5] {
        world.advance(Duration::from_secs(seconds)).await;
        counters.view(ad("a"), 1, None).await.expect("counted");
    }
    assert_eq!(age().await, Some(15));
    let owner = handfast_counters::Owner::new(&world.sources(2));
    let batch = counters.buffer().claim(&ads(), &owner, 3).await.expect("claimed").expect("a batch");
    assert_eq!(age().await, Some(15), "a batch is not saved");
    counters.storage().save(&batch).await.expect("saved");
    counters.buffer().acknowledge(&batch).await.expect("acknowledged");
    assert_eq!(age().await, Some(0));
    world.advance(Duration::from_secs(2)).await;
    assert_eq!(age().await, Some(2));
    save_all(&counters).await;
    assert_eq!(age().await, None);
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
