use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bson::DateTime;

use super::{CountingIds, IdSource, ManualClock, ObjectIds, Random, SeededRandom, Sources};

/// The first outputs that the authors' C code (xoshiro256plusplus.c) gives for the state 1, 2, 3, 4.
#[test]
fn the_generator_gives_the_published_numbers() {
    let random = SeededRandom::from_state([1, 2, 3, 4]);
    let numbers = [(); 4].map(|()| random.next_u64());
    assert_eq!(numbers, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
}

#[test]
fn a_state_of_zeros_is_replaced() {
    let random = SeededRandom::from_state([0; 4]);
    assert_ne!(random.next_u64(), random.next_u64());
}

#[test]
fn a_seed_determines_numbers_and_ids() {
    let run = |seed| {
        let sources = Sources::seeded(seed);
        [(); 8].map(|()| (sources.random.next_u64(), sources.ids.object_id()))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn ids_grow_when_the_counter_overflows_or_the_clock_is_set_back() {
    let clock = Arc::new(ManualClock::new(ManualClock::START));
    let ids = ObjectIds::new(clock.clone(), &SeededRandom::new(3));
    // From any start, 2^24 + 2 steps pass the end of the counter.
    ids.last.fetch_or(super::object_ids::COUNTER_MASK - 2, std::sync::atomic::Ordering::SeqCst);
    let mut last = ids.object_id();
    for step in 0..100 {
        match step {
            30 => clock.set(DateTime::from_millis(0)),
            60 => clock.advance(Duration::from_secs(10)),
            _ => {}
        }
        let next = ids.object_id();
        assert!(next > last, "{next} after {last} at step {step}");
        last = next;
    }
}

#[test]
fn an_id_contains_the_seconds_of_the_clock() {
    let (sources, clock) = Sources::manual(1);
    clock.advance(Duration::from_secs(5));
    let seconds = sources.ids.object_id().timestamp().timestamp_millis() / 1000;
    assert_eq!(seconds, ManualClock::START.timestamp_millis() / 1000 + 5);
}

#[test]
fn ids_of_many_threads_are_different() {
    let sources = Sources::system().expect("randomness");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let ids = Arc::clone(&sources.ids);
            std::thread::spawn(move || (0..5_000).map(|_| ids.object_id()).collect::<Vec<_>>())
        })
        .collect();
    let all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 20_000);
}

#[test]
fn the_system_clock_shows_a_recent_time_and_its_elapsed_time_does_not_go_back() {
    let clock = Sources::system().expect("randomness").clock;
    assert!(clock.now() > ManualClock::START);
    assert!(clock.elapsed() <= clock.elapsed());
}

#[test]
fn two_system_sources_give_different_numbers() {
    let (one, other) = (Sources::system().expect("randomness"), Sources::system().expect("randomness"));
    assert_ne!(one.random.next_u64(), other.random.next_u64());
}

#[test]
fn counting_ids_count() {
    let ids = CountingIds::new();
    assert_eq!(ids.object_id().to_hex(), "000000000000000000000001");
    assert_eq!(ids.object_id().to_hex(), "000000000000000000000002");
}

#[tokio::test]
async fn variables_are_evaluated_without_a_document() {
    let sources = Sources::seeded(1);
    let given = bson::rawdoc! { "a": 1, "b": { "$add": [1, 2] }, "c": "$missing", "d": { "$literal": "$x" } };
    let expected = bson::rawdoc! { "a": 1, "b": 3, "c": null, "d": "$x" };
    assert_eq!(sources.evaluate(given).await.expect("valid"), expected);
    assert!(sources.evaluate(bson::rawdoc! { "a": { "$frobnicate": 1 } }).await.is_err());
}
