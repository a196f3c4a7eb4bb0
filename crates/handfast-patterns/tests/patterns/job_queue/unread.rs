//! Details that a worker cannot read, while workers of a new version can, as during a deployment.

use super::*;

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
