//! Jobs that other programs insert as the seed shows them: `{_id, ts, state: TODO, type, details}`, and nothing more.

use std::time::Duration;

use bson::{Bson, doc};
use handfast_patterns::job_queue::{ClaimState, JobQueueOptions, Limits};
use handfast_store::StoreExt;

use super::{HOUR, claim, kinds, numbered, open, open_with};
use crate::crash::World;

async fn put(world: &World, id: impl Into<Bson>, number: i64, priority: Option<i32>) {
    world.clock.advance(Duration::from_millis(1));
    let ts = world.sources.clock.now();
    let mut job =
        doc! { "_id": id.into(), "ts": ts, "state": "TODO", "type": "count", "details": { "number": number } };
    if let Some(priority) = priority {
        job.insert("priority", priority);
    }
    let job = bson::RawDocumentBuf::try_from(&job).unwrap();
    world.store.insert_one(&world.namespace("jobs"), job).await.unwrap();
}

fn every_kind_of_queue() -> [JobQueueOptions; 3] {
    let limits = Limits { concurrency: Some(8), ..Limits::default() };
    [
        JobQueueOptions::default(),
        JobQueueOptions { ordered: true, ..JobQueueOptions::default() },
        JobQueueOptions { limits, ..JobQueueOptions::default() },
    ]
}

#[tokio::test]
async fn jobs_as_in_the_seed_are_claimed_the_oldest_first_and_done() {
    for options in every_kind_of_queue() {
        for many in [false, true] {
            let world = World::in_memory();
            let queue = open_with(&world, options.clone()).await.unwrap();
            for number in 1..=3 {
                put(&world, world.sources.ids.object_id(), number, None).await;
            }
            let depth = queue.depth().await.unwrap();
            assert_eq!((depth.due, depth.foreign), (3, 0));
            assert_eq!(depth.oldest_due, Some(Duration::from_millis(2)));
            let jobs = if many {
                queue.claim_many("w", &kinds(), 9).await.unwrap()
            } else {
                vec![claim(&queue).await, claim(&queue).await, claim(&queue).await]
            };
            let numbers: Vec<_> = jobs.iter().map(|job| job.details.get_i64("number").unwrap()).collect();
            assert_eq!(numbers, [1, 2, 3]);
            assert_eq!((jobs[0].attempts, jobs[0].priority, jobs[0].run_at), (0, 0, jobs[0].ts));
            assert_eq!(queue.fail(&jobs[0], "no luck").await.unwrap(), ClaimState::Held);
            assert_eq!(queue.complete(&jobs[1], None).await.unwrap(), ClaimState::Held);
            world.clock.advance(HOUR);
            assert_eq!(queue.reclaim(10).await.unwrap().done, 1);
            assert_eq!(queue.claim_many("w", &kinds(), 9).await.unwrap().len(), 2);
        }
    }
}

/// A job without a priority has the default one; until the sweep has added it, the job comes after those that have
/// one.
#[tokio::test]
async fn jobs_as_in_the_seed_are_not_held_up_by_others_for_ever() {
    let world = World::in_memory();
    let queue = open(&world).await;
    put(&world, world.sources.ids.object_id(), 1, None).await;
    world.clock.advance(Duration::from_millis(1));
    queue.enqueue(numbered(2)).await.unwrap();
    queue.enqueue(numbered(3).with_priority(-1)).await.unwrap();
    queue.reclaim(10).await.unwrap();
    let jobs = queue.claim_many("w", &kinds(), 9).await.unwrap();
    let numbers: Vec<_> = jobs.iter().map(|job| job.details.get_i64("number").unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
}
