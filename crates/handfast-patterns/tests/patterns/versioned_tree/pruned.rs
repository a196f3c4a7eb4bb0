//! Pruning removes the nodes that no kept version uses, and no others.

use std::time::Duration;

use bson::doc;
use handfast_patterns::versioned_tree::{Commit, Keep, PrunePlan, VersionedTree};
use handfast_patterns::{Error, Round};

use super::{HOUR, all, all_whole, change, nothing_left, open, shown, whole};
use crate::crash::World;

/// Writes versions 1 to 6: `a` changes in each, `b` in 2 and 5, `c` is added in 1 and removed in 4.
async fn six(world: &World) -> VersionedTree {
    let tree = open(world).await.unwrap();
    change(&tree, &[("a", Some(1)), ("c", Some(1))]).await.unwrap();
    change(&tree, &[("a", Some(2)), ("b", Some(2))]).await.unwrap();
    change(&tree, &[("a", Some(3))]).await.unwrap();
    change(&tree, &[("a", Some(4)), ("c", None)]).await.unwrap();
    world.clock.advance(HOUR);
    change(&tree, &[("a", Some(5)), ("b", Some(5))]).await.unwrap();
    change(&tree, &[("a", Some(6))]).await.unwrap();
    tree
}

async fn numbers(tree: &VersionedTree) -> Vec<i64> {
    tree.versions(100).await.unwrap().iter().map(|version| version.version).collect()
}

async fn prune(tree: &VersionedTree, keep: Keep) -> (PrunePlan, Round) {
    (tree.plan_prune(keep).await.unwrap(), tree.prune(keep, 100).await.unwrap())
}

const LAST: fn(u32) -> Keep = |last| Keep { last, newer_than: None };

#[tokio::test]
async fn the_last_versions_are_kept() {
    let world = World::in_memory();
    let tree = six(&world).await;
    let before = shown(&world).await;
    let plan = tree.plan_prune(LAST(2)).await.unwrap();
    assert_eq!((plan.versions, plan.kept, plan.nodes), (vec![1, 2, 3, 4], vec![5, 6], 4 + 1 + 1));
    assert_eq!(shown(&world).await, before, "a dry run");
    assert_eq!(tree.prune(LAST(2), 100).await.unwrap(), Round { done: 4, failed: 0, more: false });
    let expected = "a 5: 5 | a 6: 6 | b 5: 5 | c 4: - | tree 1 cleared | tree 2 cleared | tree 3 cleared | \
                    tree 4 cleared | tree 5 committed | tree 6 committed";
    assert_eq!(shown(&world).await, expected);
    all_whole(&world).await.unwrap();
    assert!(tree.at(4).await.unwrap().is_none());
    assert_eq!(tree.prune(LAST(2), 100).await.unwrap(), Round::default());
    let cleared = all(&world, "items").await;
    assert_eq!(cleared[4].keys().count(), 6, "nothing of what the root said: {}", cleared[4]);
}

#[tokio::test]
async fn names_ages_and_batches() {
    let world = World::in_memory();
    let tree = six(&world).await;
    assert!(tree.name(2, "release").await.unwrap());
    assert!(tree.name(3, "moved").await.unwrap() && tree.name(4, "moved").await.unwrap());
    assert!(!tree.name(9, "none").await.unwrap());
    assert_eq!(tree.names().await.unwrap(), [("moved".to_owned(), 4), ("release".to_owned(), 2)]);
    let young = Keep { last: 1, newer_than: Some(Duration::from_secs(60)) };
    let (plan, round) = prune(&tree, young).await;
    assert_eq!((plan.versions, plan.kept, plan.nodes), (vec![1, 3], vec![2, 4, 5, 6], 2));
    assert_eq!(round.done, 2);
    assert_eq!(numbers(&tree).await, [6, 5, 4, 2]);
    all_whole(&world).await.unwrap();
    nothing_left(&world).await.unwrap();
    assert_eq!(tree.named_version("release").await.unwrap(), Some(2));
    assert!(tree.unname("moved").await.unwrap() && !tree.unname("moved").await.unwrap());
    assert!(!tree.name(3, "gone").await.unwrap());
    assert_eq!(tree.prune(LAST(1), 1).await.unwrap(), Round { done: 1, failed: 0, more: true });
    assert_eq!(numbers(&tree).await, [6, 5, 2], "the oldest go first");
    assert_eq!(tree.prune(LAST(1), 1).await.unwrap(), Round { done: 1, failed: 0, more: false });
    assert_eq!(numbers(&tree).await, [6, 2]);
    all_whole(&world).await.unwrap();
    nothing_left(&world).await.unwrap();
}

