//! The options of a single job: its id, attempts, waits, time and delay.

use std::time::Duration;

use bson::{Bson, Document, doc};
use handfast_patterns::exactly_once::Memory;
use handfast_patterns::job_queue::{Backoff, ClaimState, Depth, Enqueued, JobError, JobState, Worker};
use handfast_patterns::{Change, Error, ExactlyOnce, UpdateOutcome};

use super::{HOUR, MINUTE, claim, kinds, new_id, numbered, open, stored};
use crate::crash::World;

#[tokio::test]
async fn a_job_has_its_own_attempts_waits_and_delay() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let backoff = Backoff { first: HOUR, longest: HOUR, jitter: 0.0 };
    let job = numbered(1).with_id("order 7").after(MINUTE).with_attempts(2).with_backoff(backoff);
    assert_eq!(queue.enqueue(job.clone()).await.unwrap(), Enqueued::New("order 7".into()));
    assert_eq!(queue.enqueue(job.clone()).await.unwrap(), Enqueued::Existing("order 7".into()));
    assert_eq!(queue.enqueue_all([job]).await.unwrap(), [Enqueued::Existing("order 7".into())]);
    assert_eq!(queue.claim("w", &kinds()).await.unwrap(), None, "too early");
    world.clock.advance(MINUTE);
    let first = claim(&queue).await;
    assert_eq!((&first.id, first.attempts_max, first.backoff), (&Bson::from("order 7"), Some(2), Some(backoff)));
    assert_eq!(queue.fail(&first, "no luck").await.unwrap(), ClaimState::Held);
    world.clock.advance(HOUR - Duration::from_millis(1));
    assert_eq!(queue.claim("w", &kinds()).await.unwrap(), None, "too early");
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(queue.fail(&claim(&queue).await, "no luck again").await.unwrap(), ClaimState::Held);
    let dead = queue.show("order 7").await.unwrap().unwrap();
    assert_eq!((dead.state, dead.attempts), (JobState::Failed, 2));
}

#[tokio::test]
async fn a_job_of_any_id_is_worked_on_and_guarded_like_the_others() {
    for id in [Bson::from("order 7"), Bson::from(7), Bson::from(doc! { "order": 7 })] {
        let world = World::in_memory();
        let queue = open(&world).await;
        queue.enqueue(numbered(1).with_id(id.clone())).await.unwrap();
        let once = ExactlyOnce::open_with(
            world.store.clone(),
            world.namespace("sums"),
            world.sources.clone(),
            Memory::default(),
        );
        let once = once.await.unwrap();
        let worker = Worker::new(queue.clone(), "w").handle("count", move |context, _: Document| {
            let once = once.clone();
            async move {
                let change = Change::increment("n", 1).or_insert();
                for expected in [UpdateOutcome::Applied, UpdateOutcome::AlreadyApplied] {
                    assert_eq!(context.guard("add", &once, "sum", &change).await?, expected);
                }
                Ok::<_, JobError>(())
            }
        });
        assert_eq!(worker.drain().await.unwrap().completed, 1, "{id}");
        assert_eq!(queue.show(id).await.unwrap().unwrap().state, JobState::Done);
    }
}

#[tokio::test]
async fn invalid_job_options_are_refused() {
    let world = World::in_memory();
    let queue = open(&world).await;
    for job in [
        numbered(1).with_attempts(0),
        numbered(1).with_timeout(Duration::ZERO),
        numbered(1).with_backoff(Backoff { jitter: f64::NAN, ..Backoff::default() }),
        numbered(1).with_id(Bson::Array(Vec::new())),
    ] {
        assert!(matches!(queue.enqueue(job).await, Err(Error::Invalid { .. })));
    }
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

#[tokio::test]
async fn a_job_remembers_its_last_errors_and_no_more_of_them_than_fit() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let id = new_id(queue.enqueue(numbered(1).with_attempts(1000)).await.unwrap());
    for number in 0..12 {
        let job = claim(&queue).await;
        assert_eq!(
            queue.fail(&job, &format!("error {number} {}", "x".repeat(100_000))).await.unwrap(),
            ClaimState::Held
        );
        world.clock.advance(2 * HOUR);
    }
    let _dies = claim(&queue).await;
    world.clock.advance(2 * MINUTE);
    queue.reclaim(1).await.unwrap();
    let job = queue.show(id).await.unwrap().unwrap();
    let errors: Vec<_> = job.errors.iter().map(|past| past.error.split(" x").next().unwrap()).collect();
    assert_eq!((errors.len(), errors[0], errors[8]), (10, "error 3", "error 11"));
    assert_eq!(errors[9], "its worker worker1 fell silent");
    assert!(job.errors.windows(2).all(|two| two[0].ts < two[1].ts));
    let size = bson::serialize_to_vec(&stored(&world, id).await).unwrap().len();
    assert!(size < 100_000, "{size} bytes");
}
