//! Faults at every operation.

use bson::oid::ObjectId;
use bson::{Document, doc};
use handfast_patterns::versioned_tree::{Committed, Keep};
use handfast_patterns::{Error, Result, Token};

use super::{all_whole, change, edit, nothing_left, open, shown};
use crate::black_pipe::{assert_right, every_pair};
use crate::crash::{Stage, World, every_point};

/// Writes a version, prunes the one before, and writes another version.
async fn killed_at_every_operation(stage: Stage) {
    let prepare = async |world: &World| {
        change(&open(world).await.unwrap(), &[("a", Some(1)), ("b", Some(1)), ("c", Some(1))]).await.unwrap();
    };
    let run = async |world: &World| {
        let tree = open(world).await?;
        let second = change(&tree, &[("a", Some(2)), ("b", None), ("d", Some(2))]).await?;
        world.acknowledge(second, "items", committed_since(second));
        let pruned = tree.prune(Keep { last: 1, newer_than: None }, 10).await?;
        world.acknowledge_none(
            pruned,
            "items",
            doc! { "itemId": "tree", "version": 1_i64, "versionState": "committed" },
        );
        let third = change(&tree, &[("c", Some(3))]).await?;
        world.acknowledge(third, "items", committed_since(third));
        Ok(third)
    };
    let recover = async |world: &World, _: &Result<_>| recovered(world).await;
    let check = async |world: &World, answer: &Result<i64>| {
        let tree = open(world).await.map_err(|error| error.to_string())?;
        let newest = tree.newest().await.map_err(|error| error.to_string())?;
        let numbers = newest.map(|newest| newest.root().get_document("numbers").unwrap().clone());
        if answer.is_ok() && numbers != Some(doc! { "a": 2, "c": 3, "d": 2 }) {
            return Err(format!("{answer:?} was answered, and the newest version is {numbers:?}"));
        }
        whole_and_nothing_left(world).await
    };
    let report = every_point(&stage, prepare, run, recover, check).await;
    report.assert_clean("versioned tree, two versions and a prune", &stage, 343);
}

/// Matches the documents that a committed version leaves for ever: its root, or a later one.
fn committed_since(version: i64) -> Document {
    doc! { "itemId": "tree", "version": { "$gte": version }, "versionState": "committed" }
}

