//! Blocked keys do not delay the jobs of others, however many of their jobs are due.

use std::time::Duration;

use bson::{DateTime, rawdoc};
use handfast_patterns::job_queue::{Backoff, ClaimState, Job, JobQueue, JobQueueOptions, Limits, RateLimit};
use handfast_store::StoreExt;

use super::{HOUR, MINUTE, claim, kinds, numbered, open_with};
use crate::crash::World;

async fn open_ordered(world: &World) -> JobQueue {
    let backoff = Backoff { first: MINUTE, longest: MINUTE, jitter: 0.0 };
    open_with(world, JobQueueOptions { ordered: true, backoff, ..JobQueueOptions::default() }).await.unwrap()
}

async fn claimed_numbers(queue: &JobQueue) -> Vec<i64> {
    let jobs = queue.claim_many("w", &kinds(), 9).await.unwrap();
    jobs.iter().map(number).collect()
}

fn number(job: &Job) -> i64 {
    job.details.get_i64("number").unwrap()
}

#[tokio::test]
async fn a_key_that_waits_for_its_backoff_does_not_hold_up_the_others() {
    let world = World::in_memory();
    let queue = open_ordered(&world).await;
    for number in 1..=20 {
        world.clock.advance(Duration::from_millis(1));
        queue.enqueue(numbered(number).in_order("ann")).await.unwrap();
    }
    world.clock.advance(Duration::from_millis(1));
    queue.enqueue(numbered(100).in_order("bob")).await.unwrap();
    queue.enqueue(numbered(200)).await.unwrap();
    let first = claim(&queue).await;
    assert_eq!(number(&first), 1);
    assert_eq!(queue.fail(&first, "not yet").await.unwrap(), ClaimState::Held);
    assert_eq!(claimed_numbers(&queue).await, [100, 200]);
    world.clock.advance(MINUTE);
    for expected in 1..=20 {
        let jobs = queue.claim_many("w", &kinds(), 9).await.unwrap();
        assert_eq!(jobs.iter().map(number).collect::<Vec<_>>(), [expected]);
        assert_eq!(queue.complete(&jobs[0], None).await.unwrap(), ClaimState::Held);
    }
}

/// A claim skips all jobs that come before the first one of their key, but not that one.
#[tokio::test]
async fn the_first_job_of_a_key_is_claimed_behind_many_later_ones_in_a_hurry() {
    let world = World::in_memory();
    let queue = open_ordered(&world).await;
    queue.enqueue(numbered(1).in_order("ann")).await.unwrap();
    for number in 2..=40 {
        world.clock.advance(Duration::from_millis(1));
        queue.enqueue(numbered(number).in_order("ann").with_priority(9)).await.unwrap();
    }
    queue.enqueue(numbered(100).in_order("bob").with_priority(1)).await.unwrap();
    assert_eq!(claimed_numbers(&queue).await, [100, 1]);
}

/// There are more keys than a claim can skip in its filter.
#[tokio::test]
async fn many_keys_that_wait_do_not_hold_up_another_one() {
    let world = World::in_memory();
    let queue = open_ordered(&world).await;
    let in_an_hour = DateTime::from_millis(world.sources.clock.now().timestamp_millis() + 3_600_000);
    for key in 0..300 {
        let key = format!("key{key}");
        queue.enqueue(numbered(0).in_order(&key).at(in_an_hour)).await.unwrap();
        world.clock.advance(Duration::from_millis(1));
        queue.enqueue(numbered(1).in_order(&key)).await.unwrap();
    }
    world.clock.advance(Duration::from_millis(1));
    queue.enqueue(numbered(100).in_order("bob")).await.unwrap();
    assert_eq!(claimed_numbers(&queue).await, [100]);
}

#[tokio::test]
async fn documents_that_are_no_jobs_do_not_stop_an_ordered_queue() {
    let world = World::in_memory();
    let queue = open_ordered(&world).await;
    let now = world.sources.clock.now();
    for number in 0..20 {
        let foreign = rawdoc! { "_id": number, "state": "TODO", "type": "count", "runAt": now, "priority": 9 };
        world.store.insert_one(&world.namespace("jobs"), foreign).await.unwrap();
    }
    for number in 1..=17 {
        world.clock.advance(Duration::from_millis(1));
        queue.enqueue(numbered(number).in_order("ann")).await.unwrap();
    }
    queue.enqueue(numbered(100).in_order("bob")).await.unwrap();
    assert_eq!(claimed_numbers(&queue).await, [1, 100]);
}

/// Blocked keys do not use up the rate.
#[tokio::test]
async fn a_claim_that_finds_only_blocked_keys_is_not_counted() {
    let world = World::in_memory();
    let limits = Limits { rate: Some(RateLimit { jobs: 2, within: HOUR }), ..Limits::default() };
    let queue =
        open_with(&world, JobQueueOptions { ordered: true, limits, ..JobQueueOptions::default() }).await.unwrap();
    for n in [1, 2] {
        queue.enqueue(numbered(n).in_order("ann")).await.unwrap();
        world.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(number(&claim(&queue).await), 1);
    for _ in 0..5 {
        assert!(claimed_numbers(&queue).await.is_empty(), "ann's first job is being done");
    }
    for n in [100, 101] {
        queue.enqueue(numbered(n).in_order(n.to_string())).await.unwrap();
    }
    assert_eq!(claimed_numbers(&queue).await, [100], "the second one within the hour, and the last");
    world.clock.advance(HOUR);
    assert_eq!(claimed_numbers(&queue).await, [101]);
}
