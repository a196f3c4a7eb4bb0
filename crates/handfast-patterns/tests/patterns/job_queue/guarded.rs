//! Writes of handlers to other documents: each step is made once, and not by a worker that has lost its job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::{Document, doc, rawdoc};
use handfast_patterns::exactly_once::Memory;
use handfast_patterns::job_queue::{ClaimState, Job, JobError, JobQueue, Worker};
use handfast_patterns::{Change, ExactlyOnce, UpdateOutcome};
use handfast_store::{Namespace, StoreExt};

use super::{HOUR, MINUTE, claim, kinds, new_id, numbered, open};
use crate::crash::World;

const STEP: &str = "count";

async fn counters(world: &World) -> ExactlyOnce {
    let place: Namespace = world.namespace("counters");
    world.store.insert_one(&place, rawdoc! { "_id": "a", "n": 0_i64 }).await.unwrap();
    ExactlyOnce::open_with(Arc::clone(&world.store), place, world.sources.clone(), Memory::default()).await.unwrap()
}

async fn counted(world: &World) -> i64 {
    let found = world.store.find_one(&world.namespace("counters"), rawdoc! { "_id": "a" }).await.unwrap().unwrap();
    found.get_i64("n").unwrap()
}

fn add(n: i64) -> Change {
    Change::increment("n", n)
}

/// Claims a job, which is lost after the lease and claimed again by a worker with the same name.
async fn claimed_twice(queue: &JobQueue, world: &World) -> (Job, Job) {
    queue.enqueue(numbered(1)).await.unwrap();
    let slow = claim(queue).await;
    world.clock.advance(2 * MINUTE);
    assert_eq!(queue.reclaim(10).await.unwrap().done, 1);
    let next = claim(queue).await;
    assert_eq!((&slow.id, slow.claims, next.claims), (&next.id, 1, 2));
    (slow, next)
}

#[tokio::test]
async fn each_step_of_a_job_changes_a_document_once() {
    let world = World::in_memory();
    let (queue, counters) = (open(&world).await, counters(&world).await);
    queue.enqueue(numbered(1)).await.unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&runs);
    let worker = Worker::new(queue.clone(), "w").handle("count", move |context, _: Document| {
        let (counters, runs) = (counters.clone(), Arc::clone(&counting));
        async move {
            let first = context.guard("first", &counters, "a", &add(1)).await?;
            let second = context.guard("second", &counters, "a", &add(10)).await?;
            let expected = if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                [UpdateOutcome::Applied, UpdateOutcome::Applied]
            } else {
                [UpdateOutcome::AlreadyApplied, UpdateOutcome::AlreadyApplied]
            };
            assert_eq!([first, second], expected);
            assert_eq!(context.guard("first", &counters, "b", &add(1)).await?, UpdateOutcome::Missing);
            if expected[0] == UpdateOutcome::Applied { Err(JobError::Retry("once more".to_owned())) } else { Ok(()) }
        }
    });
    assert_eq!(worker.drain().await.unwrap().failed, 1);
    world.clock.advance(HOUR);
    assert_eq!(worker.drain().await.unwrap().completed, 1);
    assert_eq!(
        (runs.load(Ordering::Relaxed), counted(&world).await),
        (2, 11),
        "two changes of one document, each once"
    );
}

#[tokio::test]
async fn a_worker_without_its_job_writes_no_more_where_the_next_one_has() {
    let world = World::in_memory();
    let (queue, counters) = (open(&world).await, counters(&world).await);
    let (slow, next) = claimed_twice(&queue, &world).await;
    let apply = async |job: &Job, step: &str| counters.apply_fenced(job.fence(), step, "a", &add(1)).await.unwrap();
    assert_eq!(
        apply(&slow, "first").await,
        UpdateOutcome::Applied,
        "the next one has not been here: one of them has to make the step"
    );
    assert_eq!(apply(&next, "first").await, UpdateOutcome::AlreadyApplied);
    assert_eq!(apply(&next, "second").await, UpdateOutcome::Applied);
    assert_eq!(apply(&slow, "third").await, UpdateOutcome::Fenced);
    assert_eq!(apply(&slow, "first").await, UpdateOutcome::Fenced, "a worker that has made a step is fenced as well");
    assert_eq!(apply(&next, "third").await, UpdateOutcome::Applied);
    assert_eq!(counted(&world).await, 3);
    // The numbers of another job are independent.
    queue.enqueue(numbered(2)).await.unwrap();
    let other = claim(&queue).await;
    assert_eq!((other.claims, apply(&other, "first").await), (1, UpdateOutcome::Applied));
}

/// The next worker computes its change from what it has read; the slow one cannot change the document in between.
#[tokio::test]
async fn a_fenced_document_is_read_in_its_final_state() {
    let world = World::in_memory();
    let (queue, counters) = (open(&world).await, counters(&world).await);
    let (slow, next) = claimed_twice(&queue, &world).await;
    assert_eq!(counters.fence(next.fence(), "a").await.unwrap(), UpdateOutcome::Applied);
    assert_eq!(counters.fence(next.fence(), "a").await.unwrap(), UpdateOutcome::AlreadyApplied);
    let read = counted(&world).await;
    assert_eq!(counters.apply_fenced(slow.fence(), STEP, "a", &add(5)).await.unwrap(), UpdateOutcome::Fenced);
    assert_eq!(counters.fence(slow.fence(), "a").await.unwrap(), UpdateOutcome::Fenced);
    let doubled = Change::new(doc! { "$set": { "n": read * 2 + 2 } });
    assert_eq!(counters.apply_fenced(next.fence(), STEP, "a", &doubled).await.unwrap(), UpdateOutcome::Applied);
    assert_eq!(counted(&world).await, 2);
    assert_eq!(counters.fence(next.fence(), "none").await.unwrap(), UpdateOutcome::Missing);
}

/// The number of a claim increases in every kind of claim, and continues after a retry.
#[tokio::test]
async fn every_claim_has_a_greater_number() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let id = new_id(queue.enqueue(numbered(1)).await.unwrap());
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let job = claim(&queue).await;
        numbers.push(job.claims);
        assert_eq!(queue.release(&job).await.unwrap(), ClaimState::Held);
        let [job] = &*queue.claim_many("w", &kinds(), 5).await.unwrap() else { panic!("one") };
        numbers.push(job.claims);
        assert_eq!(queue.give_up(job, "never").await.unwrap(), ClaimState::Held);
        assert!(queue.retry(id).await.unwrap());
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
}
