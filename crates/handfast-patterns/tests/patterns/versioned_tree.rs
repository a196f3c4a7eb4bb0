//! Versioned trees: versions, history, conflicts; abandoned versions; pruning; every crash point and every order.

mod altered;
mod killed;
mod ordered;
mod orphaned;
mod pruned;
mod recorded;
mod verified;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::versioned_tree::{
    Commit, Keep, Node, PreparedCommit, Snapshot, TreeStatus, VersionState, VersionedTree, Write,
};
use handfast_patterns::{CancellationToken, Error, Result, RunnerOptions, VersionedTreeOptions};
use handfast_store::decorator::{Fault, Faulty, Plan as Faults};
use handfast_store::{DropIndexes, Find, IndexSelector, StoreExt};

use crate::crash::World;

const HOUR: Duration = Duration::from_secs(3600);

async fn open(world: &World) -> Result<VersionedTree> {
    let options = VersionedTreeOptions { wait: Duration::ZERO, ..VersionedTreeOptions::new("tree") };
    VersionedTree::open_with(Arc::clone(&world.store), world.namespace("items"), world.sources.clone(), options).await
}

async fn all(world: &World, collection: &str) -> Vec<Document> {
    let sort = rawdoc! { "itemId": 1, "version": 1, "_id": 1 };
    let found =
        world.store.find_all(Find { sort, ..Find::new(world.namespace(collection), rawdoc! {}) }).await.unwrap();
    found.iter().map(|document| Document::try_from(&**document).unwrap()).collect()
}

/// Drops the indexes, so that writers can overwrite each other's changes.
async fn drop_indexes(world: &World) {
    let all = DropIndexes { namespace: world.namespace("items"), selector: IndexSelector::All };
    world.store.drop_indexes(all).await.unwrap();
}

/// Returns all documents of the tree in a line: `a 1: 10 | a 3: - | tree 1 committed`.
async fn shown(world: &World) -> String {
    let mut parts = Vec::new();
    for node in all(world, "items").await {
        let (item, version) = (node.get_str("itemId").unwrap(), node.get_i64("version").unwrap());
        parts.push(match (node.get_str("versionState"), node.get_i32("n")) {
            (Ok(state), _) => format!("{item} {version} {state}"),
            (_, Ok(n)) => format!("{item} {version}: {n}"),
            _ => format!("{item} {version}: -"),
        });
    }
    parts.join(" | ")
}

/// Changes numbers of items: sets them, or removes the item. The root has the content of the whole tree, as a
/// checksum.
fn edited(write: &Write, changes: &[(&str, Option<i32>)]) -> Document {
    let mut root = write.base().map(|base| base.root().clone()).unwrap_or_default();
    let mut numbers = root.get_document("numbers").cloned().unwrap_or_default();
    for (item, number) in changes {
        match number {
            Some(number) => numbers.insert(*item, *number),
            None => numbers.remove(item),
        };
    }
    root.insert("numbers", numbers);
    root
}

/// Returns a write with these changes, ready to be committed.
async fn edit(mut write: Write, changes: &[(&str, Option<i32>)]) -> Result<PreparedCommit> {
    let root = edited(&write, changes);
    for (item, number) in changes {
        match number {
            Some(number) => write.put(*item, doc! { "n": *number }).await?,
            None => write.remove(*item).await?,
        }
    }
    Ok(write.with_root(root))
}

async fn change(tree: &VersionedTree, changes: &'static [(&'static str, Option<i32>)]) -> Result<i64> {
    tree.change(|write| edit(write, changes)).await
}

/// Checks that a version agrees with its root, reading it in each way.
async fn whole(snapshot: &Snapshot) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let expected = numbers_of(snapshot);
    let mut found: Vec<_> = snapshot.all().await.map_err(text)?.iter().map(number_of).collect();
    found.sort();
    let listed: Vec<_> = snapshot.nodes(["a", "b", "c", "d", "e"]).await.map_err(text)?.iter().map(number_of).collect();
    if found != expected || listed != expected {
        return Err(format!("version {}: {found:?}, {listed:?}, and its root says {expected:?}", snapshot.version()));
    }
    Ok(())
}

/// Checks that each item agrees with the root, reading one by one.
async fn whole_one_by_one(snapshot: &Snapshot) {
    whole(snapshot).await.unwrap();
    for item in ["a", "b", "c", "d"] {
        let found = snapshot.node(item).await.unwrap().as_ref().map(number_of);
        assert_eq!(found, numbers_of(snapshot).into_iter().find(|(name, _)| name == item));
    }
}

fn number_of(node: &Node) -> (String, i32) {
    (node.item.as_str().unwrap().to_owned(), node.content.get_i32("n").unwrap())
}

