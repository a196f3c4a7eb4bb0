//! Recurring jobs: each occurrence is enqueued once, in its time zone, with any number of processes that tick and die.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc, rawdoc};
use handfast_patterns::job_queue::{
    Backoff, ClaimState, JobFields, JobQueue, JobQueueOptions, JobState, Limits, Missed, NewJob, Schedule,
    ScheduleFields, Schedules,
};
use handfast_patterns::{CancellationToken, Error, FieldNames, Result, RunnerOptions};
use handfast_store::{Clock, Find, StoreExt};

use crate::crash::{Stage, World, every_point};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Returns a schedule. The clock of tests begins at 2020-01-01T00:00:00Z.
fn schedule(cron: &str, zone: &str, missed: Missed) -> Schedule {
    let job = NewJob::new("report", &doc! { "of": "sales" }).unwrap();
    Schedule { name: "report".to_owned(), cron: cron.to_owned(), zone: zone.to_owned(), missed, job }
}

async fn open(world: &World) -> Result<(JobQueue, Schedules)> {
    let (store, options) = (Arc::clone(&world.store), JobQueueOptions::default());
    let queue = JobQueue::open_with(store, world.namespace("jobs"), world.sources.clone(), options).await?;
    let schedules = Schedules::open(queue.clone(), world.namespace("schedules")).await?;
    Ok((queue, schedules))
}

#[tokio::test]
async fn a_queue_that_keeps_no_keys_apart_has_no_recurring_and_no_unique_jobs() {
    let world = World::in_memory();
    let (store, options) = (Arc::clone(&world.store), JobQueueOptions::default());
    let queue = JobQueue::attach(store, world.namespace("jobs"), world.sources.clone(), options).await.unwrap();
    let refused = |error: Error| error.to_string().contains("no sparse unique indexes");
    assert!(Schedules::open(queue.clone(), world.namespace("schedules")).await.is_err_and(refused));
    let job = || NewJob::new("report", &doc! {}).unwrap();
    assert!(queue.enqueue(job().unique("a")).await.is_err_and(refused));
    assert!(queue.enqueue_all([job().unique_for_ever("a")]).await.is_err_and(refused));
    queue.enqueue(job()).await.unwrap();
}

/// Returns the times of the jobs in the queue.
async fn times(queue: &JobQueue) -> Vec<String> {
    let jobs = queue.list(JobState::Todo, 1000).await.unwrap();
    let mut times: Vec<_> = jobs.iter().map(|job| job.run_at.try_to_rfc3339_string().unwrap()).collect();
    times.sort();
    times
}

async fn next(schedules: &Schedules) -> String {
    schedules.list(1).await.unwrap()[0].1.unwrap().try_to_rfc3339_string().unwrap()
}

#[tokio::test]
async fn nine_o_clock_is_that_of_the_zone() {
    let world = World::in_memory();
    let (queue, schedules) = open(&world).await.unwrap();
    schedules.set(&schedule("0 9 * * *", "Europe/Berlin", Missed::Last)).await.unwrap();
    assert_eq!(next(&schedules).await, "2020-01-01T08:00:00Z");
    // Summer time begins on 29 March.
    world.clock.advance(87 * DAY + 12 * HOUR);
    assert_eq!(schedules.tick(10).await.unwrap().done, 1);
    assert_eq!(times(&queue).await, ["2020-03-28T08:00:00Z"]);
    assert_eq!(next(&schedules).await, "2020-03-29T07:00:00Z");
}

#[tokio::test]
async fn missed_occurrences_are_dropped_or_made_up_for() {
    for (missed, expected) in [
        (Missed::Last, vec!["2020-01-01T04:00:00Z"]),
        (
            Missed::All,
            vec!["2020-01-01T01:00:00Z", "2020-01-01T02:00:00Z", "2020-01-01T03:00:00Z", "2020-01-01T04:00:00Z"],
        ),
        (Missed::Skip { older_than: HOUR / 2 }, vec!["2020-01-01T04:00:00Z"]),
        (Missed::Skip { older_than: HOUR / 4 }, vec![]),
    ] {
        let world = World::in_memory();
        let (queue, schedules) = open(&world).await.unwrap();
        schedules.set(&schedule("0 * * * *", "UTC", missed)).await.unwrap();
        assert_eq!(schedules.tick(10).await.unwrap().done, 0, "nothing is due");
        world.clock.advance(4 * HOUR + HOUR / 2);
        // A program sets its schedules whenever it starts.
        schedules.set(&schedule("0 * * * *", "UTC", missed)).await.unwrap();
        assert_eq!(schedules.tick(10).await.unwrap().done, expected.len() as u64);
        assert_eq!(schedules.tick(10).await.unwrap().done, 0, "once");
        assert_eq!(times(&queue).await, expected);
        assert_eq!(next(&schedules).await, "2020-01-01T05:00:00Z");
    }
}

