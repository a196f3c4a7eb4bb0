//! Dates that were written while a clock was ahead, before it was corrected. They prevent no work from being
//! recovered.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc, rawdoc};
use handfast_patterns::job_queue::{ClaimState, JobQueue, JobQueueOptions, JobState, NewJob, Reclaimed};
use handfast_patterns::versioned_tree::{Commit, VersionState};
use handfast_patterns::{Transfer, TwoPhase, TwoPhaseOptions, VersionedTree, VersionedTreeOptions};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Faulty, Plan as Faults};

use crate::crash::World;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Sets the clock of the world back.
fn set_back(world: &World, by: Duration) {
    let now = world.sources.clock.now().timestamp_millis();
    world.clock.set(DateTime::from_millis(now - i64::try_from(by.as_millis()).unwrap()));
}

async fn transfers(world: &World, abandoned_after: Duration) -> TwoPhase {
    let options = TwoPhaseOptions { abandoned_after, ..TwoPhaseOptions::new("App1", world.namespace("accounts")) };
    let target = world.namespace("transactions");
    TwoPhase::open_with(Arc::clone(&world.store), target, world.sources.clone(), options).await.unwrap()
}

/// Makes a transfer whose process dies when the first account has paid.
async fn half_a_transfer(world: &World) {
    for id in ["A", "B"] {
        world.store.insert_one(&world.namespace("accounts"), rawdoc! { "_id": id, "balance": 1000 }).await.unwrap();
    }
    transfers(world, MINUTE).await.begin(1, Transfer::new("A", "B", 100)).await.unwrap();
    for number in 0.. {
        let dying = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::at(number, Fault::CrashAfter)));
        let there = world.on(dying);
        let options = TwoPhaseOptions::new("App1", world.namespace("accounts"));
        if let Ok(theirs) =
            TwoPhase::attach(Arc::clone(&there.store), world.namespace("transactions"), there.sources.clone(), options)
                .await
        {
            let _ = theirs.run(1).await;
        }
        let paid = world.store.find_one(&world.namespace("accounts"), rawdoc! { "balance": 900 }).await.unwrap();
        if paid.is_some() {
            return;
        }
    }
}

#[tokio::test]
async fn a_transaction_with_a_date_far_ahead_was_left_alone() {
    let world = World::in_memory();
    half_a_transfer(&world).await;
    let ours = transfers(&world, MINUTE).await;
    set_back(&world, MINUTE / 2);
    assert_eq!(ours.status().await.unwrap().abandoned, 0, "so far two clocks may be apart");
    assert_eq!(ours.recover(10).await.unwrap().done, 0);
    set_back(&world, 10 * DAY);
    assert_eq!(ours.status().await.unwrap().abandoned, 1);
    assert_eq!(ours.recover(10).await.unwrap().done, 1);
    let paid =
        world.store.find_one(&world.namespace("accounts"), rawdoc! { "_id": "B", "balance": 1100 }).await.unwrap();
    assert!(paid.is_some());
}

#[tokio::test]
async fn a_threshold_of_nothing_takes_every_transaction() {
    for back in [Duration::ZERO, Duration::from_millis(1), DAY] {
        let world = World::in_memory();
        half_a_transfer(&world).await;
        set_back(&world, back);
        assert_eq!(transfers(&world, Duration::ZERO).await.recover(10).await.unwrap().done, 1, "{back:?}");
    }
}

async fn queue(world: &World) -> JobQueue {
    let options = JobQueueOptions { lease: MINUTE, crashes_max: 1, ..JobQueueOptions::default() };
    JobQueue::open_with(Arc::clone(&world.store), world.namespace("jobs"), world.sources.clone(), options)
        .await
        .unwrap()
}

async fn enqueued(queue: &JobQueue) {
    queue.enqueue(NewJob::new("mail", &doc! {}).unwrap().with_id(1)).await.unwrap();
}

/// Reclaims silent jobs and returns the result for each.
async fn reclaimed(queue: &JobQueue) -> Vec<Reclaimed> {
    let outcomes = std::sync::Mutex::new(Vec::new());
    let round = queue.reclaim_each(10, |outcome| outcomes.lock().unwrap().push(outcome)).await.unwrap();
    let outcomes = outcomes.into_inner().unwrap();
    assert_eq!((round.done, round.failed), (outcomes.len() as u64, 0));
    outcomes
}

async fn change(world: &World, update: &Document) {
    let update = bson::RawDocumentBuf::try_from(update).unwrap();
    world.store.update_one(&world.namespace("jobs"), rawdoc! { "_id": 1 }, update).await.unwrap();
}

#[tokio::test]
async fn a_job_with_a_sign_of_life_far_ahead_is_returned_and_no_crash() {
    let world = World::in_memory();
    let queue = queue(&world).await;
    enqueued(&queue).await;
    let job = queue.claim("worker1", &["mail".to_owned()]).await.unwrap().unwrap();
    set_back(&world, MINUTE / 2);
    assert_eq!((queue.depth().await.unwrap().silent, reclaimed(&queue).await), (0, Vec::new()), "it may live");
    set_back(&world, 10 * DAY);
    assert_eq!(queue.depth().await.unwrap().silent, 1);
    let seen = queue.show(1).await.unwrap().unwrap();
    assert!(queue.is_silent(&seen));
    // A crash of this worker would make the job a dead letter.
    assert_eq!(reclaimed(&queue).await, [Reclaimed::Returned]);
    let returned = queue.show(1).await.unwrap().unwrap();
    assert_eq!((returned.state, returned.crashes, returned.worker), (JobState::Todo, 0, None));
    assert!(returned.error.unwrap().contains("ahead"));
    // The worker of the job is alive, and has lost the job.
    assert_eq!(queue.renew(&job, None).await.unwrap(), ClaimState::Lost);
    assert_eq!(queue.complete(&job, None).await.unwrap(), ClaimState::Lost);
    world.clock.advance(20 * DAY);
    queue.claim("worker2", &["mail".to_owned()]).await.unwrap().unwrap();
    world.clock.advance(MINUTE * 2);
    assert_eq!(reclaimed(&queue).await, [Reclaimed::GivenUp], "this one is a crash");
}

