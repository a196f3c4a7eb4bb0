//! The job queue: fencing, retries, crashing jobs, order, uniqueness, every crash point, and workers that are killed.

mod canceled;
mod foreign;
mod guarded;
mod handlers;
mod killed;
mod limited;
mod options;
mod ordered;
mod pages;
mod recorded;
mod seed;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc, rawdoc};
use handfast_patterns::job_queue::{
    Backoff, ClaimState, Depth, Enqueued, Job, JobQueue, JobQueueOptions, JobState, NewJob, Worker,
};
use handfast_patterns::{CancellationToken, Error, Result};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Faulty, Operation, Plan as Faults};
use serde::{Deserialize, Serialize};

use crate::crash::World;
use crate::fault::{first, wait_until_frozen};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Friends {
    users: [String; 2],
}

fn friends() -> NewJob {
    NewJob::new("ADD_FRIEND", &Friends { users: ["ann".to_owned(), "bob".to_owned()] }).unwrap()
}

fn numbered(number: i64) -> NewJob {
    NewJob::new("count", &doc! { "number": number }).unwrap()
}

fn kinds() -> Vec<String> {
    vec!["ADD_FRIEND".to_owned(), "count".to_owned()]
}

async fn open_with(world: &World, options: JobQueueOptions) -> Result<JobQueue> {
    JobQueue::open_with(Arc::clone(&world.store), world.namespace("jobs"), world.sources.clone(), options).await
}

async fn open(world: &World) -> JobQueue {
    open_with(world, JobQueueOptions::default()).await.unwrap()
}

async fn claim(queue: &JobQueue) -> Job {
    queue.claim("worker1", &kinds()).await.unwrap().expect("a job is due")
}

fn new_id(enqueued: Enqueued) -> ObjectId {
    match enqueued {
        Enqueued::New(Bson::ObjectId(id)) => id,
        other => panic!("{other:?}"),
    }
}

async fn stored(world: &World, id: ObjectId) -> Document {
    let found = world.store.find_one(&world.namespace("jobs"), rawdoc! { "_id": id }).await.unwrap();
    Document::try_from(&*found.unwrap()).unwrap()
}

#[tokio::test]
async fn the_documents_have_the_fields_of_the_seed() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let now = world.sources.clock.now();
    let id = new_id(queue.enqueue(friends()).await.unwrap());
    let todo = doc! {
        "_id": id, "ts": now, "state": "TODO", "type": "ADD_FRIEND", "details": { "users": ["ann", "bob"] }, "undone": 1,
        "attempts": 0, "crashes": 0, "priority": 0, "runAt": now,
    };
    assert_eq!(stored(&world, id).await, todo);
    world.clock.advance(MINUTE);
    let job = claim(&queue).await;
    assert_eq!(job.details::<Friends>().unwrap().users, ["ann", "bob"]);
    let processing = stored(&world, id).await;
    assert_eq!(processing.get_str("state").unwrap(), "PROCESSING");
    let worker = processing.get_document("worker").unwrap();
    assert_eq!(
        (worker.get_str("name").unwrap(), *worker.get_datetime("ts").unwrap()),
        ("worker1", world.sources.clock.now())
    );
    assert_eq!(queue.complete(&job, Some("friends".into())).await.unwrap(), ClaimState::Held);
    let done = stored(&world, id).await;
    assert_eq!((done.get_str("state").unwrap(), done.get_str("result").unwrap()), ("DONE", "friends"));
    assert!(!done.contains_key("undone") && done.contains_key("finishedAt"), "{done}");
}

