//! A pass that has failed says whether views wait in the queue, as far as the queues answer.

use std::sync::Arc;

use handfast_counters::{Counters, CountersOptions, Item, PassError};
use handfast_store::decorator::{Fault, Faulty, Plan};
use tokio_util::sync::CancellationToken;

use crate::faulty_buffer::FaultyBuffer;
use crate::world::{World, save_all};

const KINDS: [&str; 2] = ["ads", "news"];
/// More requests than two passes send to the store.
const REQUESTS_MAX: u64 = 1_000;

/// Lets an instance run whose store refuses everything once it has started, and whose buffer has a fault at the request with this number. Returns the error of its
/// last pass, and the number of requests to the buffer.
async fn last_error(world: &World, fault: Option<(u64, Fault)>) -> (PassError, u64) {
    let started = {
        let counting = Arc::new(Faulty::new(world.store.clone(), Plan::none()));
        world.start(2, counting.clone()).await.expect("a process");
        counting.operations()
    };
    let plan = Plan::explicit((started..started + REQUESTS_MAX).map(|number| (number, Fault::Refuse)));
    let store = Arc::new(Faulty::new(world.store.clone(), plan));
    let mut faulty = None;
    let decorate = |buffer| {
        let decorated = Arc::new(FaultyBuffer::new(buffer, fault));
        faulty = Some(Arc::clone(&decorated));
        decorated as Arc<dyn handfast_counters::Buffer>
    };
    let counters = world.start_with(2, store, decorate).await.expect("a process");
    let stop = CancellationToken::new();
    stop.cancel();
    let error = counters.run(stop).await.expect_err("the store refuses everything");
    (error, faulty.expect("a buffer").operations())
}

/// An instance that has saved views of two kinds, and another one that begins.
async fn saved() -> World {
    // A pass over empty queues asks this store, too.
    let world = World::in_memory().single_documents();
    let counters = world.healthy(1).await;
    for kind in KINDS {
        counters.view(Item::new(kind, "7").expect("an item"), 1, None).await.expect("counted");
    }
    save_all(&counters).await;
    world
}

#[tokio::test]
async fn nothing_waits_if_all_queues_say_so() {
    let world = saved().await;
    let (error, requests) = last_error(&world, None).await;
    assert!(matches!(error, PassError::NothingWaits(_)), "{error}");
    // The last requests are the looks at the two queues.
    for last in 1..=2 {
        let (error, _) = last_error(&world, Some((requests - last, Fault::Refuse))).await;
        assert!(matches!(error, PassError::QueueUnavailable(_)), "one of the queues does not answer: {error}");
    }
    let (error, _) = last_error(&world, Some((requests - 3, Fault::Refuse))).await;
    assert!(matches!(error, PassError::QueueUnavailable(_)), "the kinds are not known: {error}");
}

#[tokio::test]
async fn views_wait_if_one_of_the_queues_says_so() {
    let world = saved().await;
    let memory = world.memory.clone().expect("a buffer");
    let options = CountersOptions::default();
    let other = Counters::new(memory, world.healthy(3).await.storage().clone(), world.sources(3), options);
    other.view(Item::new("news", "7").expect("an item"), 1, None).await.expect("counted");
    assert_eq!(other.buffer().kinds().await.expect("kinds").len(), KINDS.len());
    let (error, requests) = last_error(&world, None).await;
    assert!(matches!(error, PassError::ViewsWait(_)), "{error}");
    // One of them says it, whatever the other one has.
    let mut seen = Vec::new();
    for last in 1..=2 {
        let (error, _) = last_error(&world, Some((requests - last, Fault::Refuse))).await;
        seen.push(matches!(error, PassError::ViewsWait(_)));
        assert!(matches!(error, PassError::ViewsWait(_) | PassError::QueueUnavailable(_)), "{error}");
    }
    assert_eq!(seen.iter().filter(|waits| **waits).count(), 1, "the queue with the views is the one that tells");
}
