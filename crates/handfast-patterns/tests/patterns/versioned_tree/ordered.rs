//! Changes in every order, with a death at every moment, and beside readers.

use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use handfast_patterns::versioned_tree::{Commit, Keep, VersionedTree};
use handfast_patterns::{CancellationToken, Error, Result, VersionedTreeOptions};
use handfast_store::decorator::{Fault, Faulty, Plan as Faults};
use handfast_store::{Random, SeededRandom};

use super::killed::{recovered, whole_and_nothing_left};
use super::{HOUR, all_whole, change, edit, edited, nothing_left, number_of, numbers_of, open, whole};
use crate::crash::World;
use crate::turns::{Actor, every_order, some_orders, these_orders};

/// The number of operations of [`open`]: a read of the recorded settings, and the indexes of nodes, writes and pins.
const OPENING: u64 = 5;

async fn two_items(world: &World) {
    change(&open(world).await.unwrap(), &[("a", Some(1)), ("b", Some(1))]).await.unwrap();
}

/// Makes a change once, and does not try again; its first operations are not interleaved.
fn writes_once(opening: u64, changes: &'static [(&'static str, Option<i32>)]) -> Actor {
    Actor::new(opening, move |world| async move {
        let write = open(&world).await.unwrap().begin().await.unwrap();
        if let Ok(ready) = edit(write, changes).await {
            let _: Commit = ready.commit().await.unwrap();
        }
    })
}

/// Makes a change, and tries again after a conflict.
fn writes(changes: &'static [(&'static str, Option<i32>)]) -> Actor {
    Actor::new(OPENING, move |world| async move {
        change(&open(&world).await.unwrap(), changes).await.unwrap();
    })
}