#[tokio::test]
async fn jobs_are_claimed_by_priority_then_time_then_age_and_not_before_their_time() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let now = world.sources.clock.now();
    let in_an_hour = DateTime::from_millis(now.timestamp_millis() + 3_600_000);
    queue.enqueue(numbered(3)).await.unwrap();
    world.clock.advance(Duration::from_millis(1));
    queue.enqueue(numbered(4)).await.unwrap();
    queue.enqueue(numbered(5).at(in_an_hour).with_priority(9)).await.unwrap();
    queue.enqueue(numbered(2).with_priority(1)).await.unwrap();
    queue.enqueue(NewJob::new("unknown", &doc! {}).unwrap().with_priority(99)).await.unwrap();
    queue.enqueue(numbered(1).with_priority(2)).await.unwrap();
    let depth = Depth { due: 5, scheduled: 1, oldest_due: Some(Duration::from_millis(1)), ..Depth::default() };
    assert_eq!(queue.depth().await.unwrap(), depth);
    let numbers = async || {
        let jobs = queue.claim_many("w", &kinds(), 10).await.unwrap();
        jobs.iter().map(|job| job.details.get_i64("number").unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers().await, [1, 2, 3, 4]);
    world.clock.advance(HOUR);
    assert_eq!(numbers().await, [5]);
    assert!(numbers().await.is_empty());
}

/// A worker with the same name claims the job again, and the old claim is still over.
#[tokio::test]
async fn a_worker_without_its_lease_cannot_renew_complete_fail_snooze_or_release() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let id = new_id(queue.enqueue(friends()).await.unwrap());
    let slow = claim(&queue).await;
    world.clock.advance(2 * MINUTE);
    assert_eq!(queue.reclaim(10).await.unwrap().done, 1);
    for claimed_again in [false, true] {
        let new = if claimed_again { Some(claim(&queue).await) } else { None };
        let before = stored(&world, id).await;
        assert_eq!(queue.renew(&slow, Some(50.into())).await.unwrap(), ClaimState::Lost);
        assert_eq!(queue.complete(&slow, None).await.unwrap(), ClaimState::Lost);
        assert_eq!(queue.fail(&slow, "slow").await.unwrap(), ClaimState::Lost);
        assert_eq!(queue.give_up(&slow, "slow").await.unwrap(), ClaimState::Lost);
        assert_eq!(queue.snooze(&slow, HOUR).await.unwrap(), ClaimState::Lost);
        assert_eq!(queue.release(&slow).await.unwrap(), ClaimState::Lost);
        assert_eq!(stored(&world, id).await, before, "claimed again: {claimed_again}");
        if let Some(new) = new {
            assert_eq!((new.attempts, new.crashes), (0, 1), "a crash is no failure");
            assert_eq!(queue.complete(&new, None).await.unwrap(), ClaimState::Held);
        }
    }
}

/// The answer to a claim is lost: the worker finds the job that it has claimed, and does not claim another one.
#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_found_again() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let lossy = world.fault_at(first(Operation::FindAndModify, "jobs"), Fault::LoseReply);
    let (enqueued, _second) = (queue.enqueue(numbered(1)).await.unwrap(), queue.enqueue(numbered(2)).await.unwrap());
    let job = claim(&open(&world.on(lossy)).await).await;
    assert_eq!(Enqueued::New(job.id.clone()), enqueued);
    let depth = queue.depth().await.unwrap();
    assert_eq!((depth.due, depth.processing), (1, 1));
    assert_eq!(queue.complete(&job, None).await.unwrap(), ClaimState::Held);
}

#[tokio::test]
async fn a_job_whose_worker_speaks_up_is_not_reclaimed() {
    let world = World::in_memory();
    let queue = open(&world).await;
    queue.enqueue(friends()).await.unwrap();
    let job = claim(&queue).await;
    for _ in 0..5 {
        world.clock.advance(Duration::from_secs(50));
        assert_eq!(queue.renew(&job, None).await.unwrap(), ClaimState::Held);
        assert_eq!(queue.reclaim(10).await.unwrap().done, 0);
    }
    assert_eq!(queue.complete(&job, None).await.unwrap(), ClaimState::Held);
}

