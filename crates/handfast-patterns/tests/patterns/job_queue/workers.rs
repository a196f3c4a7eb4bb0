//! Workers in the background: leases, stops, rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::{Bson, Document, doc};
use handfast_patterns::job_queue::{ClaimState, Drained, JobError, JobState, NewJob, RateLimit, Worker, WorkerOptions};
use handfast_patterns::{CancellationToken, RunnerOptions};

use super::{Friends, HOUR, MINUTE, new_id, numbered, open};
use crate::crash::World;

fn quick() -> WorkerOptions {
    WorkerOptions { poll: Duration::from_millis(100), ..WorkerOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn a_worker_runs_handlers_at_once_and_keeps_their_leases() {
    let world = World::in_memory();
    let queue = open(&world).await;
    for number in 0..6 {
        queue.enqueue(numbered(number)).await.unwrap();
    }
    let most = Arc::new(AtomicU64::new(0));
    let (running, seen) = (Arc::new(AtomicU64::new(0)), Arc::clone(&most));
    let worker = Worker::new(queue.clone(), "w").with_options(WorkerOptions { concurrency: 3, ..quick() });
    let worker = worker.handle("count", move |context, details: Document| {
        let (running, seen) = (Arc::clone(&running), Arc::clone(&seen));
        async move {
            seen.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The handler takes three leases.
            tokio::time::sleep(3 * MINUTE).await;
            let _: ClaimState = context.progress(100).await?;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, JobError>(details.get_i64("number").unwrap())
        }
    });
    let (working, reclaim) = (
        worker.spawn(&CancellationToken::new()).unwrap(),
        queue
            .spawn_reclaim(
                RunnerOptions { interval: Duration::from_secs(5), ..RunnerOptions::default() },
                &CancellationToken::new(),
            )
            .unwrap(),
    );
    for _ in 0..450 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.clock.advance(Duration::from_secs(1));
    }
    assert_eq!((working.counts().completed, working.counts().lost), (6, 0));
    assert_eq!((most.load(Ordering::SeqCst), reclaim.counts().done), (3, 0));
    let done = queue.list(JobState::Done, 10).await.unwrap();
    assert!(done.iter().all(|job| job.progress == Some(Bson::Int32(100)) && job.result.is_some()));
    working.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_finishes_or_gives_back_without_burning_an_attempt() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let quick_one = new_id(queue.enqueue(numbered(1)).await.unwrap());
    let long = new_id(queue.enqueue(numbered(1000)).await.unwrap());
    let worker =
        Worker::new(queue.clone(), "w").with_options(WorkerOptions { grace: Duration::from_secs(10), ..quick() });
    let worker = worker.handle("count", |_, details: Document| async move {
        let seconds = u64::try_from(details.get_i64("number").unwrap()).unwrap();
        tokio::time::sleep(Duration::from_secs(seconds + 2)).await;
        Ok::<_, JobError>(())
    });
    let working = worker.spawn(&CancellationToken::new()).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    working.stop().await;
    assert_eq!(queue.show(quick_one).await.unwrap().unwrap().state, JobState::Done);
    let given_back = queue.show(long).await.unwrap().unwrap();
    assert_eq!((given_back.state, given_back.attempts, given_back.crashes), (JobState::Todo, 0, 0));
    assert_eq!((worker.counts().completed, worker.counts().released), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_stopped_when_its_job_is_lost_or_canceled() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let ended = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ended);
    let worker = Worker::new(queue.clone(), "w").with_options(quick()).handle("count", move |_, _: Document| {
        let counted = Arc::clone(&counted);
        async move {
            tokio::time::sleep(HOUR).await;
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<_, JobError>(())
        }
    });
    let id = new_id(queue.enqueue(numbered(1)).await.unwrap());
    let working = worker.spawn(&CancellationToken::new()).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(queue.cancel(id).await.unwrap());
    tokio::time::sleep(MINUTE).await;
    let canceled = queue.show(id).await.unwrap().unwrap();
    assert_eq!((canceled.state, canceled.error), (JobState::Canceled, None));
    tokio::time::sleep(2 * HOUR).await;
    assert_eq!((ended.load(Ordering::SeqCst), working.counts().lost), (0, 1));
    working.stop().await;
}

#[tokio::test(start_paused = true)]
async fn results_of_handlers_decide_the_state_of_jobs() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let worker = Worker::new(queue.clone(), "w").handle("count", |_, details: Document| async move {
        match details.get_i64("number")? {
            0 => Ok(()),
            1 => Err(JobError::Retry("later".to_owned())),
            2 => Err(JobError::GiveUp("never".to_owned())),
            3 => Err(JobError::Snooze(HOUR)),
            _ => panic!("a bug"),
        }
    });
    let worker = worker.handle("typed", |_, _: Friends| async { Ok::<_, JobError>(()) });
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(new_id(queue.enqueue(numbered(number)).await.unwrap()));
    }
    ids.push(new_id(queue.enqueue(NewJob::new("typed", &doc! { "users": 7 }).unwrap()).await.unwrap()));
    assert_eq!(worker.drain().await.unwrap(), Drained { completed: 1, failed: 4, snoozed: 1, lost: 0 });
    let mut states = Vec::new();
    for id in ids {
        let job = queue.show(id).await.unwrap().unwrap();
        states.push((job.state, job.attempts));
    }
    let (todo, failed) = (JobState::Todo, JobState::Failed);
    assert_eq!(states, [(JobState::Done, 0), (todo, 1), (failed, 1), (todo, 0), (todo, 1), (todo, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept() {
    let world = World::in_memory();
    let queue = open(&world).await;
    for number in 0..10 {
        queue.enqueue(numbered(number)).await.unwrap();
    }
    let rate = Some(RateLimit { jobs: 3, within: MINUTE });
    let worker = Worker::new(queue, "w").with_options(WorkerOptions { rate, ..quick() });
    let worker = worker.handle("count", |_, _: Document| async { Ok::<_, JobError>(()) });
    let working = worker.spawn(&CancellationToken::new()).unwrap();
    for expected in [3, 6, 9, 10] {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(working.counts().completed, expected);
        world.clock.advance(MINUTE);
    }
    working.stop().await;
}

/// The worker's next query is an hour away.
#[tokio::test(start_paused = true)]
async fn an_idle_worker_is_woken_by_an_enqueue_in_its_process() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let options = WorkerOptions { poll: HOUR, ..WorkerOptions::default() };
    let worker = Worker::new(queue.clone(), "w").with_options(options);
    let working = worker
        .handle("count", |_, _: Document| async { Ok::<_, JobError>(()) })
        .spawn(&CancellationToken::new())
        .unwrap();
    for done in 1..=3 {
        tokio::time::sleep(MINUTE).await;
        match done {
            1 => drop(queue.enqueue(numbered(1)).await.unwrap()),
            2 => drop(queue.enqueue_all([numbered(2)]).await.unwrap()),
            _ => drop(queue.within(Arc::clone(&world.store)).enqueue(numbered(3)).await.unwrap()),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(working.counts().completed, done);
    }
    working.stop().await;
}