/// Reads the newest version and every older one, twice; it ignores versions that are pruned meanwhile.
fn reads() -> Actor {
    Actor::new(OPENING, |world| async move {
        let tree = open(&world).await.unwrap();
        let newest = tree.newest().await.unwrap().unwrap();
        for version in (1..=newest.version()).rev() {
            let Some(snapshot) = tree.at(version).await.unwrap() else { continue };
            let expected = snapshot.root().get_document("numbers").unwrap().clone();
            match snapshot.nodes(["a", "b"]).await {
                Ok(nodes) => {
                    for node in nodes {
                        assert_eq!(node.content.get("n"), expected.get(node.item.as_str().unwrap()), "{version}");
                    }
                }
                Err(Error::Gone { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
}

/// Pins the newest version, and reads it: it must not be pruned, however long that takes.
fn reads_pinned() -> Actor {
    Actor::new(OPENING, |world| async move {
        let tree = open(&world).await.unwrap();
        let newest = tree.newest().await.unwrap().unwrap();
        if let Some(pin) = newest.pin().await.unwrap() {
            let nodes = newest.nodes(["a", "b"]).await.expect("it is pinned");
            assert_eq!(nodes.len(), 2);
            pin.release().await.unwrap();
        }
    })
}

fn prunes() -> Actor {
    Actor::new(OPENING, |world| async move {
        open(&world).await.unwrap().prune(Keep { last: 1, newer_than: None }, 10).await.unwrap();
    })
}

/// Sweeps when every lease has run out.
fn sweeps_too_early() -> Actor {
    Actor::new(OPENING, |world| async move {
        world.clock.advance(HOUR);
        assert_eq!(open(&world).await.unwrap().sweep(10).await.unwrap().failed, 0);
    })
}

/// Checks that each version is based on the one before, and no change is lost.
async fn in_a_row(world: &World) -> Result<(), String> {
    let mut versions = open(world).await.unwrap().versions(100).await.map_err(|error| error.to_string())?;
    versions.reverse();
    for pair in versions.windows(2) {
        let [before, after] = pair else { unreachable!() };
        let (old, new) = (before.root.get_document("numbers").unwrap(), after.root.get_document("numbers").unwrap());
        let changed: Vec<_> = new.iter().filter(|(item, number)| old.get(item) != Some(number)).collect();
        if after.base != before.version || changed.len() > 1 || new.len() < old.len() {
            return Err(format!("{old} and then {new} on top of {}, not {}", after.base, before.version));
        }
    }
    Ok(())
}

async fn whole_and_in_a_row(world: &World) -> Result<(), String> {
    all_whole(world).await?;
    in_a_row(world).await?;
    nothing_left(world).await
}

async fn recovers(world: &World) {
    recovered(world).await.unwrap();
}

/// Sweeps, and does not prune, so that all versions can be checked afterwards.
async fn sweeps(world: &World) {
    let tree = open(world).await.unwrap();
    assert_eq!(tree.sweep(10).await.unwrap().failed, 0);
    tree.change(|write| async move { Ok::<_, Error>(write.with_same_root()) }).await.unwrap();
}

#[tokio::test]
async fn opening_takes_no_turn() {
    let world = World::in_memory();
    let opens = async |world: World| {
        open(&world).await.unwrap();
    };
    world.operations(opens).await;
    assert_eq!(world.operations(opens).await, OPENING);
}

/// The order matters from the moment when both have their numbers.
#[tokio::test]
async fn two_writers_in_every_order() {
    let actors = [&[("a", Some(2))], &[("b", Some(2))]].map(|changes| writes_once(OPENING + 5, changes));
    let explored = every_order(&actors, two_items, sweeps, whole_and_in_a_row).await;
    explored.assert_clean("versioned tree, two writers");
}

#[tokio::test]
async fn writers_and_readers_in_many_orders() {
    let actors = [writes(&[("a", Some(2))]), writes(&[("b", Some(2))]), writes(&[("a", Some(3))]), reads()];
    let explored = some_orders(&actors, orders(), two_items, sweeps, whole_and_in_a_row).await;
    explored.assert_clean("versioned tree, three writers and a reader");
    let actors = [writes(&[]), writes_once(OPENING, &[("a", Some(2))]), writes(&[])];
    let explored = some_orders(&actors, orders(), two_items, sweeps, whole_and_in_a_row).await;
    explored.assert_clean("versioned tree, a writer and two of roots alone");
}

#[tokio::test]
async fn a_sweep_that_comes_too_early_in_many_orders() {
    let actors = [writes(&[("a", Some(2))]), sweeps_too_early(), writes(&[("b", Some(2))]), reads()];
    let explored = some_orders(&actors, orders(), two_items, sweeps, whole_and_in_a_row).await;
    explored.assert_clean("versioned tree, two writers, a sweep that takes them for dead, a reader");
}

#[tokio::test]
async fn a_prune_beside_readers_and_writers_in_many_orders() {
    let prepare = async |world: &World| {
        two_items(world).await;
        let tree = open(world).await.unwrap();
        change(&tree, &[("a", Some(2))]).await.unwrap();
        change(&tree, &[("b", Some(2))]).await.unwrap();
    };
    let actors = [prunes(), reads(), writes(&[("a", Some(3))]), prunes()];
    let explored = some_orders(&actors, orders(), prepare, recovers, whole_and_nothing_left).await;
    explored.assert_clean("versioned tree, two prunes, a reader and a writer");
    let actors = [prunes(), reads_pinned(), writes(&[("a", Some(3))]), prunes()];
    let explored = some_orders(&actors, orders(), prepare, recovers, whole_and_nothing_left).await;
    explored.assert_clean("versioned tree, two prunes, a reader with a pin and a writer");
}

/// A reader pins an old version while it is being pruned: the pin is written, and read, at every pair of moments of
/// the prune. Either there is no pin, or the version stays.
#[tokio::test]
async fn a_pin_at_every_moment_of_a_prune_keeps_the_version_or_fails() {
    let prepare = async |world: &World| {
        two_items(world).await;
        change(&open(world).await.unwrap(), &[("a", Some(2))]).await.unwrap();
    };
    let reader = Actor::new(OPENING, |world| async move {
        let Some(first) = open(&world).await.unwrap().at(1).await.unwrap() else { return };
        if let Some(pin) = first.pin().await.unwrap() {
            let nodes = first.nodes(["a", "b"]).await.expect("it is pinned");
            assert_eq!(nodes.iter().map(number_of).collect::<Vec<_>>(), numbers_of(&first));
            pin.release().await.unwrap();
        }
    });
    let orders = (0..20).flat_map(|written| {
        (0..20).map(move |looked| {
            let (pin, look) = (vec![1], vec![1]);
            [vec![1], vec![0; written], pin, vec![0; looked], look, vec![0; 40], vec![1; 10]].concat()
        })
    });
    let explored = these_orders(&[prunes(), reader], orders, prepare, recovers, whole_and_nothing_left).await;
    explored.assert_clean("versioned tree, a pin and a prune");
}

/// Returns the number of orders that run where there are too many: more with `HANDFAST_ORDERS`.
fn orders() -> u64 {
    std::env::var("HANDFAST_ORDERS").ok().and_then(|number| number.parse().ok()).unwrap_or(300)
}

/// Writers, readers, a sweeper and a pruner run at once, with answers and requests that are lost: every read is
/// complete, and every change is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_beside_writers_never_see_a_mixture() {
    const WRITERS: u64 = 4;
    const CHANGES: i32 = 25;
    let world = World::in_memory();
    let options =
        VersionedTreeOptions { attempts_max: 10_000, wait: Duration::ZERO, ..VersionedTreeOptions::new("tree") };
    let first = open(&world).await.unwrap();
    change(&first, &[("a", Some(0)), ("b", Some(0)), ("c", Some(0)), ("d", Some(0))]).await.unwrap();
    let stop = CancellationToken::new();
    let mut others = Vec::new();
    for number in 0..3_u64 {
        let (world, stop) = (world.process(50 + number as u32), stop.clone());
        others.push(tokio::spawn(async move {
            let (tree, mut reads) = (open(&world).await.unwrap(), 0);
            while !stop.is_cancelled() || reads == 0 {
                let snapshot = tree.newest().await.unwrap().unwrap();
                match whole(&snapshot).await {
                    Err(what) if !what.contains("is gone") => panic!("{what}"),
                    _ => reads += 1,
                }
                if number == 0 {
                    tree.prune(Keep { last: 3, newer_than: None }, 10).await.unwrap();
                    tree.sweep(10).await.unwrap();
                }
                tokio::task::yield_now().await;
            }
        }));
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (world, options) = (world.process(10 + number as u32), options.clone());
            tokio::spawn(async move {
                let faults = Faults::seeded(number, 30, [Fault::LoseReply, Fault::LoseRequest]).writes_only();
                let lossy: Arc<dyn handfast_store::DocumentStore> =
                    Arc::new(Faulty::new(Arc::clone(&world.store), faults));
                let target = world.namespace("items");
                let tree = loop {
                    let (store, sources) = (Arc::clone(&lossy), world.sources.clone());
                    if let Ok(tree) = VersionedTree::open_with(store, target.clone(), sources, options.clone()).await {
                        break tree;
                    }
                };
                let random = SeededRandom::new(number);
                for change in 1..=CHANGES {
                    let item = ["a", "b", "c", "d"][(random.next_u64() % 4) as usize];
                    increment(&tree, item, number, change).await;
                }
            })
        })
        .collect();
    for task in writers {
        task.await.unwrap();
    }
    stop.cancel();
    for task in others {
        task.await.unwrap();
    }
    world.clock.advance(HOUR);
    first.sweep(1000).await.unwrap();
    all_whole(&world).await.unwrap();
    nothing_left(&world).await.unwrap();
    let newest = first.newest().await.unwrap().unwrap();
    let sum: i32 =
        newest.root().get_document("numbers").unwrap().iter().map(|(_, number)| number.as_i32().unwrap()).sum();
    assert_eq!(sum, WRITERS as i32 * CHANGES, "every change is there, once");
}

/// Increments an item, as often as needed until it is known to be done. The root has the number of changes of each
/// writer.
async fn increment(tree: &VersionedTree, item: &'static str, writer: u64, change: i32) {
    let writer = &format!("writer {writer}");
    loop {
        let changed = tree
            .change(|mut write| async move {
                let numbers = write.base().unwrap().root().get_document("numbers").unwrap();
                let next = numbers.get_i32(item).unwrap() + 1;
                let mut root = edited(&write, &[(item, Some(next))]);
                root.insert(writer, change);
                write.put(item, doc! { "n": next }).await?;
                Ok::<_, Error>(write.with_root(root))
            })
            .await;
        match changed {
            Ok(_) => return,
            Err(error) if error.applied() == handfast_store::Applied::No => {}
            // Two requests in a row were lost.
            Err(_) => {
                let newest = tree.newest().await.unwrap().unwrap();
                if newest.root().get_i32(writer).ok() == Some(change) {
                    return;
                }
            }
        }
    }
}