/// The job's worker is found silent, and renews its claim before the job is returned.
#[tokio::test]
async fn a_reclaimer_that_is_slow_does_not_take_a_job_that_was_renewed() {
    let world = World::in_memory();
    let queue = open(&world).await;
    queue.enqueue(friends()).await.unwrap();
    let job = claim(&queue).await;
    world.clock.advance(2 * MINUTE);
    let slow = world.fault_at(first(Operation::Update, "jobs"), Fault::FreezeBefore);
    let reclaimer = open(&world.on(slow.clone())).await;
    let reclaim = tokio::spawn(async move { reclaimer.reclaim(10).await });
    wait_until_frozen(&slow, &reclaim).await;
    assert_eq!(queue.renew(&job, None).await.unwrap(), ClaimState::Held);
    slow.release();
    assert_eq!(reclaim.await.unwrap().unwrap().done, 0);
    assert_eq!(queue.complete(&job, None).await.unwrap(), ClaimState::Held);
}

#[tokio::test]
async fn failures_are_tried_again_later_and_given_up_at_last() {
    let world = World::in_memory();
    let backoff = Backoff { first: MINUTE, longest: HOUR, jitter: 0.0 };
    let queue =
        open_with(&world, JobQueueOptions { attempts_max: 3, backoff, ..JobQueueOptions::default() }).await.unwrap();
    let id = new_id(queue.enqueue(friends()).await.unwrap());
    for wait in [MINUTE, 2 * MINUTE] {
        assert_eq!(queue.fail(&claim(&queue).await, "no luck").await.unwrap(), ClaimState::Held);
        world.clock.advance(wait - Duration::from_millis(1));
        assert_eq!(queue.claim("w", &kinds()).await.unwrap(), None, "too early");
        world.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(queue.fail(&claim(&queue).await, "no luck").await.unwrap(), ClaimState::Held);
    let dead = queue.show(id).await.unwrap().unwrap();
    assert_eq!((dead.state, dead.attempts, dead.error.as_deref()), (JobState::Failed, 3, Some("no luck")));
    world.clock.advance(24 * HOUR);
    assert_eq!(queue.claim("w", &kinds()).await.unwrap(), None);

    assert!(queue.retry(id).await.unwrap());
    assert!(!queue.discard(id).await.unwrap(), "no dead letter any more");
    assert_eq!(claim(&queue).await.attempts, 0);
    assert!(
        !queue.retry(id).await.unwrap_or(true) || queue.show(id).await.unwrap().unwrap().state == JobState::Processing
    );
}

#[tokio::test]
async fn a_job_that_kills_its_workers_is_given_up() {
    let world = World::in_memory();
    let queue = open_with(&world, JobQueueOptions { crashes_max: 3, ..JobQueueOptions::default() }).await.unwrap();
    let id = new_id(queue.enqueue(friends()).await.unwrap());
    for _ in 0..3 {
        let _dies = claim(&queue).await;
        world.clock.advance(2 * MINUTE);
        assert_eq!(queue.reclaim(10).await.unwrap().done, 1);
    }
    let dead = queue.show(id).await.unwrap().unwrap();
    assert_eq!((dead.state, dead.attempts, dead.crashes), (JobState::Failed, 0, 3));
    assert!(queue.discard(id).await.unwrap());
    assert_eq!(queue.show(id).await.unwrap(), None);
}

#[tokio::test]
async fn a_key_is_unique_until_its_job_is_over_or_within_a_window() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let first = new_id(queue.enqueue(friends().unique("ann-bob")).await.unwrap());
    let of = |id: ObjectId| Enqueued::Duplicate(Some(id.into()));
    assert_eq!(queue.enqueue(friends().unique("ann-bob")).await.unwrap(), of(first));
    let two = || [1, 2].map(|_| friends().unique("ann-bob"));
    assert_eq!(queue.enqueue_all(two()).await.unwrap(), [of(first), of(first)]);
    assert_eq!(
        queue.enqueue(friends().unique("ann-bob").with_id(first)).await.unwrap(),
        Enqueued::Existing(first.into())
    );
    let job = claim(&queue).await;
    assert_eq!(queue.enqueue(friends().unique("ann-bob")).await.unwrap(), of(first), "it is being done");
    assert_eq!(queue.give_up(&job, "no").await.unwrap(), ClaimState::Held);
    let second = new_id(queue.enqueue(friends().unique("ann-bob")).await.unwrap());
    assert!(queue.retry(first).await.is_err(), "another one has the key");
    assert_eq!(queue.complete(&claim(&queue).await, None).await.unwrap(), ClaimState::Held);
    assert_ne!(first, second);
    assert!(queue.retry(first).await.unwrap());
    assert_eq!(queue.enqueue(friends().unique("ann-bob")).await.unwrap(), of(first), "it has its key again");

    let hourly = || numbered(1).unique_within("report", HOUR);
    let hour = new_id(queue.enqueue(hourly()).await.unwrap());
    assert_eq!(queue.claim_many("w", &kinds(), 9).await.unwrap().len(), 2);
    assert_eq!(queue.enqueue(hourly()).await.unwrap(), of(hour));
    world.clock.advance(HOUR);
    new_id(queue.enqueue(hourly()).await.unwrap());
}

