//! Redis has lost everything, or a key that everything depends on.

use std::sync::Arc;

use handfast_counters::{Owner, Saved};
use handfast_store::decorator::{Fault, Faulty, Plan};

use crate::world::{World, ad, ads, broken_scripts, save_all, total, whole};

#[tokio::test]
async fn ext_redis_after_everything_was_lost_new_views_are_counted() {
    if let Some(world) = World::redis().await {
        lose_everything(world).await;
    }
    if let Some(world) = World::redis().await {
        lose_everything(world.single_documents()).await;
    }
}

async fn lose_everything(world: World) {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, None).await.expect("counted");
    save_all(&counters).await;
    counters.view(ad("7"), 100, None).await.expect("counted");
    let held = counters.buffer().claim(&ads(), &Owner::new(&world.sources(5)), 5).await.expect("claimed");
    world.server().command(&["FLUSHALL"]).await;
    assert_eq!(total(&counters, "7").await, whole(5), "what the store has");
    assert_eq!(counters.view(ad("7"), 1, None).await.expect("counted"), whole(6));
    assert_eq!(counters.buffer().kinds().await.expect("kinds"), [ads()]);
    let other = world.healthy(2).await;
    assert_eq!(other.buffer().kinds().await.expect("kinds"), [ads()], "in Redis again");
    save_all(&counters).await;
    assert_eq!(total(&counters, "7").await, whole(6));
    // An instance that had claimed the lost views comes too late: the bound is above them, and nothing is counted in part.
    let saved = counters.storage().save(&held.expect("a batch")).await.expect("saved");
    assert_eq!(saved, Saved::Before);
    save_all(&counters).await;
}

/// Redis loses all while the store is away. Each restart before has put the numbers of events further before the clock.
async fn lose_all_without_the_store(world: World, restarts: usize) {
    let counters = world.healthy(1).await;
    counters.view(ad("7"), 5, None).await.expect("counted");
    for _ in 0..restarts {
        world.server().kill();
        world.server().restart().await;
        counters.buffer().kinds().await.expect("the kinds that it knows");
        counters.delete(&ad("8"), None).await.expect("deleted");
    }
    save_all(&counters).await;
    let last = counters.storage().last_number(&ads()).await.expect("a number");
    // A process that knows that Redis has the queue of the store, and no number.
    let start = async |process, plan| {
        let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
        let counters = world.start(process, faulty.clone()).await.expect("a process");
        counters.buffer().check_before_saving().await.expect("compared");
        (counters, faulty)
    };
    let operations = start(2, Plan::none()).await.1.operations();
    assert!(operations > 0);
    let (other, faulty) = start(3, Plan::at(operations, Fault::CrashBefore)).await;
    world.server().command(&["FLUSHALL"]).await;
    let counted = other.view(ad("7"), 1, None).await.expect("counted without the store");
    assert!(counted.partial && counted.views == 1, "{counted:?}");
    assert!(other.buffer().depth(&ads()).await.expect("a depth").oldest > last);
    faulty.restart();
    save_all(&other).await;
    assert_eq!(total(&other, "7").await, whole(6));
}

#[tokio::test]
async fn ext_redis_without_the_store_the_clock_of_redis_gives_the_first_number() {
    for restarts in [0, 3] {
        let Some(world) = World::durable_redis().await else { return };
        lose_all_without_the_store(world, restarts).await;
    }
}

#[tokio::test]
async fn ext_redis_numbers_that_are_given_again_are_caught() {
    let mutants = [
        ("nothing is left out", 3, "clock = clock + unknown_gap", ""),
        ("no clock", 0, "math.max(clock, ", "math.max(1, "),
    ];
    for (name, restarts, right, wrong) in mutants {
        let Some(world) = World::durable_redis().await else { return };
        let broken = World { scripts: broken_scripts(name, right, wrong), ..world };
        assert!(tokio::spawn(lose_all_without_the_store(broken, restarts)).await.is_err(), "not caught: {name}");
    }
}

/// The set of all kinds is lost, as it may be in a cluster, where it is on a server of its own. The next process that writes to a kind adds it again.
#[tokio::test]
async fn ext_redis_a_kind_that_left_the_set_of_kinds_is_saved() {
    let Some(world) = World::redis().await else { return };
    world.healthy(1).await.view(ad("7"), 1, None).await.expect("counted");
    for (process, writes) in [(2, true), (3, false)] {
        world.server().command(&["DEL", "hf:kinds"]).await;
        let writer = world.healthy(process).await;
        match writes {
            true => drop(writer.view(ad("7"), 1, None).await.expect("counted")),
            false => writer.delete(&ad("8"), None).await.expect("deleted"),
        }
        let other = world.healthy(process + 10).await;
        assert_eq!(other.buffer().kinds().await.expect("kinds"), [ads()]);
        save_all(&other).await;
        assert_eq!(other.storage().totals(&ads(), &[ad("7").id]).await.expect("a total"), [2]);
    }
}