#[tokio::test]
async fn a_pin_keeps_a_version_until_its_lease_runs_out() {
    let world = World::in_memory();
    let tree = six(&world).await;
    let pin = tree.at(3).await.unwrap().unwrap().pin().await.unwrap().unwrap();
    let unpinned = tree.at(4).await.unwrap().unwrap();
    assert_eq!(prune(&tree, LAST(1)).await.0.kept, [3, 6]);
    assert_eq!(numbers(&tree).await, [6, 3]);
    whole(pin.snapshot()).await.unwrap();
    for refused in [unpinned.node("a").await.err(), unpinned.all().await.err(), unpinned.nodes(["a"]).await.err()] {
        assert!(matches!(refused, Some(Error::Gone { .. })), "never a mixture");
    }
    assert!(unpinned.pin().await.unwrap().is_none());
    world.clock.advance(Duration::from_secs(9 * 60));
    assert!(pin.renew().await.unwrap());
    world.clock.advance(Duration::from_secs(9 * 60));
    assert_eq!(prune(&tree, LAST(1)).await.1, Round::default());
    whole(pin.snapshot()).await.unwrap();
    world.clock.advance(Duration::from_secs(2 * 60));
    assert_eq!(prune(&tree, LAST(1)).await.1.done, 1);
    assert!(!pin.renew().await.unwrap());
    assert!(matches!(pin.snapshot().node("a").await, Err(Error::Gone { .. })));
    pin.release().await.unwrap();
    assert_eq!(all(&world, "items.pins").await, []);
    nothing_left(&world).await.unwrap();
}

/// The base of a write is kept; the sweep removes a pin that was never released.
#[tokio::test]
async fn a_version_with_a_write_on_top_is_kept() {
    let world = World::in_memory();
    let tree = six(&world).await;
    let write = tree.begin().await.unwrap();
    change(&tree, &[("a", Some(7))]).await.unwrap();
    assert_eq!(prune(&tree, LAST(1)).await.0.kept, [6, 8]);
    whole(write.base().unwrap()).await.unwrap();
    assert_eq!(write.commit(doc! {}).await.unwrap(), Commit::Conflict);
    assert_eq!(prune(&tree, LAST(1)).await.0.kept, [8]);
    let forgotten = tree.newest().await.unwrap().unwrap().pin().await.unwrap().unwrap();
    world.clock.advance(HOUR);
    tree.sweep(10).await.unwrap();
    assert_eq!(tree.status().await.unwrap().pins, 0);
    forgotten.release().await.unwrap();
}

/// Names keep any subset of eight versions: those are complete, and nothing else is left.
#[tokio::test]
async fn every_subset_of_versions_can_be_kept() {
    for kept in 0..64_u32 {
        let world = World::in_memory();
        let tree = six(&world).await;
        for version in (1..=6).filter(|version| kept & (1 << (version - 1)) != 0) {
            assert!(tree.name(version, &version.to_string()).await.unwrap());
        }
        let (plan, before) = (tree.plan_prune(LAST(1)).await.unwrap(), all(&world, "items").await.len());
        tree.prune(LAST(1), 2).await.unwrap();
        while tree.prune(LAST(1), 2).await.unwrap().done > 0 {}
        let mut left = numbers(&tree).await;
        left.reverse();
        assert_eq!(left, plan.kept);
        assert_eq!(before - all(&world, "items").await.len(), plan.nodes as usize);
        all_whole(&world).await.unwrap();
        // The node that marks c as deleted may be the only one left of it.
        nothing_left(&world).await.unwrap();
    }
}