#[tokio::test]
async fn jobs_of_one_key_are_done_in_order() {
    let world = World::in_memory();
    let backoff = Backoff { first: MINUTE, longest: MINUTE, jitter: 0.0 };
    let queue =
        open_with(&world, JobQueueOptions { ordered: true, backoff, ..JobQueueOptions::default() }).await.unwrap();
    for number in 1..=3 {
        world.clock.advance(Duration::from_millis(1));
        queue.enqueue(numbered(number).in_order("ann")).await.unwrap();
    }
    // A later job with a higher priority does not overtake.
    queue.enqueue(numbered(4).in_order("ann").with_priority(9)).await.unwrap();
    queue.enqueue(numbered(10).in_order("bob")).await.unwrap();
    queue.enqueue(numbered(20)).await.unwrap();
    let numbers = |jobs: &[Job]| jobs.iter().map(|job| job.details.get_i64("number").unwrap()).collect::<Vec<_>>();
    let first = queue.claim_many("w", &kinds(), 9).await.unwrap();
    assert_eq!(numbers(&first), [1, 10, 20]);
    assert_eq!(queue.fail(&first[0], "not yet").await.unwrap(), ClaimState::Held);
    assert_eq!(queue.claim("w", &kinds()).await.unwrap(), None, "2 waits for 1");
    world.clock.advance(MINUTE);
    for expected in [1, 2, 3, 4] {
        let jobs = queue.claim_many("w", &kinds(), 9).await.unwrap();
        assert_eq!(numbers(&jobs), [expected]);
        let over =
            if expected == 2 { queue.give_up(&jobs[0], "no").await } else { queue.complete(&jobs[0], None).await };
        assert_eq!(over.unwrap(), ClaimState::Held);
    }
    let unordered = open(&World::in_memory()).await;
    assert!(matches!(unordered.enqueue(numbered(1).in_order("x")).await, Err(Error::Invalid { .. })));
}

