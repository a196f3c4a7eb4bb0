//! Claims of several jobs, the limits on all workers together, and pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::{DateTime, Document};
use handfast_patterns::job_queue::{
    ClaimState, Enqueued, JobError, JobQueue, JobQueueOptions, JobState, Limits, RateLimit, Worker, WorkerOptions,
};
use handfast_patterns::{CancellationToken, Error};
use handfast_store::decorator::{Fault, Faulty, Plan as Faults};

use super::{MINUTE, claim, kinds, new_id, numbered, open, open_with};
use crate::crash::World;

async fn limited(world: &World, limits: Limits) -> JobQueue {
    open_with(world, JobQueueOptions { limits, ..JobQueueOptions::default() }).await.unwrap()
}

#[tokio::test]
async fn many_jobs_cost_few_operations() {
    let world = World::in_memory();
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::none()));
    let queue = open(&world.on(counting.clone())).await;
    let before = counting.operations();
    let enqueued = queue.enqueue_all((0..400).map(numbered)).await.unwrap();
    assert_eq!((enqueued.len(), counting.operations() - before), (400, 1));
    assert!(queue.claim_many("w", &["other".to_owned()], 1).await.unwrap().is_empty());
    let before = counting.operations();
    let jobs = queue.claim_many("w", &kinds(), 300).await.unwrap();
    // The operations are each find with its page, and the update.
    assert_eq!((jobs.len(), counting.operations() - before), (300, 5));
    for job in &jobs {
        assert_eq!(queue.complete(job, None).await.unwrap(), ClaimState::Held);
    }
    assert_eq!(queue.claim_many("w", &kinds(), 300).await.unwrap().len(), 100);
    assert_eq!(queue.claim_many("w", &kinds(), 300).await.unwrap().len(), 0);
}

#[tokio::test]
async fn several_are_enqueued_as_one_by_one() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let known = new_id(queue.enqueue(numbered(0).unique("a")).await.unwrap());
    let jobs = || {
        [
            numbered(1).unique("a"),
            numbered(2).unique("b"),
            numbered(3).unique("b"),
            numbered(0).unique("a").with_id(known),
            numbered(4),
        ]
    };
    let enqueued = queue.enqueue_all(jobs()).await.unwrap();
    let new = |place: usize| matches!(enqueued[place], Enqueued::New(_));
    assert_eq!([0, 1, 2, 3, 4].map(new), [false, true, false, false, true]);
    assert_eq!(enqueued[3], Enqueued::Existing(known.into()));
    assert_eq!(queue.depth().await.unwrap().due, 3);
    let refused = queue.enqueue_all([numbered(5), numbered(6).in_order("a")]).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })) && queue.depth().await.unwrap().due == 3);
}

#[tokio::test]
async fn concurrent_claims_of_several_jobs_share_none() {
    let world = World::in_memory();
    let queue = open(&world).await;
    queue.enqueue_all((0..100).map(numbered)).await.unwrap();
    queue.enqueue(numbered(100).with_priority(1)).await.unwrap();
    let lossy = Arc::new(Faulty::new(
        Arc::clone(&world.store),
        Faults::seeded(3, 400, [Fault::LoseReply, Fault::LoseRequest]).writes_only(),
    ));
    let lossy = loop {
        if let Ok(queue) = open_with(&world.on(lossy.clone()), JobQueueOptions::default()).await {
            break queue;
        }
    };
    let (mut all, mut failed) = (Vec::new(), 0);
    loop {
        let jobs = match lossy.claim_many("w", &kinds(), 7).await {
            Ok(jobs) if jobs.is_empty() && queue.depth().await.unwrap().processing == 0 => break,
            Ok(jobs) => jobs,
            Err(_) => {
                failed += 1;
                Vec::new()
            }
        };
        for job in jobs.iter().chain(&queue.claim_many("v", &kinds(), 2).await.unwrap()) {
            assert_eq!(queue.complete(job, None).await.unwrap(), ClaimState::Held);
            all.push(job.details.get_i64("number").unwrap());
        }
        // These are the jobs of a claim whose answer was lost.
        world.clock.advance(2 * MINUTE);
        queue.reclaim(100).await.unwrap();
    }
    assert!(failed > 0 && all[..7].contains(&100), "by priority: {all:?}");
    all.sort_unstable();
    assert_eq!(all, (0..=100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_concurrent_claims_of_several_jobs_share_none() {
    let world = World::in_memory();
    let queue = open(&world).await;
    queue.enqueue_all((0..400).map(numbered)).await.unwrap();
    let mut claiming = tokio::task::JoinSet::new();
    for process in 2..10 {
        let queue = open(&world.process(process)).await;
        claiming.spawn(async move {
            let mut numbers = Vec::new();
            loop {
                let jobs = queue.claim_many("w", &kinds(), 11).await.unwrap();
                if jobs.is_empty() {
                    return numbers;
                }
                for job in jobs {
                    assert_eq!(queue.complete(&job, None).await.unwrap(), ClaimState::Held);
                    numbers.push(job.details.get_i64("number").unwrap());
                }
            }
        });
    }
    let mut all = claiming.join_all().await.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), queue.depth().await.unwrap().processing), (400, 0));
    assert_eq!(queue.list(JobState::Done, 1000).await.unwrap().len(), 400);
}