/// Writes a version in another process, which must not make anything visible; then sweeps, prunes and tidies.
pub(super) async fn recovered(world: &World) -> Result<()> {
    let tree = open(world).await?;
    let expected = tree.newest().await?.unwrap().root().clone();
    let version = tree.change(|write| async move { Ok::<_, Error>(write.with_same_root()) }).await?;
    assert_eq!(tree.at(version).await?.unwrap().root(), &expected);
    all_whole(world).await.unwrap();
    assert_eq!(tree.sweep(10).await?.failed, 0);
    tree.prune(Keep { last: 1, newer_than: None }, 10).await?;
    tree.tidy().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn written_over_the_wire() {
    let prepare = async |world: &World| {
        change(&open(world).await.unwrap(), &[("a", Some(1)), ("b", Some(1))]).await.unwrap();
    };
    let run = async |world: &World| {
        let version = change(&open(world).await?, &[("a", Some(2)), ("b", None)]).await?;
        world.acknowledge(version, "items", committed_since(version));
        Ok(version)
    };
    let recover = async |world: &World, _: &Result<i64>| recovered(world).await;
    let check = async |world: &World, _: &Result<i64>| whole_and_nothing_left(world).await;
    assert_right("versioned tree", &every_pair(prepare, run, recover, check).await, 40);
}

#[tokio::test]
async fn written_and_killed_at_every_operation() {
    killed_at_every_operation(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn written_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    killed_at_every_operation(Stage::embedded(directory.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn written_and_killed_at_every_operation_on_a_server() {
    killed_at_every_operation(Stage::server().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_written_and_killed_at_every_operation_on_ferretdb() {
    if let Some(stage) = Stage::ferretdb().await {
        killed_at_every_operation(stage).await;
    }
}

pub(super) async fn whole_and_nothing_left(world: &World) -> Result<(), String> {
    all_whole(world).await?;
    nothing_left(world).await
}

/// A caller repeats a change with its token, as it has got no answer.
#[tokio::test]
async fn a_change_with_a_token_is_made_once_whatever_is_killed() {
    let once = async |world: &World| {
        let token = Token(ObjectId::from_bytes([7; 12]));
        open(world).await?.change_once(token, |write| edit(write, &[("a", Some(2)), ("b", None)])).await
    };
    let prepare = async |world: &World| {
        change(&open(world).await.unwrap(), &[("a", Some(1)), ("b", Some(1))]).await.unwrap();
    };
    let run = async |world: &World| {
        let committed = once(world).await?;
        world.acknowledge(committed, "items", committed_since(committed.version()));
        Ok(committed)
    };
    let recover = async |world: &World, _: &Result<Committed>| {
        let version = once(world).await?.version();
        assert_eq!(once(world).await?, Committed::Before { version });
        open(world).await?.sweep(10).await.map(|_| ())
    };
    let check = async |world: &World, _: &Result<Committed>| {
        let versions = open(world).await.unwrap().versions(10).await.unwrap();
        if versions.len() != 2 {
            return Err(format!("there must be two versions: {versions:?}"));
        }
        all_whole(world).await
    };
    let report = every_point(&Stage::Memory, prepare, run, recover, check).await;
    report.assert_clean("versioned tree, one version with a token", &Stage::Memory, 112);
}

/// Two calls with one token, of which the second begins while the first one is about to insert its root.
#[tokio::test]
async fn two_changes_with_one_token_at_the_same_time_are_one() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    let token = Token(ObjectId::from_bytes([7; 12]));
    let first = tree.change_once(token, async |write| {
        if write.base().is_none() {
            let second = tree.change_once(token, async |write| edit(write, &[("a", Some(1))]).await).await?;
            assert_eq!(second, Committed::Now { version: 2 });
        }
        edit(write, &[("a", Some(1))]).await
    });
    assert_eq!(first.await.unwrap(), Committed::Before { version: 2 });
    assert_eq!(tree.versions(10).await.unwrap().len(), 1);
    all_whole(&world).await.unwrap();
}

/// The prune fails at every operation, and another process prunes.
#[tokio::test]
async fn a_prune_that_is_killed_at_every_operation() {
    let prepare = async |world: &World| {
        let tree = open(world).await.unwrap();
        change(&tree, &[("a", Some(1)), ("b", Some(1)), ("c", Some(1))]).await.unwrap();
        change(&tree, &[("a", Some(2)), ("b", None)]).await.unwrap();
        change(&tree, &[("a", Some(3)), ("c", Some(3))]).await.unwrap();
        assert!(tree.name(1, "first").await.unwrap());
        change(&tree, &[("b", Some(4))]).await.unwrap();
    };
    let run = async |world: &World| {
        let tree = open(world).await?;
        let round = tree.prune(Keep { last: 1, newer_than: None }, 10).await?;
        let others = doc! { "itemId": "tree", "version": { "$in": [2_i64, 3_i64] }, "versionState": "committed" };
        world.acknowledge_none(round, "items", others);
        tree.newest().await?;
        Ok(round.done)
    };
    let recover = async |world: &World, _: &Result<u64>| run(world).await.map(|_| ());
    let check = async |world: &World, _: &Result<u64>| {
        let left = "a 1: 1 | a 3: 3 | b 1: 1 | b 4: 4 | c 1: 1 | c 3: 3 | tree 1 committed | tree 2 cleared | \
                    tree 3 cleared | tree 4 committed";
        let now = shown(world).await;
        if now != left {
            return Err(now);
        }
        whole_and_nothing_left(world).await
    };
    let report = every_point(&Stage::Memory, prepare, run, recover, check).await;
    report.assert_clean("versioned tree, a prune", &Stage::Memory, 252);
}