fn numbers_of(snapshot: &Snapshot) -> Vec<(String, i32)> {
    let numbers = snapshot.root().get_document("numbers").cloned().unwrap_or_default();
    let mut numbers: Vec<_> = numbers.into_iter().map(|(item, number)| (item, number.as_i32().unwrap())).collect();
    numbers.sort();
    numbers
}

/// Checks that every readable version agrees with its root.
async fn all_whole(world: &World) -> Result<(), String> {
    let tree = open(world).await.map_err(|error| error.to_string())?;
    let verified = tree.verify(None, |_| ()).await.map_err(|error| error.to_string())?;
    if !verified.is_clean() {
        return Err(format!("{verified:?}"));
    }
    for version in tree.versions(1000).await.map_err(|error| error.to_string())? {
        if let Some(snapshot) = tree.at(version.version).await.map_err(|error| error.to_string())? {
            whole(&snapshot).await?;
        }
    }
    Ok(())
}

/// Checks without the library that every document is needed: each node is the highest of its item for some committed
/// version, there is no write, and no version is half pruned.
async fn nothing_left(world: &World) -> Result<(), String> {
    if let Some(write) = all(world, "items.writes").await.first() {
        return Err(format!("a write is left: {write}"));
    }
    let nodes = all(world, "items").await;
    let version = |node: &Document| node.get_i64("version").unwrap();
    let state = |state: &str| -> Vec<i64> {
        nodes.iter().filter(|node| node.get_str("versionState").is_ok_and(|is| is == state)).map(version).collect()
    };
    let (committed, half) = (state("committed"), [state("pruning"), state("pruned")].concat());
    if !half.is_empty() {
        return Err(format!("half pruned: {half:?}"));
    }
    for node in nodes.iter().filter(|node| !node.contains_key("versionState")) {
        let item = node.get_str("itemId").unwrap();
        let next = nodes.iter().filter(|other| other.get_str("itemId").unwrap() == item).map(version);
        let next = next.filter(|other| *other > version(node)).min().unwrap_or(i64::MAX);
        let used = committed.iter().any(|committed| (version(node)..next).contains(committed));
        // A node that marks an item as deleted is needed as long as it hides another node, or might.
        if !used {
            return Err(format!("{item} {} is in no version", version(node)));
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_seeds_tree_document_by_document() {
    let mut lines: Vec<String> = Vec::new();
    for number in 0.. {
        let world = World::in_memory();
        change(&open(&world).await.unwrap(), &[("a", Some(1)), ("b", Some(1))]).await.unwrap();
        let dying = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::at(number, Fault::CrashAfter)));
        let run = async |world: &World| {
            let tree = open(world).await?;
            change(&tree, &[("a", Some(2)), ("c", Some(2)), ("b", None)]).await
        };
        let result = run(&world.on(dying)).await;
        let line = format!(
            "{}: {}",
            open(&world).await.unwrap().newest().await.unwrap().unwrap().version(),
            shown(&world).await
        );
        if lines.last() != Some(&line) {
            lines.push(line);
        }
        if result.is_ok() && all(&world, "items.writes").await.is_empty() {
            break;
        }
    }
    let expected = [
        "1: a 1: 1 | b 1: 1 | tree 1 committed",
        "1: a 1: 1 | a 2: 2 | b 1: 1 | tree 1 committed",
        "1: a 1: 1 | a 2: 2 | b 1: 1 | c 2: 2 | tree 1 committed",
        "1: a 1: 1 | a 2: 2 | b 1: 1 | b 2: - | c 2: 2 | tree 1 committed",
        "2: a 1: 1 | a 2: 2 | b 1: 1 | b 2: - | c 2: 2 | tree 1 committed | tree 2 committed",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn readers_keep_the_version_that_they_hold() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    assert!(tree.newest().await.unwrap().is_none());
    assert_eq!(change(&tree, &[("a", Some(1)), ("b", Some(1))]).await.unwrap(), 1);
    let first = tree.newest().await.unwrap().unwrap();
    assert_eq!(change(&tree, &[("a", Some(2)), ("b", None), ("c", Some(2))]).await.unwrap(), 2);
    assert_eq!(change(&tree, &[("b", Some(3))]).await.unwrap(), 3);
    whole_one_by_one(&first).await;
    whole_one_by_one(&tree.newest().await.unwrap().unwrap()).await;
    all_whole(&world).await.unwrap();
    let numbers = |snapshot: Option<Snapshot>| snapshot.unwrap().root().get_document("numbers").unwrap().clone();
    assert_eq!(numbers(tree.at(1).await.unwrap()), doc! { "a": 1, "b": 1 });
    assert_eq!(numbers(tree.at(2).await.unwrap()), doc! { "a": 2, "c": 2 });
    assert_eq!(numbers(tree.at(3).await.unwrap()), doc! { "a": 2, "c": 2, "b": 3 });
    assert!(tree.at(4).await.unwrap().is_none());
    let history = tree.versions(10).await.unwrap();
    let history: Vec<_> = history.iter().map(|version| (version.version, version.base, version.state)).collect();
    assert_eq!(history, [3, 2, 1].map(|version| (version, version - 1, VersionState::Committed)));
    let root = first.node("tree").await.unwrap().unwrap();
    assert_eq!((root.version, &root.content), (1, first.root()));
}

#[tokio::test]
async fn two_versions_are_compared() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    change(&tree, &[("a", Some(1)), ("b", Some(1)), ("d", Some(1))]).await.unwrap();
    change(&tree, &[("a", Some(2)), ("b", None), ("c", Some(2))]).await.unwrap();
    // An item that was changed and changed back does not differ.
    change(&tree, &[("d", Some(5)), ("a", Some(3))]).await.unwrap();
    change(&tree, &[("d", Some(1))]).await.unwrap();
    let compared = async |before: i64, after: i64| {
        let differences = tree.diff(before, after).await.unwrap();
        let number = |node: &Option<Node>| {
            node.as_ref().map_or("-".to_owned(), |node| node.content.get("n").map_or("?".to_owned(), Bson::to_string))
        };
        let line =
            differences.iter().map(|item| format!("{} {} {}", item.item, number(&item.before), number(&item.after)));
        line.collect::<Vec<_>>().join(" | ")
    };
    assert_eq!(compared(1, 4).await, r#""tree" ? ? | "a" 1 3 | "b" 1 - | "c" - 2"#);
    assert_eq!(compared(4, 1).await, r#""tree" ? ? | "a" 3 1 | "b" - 1 | "c" 2 -"#);
    assert_eq!(compared(2, 3).await, r#""tree" ? ? | "a" 2 3 | "d" 1 5"#);
    assert_eq!(compared(2, 2).await, "");
    assert!(matches!(tree.diff(1, 9).await, Err(Error::Missing { .. })));
}

/// Of two writers on top of one version the first to commit succeeds; the other one gets a conflict, and writes
/// again on top.
#[tokio::test]
async fn one_of_two_writers_wins() {
    for first in [0, 1] {
        let world = World::in_memory();
        let tree = open(&world).await.unwrap();
        change(&tree, &[("a", Some(1)), ("b", Some(1))]).await.unwrap();
        let lower = edit(tree.begin().await.unwrap(), &[("a", Some(2))]).await.unwrap();
        let higher = edit(tree.begin().await.unwrap(), &[("b", Some(2))]).await.unwrap();
        let (winner, loser, number) = if first == 0 { (lower, higher, 2) } else { (higher, lower, 3) };
        assert_eq!(winner.commit().await.unwrap(), Commit::Committed { version: number });
        assert_eq!(loser.commit().await.unwrap(), Commit::Conflict);
        all_whole(&world).await.unwrap();
        nothing_left(&world).await.unwrap();
        let again = change(&tree, if first == 0 { &[("b", Some(2))] } else { &[("a", Some(2))] }).await.unwrap();
        assert_eq!(again, 4);
        assert_eq!(tree.newest().await.unwrap().unwrap().root(), &doc! { "numbers": { "a": 2, "b": 2 } });
        all_whole(&world).await.unwrap();
    }
}

/// A change that loses the race runs its closure again; an error of the closure itself is returned.
#[tokio::test]
async fn a_change_runs_again_after_a_conflict() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    change(&tree, &[("a", Some(1))]).await.unwrap();
    let runs = std::sync::atomic::AtomicU32::new(0);
    let version = tree
        .change(|write| {
            let (tree, first) = (tree.clone(), runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0);
            async move {
                let ready = edit(write, &[("a", Some(2))]).await?;
                if first {
                    change(&tree, &[("b", Some(1))]).await?;
                }
                Ok::<_, Error>(ready)
            }
        })
        .await
        .unwrap();
    assert_eq!((version, runs.load(std::sync::atomic::Ordering::SeqCst)), (4, 2));
    assert_eq!(tree.newest().await.unwrap().unwrap().root(), &doc! { "numbers": { "a": 2, "b": 1 } });
    let refused = tree.change(|mut write| async move {
        write.put("a", doc! { "version": 7 }).await?;
        Ok::<_, Error>(write.with_same_root())
    });
    assert!(matches!(refused.await, Err(Error::Invalid { .. })));
    all_whole(&world).await.unwrap();
    nothing_left(&world).await.unwrap();
    // Other writers commit first each time.
    let never = tree.change(|write| {
        let tree = tree.clone();
        async move {
            change(&tree, &[("c", Some(1))]).await?;
            edit(write, &[("a", Some(9))]).await
        }
    });
    assert!(matches!(never.await, Err(Error::Contended { attempts: 16, .. })));
}

#[tokio::test]
async fn invalid_nodes_are_refused() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    let mut write = tree.begin().await.unwrap();
    write.put("a", doc! { "n": 1 }).await.unwrap();
    for refused in [
        write.put("a", doc! { "n": 2 }).await,
        write.put("tree", doc! {}).await,
        write.put("b", doc! { "itemId": 1 }).await,
        write.put("b", doc! { "_id": 1 }).await,
    ] {
        assert!(matches!(refused, Err(Error::Invalid { .. })));
    }
    assert!(matches!(write.commit(doc! { "versionState": 1 }).await, Err(Error::Invalid { .. })));

    // Trees of one collection have no items in common, which shows when the numbers are the same.
    let other = tree.of("other");
    change(&tree, &[("a", Some(1))]).await.unwrap();
    let mut write = other.begin().await.unwrap();
    assert_eq!(write.version(), 1);
    write.put("x", doc! {}).await.unwrap();
    assert_eq!(write.commit(doc! {}).await.unwrap(), Commit::Committed { version: 1 });
    let mut write = other.begin().await.unwrap();
    assert!(matches!(write.put("a", doc! { "n": 1 }).await, Err(Error::Invalid { .. })));
    assert!(matches!(write.put("b", doc! { "n": 1 }).await, Err(Error::Invalid { .. })), "the write is broken");
    assert_eq!(tree.newest().await.unwrap().unwrap().all().await.unwrap().len(), 1);
}

/// Counts the operations for a version and a read.
#[tokio::test]
async fn operations_per_version_and_read() {
    let world = World::in_memory();
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::none()));
    let tree = open(&world.on(counting.clone())).await.unwrap();
    change(&tree, &[("a", Some(1)), ("b", Some(1))]).await.unwrap();
    let mut before = counting.operations();
    let mut cost = || {
        let now = counting.operations();
        std::mem::replace(&mut before, now).abs_diff(now)
    };
    let mut write = tree.begin().await.unwrap();
    assert_eq!(cost(), 2 + 1 + 2, "the newest root, the write, whether the number is free; a find has a page");
    write.put_all([("a", doc! { "n": 2 }), ("b", doc! { "n": 2 }), ("c", doc! { "n": 2 })]).await.unwrap();
    assert_eq!(cost(), 1, "any number of nodes in one request");
    assert_eq!(
        write.commit(doc! { "numbers": { "a": 2, "b": 2, "c": 2 } }).await.unwrap(),
        Commit::Committed { version: 2 }
    );
    assert_eq!(cost(), 2, "the root, and the write goes");
    let snapshot = tree.newest().await.unwrap().unwrap();
    assert_eq!(cost(), 2, "the newest root");
    snapshot.node("a").await.unwrap().unwrap();
    assert_eq!(cost(), 4, "the node, and whether the version is still there");
    assert_eq!(snapshot.nodes(["a", "b", "c"]).await.unwrap().len(), 3);
    assert_eq!(cost(), 4, "the same for many");
    assert_eq!(snapshot.all().await.unwrap().len(), 3);
    assert_eq!(cost(), 5, "and for all, page by page to the end");
}

#[tokio::test(start_paused = true)]
async fn the_runners_sweep_and_prune_in_the_background() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    for _ in 0..3 {
        change(&tree, &[("a", Some(1))]).await.unwrap();
    }
    let mut write = tree.begin().await.unwrap();
    write.put("b", doc! { "n": 1 }).await.unwrap();
    drop(write);
    world.clock.advance(HOUR);
    let cancel = CancellationToken::new();
    let options = RunnerOptions { jitter: 0.0, ..RunnerOptions::default() };
    let sweeper = tree.spawn_sweep(options.clone(), &cancel).unwrap();
    let pruner = tree.spawn_prune(Keep { last: 1, newer_than: None }, options, &cancel).unwrap();
    while sweeper.counts().rounds < 2 || pruner.counts().rounds < 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    cancel.cancel();
    sweeper.stop().await;
    pruner.stop().await;
    assert_eq!(shown(&world).await, "a 3: 1 | tree 1 cleared | tree 2 cleared | tree 3 committed | tree 4 abandoned");
    let status = TreeStatus { newest: Some(3), versions: 1, abandoned: 1, ..TreeStatus::default() };
    assert_eq!(tree.status().await.unwrap(), status);
}
