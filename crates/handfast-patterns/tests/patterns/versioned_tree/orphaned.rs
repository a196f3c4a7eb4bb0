//! Nodes of versions that are never committed: they are in no version, whenever they arrive, and whatever is
//! committed.

use std::time::Duration;

use bson::{doc, rawdoc};
use handfast_patterns::Round;
use handfast_patterns::versioned_tree::{Commit, Keep, Orphan, OrphanOf, VersionedTree};
use handfast_store::StoreExt;
use handfast_store::decorator::{Fault, Operation};

use super::{HOUR, all, all_whole, change, edit, nothing_left, open, shown, whole_one_by_one};
use crate::crash::World;
use crate::fault::{first, wait_until_frozen};

/// Commits version 1 with `a 1, b 1`; number 2 has written `b`, and its writer is dead.
async fn left_behind(world: &World) -> VersionedTree {
    let tree = open(world).await.unwrap();
    change(&tree, &[("a", Some(1)), ("b", Some(1))]).await.unwrap();
    let mut write = tree.begin().await.unwrap();
    assert_eq!(write.version(), 2);
    write.put("b", doc! { "n": 99 }).await.unwrap();
    tree
}

/// A later writer commits a higher number, and "the highest version that is not above it" is the orphan.
#[tokio::test]
async fn an_orphan_stays_invisible_when_a_higher_version_is_committed() {
    let world = World::in_memory();
    let tree = left_behind(&world).await;
    let before = tree.newest().await.unwrap().unwrap();
    assert_eq!(change(&tree, &[("a", Some(2))]).await.unwrap(), 3, "its own number, not that of the dead");
    let after = tree.newest().await.unwrap().unwrap();
    for snapshot in [&before, &after] {
        whole_one_by_one(snapshot).await;
    }
    assert_eq!(after.node("b").await.unwrap().unwrap().content, doc! { "n": 1 });
    // It is invisible in every later version, too, even if the base of that has the orphan below it.
    change(&tree, &[("c", Some(1))]).await.unwrap();
    change(&tree, &[("c", Some(2))]).await.unwrap();
    all_whole(&world).await.unwrap();
    let differences = tree.diff(1, 5).await.unwrap();
    assert!(differences.iter().all(|difference| difference.item != "b".into()), "{differences:?}");
}

/// Shows that the checks can fail: by the rule of the seed a reader sees the orphan.
#[tokio::test]
async fn the_seeds_rule_alone_is_caught() {
    let world = World::in_memory();
    let tree = left_behind(&world).await;
    change(&tree, &[("a", Some(2))]).await.unwrap();
    let newest = tree.newest().await.unwrap().unwrap().version();
    let seen = all(&world, "items").await;
    let mut b = seen.iter().filter(|node| node.get_str("itemId").unwrap() == "b");
    let b = b.rfind(|node| node.get_i64("version").unwrap() <= newest).unwrap();
    assert_eq!(b.get_i32("n").unwrap(), 99, "the highest version that is not above the root's is the orphan");
}

/// The node arrives when the higher version is committed, and after a sweep.
#[tokio::test]
async fn a_node_that_arrives_late_stays_invisible() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    change(&tree, &[("a", Some(1)), ("b", Some(1))]).await.unwrap();
    let slow = world.fault_at(first(Operation::Insert, "items"), Fault::FreezeBefore);
    let writer = tokio::spawn({
        let world = world.process(7).on(slow.clone());
        async move {
            let mut write = open(&world).await.unwrap().begin().await.unwrap();
            write.put("b", doc! { "n": 99 }).await.unwrap();
            write.commit(doc! { "numbers": { "a": 1, "b": 99 } }).await.unwrap()
        }
    });
    wait_until_frozen(&slow, &writer).await;
    assert_eq!(change(&tree, &[("a", Some(2))]).await.unwrap(), 3);
    world.clock.advance(HOUR);
    tree.sweep(10).await.unwrap();
    assert_eq!(tree.status().await.unwrap().writing, 0);
    slow.release();
    assert_eq!(writer.await.unwrap(), Commit::Conflict);
    all_whole(&world).await.unwrap();
    tree.sweep(10).await.unwrap();
    nothing_left(&world).await.unwrap();
}