#[tokio::test]
async fn the_concurrency_of_all_workers_is_limited() {
    let world = World::in_memory();
    let limits = Limits { concurrency: Some(3), ..Limits::default() };
    let (one, two) = (limited(&world, limits).await, limited(&world.process(2), limits).await);
    one.enqueue_all((0..10).map(numbered)).await.unwrap();
    let mut held = Vec::new();
    for queue in [&one, &two, &one] {
        held.push(queue.claim("w", &kinds()).await.unwrap().unwrap());
    }
    for queue in [&one, &two] {
        assert!(queue.claim("w", &kinds()).await.unwrap().is_none());
        assert!(queue.claim_many("w", &kinds(), 5).await.unwrap().is_empty());
    }
    // Each way in which a job leaves its worker frees the slot.
    assert_eq!(two.complete(&held[0], None).await.unwrap(), ClaimState::Held);
    held[0] = two.claim("w", &kinds()).await.unwrap().unwrap();
    assert_eq!(one.fail(&held[1], "no luck").await.unwrap(), ClaimState::Held);
    held[1] = two.claim("w", &kinds()).await.unwrap().unwrap();
    assert!(one.claim("w", &kinds()).await.unwrap().is_none());
    // Their workers have died.
    world.clock.advance(2 * MINUTE);
    assert!(one.claim("w", &kinds()).await.unwrap().is_none());
    assert_eq!(one.reclaim(10).await.unwrap().done, 3);
    assert_eq!(two.claim_many("w", &kinds(), 5).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_two_processes_keep_to_the_limit() {
    let world = World::in_memory();
    let limits = Limits { concurrency: Some(2), ..Limits::default() };
    let (running, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    limited(&world, limits).await.enqueue_all((0..60).map(numbered)).await.unwrap();
    let cancel = CancellationToken::new();
    let mut working = Vec::new();
    for process in 1..=2 {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        let worker = Worker::new(limited(&world.process(process), limits).await, format!("worker {process}"));
        let options = WorkerOptions { poll: Duration::from_millis(1), ..WorkerOptions::default() };
        let worker = worker.with_options(options).handle("count", move |_, _: Document| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, JobError>(())
            }
        });
        working.push(worker.spawn(&cancel).unwrap());
    }
    let queue = limited(&world, limits).await;
    while queue.list(JobState::Done, 100).await.unwrap().len() < 60 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for worker in working {
        worker.stop().await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_number_of_jobs_begun_in_a_window_is_limited() {
    let world = World::in_memory();
    let rate = Some(RateLimit { jobs: 4, within: MINUTE });
    let limits = Limits { rate, ..Limits::default() };
    let (one, two) = (limited(&world, limits).await, limited(&world.process(2), limits).await);
    // A claim that finds no job is not counted.
    assert!(one.claim("w", &kinds()).await.unwrap().is_none());
    one.enqueue_all((0..20).map(numbered)).await.unwrap();
    for begun in [4, 4, 0] {
        let first = one.claim_many("w", &kinds(), 3).await.unwrap().len();
        let second = two.claim_many("w", &kinds(), 9).await.unwrap().len();
        assert_eq!(first + second, begun, "in this window");
        if begun == 4 {
            assert!(one.claim("w", &kinds()).await.unwrap().is_none());
            world.clock.advance(MINUTE);
            if one.depth().await.unwrap().due == 12 {
                // A clock that is a window behind does not begin a window of its own.
                one.claim_many("w", &kinds(), 4).await.unwrap();
                let now = world.sources.clock.now().timestamp_millis();
                world.clock.set(DateTime::from_millis(now - 60_000));
            }
        }
    }
}

#[tokio::test]
async fn limits_that_make_no_sense_are_refused() {
    let world = World::in_memory();
    let rate = |jobs, within| Limits { rate: Some(RateLimit { jobs, within }), ..Limits::default() };
    let slots = |concurrency| Limits { concurrency: Some(concurrency), ..Limits::default() };
    for limits in [rate(0, MINUTE), rate(1, Duration::ZERO), slots(0), slots(10_001)] {
        let refused = open_with(&world, JobQueueOptions { limits, ..JobQueueOptions::default() }).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })));
    }
}

#[tokio::test]
async fn no_job_of_a_paused_queue_is_claimed_until_it_is_resumed() {
    let limits = Limits { concurrency: Some(8), ..Limits::default() };
    for options in [
        JobQueueOptions::default(),
        JobQueueOptions { ordered: true, ..JobQueueOptions::default() },
        JobQueueOptions { limits, ..JobQueueOptions::default() },
    ] {
        let world = World::in_memory();
        let (here, there) =
            (open_with(&world, options.clone()).await.unwrap(), open_with(&world.process(2), options).await.unwrap());
        for number in 0..4 {
            here.enqueue(numbered(number)).await.unwrap();
        }
        let held = claim(&there).await;
        here.pause("the mail server is moved").await.unwrap();
        here.pause("it still is").await.unwrap();
        assert_eq!(here.claim("w", &kinds()).await.unwrap(), None);
        world.clock.advance(Duration::from_secs(1));
        for queue in [&here, &there] {
            assert_eq!(queue.claim("w", &kinds()).await.unwrap(), None);
            assert!(queue.claim_many("w", &kinds(), 5).await.unwrap().is_empty());
            assert_eq!(queue.paused().await.unwrap().unwrap().why, "it still is");
        }
        assert_eq!(there.complete(&held, None).await.unwrap(), ClaimState::Held, "what is with a worker is done");
        assert_eq!(here.depth().await.unwrap().due, 3);
        assert!(here.resume().await.unwrap() && !here.resume().await.unwrap());
        world.clock.advance(Duration::from_secs(1));
        let (_here, _there) = (claim(&here).await, claim(&there).await);
        assert_eq!(there.paused().await.unwrap(), None);
    }
}