/// The clock of the machine is set back by a day, and forward again: no occurrence is enqueued twice, and later ones
/// come on time.
#[tokio::test]
async fn a_clock_that_goes_back_and_jumps_enqueues_nothing_twice() {
    for missed in [Missed::Last, Missed::All] {
        let world = World::in_memory();
        let (queue, schedules) = open(&world).await.unwrap();
        let begin = world.clock.now();
        schedules.set(&schedule("0 * * * *", "UTC", missed)).await.unwrap();
        world.clock.advance(HOUR + HOUR / 2);
        assert_eq!(schedules.tick(10).await.unwrap().done, 1);
        world.clock.set(DateTime::from_millis(begin.timestamp_millis() - 86_400_000));
        for _ in 0..30 {
            schedules.set(&schedule("0 * * * *", "UTC", missed)).await.unwrap();
            assert_eq!(schedules.tick(10).await.unwrap().done, 0, "it was there already");
            world.clock.advance(HOUR / 2);
        }
        assert_eq!(next(&schedules).await, "2020-01-01T02:00:00Z");
        // The clock goes to where it would be without the change, and then a day and a half ahead.
        world.clock.set(DateTime::from_millis(begin.timestamp_millis() + 36 * 3_600_000 + 1));
        let expected = match missed {
            Missed::All => 35,
            Missed::Last | Missed::Skip { .. } => 1,
        };
        assert_eq!(schedules.tick(100).await.unwrap().done, expected);
        let mut times = times(&queue).await;
        let all = times.len();
        times.dedup();
        assert_eq!((times.len(), all), (all, expected as usize + 1), "each occurrence once");
        assert_eq!(next(&schedules).await, "2020-01-02T13:00:00Z");
    }
}

#[tokio::test]
async fn a_long_absence_is_made_up_for_in_several_ticks() {
    let world = World::in_memory();
    let (queue, schedules) = open(&world).await.unwrap();
    schedules.set(&schedule("* * * * *", "UTC", Missed::All)).await.unwrap();
    world.clock.advance(4 * HOUR + Duration::from_secs(1));
    let mut ticks = Vec::new();
    for _ in 0..4 {
        ticks.push(schedules.tick(10).await.unwrap().done);
    }
    assert_eq!((ticks, times(&queue).await.len()), (vec![100, 100, 40, 0], 240));
}

#[tokio::test]
async fn a_schedule_can_be_changed_and_removed() {
    let world = World::in_memory();
    let (queue, schedules) = open(&world).await.unwrap();
    schedules.set(&schedule("0 9 * * *", "UTC", Missed::Last)).await.unwrap();
    schedules.set(&schedule("0 10 * * *", "UTC", Missed::Last)).await.unwrap();
    assert_eq!(next(&schedules).await, "2020-01-01T10:00:00Z");
    assert!(schedules.remove("report").await.unwrap());
    world.clock.advance(DAY);
    assert_eq!(schedules.tick(10).await.unwrap().done, 0);
    assert!(times(&queue).await.is_empty());
    for (cron, zone) in [("0 9 * *", "UTC"), ("soon", "UTC"), ("0 9 * * *", "Atlantis/Harbour"), ("0 0 30 2 *", "UTC")]
    {
        let refused = schedules.set(&schedule(cron, zone, Missed::Last)).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{cron} {zone}");
    }
}

async fn killed_at_every_operation(stage: Stage) {
    let run = async |world: &World| {
        let (_, schedules) = open(world).await?;
        schedules.set(&schedule("0 * * * *", "UTC", Missed::All)).await?;
        world.acknowledge("it is set", "schedules", doc! { "_id": "report" });
        world.clock.advance(2 * HOUR);
        let ticked = schedules.tick(10).await?;
        world.acknowledge(ticked, "jobs", doc! { "type": "report" });
        Ok(())
    };
    let recover = async |world: &World, _: &Result<()>| open(world).await?.1.tick(10).await.map(|_| ());
    let check = async |world: &World, _: &Result<()>| {
        let (queue, schedules) = open(world).await.map_err(|error| error.to_string())?;
        let Some((_, Some(next))) = schedules.list(1).await.map_err(|error| error.to_string())?.pop() else {
            return if times(&queue).await.is_empty() { Ok(()) } else { Err("jobs of no schedule".to_owned()) };
        };
        // All occurrences from the first one until the next are there once.
        let due: Vec<_> = times(&queue).await;
        let jobs = queue.list(JobState::Todo, 1000).await.map_err(|error| error.to_string())?;
        let hours: Vec<_> =
            jobs.iter().map(|job| (next.timestamp_millis() - job.run_at.timestamp_millis()) / 3_600_000).collect();
        let mut expected: Vec<_> = (1..=hours.len() as i64).collect();
        expected.reverse();
        let mut hours = hours;
        hours.sort_by_key(|hours| -hours);
        if hours == expected && !hours.is_empty() { Ok(()) } else { Err(format!("next {next}, and {due:?}")) }
    };
    let report = every_point(&stage, async |_| {}, run, recover, check).await;
    report.assert_clean("recurring jobs", &stage, 63);
}