/// A sweep gives up silent writes, and leaves those in progress alone.
#[tokio::test]
async fn a_sweep_knows_an_orphan_from_a_child_in_flight() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    change(&tree, &[("a", Some(1))]).await.unwrap();
    let mut silent = tree.begin().await.unwrap();
    silent.put("b", doc! { "n": 99 }).await.unwrap();
    world.clock.advance(Duration::from_secs(50));
    let mut slow = tree.begin().await.unwrap();
    slow.put("c", doc! { "n": 1 }).await.unwrap();
    world.clock.advance(Duration::from_secs(50));
    assert!(slow.renew().await.unwrap());
    let orphans = [Orphan { item: "b".into(), version: 2, of: OrphanOf::SilentWrite }];
    assert_eq!(tree.orphans(10).await.unwrap(), orphans, "a dry run");
    let before = shown(&world).await;
    assert_eq!(tree.orphans(10).await.unwrap(), orphans, "it has changed nothing");
    assert_eq!(shown(&world).await, before);
    let round = tree.sweep(10).await.unwrap();
    assert_eq!(round, Round { done: 1, failed: 0, more: false });
    assert_eq!(shown(&world).await, "a 1: 1 | c 3: 1 | tree 1 committed | tree 2 abandoned");
    // Hours pass, and each put renews the lease.
    for item in ["d", "e"] {
        world.clock.advance(Duration::from_secs(40));
        slow.put(item, doc! { "n": 1 }).await.unwrap();
        assert_eq!(tree.sweep(10).await.unwrap(), Round::default());
    }
    let committed = slow.commit(doc! { "numbers": { "a": 1, "c": 1, "d": 1, "e": 1 } }).await.unwrap();
    assert_eq!(committed, Commit::Committed { version: 3 });
    all_whole(&world).await.unwrap();
    assert!(!silent.renew().await.unwrap());
    let late = silent.put("d", doc! { "n": 99 }).await;
    assert!(late.is_err() || silent.commit(doc! {}).await.unwrap() == Commit::Conflict);
    tree.sweep(10).await.unwrap();
    all_whole(&world).await.unwrap();
    nothing_left(&world).await.unwrap();
}

/// A writer whose version was given up inserts its root, and finds the mark.
#[tokio::test]
async fn a_writer_whose_version_was_given_up_cannot_commit() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    change(&tree, &[("a", Some(1))]).await.unwrap();
    let ready = edit(tree.begin().await.unwrap(), &[("a", Some(2)), ("b", Some(2))]).await.unwrap();
    world.clock.advance(HOUR);
    assert_eq!(tree.sweep(10).await.unwrap().done, 1);
    assert_eq!(ready.commit().await.unwrap(), Commit::Conflict);
    assert_eq!(tree.newest().await.unwrap().unwrap().version(), 1);
    all_whole(&world).await.unwrap();
    nothing_left(&world).await.unwrap();
}

/// Nodes without a write: the collection of the writes is lost, or a program bypasses the pattern.
#[tokio::test]
async fn nodes_without_a_write_are_orphans() {
    let world = World::in_memory();
    let tree = open(&world).await.unwrap();
    change(&tree, &[("a", Some(1))]).await.unwrap();
    let plant = async |item: &str, version: i64| {
        let node = rawdoc! { "itemId": item, "version": version, "tree": "tree", "n": 99 };
        world.store.insert_one(&world.namespace("items"), node).await.unwrap();
    };
    plant("a", 2).await;
    plant("b", 5).await;
    assert_eq!(tree.orphans(10).await.unwrap().len(), 2);
    // A writer takes a number above all of them.
    assert_eq!(change(&tree, &[("c", Some(1))]).await.unwrap(), 6);
    all_whole(&world).await.unwrap();
    plant("b", 9).await;
    let of = |version, item: &str, of| Orphan { item: item.into(), version, of };
    let expected = [
        of(2, "a", OrphanOf::AbandonedVersion),
        of(5, "b", OrphanOf::AbandonedVersion),
        of(9, "b", OrphanOf::NoWriter),
    ];
    assert_eq!(tree.orphans(10).await.unwrap(), expected);
    assert_eq!(tree.orphans(2).await.unwrap(), expected[..2]);
    assert_eq!(tree.sweep(10).await.unwrap().done, 3);
    nothing_left(&world).await.unwrap();
    assert_eq!(change(&tree, &[("a", Some(2))]).await.unwrap(), 10);
    all_whole(&world).await.unwrap();
}

