//! Every process reads a queue by the settings that its jobs were written by.

use std::sync::Arc;

use handfast_patterns::job_queue::{
    Backoff, ClaimState, JobFields, JobQueue, JobQueueOptions, JobState, Limits, RateLimit,
};
use handfast_patterns::{Error, Result};

use super::{HOUR, MINUTE, claim, numbered, open, open_with};
use crate::crash::World;

fn ordered() -> JobQueueOptions {
    JobQueueOptions { ordered: true, ..JobQueueOptions::default() }
}

async fn attached(world: &World, options: JobQueueOptions) -> Result<JobQueue> {
    JobQueue::attach(Arc::clone(&world.store), world.namespace("jobs"), world.sources.clone(), options).await
}

async fn recorded(world: &World) -> Option<JobQueueOptions> {
    JobQueueOptions::recorded(Arc::clone(&world.store), &world.namespace("jobs")).await.unwrap()
}

async fn change(world: &World, options: &JobQueueOptions) -> Result<()> {
    JobQueue::change_settings(Arc::clone(&world.store), world.namespace("jobs"), options).await
}

/// The error names each setting, as recorded and as given. Nothing is done, and no index is created.
#[tokio::test]
async fn other_settings_are_refused_by_name() {
    let world = World::in_memory();
    attached(&world, ordered()).await.unwrap();
    assert!(recorded(&world).await.is_none(), "a queue that is attached records nothing");
    open_with(&world, ordered()).await.unwrap();
    let indexes = world.store.list_indexes(&world.namespace("jobs")).await.unwrap();
    let fields = JobFields { kind: "kind".to_owned(), ..JobFields::default() };
    let limited = |concurrency, rate| JobQueueOptions { limits: Limits { concurrency, rate }, ..ordered() };
    let rate = RateLimit { jobs: 3, within: MINUTE };
    for (other, text) in [
        (JobQueueOptions::default(), "ordered is recorded as true, given as false"),
        (JobQueueOptions { attempts_max: 3, ..ordered() }, "attemptsMax is recorded as 20, given as 3"),
        (JobQueueOptions { crashes_max: 3, ..ordered() }, "crashesMax is recorded as 5, given as 3"),
        (JobQueueOptions { unread_max: 3, ..ordered() }, "unreadMax is recorded as 10, given as 3"),
        (limited(Some(2), None), "limits.concurrency is recorded as nothing, given as 2"),
        (limited(None, Some(rate)), "limits.rate.withinMillis is recorded as nothing, given as 60000"),
        (JobQueueOptions { fields, ..ordered() }, "fields.type is recorded as \"type\", given as \"kind\""),
    ] {
        for refused in [open_with(&world, other.clone()).await.err(), attached(&world, other).await.err()] {
            let error = refused.expect("other settings");
            assert!(matches!(error, Error::OtherSettings { .. }) && error.to_string().contains(text), "{error}");
        }
    }
    assert_eq!(world.store.list_indexes(&world.namespace("jobs")).await.unwrap(), indexes);
    // Each process may choose these options.
    let backoff = Backoff { first: HOUR, ..Backoff::default() };
    open_with(&world, JobQueueOptions { lease: HOUR, timeout: None, backoff, ..ordered() }).await.unwrap();
}

/// A tool without the application's settings opens a queue by its record.
#[tokio::test]
async fn a_queue_is_opened_by_its_record() {
    let world = World::in_memory();
    let fields = JobFields { state: "status".to_owned(), worker: "by".to_owned(), ..JobFields::default() };
    let limits = Limits { concurrency: Some(1), rate: Some(RateLimit { jobs: 3, within: MINUTE }) };
    let options = JobQueueOptions { attempts_max: 1, limits, fields, ..ordered() };
    open_with(&world, options).await.unwrap().enqueue(numbered(1).in_order("a")).await.unwrap();
    let found = recorded(&world).await.expect("recorded");
    let rate = found.limits.rate.expect("a rate");
    assert_eq!((found.limits.concurrency, rate.jobs, rate.within), (Some(1), 3, MINUTE));
    let other = open_with(&world, found).await.unwrap();
    let _ = other.fail(&claim(&other).await, "no").await.unwrap();
    assert_eq!(other.list(JobState::Failed, 10).await.unwrap().len(), 1, "one attempt, as recorded");
}

#[tokio::test]
async fn settings_are_not_changed_under_the_jobs_that_they_are_the_meaning_of() {
    let world = World::in_memory();
    let refused = async |options: &JobQueueOptions, why: &str| {
        let error = change(&world, options).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    let fields = JobFields { state: "status".to_owned(), ..JobFields::default() };
    let renamed = JobQueueOptions { fields, ..ordered() };
    change(&world, &renamed).await.unwrap();
    change(&world, &ordered()).await.unwrap();
    let queue = open_with(&world, ordered()).await.unwrap();
    queue.enqueue(numbered(1).in_order("a")).await.unwrap();
    refused(&renamed, "has jobs by other names of fields").await;
    refused(&JobQueueOptions::default(), "has jobs that wait for their order").await;
    let job = claim(&queue).await;
    let limits = Limits { concurrency: Some(2), rate: None };
    let limited = JobQueueOptions { limits, ..ordered() };
    for other in [&JobQueueOptions::default(), &limited] {
        refused(other, "workers have jobs").await;
    }
    change(&world, &JobQueueOptions { attempts_max: 3, ..ordered() }).await.unwrap();
    assert_eq!(queue.complete(&job, None).await.unwrap(), ClaimState::Held);
    change(&world, &limited).await.unwrap();
    change(&world, &JobQueueOptions::default()).await.unwrap();
    assert!(open_with(&world, ordered()).await.is_err());
    open(&world).await;
}