#[tokio::test]
async fn ticked_and_killed_at_every_operation() {
    killed_at_every_operation(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ticked_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    killed_at_every_operation(Stage::embedded(directory.path()).await).await;
}

#[tokio::test(start_paused = true)]
async fn many_tickers_enqueue_each_occurrence_once() {
    let world = World::in_memory();
    let (queue, schedules) = open(&world).await.unwrap();
    schedules.set(&schedule("*/10 * * * * *", "UTC", Missed::All)).await.unwrap();
    let options = RunnerOptions { interval: Duration::from_secs(5), ..RunnerOptions::default() };
    let cancel = CancellationToken::new();
    let runners: Vec<_> = (0..4).map(|_| schedules.spawn_ticks(options.clone(), &cancel).unwrap()).collect();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.clock.advance(Duration::from_secs(1));
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    cancel.cancel();
    for runner in runners {
        runner.stop().await;
    }
    assert_eq!(times(&queue).await.len(), 10);
}

/// Returns names with an X after each default.
fn other_names<F: FieldNames>() -> F {
    let mut fields = F::default();
    for default in F::DEFAULTS {
        assert!(fields.rename(default, &format!("{default}X")));
    }
    fields
}

/// Returns the names of all fields of a document, and of those within `workerX`.
fn names(document: &Document) -> Vec<String> {
    let within = document.get_document("workerX").ok().into_iter().flat_map(Document::keys);
    document.keys().chain(within).cloned().collect()
}

#[tokio::test]
async fn every_field_of_jobs_and_schedules_can_have_another_name() {
    let world = World::in_memory();
    let limits = Limits { concurrency: Some(2), rate: None };
    let options = JobQueueOptions { fields: other_names::<JobFields>(), ordered: true, limits, ..Default::default() };
    let target = world.namespace("jobs");
    let queue = JobQueue::open_with(world.store.clone(), target, world.sources.clone(), options).await.unwrap();
    let schedules = Schedules::open_with(queue.clone(), world.namespace("schedules"), other_names::<ScheduleFields>())
        .await
        .unwrap();
    schedules.set(&schedule("0 9 * * *", "UTC", Missed::All)).await.unwrap();
    world.clock.advance(DAY);
    assert_eq!(schedules.tick(10).await.unwrap().done, 1);
    queue.enqueue(NewJob::new("report", &doc! {}).unwrap().in_order("a").unique("b")).await.unwrap();
    let kinds = ["report".to_owned()];
    let jobs = queue.claim_many("w", &kinds, 5).await.unwrap();
    assert_eq!(queue.complete(&jobs[0], Some(Bson::from(1))).await.unwrap(), ClaimState::Held);
    assert_eq!(queue.renew(&jobs[1], Some(Bson::from(2))).await.unwrap(), ClaimState::Held);
    world.clock.advance(HOUR);
    assert_eq!(queue.reclaim(10).await.unwrap().done, 1);
    let again = queue.claim("w", &kinds).await.unwrap().unwrap();
    assert_eq!(queue.give_up(&again, "never").await.unwrap(), ClaimState::Held);
    assert!(queue.retry(&again.id).await.unwrap());
    for collection in ["jobs", "schedules"] {
        let found = world.store.find_all(Find::new(world.namespace(collection), rawdoc! {})).await.unwrap();
        assert!(!found.is_empty());
        for document in &found {
            let document = Document::try_from(&**document).unwrap();
            for name in names(&document).iter().filter(|name| *name != "_id") {
                assert!(name.ends_with('X'), "{name} of {document}");
            }
        }
    }
    assert_eq!(queue.depth().await.unwrap().due, 1);
}

#[tokio::test]
async fn recurring_jobs_have_the_attempts_waits_and_time_of_their_schedule_while_it_says_so() {
    let world = World::in_memory();
    let (queue, schedules) = open(&world).await.unwrap();
    let backoff = Backoff { first: HOUR, longest: DAY, jitter: 0.5 };
    let usual = schedule("0 9 * * *", "UTC", Missed::All);
    let own =
        Schedule { job: usual.job.clone().with_attempts(3).with_backoff(backoff).with_timeout(HOUR), ..usual.clone() };
    for (schedule, expected) in [(own, (Some(3), Some(backoff), Some(HOUR))), (usual, (None, None, None))] {
        schedules.set(&schedule).await.unwrap();
        world.clock.advance(DAY);
        assert_eq!(schedules.tick(10).await.unwrap().done, 1);
        let job = queue.claim("w", &["report".to_owned()]).await.unwrap().unwrap();
        assert_eq!((job.attempts_max, job.backoff, job.timeout), expected);
    }
}