/// Marks that are old enough are removed, and not before; the tree keeps all its nodes.
#[tokio::test]
async fn marks_are_forgotten_when_they_are_old() {
    let world = World::in_memory();
    let tree = left_behind(&world).await;
    change(&tree, &[("a", None), ("c", Some(3))]).await.unwrap();
    // A writer has deleted c, and died.
    let mut write = tree.begin().await.unwrap();
    write.remove("c").await.unwrap();
    drop(write);
    world.clock.advance(HOUR);
    tree.sweep(10).await.unwrap();
    tree.prune(Keep::default(), 10).await.unwrap();
    change(&tree, &[("b", Some(5))]).await.unwrap();
    tree.prune(Keep::default(), 10).await.unwrap();
    assert_eq!(tree.forget(10).await.unwrap(), 0, "it is an hour old");
    let remembered = "a 3: - | b 5: 5 | c 3: 3 | tree 1 cleared | tree 2 abandoned | tree 3 cleared | tree 4 abandoned | tree 5 committed";
    assert_eq!(shown(&world).await, remembered);
    world.clock.advance(24 * HOUR + Duration::from_millis(1));
    // A writer on top of version 5 needs nothing below that.
    let write = tree.begin().await.unwrap();
    assert_eq!(tree.forget(10).await.unwrap(), 5);
    assert_eq!(shown(&world).await, "b 5: 5 | c 3: 3 | tree 5 committed");
    write.abandon().await.unwrap();
    all_whole(&world).await.unwrap();
    assert_eq!(change(&tree, &[("a", Some(6))]).await.unwrap(), 7);
    all_whole(&world).await.unwrap();
}

/// A delete in an abandoned version has no effect, even if deletes are forgotten before the version is.
#[tokio::test]
async fn an_abandoned_version_has_deleted_nothing() {
    let world = World::in_memory();
    let tree = left_behind(&world).await;
    let write = tree.begin().await.unwrap();
    assert_eq!(write.version(), 3);
    drop(write);
    assert_eq!(change(&tree, &[("c", Some(4))]).await.unwrap(), 4);
    world.clock.advance(HOUR);
    tree.sweep(10).await.unwrap();
    tree.prune(Keep::default(), 10).await.unwrap();
    // Number 3 has deleted a, and the node arrives now.
    let late = rawdoc! { "itemId": "a", "version": 3_i64, "tree": "tree", "deleted": true };
    world.store.insert_one(&world.namespace("items"), late).await.unwrap();
    world.clock.advance(25 * HOUR);
    for _ in 0..5 {
        tree.forget(1).await.unwrap();
        all_whole(&world).await.unwrap();
    }
    assert_eq!(shown(&world).await, "a 1: 1 | b 1: 1 | c 4: 4 | tree 4 committed");
}

/// The oldest writes cannot be read, or have nothing to remove, and are more than a round takes.
#[tokio::test]
async fn writes_that_cannot_be_read_keep_no_others_waiting() {
    let world = World::in_memory();
    let writes = world.namespace("items.writes");
    let now = world.sources.clock.now();
    for id in ["a", "b", "c"] {
        let damaged = rawdoc! { "_id": id, "tree": "tree", "versionTs": now };
        world.store.insert_one(&writes, damaged).await.unwrap();
    }
    world.clock.advance(Duration::from_secs(1));
    let tree = left_behind(&world).await;
    world.clock.advance(HOUR);
    assert_eq!(tree.sweep(1).await.unwrap(), Round { done: 1, failed: 3, more: true });
    assert_eq!(shown(&world).await, "a 1: 1 | b 1: 1 | tree 1 committed | tree 2 abandoned");
    assert_eq!(tree.sweep(1).await.unwrap(), Round { done: 0, failed: 3, more: false });
}
