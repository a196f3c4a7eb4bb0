//! A canceled job is not done again, in whichever way it leaves its worker.

use bson::{Bson, Document};
use handfast_patterns::job_queue::{ClaimState, Drained, Job, JobError, JobQueue, JobState, Worker};
use handfast_store::decorator::{Fault, Operation};

use super::{HOUR, MINUTE, claim, friends, kinds, new_id, numbered, open, stored};
use crate::crash::World;
use crate::fault::{first, second, wait_until_frozen};

/// Returns a queue with a job that a worker has.
async fn claimed() -> (World, JobQueue, Job) {
    let world = World::in_memory();
    let queue = open(&world).await;
    queue.enqueue(friends()).await.unwrap();
    let job = claim(&queue).await;
    (world, queue, job)
}

async fn assert_canceled(queue: &JobQueue, id: impl Into<Bson>) {
    let job = queue.show(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.cancel), (JobState::Canceled, false));
}

#[tokio::test]
async fn a_worker_that_lets_go_of_a_job_does_not_undo_its_cancellation() {
    for way in ["fail", "snooze", "release"] {
        let (world, queue, job) = claimed().await;
        assert!(queue.cancel(&job.id).await.unwrap());
        let held = match way {
            "fail" => queue.fail(&job, "not yet").await,
            "snooze" => queue.snooze(&job, MINUTE).await,
            _ => queue.release(&job).await,
        };
        assert_eq!(held.unwrap(), ClaimState::CancelRequested, "{way}");
        assert_canceled(&queue, &job.id).await;
        world.clock.advance(HOUR);
        assert_eq!(queue.claim("w", &kinds()).await.unwrap(), None, "{way}");
        assert_eq!(
            queue.give_up(&job, "canceled").await.unwrap(),
            ClaimState::CancelRequested,
            "as after a renewal: {way}"
        );
    }
}

/// The answer is lost: when the worker repeats the request, the job has ended already.
#[tokio::test]
async fn a_worker_hears_of_the_cancellation_when_the_answer_is_lost() {
    let (world, queue, job) = claimed().await;
    assert!(queue.cancel(&job.id).await.unwrap());
    // The first update would release a job that is not to be canceled, the second one cancels it.
    let lossy = world.fault_at(second(Operation::Update, "jobs"), Fault::LoseReply);
    assert_eq!(open(&world.on(lossy)).await.release(&job).await.unwrap(), ClaimState::CancelRequested);
    assert_canceled(&queue, &job.id).await;
}

#[tokio::test]
async fn a_handler_that_puts_off_a_canceled_job_ends_it() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let id = new_id(queue.enqueue(numbered(1)).await.unwrap());
    let canceler = queue.clone();
    let worker = Worker::new(queue.clone(), "w").handle("count", move |context, _: Document| {
        let queue = canceler.clone();
        async move {
            assert!(queue.cancel(context.id()).await?);
            Err::<(), _>(JobError::Snooze(MINUTE))
        }
    });
    assert_eq!(worker.drain().await.unwrap(), Drained { lost: 1, ..Drained::default() });
    assert_canceled(&queue, id).await;
}

/// The cancellation is requested after the reclaimer has read the job, and before it returns the job.
#[tokio::test]
async fn a_reclaimer_does_not_undo_a_cancellation() {
    let (world, queue, job) = claimed().await;
    world.clock.advance(2 * MINUTE);
    let slow = world.fault_at(first(Operation::Update, "jobs"), Fault::FreezeBefore);
    let reclaimer = open(&world.on(slow.clone())).await;
    let reclaim = tokio::spawn(async move { reclaimer.reclaim(10).await });
    wait_until_frozen(&slow, &reclaim).await;
    assert!(queue.cancel(&job.id).await.unwrap());
    slow.release();
    assert_eq!(reclaim.await.unwrap().unwrap().done, 0);
    assert_eq!(queue.reclaim(10).await.unwrap().done, 1);
    assert_canceled(&queue, &job.id).await;
}

/// A worker has the job when `cancel` reads the waiting jobs, and the job waits when it reads the claimed ones.
#[tokio::test]
async fn a_job_that_is_released_while_it_is_canceled_is_canceled() {
    let (world, queue, job) = claimed().await;
    // The first update cancels a job that waits, the second one a job that a worker has.
    let slow = world.fault_at(second(Operation::Update, "jobs"), Fault::FreezeBefore);
    let canceler = open(&world.on(slow.clone())).await;
    let id = job.id.clone();
    let cancel = tokio::spawn(async move { canceler.cancel(id).await });
    wait_until_frozen(&slow, &cancel).await;
    assert_eq!(queue.release(&job).await.unwrap(), ClaimState::Held);
    slow.release();
    assert!(cancel.await.unwrap().unwrap());
    assert_canceled(&queue, &job.id).await;
}

/// The job is canceled in each way: while it waits, by its worker, by the reclaimer.
#[tokio::test]
async fn a_canceled_job_is_no_dead_letter_and_no_retry_revives_it() {
    for way in ["waiting", "fail", "give_up", "reclaim"] {
        let world = World::in_memory();
        let queue = open(&world).await;
        let id = new_id(queue.enqueue(friends()).await.unwrap());
        let job = if way == "waiting" { None } else { Some(claim(&queue).await) };
        assert!(queue.cancel(id).await.unwrap(), "{way}");
        match (way, &job) {
            ("fail", Some(job)) => assert_eq!(queue.fail(job, "no luck").await.unwrap(), ClaimState::CancelRequested),
            ("give_up", Some(job)) => {
                assert_eq!(queue.give_up(job, "never").await.unwrap(), ClaimState::CancelRequested);
            }
            _ => {
                world.clock.advance(2 * MINUTE);
                queue.reclaim(10).await.unwrap();
            }
        }
        assert_eq!(stored(&world, id).await.get_str("state").unwrap(), "CANCELED", "{way}");
        assert!(!queue.retry(id).await.unwrap(), "{way}");
        assert!(!queue.discard(id).await.unwrap(), "{way}");
        let depth = queue.depth().await.unwrap();
        assert_eq!((depth.due, depth.failed), (0, 0), "{way}");
        if let Some(job) = job {
            assert_eq!(queue.complete(&job, None).await.unwrap(), ClaimState::Lost, "{way}");
        }
    }
}
