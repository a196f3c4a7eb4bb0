//! Main documents and copies: after a sweep every copy is equal to its main document.

use std::sync::Arc;
use std::time::Duration;

use bson::{doc, rawdoc};
use handfast_patterns::{CancellationToken, Change, Link, Result, RunnerOptions, SyncFlag, SyncFlagOptions};
use handfast_store::StoreExt;

use super::{Crew, LEASE, PAUSE, Process, ROUNDS};

const USERS: i32 = 12;
const COMMENTS: i32 = 4;
/// The number of changes that a process makes at once.
const TASKS: u32 = 4;

async fn names(process: &Process, abandoned_after: Duration) -> Result<SyncFlag> {
    let link = Link::new(process.namespace("comments"), "user").field("name", "userName");
    let options = SyncFlagOptions { abandoned_after, ..SyncFlagOptions::new([link]) };
    SyncFlag::open_with(Arc::clone(&process.store), process.namespace("users"), process.sources.clone(), options).await
}

pub(super) async fn work(process: Process) -> Result<()> {
    let names = names(&process, LEASE).await?;
    let every = RunnerOptions { interval: LEASE, ..RunnerOptions::default() };
    let _sweeping = names.spawn_sweep(every, &CancellationToken::new())?;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (process, names) = (process.clone(), names.clone());
        tasks.spawn(async move {
            for number in 0.. {
                let name = format!("{} {task} {number}", process.name);
                let renamed = Change::new(doc! { "$set": { "name": name } });
                let _ = names.change(names.token(), process.any(USERS as u64), &renamed).await?;
                process.progress().await?;
            }
            Ok::<_, handfast_patterns::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_equal_after_a_sweep_though_writers_and_sweepers_are_killed() {
    let crew = Crew::new("sync_flag").await;
    let here = &crew.here;
    let patient = names(here, Duration::from_secs(3600)).await.unwrap();
    for user in 0..USERS {
        here.store.insert_one(&here.namespace("users"), rawdoc! { "_id": user, "name": "nobody" }).await.unwrap();
        for comment in 0..COMMENTS {
            let comment = doc! { "_id": user * COMMENTS + comment, "user": user };
            let _ = patient.insert_copy(&here.namespace("comments"), comment).await.unwrap();
        }
    }
    let mut left = 0;
    for round in 0..ROUNDS {
        crew.round(round).await;
        left += patient.staleness().await.unwrap().mains;
        // A copy that differs has a flag, or its main document has one.
        assert_eq!(patient.drift(100, |_| ()).await.unwrap().stale, 0);
        let sweeper = names(here, Duration::ZERO).await.unwrap();
        tokio::time::sleep(PAUSE).await;
        while sweeper.sweep(100).await.unwrap().done > 0 {}
        assert_eq!(patient.staleness().await.unwrap().mains, 0);
        assert_equal(here).await;
    }
    println!("{left} changes were left half done by killed processes");
    assert!(left > 0, "no process was killed while it changed something");
}

/// Checks the copies without the library.
async fn assert_equal(process: &Process) {
    let users = process.all("users").await;
    let comments = process.all("comments").await;
    assert_eq!(comments.len(), usize::try_from(USERS * COMMENTS).unwrap());
    for comment in comments {
        let user = users.iter().find(|user| user.get("_id") == comment.get("user")).unwrap();
        assert_eq!(comment.get_str("userName").unwrap(), user.get_str("name").unwrap(), "{comment} of {user}");
    }
}