/// Two workers that claim at the same moment never both get a job of one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_job_of_a_key_at_a_time_with_many_workers() {
    let world = World::in_memory();
    let queue = open_with(&world, JobQueueOptions { ordered: true, ..JobQueueOptions::default() }).await.unwrap();
    for number in 0..40 {
        world.clock.advance(Duration::from_millis(1));
        queue.enqueue(numbered(number).in_order("one")).await.unwrap();
    }
    let (busy, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (queue, busy, last) = (queue.clone(), Arc::clone(&busy), Arc::clone(&last));
            tokio::spawn(async move {
                while queue.depth().await.unwrap().due > 0 {
                    let Some(job) = queue.claim("w", &kinds()).await.unwrap() else {
                        tokio::task::yield_now().await;
                        continue;
                    };
                    assert!(!busy.swap(true, Ordering::SeqCst), "two at a time");
                    let number = job.details.get_i64("number").unwrap() as u64;
                    assert_eq!(last.fetch_add(1, Ordering::SeqCst), number, "out of order");
                    tokio::task::yield_now().await;
                    busy.store(false, Ordering::SeqCst);
                    assert_eq!(queue.complete(&job, None).await.unwrap(), ClaimState::Held);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(last.load(Ordering::SeqCst), 40);
}

#[tokio::test]
async fn jobs_can_be_canceled_before_and_while_they_are_done() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let id = new_id(queue.enqueue(friends()).await.unwrap());
    assert!(queue.cancel(id).await.unwrap());
    let canceled = queue.show(id).await.unwrap().unwrap();
    assert_eq!((canceled.state, canceled.attempts), (JobState::Canceled, 0), "nobody has tried it");
    let id = new_id(queue.enqueue(friends()).await.unwrap());
    let job = claim(&queue).await;
    assert!(queue.cancel(id).await.unwrap());
    assert_eq!(queue.renew(&job, None).await.unwrap(), ClaimState::CancelRequested);
    // The worker of the next one dies before it receives the answer.
    world.clock.advance(2 * MINUTE);
    assert_eq!(queue.reclaim(10).await.unwrap().done, 1);
    assert_eq!(queue.show(id).await.unwrap().unwrap().state, JobState::Canceled);
    assert!(!queue.cancel(ObjectId::from_bytes([1; 12])).await.unwrap());
}

#[tokio::test]
async fn finished_jobs_are_purged() {
    let world = World::in_memory();
    let queue = open(&world).await;
    for give_up in [false, true, false] {
        queue.enqueue(friends()).await.unwrap();
        let job = claim(&queue).await;
        let over = if give_up { queue.give_up(&job, "no").await } else { queue.complete(&job, None).await };
        assert_eq!(over.unwrap(), ClaimState::Held);
    }
    queue.enqueue(friends()).await.unwrap();
    world.clock.advance(2 * HOUR);
    assert_eq!(queue.purge(HOUR, 24 * HOUR, 1).await.unwrap().done, 1, "one at a time");
    assert_eq!(queue.purge(HOUR, 24 * HOUR, 10).await.unwrap().done, 1);
    assert_eq!(queue.purge(HOUR, HOUR, 10).await.unwrap().done, 1);
    assert_eq!(queue.depth().await.unwrap().due, 1);
}

#[tokio::test]
async fn a_job_enqueued_in_a_transaction_exists_if_and_only_if_it_commits() {
    let world = World::in_memory();
    let memory = handfast_store::MemoryStore::new(world.sources.clone());
    let database = handfast_txn::Database::local(memory, world.sources.clone());
    let world = world.on(Arc::new(database.clone()));
    let queue = open(&world).await;
    for (commit, due) in [(false, 0), (true, 1)] {
        let tx = database.begin().await.unwrap();
        new_id(queue.within(Arc::new(tx.clone())).enqueue(friends().unique("x")).await.unwrap());
        assert_eq!(queue.depth().await.unwrap().due, 0, "nobody sees it yet");
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.abort();
        }
        assert_eq!(queue.depth().await.unwrap().due, due);
    }
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let world = World::in_memory();
    let defaults = JobQueueOptions::default;
    for options in [
        JobQueueOptions { lease: Duration::ZERO, ..defaults() },
        JobQueueOptions { attempts_max: 0, ..defaults() },
        JobQueueOptions { crashes_max: 0, ..defaults() },
        JobQueueOptions { unread_max: 0, ..defaults() },
        JobQueueOptions { timeout: Some(Duration::ZERO), ..defaults() },
        JobQueueOptions { backoff: Backoff { jitter: 2.0, ..Backoff::default() }, ..defaults() },
    ] {
        assert!(matches!(open_with(&world, options).await, Err(Error::Invalid { .. })));
    }
    let worker = Worker::new(open(&world).await, "w");
    assert!(worker.spawn(&CancellationToken::new()).is_err(), "no handlers");
    assert!(NewJob::new("count", &7).is_err(), "no document");
}

/// Counts the operations for a job.
#[tokio::test]
async fn operations_per_job() {
    let world = World::in_memory();
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::none()));
    let queue = open(&world.on(counting.clone())).await;
    // A claim reads once a second whether the queue is paused.
    assert_eq!(queue.claim("w", &kinds()).await.unwrap(), None);
    let before = counting.operations();
    queue.enqueue(friends()).await.unwrap();
    let job = claim(&queue).await;
    assert_eq!(queue.complete(&job, None).await.unwrap(), ClaimState::Held);
    assert_eq!(counting.operations() - before, 3, "enqueue, claim, complete");
}