#[tokio::test]
async fn a_job_without_a_readable_sign_of_life_is_returned_or_canceled() {
    let odd = [
        doc! { "$unset": { "worker": "" } },
        doc! { "$unset": { "worker.ts": "" } },
        doc! { "$unset": { "worker.name": "", "worker.ts": "", "worker.claim": "" } },
        doc! { "$set": { "worker.ts": "x" } },
        doc! { "$set": { "worker.ts": [DateTime::from_millis(0)] } },
    ];
    for odd in odd {
        for canceled in [false, true] {
            let world = World::in_memory();
            let queue = queue(&world).await;
            enqueued(&queue).await;
            queue.claim("worker1", &["mail".to_owned()]).await.unwrap().unwrap();
            change(&world, &odd).await;
            if canceled {
                assert!(queue.cancel(1).await.unwrap());
            }
            assert_eq!(queue.depth().await.unwrap().silent, 1, "{odd}");
            let expected = if canceled { Reclaimed::Canceled } else { Reclaimed::Returned };
            assert_eq!(reclaimed(&queue).await, [expected], "{odd}");
            let state = queue.show(1).await.unwrap().unwrap().state;
            assert_eq!(state, if canceled { JobState::Canceled } else { JobState::Todo }, "{odd}");
            assert_eq!(queue.claim("worker2", &["mail".to_owned()]).await.unwrap().is_some(), !canceled, "{odd}");
        }
    }
}

#[tokio::test]
async fn a_job_with_an_unreadable_worker_becomes_a_dead_letter_or_is_canceled() {
    for odd in [Bson::Null, 5.into(), bson::bson!([{}])] {
        for canceled in [false, true] {
            let world = World::in_memory();
            let queue = queue(&world).await;
            enqueued(&queue).await;
            queue.claim("worker1", &["mail".to_owned()]).await.unwrap().unwrap();
            change(&world, &doc! { "$set": { "worker": odd.clone(), "cancel": canceled } }).await;
            assert_eq!(queue.depth().await.unwrap().silent, 1, "{odd}");
            let expected = if canceled { Reclaimed::Canceled } else { Reclaimed::GivenUp };
            assert_eq!(reclaimed(&queue).await, [expected], "{odd}");
            let found = world.store.find_one(&world.namespace("jobs"), rawdoc! { "_id": 1 }).await.unwrap().unwrap();
            let state = if canceled { "CANCELED" } else { "FAILED" };
            assert_eq!(found.get_str("state").unwrap(), state, "{odd}");
        }
    }
}

async fn tree(world: &World) -> VersionedTree {
    let options = VersionedTreeOptions {
        lease: MINUTE,
        pin_lease: 10 * MINUTE,
        wait: Duration::ZERO,
        ..VersionedTreeOptions::new("tree")
    };
    VersionedTree::open_with(Arc::clone(&world.store), world.namespace("items"), world.sources.clone(), options)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_write_and_a_pin_with_a_date_far_ahead_are_over() {
    let world = World::in_memory();
    let tree = tree(&world).await;
    let first = tree.begin().await.unwrap();
    assert!(matches!(first.commit(doc! {}).await.unwrap(), Commit::Committed { .. }));
    let pin = tree.newest().await.unwrap().unwrap().pin().await.unwrap().unwrap();
    let mut write = tree.begin().await.unwrap();
    write.put("lamp", doc! { "price": 1 }).await.unwrap();
    set_back(&world, MINUTE / 2);
    assert_eq!((tree.status().await.unwrap().silent, tree.sweep(10).await.unwrap().done), (0, 0), "it may live");
    set_back(&world, 10 * DAY);
    assert_eq!(tree.status().await.unwrap().silent, 1);
    assert_eq!(tree.orphans(10).await.unwrap().len(), 1);
    assert_eq!(tree.sweep(10).await.unwrap().done, 1);
    let status = tree.status().await.unwrap();
    assert_eq!((status.writing, status.pins), (0, 0));
    assert_eq!(tree.show(2).await.unwrap().unwrap().state, VersionState::Abandoned);
    // The writer and the reader of the pin are alive, and get the result that they are too late.
    assert!(matches!(write.commit(doc! {}).await.unwrap(), Commit::Conflict));
    assert!(!pin.renew().await.unwrap());
}

#[tokio::test]
async fn a_pin_with_a_date_far_ahead_keeps_no_version() {
    let world = World::in_memory();
    let tree = tree(&world).await;
    for _ in 0..2 {
        assert!(matches!(tree.begin().await.unwrap().commit(doc! {}).await.unwrap(), Commit::Committed { .. }));
        let _pinned = tree.newest().await.unwrap().unwrap().pin().await.unwrap();
    }
    set_back(&world, 10 * DAY);
    let keep = handfast_patterns::versioned_tree::Keep { last: 1, ..Default::default() };
    assert_eq!(tree.plan_prune(keep).await.unwrap().versions, [1]);
}
