//! Trees: no reader sees a mixed version, orphans are removed, and nothing is removed from a writer at work.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, doc, rawdoc};
use handfast_patterns::versioned_tree::{PreparedCommit, Snapshot, Write};
use handfast_patterns::{CancellationToken, Error, Result, RunnerOptions, VersionedTree, VersionedTreeOptions};
use handfast_store::StoreExt;

use super::{Crew, LEASE, PAUSE, Process, ROUNDS};

/// The number of items, of which each version changes three.
const ITEMS: u64 = 9;

async fn tree(process: &Process) -> Result<VersionedTree> {
    let options = VersionedTreeOptions {
        lease: LEASE,
        wait: Duration::from_millis(2),
        attempts_max: 1000,
        ..VersionedTreeOptions::new("tree")
    };
    VersionedTree::open_with(Arc::clone(&process.store), process.namespace("items"), process.sources.clone(), options)
        .await
}

/// Puts three nodes one after the other, with pauses. The root has the content of the whole tree.
async fn edit(process: Process, mut write: Write) -> Result<PreparedCommit> {
    let root = write.base().map(|base| base.root().clone()).unwrap_or_default();
    let mut numbers = root.get_document("numbers").cloned().unwrap_or_default();
    let first = process.any(ITEMS);
    for step in [0, 2, 5] {
        let (item, number) = (format!("i{}", (first + step) % ITEMS as i32), process.any(1_000_000));
        write.put(item.as_str(), doc! { "n": number }).await?;
        numbers.insert(item, number);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    process.progress().await?;
    Ok(write.with_root(doc! { "numbers": numbers }))
}

/// Describes how the root and the nodes of a version differ; `None` if they agree.
async fn mixed(snapshot: &Snapshot) -> Result<Option<String>> {
    let numbers = snapshot.root().get_document("numbers").cloned().unwrap_or_default();
    let mut expected: Vec<_> = numbers.into_iter().collect();
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    let mut found = Vec::new();
    for node in snapshot.all().await? {
        found.push((node.item.as_str().unwrap().to_owned(), node.content.get("n").cloned().unwrap_or(Bson::Null)));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let text = || format!("version {}: {found:?}, and its root says {expected:?}", snapshot.version());
    Ok((found != expected).then(text))
}

async fn read(process: &Process, tree: &VersionedTree) -> Result<()> {
    if let Some(snapshot) = tree.newest().await?
        && let Some(what) = mixed(&snapshot).await?
    {
        let id = rawdoc! { "_id": format!("{} {what}", process.name) };
        process.store.insert_one(&process.namespace("mixed"), id).await?;
    }
    Ok(())
}

pub(super) async fn work(process: Process) -> Result<()> {
    let tree = tree(&process).await?;
    let every = RunnerOptions { interval: LEASE / 4, ..RunnerOptions::default() };
    let _sweeping = tree.spawn_sweep(every, &CancellationToken::new())?;
    let reading = async {
        loop {
            read(&process, &tree).await?;
        }
        #[expect(unreachable_code, reason = "says what may go wrong")]
        Ok::<(), Error>(())
    };
    let writing = async {
        loop {
            tree.change(|write| edit(process.clone(), write)).await?;
        }
        #[expect(unreachable_code, reason = "says what may go wrong")]
        Ok::<(), Error>(())
    };
    tokio::try_join!(reading, writing).map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_whole_and_orphans_go_though_writers_and_sweepers_are_killed() {
    let crew = Crew::new("versioned_tree").await;
    let tree = tree(&crew.here).await.unwrap();
    let (mut left, mut newest) = (0, 0);
    for round in 0..ROUNDS {
        crew.round(round).await;
        let here = tree.newest().await.unwrap().unwrap().version();
        assert!(here > newest, "round {round} committed nothing");
        newest = here;
        // A writer counts as silent after its lease.
        tokio::time::sleep(LEASE + PAUSE).await;
        left += tree.orphans(1000).await.unwrap().len();
        tree.sweep(1000).await.unwrap();
        assert_eq!(tree.orphans(1000).await.unwrap(), []);
        assert_eq!(crew.here.all("items.writes").await, []);
    }
    let mut versions = 0;
    for version in tree.versions(10_000).await.unwrap() {
        let snapshot = tree.at(version.version).await.unwrap().unwrap();
        assert_eq!(mixed(&snapshot).await.unwrap(), None);
        versions += 1;
    }
    assert_eq!(crew.here.all("mixed").await, [], "readers beside the writers");
    assert!(tree.verify(None, |_| ()).await.unwrap().is_clean());
    println!("{versions} versions; {left} nodes were left by killed writers");
    assert!(left > 0, "no writer was killed within its write");
}
