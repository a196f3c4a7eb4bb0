//! Jobs with a fault at every operation, and ten thousand jobs with crashes.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc, rawdoc};
use handfast_patterns::exactly_once::Memory;
use handfast_patterns::job_queue::{Drained, Enqueued, JobError, JobQueueOptions, JobState, Limits, Worker};
use handfast_patterns::{Change, Error, ExactlyOnce, Result, Token, UpdateOutcome};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Faulty, Plan as Faults};

use super::{Friends, HOUR, MINUTE, friends, kinds, new_id, numbered, open, open_with};
use crate::black_pipe::{assert_right, every_pair};
use crate::crash::{Stage, World, every_point};

/// Makes users friends on both sides: the job of the seed, whose effects are counted.
async fn add_friends(world: &World) -> Result<Worker> {
    let users = world.namespace("users");
    let once =
        ExactlyOnce::open_with(Arc::clone(&world.store), users, world.sources.clone(), Memory::default()).await?;
    let queue = open_with(world, JobQueueOptions::default()).await?;
    Ok(Worker::new(queue, "worker1").handle("ADD_FRIEND", move |context, friends: Friends| {
        let once = once.clone();
        async move {
            let change = Change::increment("friends", 1).or_insert();
            for user in friends.users {
                let _: UpdateOutcome = context.guard("befriend", &once, user, &change).await?;
            }
            Ok::<_, JobError>("friends")
        }
    }))
}

async fn enqueue_and_drain(world: &World, unique: bool) -> Result<(Enqueued, Drained)> {
    let queue = open_with(world, JobQueueOptions::default()).await?;
    let first = queue.enqueue(friends()).await?;
    world.acknowledge(&first, "jobs", doc! { "_id": new_id(first.clone()) });
    let second = queue.enqueue(if unique { friends().unique("ann-bob") } else { friends() }).await?;
    world.acknowledge(&second, "jobs", doc! { "_id": new_id(second.clone()) });
    let drained = add_friends(world).await?.drain().await?;
    world.acknowledge_none(drained, "jobs", doc! { "state": { "$ne": "DONE" } });
    Ok((first, drained))
}

async fn reclaim_and_drain(world: &World) -> Result<()> {
    let worker = add_friends(world).await?;
    open_with(world, JobQueueOptions::default()).await?.reclaim(10).await?;
    let drained = worker.drain().await?;
    assert_eq!((drained.failed, drained.lost), (0, 0));
    Ok(())
}

/// Checks that all jobs are done, and each had its effect once.
async fn all_are_friends(world: &World, answer: &Result<(Enqueued, Drained)>) -> Result<(), String> {
    let queue = open_with(world, JobQueueOptions::default()).await.map_err(|error| error.to_string())?;
    let done = queue.list(JobState::Done, 10).await.map_err(|error| error.to_string())?;
    let depth = queue.depth().await.map_err(|error| error.to_string())?;
    if (depth.due, depth.processing, depth.failed) != (0, 0, 0) {
        return Err(format!("{depth:?}"));
    }
    if answer.is_ok() && done.len() != 2 {
        return Err(format!("{} done", done.len()));
    }
    for user in ["ann", "bob"] {
        let user = world.store.find_one(&world.namespace("users"), rawdoc! { "_id": user }).await.unwrap();
        let friends = user.map_or(0, |user| user.get_i64("friends").unwrap_or(-1));
        if friends != done.len() as i64 {
            return Err(format!("{} jobs are done, and one user has {friends} friends", done.len()));
        }
    }
    Ok(())
}

async fn killed_at_every_operation(stage: Stage, unique: bool) {
    let run = async |world: &World| enqueue_and_drain(world, unique).await;
    let recover = async |world: &World, _: &Result<_>| reclaim_and_drain(world).await;
    let report = every_point(&stage, async |_| {}, run, recover, all_are_friends).await;
    report.assert_clean("job queue", &stage, 98);
}

#[tokio::test(flavor = "multi_thread")]
async fn done_over_the_wire() {
    let run = async |world: &World| enqueue_and_drain(world, false).await;
    let recover = async |world: &World, _: &Result<_>| reclaim_and_drain(world).await;
    assert_right("job queue", &every_pair(async |_| {}, run, recover, all_are_friends).await, 40);
}

