//! Handlers that hang, which are stopped when their time is over although their leases are renewed, and handlers that cannot
//! read the details, while those of workers of a new version can, as during a deployment.

use std::time::Duration;

use bson::{Document, doc};
use handfast_patterns::job_queue::{
    ClaimState, Drained, JobError, JobQueue, JobQueueOptions, JobState, NewJob, Worker,
};

use super::{Friends, HOUR, MINUTE, claim, new_id, numbered, open, open_with, stored};
use crate::crash::World;

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_ended_and_counts_as_a_failure() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let id = new_id(queue.enqueue(numbered(1)).await.unwrap());
    let worker = Worker::new(queue.clone(), "w").handle("count", |_, _: Document| async {
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    });
    let ended = tokio::time::timeout(24 * HOUR, worker.drain()).await.expect("its lease is renewed for ever").unwrap();
    assert_eq!(ended, Drained { failed: 1, ..Drained::default() });
    let job = queue.show(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempts, job.crashes), (JobState::Todo, 1, 0));
    assert!(job.error.unwrap().contains("took longer than"));
}

/// The time of a job counts before that of its type, and that before the time of the queue.
#[tokio::test(start_paused = true)]
async fn a_job_a_type_and_a_queue_have_their_times() {
    let world = World::in_memory();
    let options = JobQueueOptions { timeout: Some(Duration::from_secs(30)), ..JobQueueOptions::default() };
    let queue = open_with(&world, options).await.unwrap();
    let hangs = |_, _: Document| async {
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    };
    let worker = Worker::new(queue.clone(), "w").handle("count", hangs).handle("quick", hangs);
    let worker = worker.timeout("quick", Duration::from_secs(20));
    let quick = || NewJob::new("quick", &doc! {}).unwrap();
    for (job, seconds) in [(numbered(1), 30), (quick(), 20), (quick().with_timeout(Duration::from_secs(10)), 10)] {
        let id = new_id(queue.enqueue(job).await.unwrap());
        let mut drain = std::pin::pin!(worker.drain());
        let within = Duration::from_secs(seconds);
        assert!(tokio::time::timeout(within - Duration::from_millis(1), &mut drain).await.is_err(), "too early");
        let drained = tokio::time::timeout(Duration::from_secs(1), drain).await.expect("too late").unwrap();
        assert_eq!(drained.failed, 1);
        assert!(queue.cancel(id).await.unwrap());
    }
}

/// The job was lost while its handler hung: the end of its time does not overwrite the work of the next worker.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_handlers_time_is_fenced() {
    let world = World::in_memory();
    let options = JobQueueOptions { timeout: Some(Duration::from_secs(10)), ..JobQueueOptions::default() };
    let queue = open_with(&world, options).await.unwrap();
    let id = new_id(queue.enqueue(numbered(1)).await.unwrap());
    let worker = Worker::new(queue.clone(), "w").handle("count", |_, _: Document| async {
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    });
    let hanging = tokio::spawn(async move { worker.drain().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.clock.advance(2 * MINUTE);
    assert_eq!(queue.reclaim(1).await.unwrap().done, 1);
    let next = claim(&queue).await;
    let before = stored(&world, id).await;
    assert_eq!(hanging.await.unwrap().unwrap(), Drained { lost: 1, ..Drained::default() });
    assert_eq!(stored(&world, id).await, before);
    assert_eq!(queue.complete(&next, None).await.unwrap(), ClaimState::Held);
}

fn worker_of_before(queue: &JobQueue) -> Worker {
    Worker::new(queue.clone(), "before").handle("count", |_, _: Friends| async { Ok::<_, JobError>(()) })
}

#[tokio::test]
async fn details_that_one_worker_cannot_read_go_back_to_the_queue_for_one_that_can() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let id = new_id(queue.enqueue(numbered(7)).await.unwrap());
    assert_eq!(worker_of_before(&queue).drain().await.unwrap().completed, 0);
    let waiting = queue.show(id).await.unwrap().unwrap();
    assert_eq!((waiting.state, waiting.attempts, waiting.crashes), (JobState::Todo, 0, 0));
    assert!(waiting.error.unwrap().contains("details cannot be read"));
    world.clock.advance(HOUR);
    let after = Worker::new(queue.clone(), "after").handle("count", |_, _: Document| async { Ok::<_, JobError>(()) });
    assert_eq!(after.drain().await.unwrap().completed, 1);
}

#[tokio::test]
async fn details_that_no_worker_can_read_are_a_dead_letter_in_the_end() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let id = new_id(queue.enqueue(numbered(7)).await.unwrap());
    let mut returned = 0;
    loop {
        worker_of_before(&queue).drain().await.unwrap();
        let job = queue.show(id).await.unwrap().unwrap();
        if job.state == JobState::Failed {
            assert!(job.error.unwrap().contains("details cannot be read"));
            break;
        }
        returned += 1;
        assert!(returned < 100, "it goes round for ever");
        world.clock.advance(2 * HOUR);
    }
    assert!(returned > 1, "it was given up at once");
}
