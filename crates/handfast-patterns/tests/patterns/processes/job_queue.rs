//! Jobs: none is lost, and each has its effect once.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use handfast_patterns::exactly_once::Memory;
use handfast_patterns::job_queue::{JobState, NewJob};
use handfast_patterns::{
    CancellationToken, Change, ExactlyOnce, JobError, JobQueue, JobQueueOptions, Result, RunnerOptions, UpdateOutcome,
    Worker, WorkerOptions,
};

use super::{Crew, LEASE, LOOKS_MAX, PAUSE, Process, ROUNDS};

/// The number of jobs at the beginning of each round, which is more than it does.
const JOBS: i32 = 500;
/// Half the duration of a job.
const WORK: Duration = Duration::from_millis(30);
/// The number of jobs that a process does at once.
const AT_ONCE: usize = 4;
/// The number of tokens, which exceeds the number of jobs: a job that is done again after many
/// others must be recognised.
const TOKENS_MAX: u32 = 100_000;

/// Returns options in which a crash does not count against a job.
fn options() -> JobQueueOptions {
    JobQueueOptions { lease: LEASE, crashes_max: 1000, attempts_max: 1000, ..JobQueueOptions::default() }
}

async fn queue(process: &Process) -> Result<JobQueue> {
    JobQueue::open_with(Arc::clone(&process.store), process.namespace("jobs"), process.sources.clone(), options()).await
}

/// Counts each job in a document of its own, and then in one document of all jobs.
async fn worker(process: &Process, work: Duration, concurrency: usize) -> Result<Worker> {
    let (counters, memory) = (process.namespace("counters"), Memory { tokens_max: TOKENS_MAX, ..Memory::default() });
    let once = ExactlyOnce::open_with(Arc::clone(&process.store), counters, process.sources.clone(), memory).await?;
    let working = process.clone();
    let options = WorkerOptions { concurrency, poll: PAUSE, ..WorkerOptions::default() };
    Ok(Worker::new(queue(process).await?, &*process.name).with_options(options).handle(
        "count",
        move |context, details: Document| {
            let (once, process) = (once.clone(), working.clone());
            async move {
                let one = Change::increment("count", 1).or_insert();
                let _: UpdateOutcome = context.guard("count", &once, details.get_i32("n")?, &one).await?;
                tokio::time::sleep(work).await;
                let _: UpdateOutcome = context.guard("count", &once, "all", &one).await?;
                process.progress().await?;
                tokio::time::sleep(work).await;
                Ok::<_, JobError>(())
            }
        },
    ))
}

pub(super) async fn work(process: Process) -> Result<()> {
    let cancel = CancellationToken::new();
    let working = worker(&process, WORK, AT_ONCE).await?.spawn(&cancel)?;
    let every = RunnerOptions { interval: LEASE, ..RunnerOptions::default() };
    let reclaiming = queue(&process).await?.spawn_reclaim(every, &cancel)?;
    cancel.cancelled().await;
    drop((working, reclaiming));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_done_and_have_their_effect_once_though_their_workers_are_killed() {
    let crew = Crew::new("job_queue").await;
    let queue = queue(&crew.here).await.unwrap();
    let mut left = 0;
    for round in 0..ROUNDS {
        let jobs = (0..JOBS).map(|n| NewJob::new("count", &doc! { "n": n + round.cast_signed() * JOBS }).unwrap());
        queue.enqueue_all(jobs).await.unwrap();
        crew.round(round).await;
        left += queue.depth().await.unwrap().processing;
    }
    assert!(left > 0, "no worker was killed while it had a job");
    // This process does the jobs whose workers have died, as another process would.
    let working = worker(&crew.here, Duration::ZERO, 32).await.unwrap().spawn(&CancellationToken::new()).unwrap();
    let mut looks = 0;
    let undone = async || {
        let depth = queue.depth().await.unwrap();
        depth.due + depth.scheduled + depth.processing
    };
    while undone().await > 0 {
        assert!(looks < LOOKS_MAX, "jobs are not done: {:?}", queue.depth().await);
        looks += 1;
        queue.reclaim(1000).await.unwrap();
        tokio::time::sleep(PAUSE).await;
    }
    working.stop().await;
    let jobs = JOBS * ROUNDS.cast_signed();
    let done = queue.list(JobState::Done, 10_000).await.unwrap();
    assert_eq!(done.len(), usize::try_from(jobs).unwrap(), "every job is done");
    let crashed = done.iter().filter(|job| job.crashes > 0).count();
    println!("{left} jobs were left by killed workers; {crashed} of {jobs} were taken from a silent worker");
    assert!(crashed > 0);
    let counters = crew.here.all("counters").await;
    for counter in &counters {
        let all = counter.get_str("_id").is_ok();
        assert_eq!(
            counter.get_i64("count").unwrap(),
            if all { jobs.into() } else { 1 },
            "{}",
            counter.get("_id").unwrap()
        );
    }
    assert_eq!(counters.len(), usize::try_from(jobs).unwrap() + 1);
}