#[tokio::test]
async fn done_and_killed_at_every_operation() {
    killed_at_every_operation(Stage::Memory, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn done_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    killed_at_every_operation(Stage::embedded(directory.path()).await, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn done_and_killed_at_every_operation_on_a_server() {
    killed_at_every_operation(Stage::server().await, true).await;
}

/// Unique jobs, orders and slots need unique indexes on some documents. Without those a queue works without these
/// features.
#[tokio::test(flavor = "multi_thread")]
async fn ext_done_and_killed_at_every_operation_on_ferretdb() {
    let Some(stage) = Stage::ferretdb().await else { return };
    let world = World::new(&stage, "queue");
    let limits = Limits { concurrency: Some(1), ..Limits::default() };
    for options in [
        JobQueueOptions { ordered: true, ..JobQueueOptions::default() },
        JobQueueOptions { limits, ..JobQueueOptions::default() },
    ] {
        let refused = open_with(&world, options).await.map(|_| ());
        assert!(refused.is_err_and(|error| error.to_string().contains("no sparse unique indexes")));
    }
    let refused = open(&world).await.enqueue(friends().unique("ann-bob")).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("no unique jobs")));
    killed_at_every_operation(stage, false).await;
}

/// Covers the other ways in which a job leaves its worker, the retry of a dead letter, and the sweeps.
#[tokio::test]
async fn every_other_way_killed_at_every_operation() {
    let ids: Vec<_> = {
        let sources = handfast_store::Sources::seeded(77);
        (0..5).map(|_| sources.ids.object_id()).collect()
    };
    let run = async |world: &World| {
        let queue = open_with(world, JobQueueOptions { ordered: true, ..JobQueueOptions::default() }).await?;
        for id in &ids {
            queue.enqueue(numbered(0).with_id(*id).in_order(id.to_hex())).await?;
            world.acknowledge("it is in the queue", "jobs", doc! { "_id": id });
        }
        for number in 0..4 {
            let Some(job) = queue.claim("w", &kinds()).await? else { continue };
            let _ = match number {
                0 => queue.fail(&job, "no luck").await?,
                1 => queue.snooze(&job, MINUTE).await?,
                2 => queue.give_up(&job, "never").await?,
                _ => queue.release(&job).await?,
            };
            queue.retry(&job.id).await?;
        }
        if queue.cancel(ids[4]).await? {
            world.acknowledge("it is canceled", "jobs", doc! { "_id": ids[4], "state": "CANCELED" });
        }
        Ok::<_, Error>(())
    };
    let recover = async |world: &World, _: &Result<()>| {
        let queue = open_with(world, JobQueueOptions { ordered: true, ..JobQueueOptions::default() }).await?;
        queue.reclaim(10).await?;
        let worker = Worker::new(queue, "second").handle("count", |_, _: Document| async { Ok::<_, JobError>(()) });
        worker.drain().await?;
        Ok(())
    };
    let check = async |world: &World, answer: &Result<()>| {
        let ordered = JobQueueOptions { ordered: true, ..JobQueueOptions::default() };
        let queue = open_with(world, ordered).await.map_err(|error| error.to_string())?;
        let depth = queue.depth().await.map_err(|error| error.to_string())?;
        let done = queue.list(JobState::Done, 10).await.map_err(|error| error.to_string())?.len() as u64;
        let quiet = depth.due == 0 && depth.processing == 0 && depth.scheduled == 0;
        let all_there = answer.is_err() || done + depth.failed + depth.canceled == 5;
        if quiet && all_there { Ok(()) } else { Err(format!("{done} done, {depth:?}")) }
    };
    let prepare = async |_: &World| {};
    // Without a fault the run alone leaves jobs to do.
    let run = async |world: &World| {
        run(world).await?;
        world.clock.advance(HOUR);
        recover(world, &Ok(())).await
    };
    let report = every_point(&Stage::Memory, prepare, run, recover, check).await;
    report.assert_clean("job queue, every way out", &Stage::Memory, 483);
}

/// Runs ten thousand jobs; five of a hundred claims die with their job, and one answer of twenty is lost. No job is
/// lost, and each has its effect once.
#[tokio::test]
async fn ten_thousand_jobs_with_crashes() {
    const JOBS: i64 = 10_000;
    const AT_A_TIME: i64 = 50;
    let world = World::in_memory();
    let options = || JobQueueOptions { crashes_max: 1000, ..JobQueueOptions::default() };
    let queue = open_with(&world, options()).await.unwrap();
    let lossy = Faulty::new(Arc::clone(&world.store), Faults::seeded(5, 50, [Fault::LoseReply]).writes_only());
    let lossy = world.on(Arc::new(lossy));
    let hasty = loop {
        if let Ok(queue) = open_with(&lossy, options()).await {
            break queue;
        }
    };
    let effects = ExactlyOnce::open_with(
        world.store.clone(),
        world.namespace("effects"),
        world.sources.clone(),
        Memory::default(),
    );
    let effects = effects.await.unwrap();
    let (mut executed, mut crashes, mut done) = (0, 0, 0);
    for first in (0..JOBS).step_by(AT_A_TIME as usize) {
        queue.enqueue_all((first..first + AT_A_TIME).map(numbered)).await.unwrap();
        loop {
            match hasty.claim("w", &kinds()).await {
                Ok(Some(job)) => {
                    executed += 1;
                    let document = job.details.get_i64("number").unwrap() / 5;
                    let effect = Change::increment("n", 1).or_insert();
                    assert!(
                        effects
                            .apply(Token(job.id.as_object_id().unwrap()), document, &effect)
                            .await
                            .unwrap()
                            .is_applied()
                    );
                    if world.sources.random.next_u64() % 100 < 5 {
                        crashes += 1;
                    } else {
                        let _ = hasty.complete(&job, None).await;
                    }
                }
                Ok(None) if queue.depth().await.unwrap().processing == 0 => break,
                Ok(None) => {
                    world.clock.advance(2 * MINUTE);
                    queue.reclaim(1000).await.unwrap();
                }
                Err(_) => {}
            }
        }
        let depth = queue.depth().await.unwrap();
        assert_eq!((depth.due, depth.scheduled, depth.failed), (0, 0, 0));
        world.clock.advance(MINUTE);
        done += queue.purge(Duration::ZERO, HOUR, 1000).await.unwrap().done;
    }
    assert!(crashes > 300 && executed > JOBS + 300, "{crashes} crashes, {executed} executed");
    let exact = world.store.count_matching(&world.namespace("effects"), rawdoc! { "n": 5 }).await.unwrap();
    let changed = world.store.count_matching(&world.namespace("effects"), rawdoc! {}).await.unwrap();
    assert_eq!(
        (done, exact, changed),
        (10_000, 2_000, 2_000),
        "jobs done; documents that five jobs have changed once each"
    );
}
