//! Changes in every order, with a death at every moment.

use std::sync::Arc;

use bson::{doc, rawdoc};
use handfast_patterns::sync_flag::{Begun, Copied, Staleness, SyncFlag, SyncOutcome};
use handfast_patterns::{OnDelete, Result};
use handfast_store::StoreExt;

use super::{HOUR, all, in_sync, insert, options, renamed, swept_by};
use crate::crash::World;
use crate::turns::{Actor, every_order, some_orders};

/// Inserts documents that are few enough for all orders: one user, two comments, with a version already.
async fn small(world: &World) {
    small_with(world, OnDelete::Unset).await;
}

async fn small_with(world: &World, on_delete: OnDelete) {
    insert(world, "users", rawdoc! { "_id": 1, "name": "John" }).await;
    for id in [1, 2] {
        insert(world, "comments", rawdoc! { "_id": id, "user": 1, "userName": "John", "userInitial": "J" }).await;
    }
    let flag = open_with(world, on_delete).await.unwrap();
    assert_eq!(flag.backfill(10).await.unwrap().done, 1);
}

/// Opens the flag with the one link to comments and this treatment after a delete.
async fn open_with(world: &World, on_delete: OnDelete) -> Result<SyncFlag> {
    let mut options = options(world);
    options.links.truncate(1);
    options.links[0] = options.links[0].clone().on_delete(on_delete);
    SyncFlag::open_with(Arc::clone(&world.store), world.namespace("users"), world.sources.clone(), options).await
}

async fn open_small(world: &World) -> Result<SyncFlag> {
    open_with(world, OnDelete::Unset).await
}

/// The number of operations of [`open_small`]: a read of the recorded settings, and the indexes of users and comments.
const OPENING: u64 = 4;

fn renames(name: &'static str) -> Actor {
    Actor::new(OPENING, move |world| async move {
        let flag = open_small(&world).await.unwrap();
        let outcome = flag.change(flag.token(), 1, &renamed(name)).await.unwrap();
        assert!(matches!(outcome, SyncOutcome::Synced { .. } | SyncOutcome::Missing), "{outcome:?}");
    })
}

fn comments(id: i32) -> Actor {
    Actor::new(OPENING, move |world| async move {
        let flag = open_small(&world).await.unwrap();
        let comment = doc! { "_id": id, "user": 1 };
        let copied = flag.insert_copy(&world.namespace("comments"), comment).await.unwrap();
        assert!(matches!(copied, Copied::Settled { .. } | Copied::MainMissing { .. }), "{copied:?}");
    })
}

fn deletes() -> Actor {
    Actor::new(OPENING, |world| async move {
        let flag = open_small(&world).await.unwrap();
        assert!(matches!(flag.delete(1).await.unwrap(), SyncOutcome::Synced { .. }));
    })
}

#[tokio::test]
async fn opening_takes_no_turn() {
    let world = World::in_memory();
    let opens = async |world: World| {
        open_small(&world).await.unwrap();
    };
    world.operations(opens).await;
    assert_eq!(world.operations(opens).await, OPENING);
}

/// Recovers by the sweeper alone, and then checks that there is nothing left to recover.
async fn recovers(world: &World) {
    let flag = open_small(world).await.unwrap();
    swept_by(&flag).await.unwrap();
    assert_eq!(flag.staleness().await.unwrap(), Staleness::default());
    let audit = flag.drift(10, |stale| panic!("{stale:?}")).await.unwrap();
    assert_eq!((audit.in_flight, audit.stale), (0, 0));
}

#[tokio::test]
async fn two_changes_at_once() {
    let actors = [renames("Mary"), renames("Anna")];
    let explored = every_order(&actors, small, recovers, in_sync).await;
    explored.assert_clean("sync flag, two changes");
    assert_eq!(explored.orders, 69, "3 operations each");
}

#[tokio::test]
async fn a_new_copy_while_a_change_is_in_flight() {
    let actors = [renames("Mary"), comments(3)];
    every_order(&actors, small, recovers, in_sync).await.assert_clean("sync flag, a change and a new copy");
}

#[tokio::test]
async fn a_delete_while_a_change_is_in_flight() {
    let actors = [renames("Mary"), deletes()];
    every_order(&actors, small, recovers, in_sync).await.assert_clean("sync flag, a change and a delete");
}

#[tokio::test]
async fn a_new_copy_while_a_delete_is_in_flight() {
    let actors = [deletes(), comments(3)];
    every_order(&actors, small, recovers, in_sync).await.assert_clean("sync flag, a delete and a new copy");
}

/// A new copy is to be deleted with its main document, whenever it arrives.
#[tokio::test]
async fn a_new_copy_that_goes_with_its_main_document() {
    let open = |world: World| async move { open_with(&world, OnDelete::Remove).await.unwrap() };
    let actors = [
        Actor::new(OPENING, move |world| async move {
            assert!(matches!(open(world).await.delete(1).await.unwrap(), SyncOutcome::Synced { .. }));
        }),
        Actor::new(OPENING, move |world| async move {
            let target = world.namespace("comments");
            let _: Copied = open(world).await.insert_copy(&target, doc! { "_id": 3, "user": 1 }).await.unwrap();
        }),
    ];
    let recover = async |world: &World| {
        let flag = open(world.clone()).await;
        while flag.sweep(10).await.unwrap().done > 0 {}
    };
    let check = async |world: &World| match (all(world, "users").await.len(), all(world, "comments").await.len()) {
        (0, 0) => Ok(()),
        (1, 2 | 3) => in_sync(world).await,
        (users, comments) => Err(format!("{users} users and {comments} comments")),
    };
    let prepare = async |world: &World| small_with(world, OnDelete::Remove).await;
    every_order(&actors, prepare, recover, check).await.assert_clean("sync flag, a delete that removes copies");
}

/// Two sweepers run beside a change of the same document.
#[tokio::test]
async fn two_sweepers_beside_a_change_in_every_order() {
    let prepare = async |world: &World| {
        small(world).await;
        let flag = open_small(world).await.unwrap();
        let within = flag.within(Arc::clone(&world.store));
        let _: Begun = within.begin(flag.token(), 1, &renamed("Sue")).await.unwrap();
        world.clock.advance(2 * HOUR);
    };
    let sweeps = || {
        Actor::new(OPENING, |world| async move {
            let flag = open_small(&world).await.unwrap();
            assert_eq!(flag.sweep(1).await.unwrap().failed, 0);
        })
    };
    let actors = [sweeps(), renames("Mary")];
    every_order(&actors, prepare, recovers, in_sync).await.assert_clean("sync flag, a sweep and a change");
    let actors = [sweeps(), sweeps(), renames("Mary")];
    let explored = some_orders(&actors, orders(), prepare, recovers, in_sync).await;
    explored.assert_clean("sync flag, two sweeps and a change");
}

/// Two changes and a new copy, and all of them with a delete, have too many orders to run all.
#[tokio::test]
async fn changes_copies_and_deletes_in_many_orders() {
    let actors = [renames("Mary"), renames("Anna"), comments(3)];
    let explored = some_orders(&actors, orders(), small, recovers, in_sync).await;
    explored.assert_clean("sync flag, two changes and a new copy");
    let actors = [renames("Mary"), comments(3), deletes(), comments(4)];
    let explored = some_orders(&actors, orders(), small, recovers, in_sync).await;
    explored.assert_clean("sync flag, a change, two new copies and a delete");
}

/// Returns the number of orders that run where there are too many: more with `HANDFAST_ORDERS`.
fn orders() -> u64 {
    std::env::var("HANDFAST_ORDERS").ok().and_then(|number| number.parse().ok()).unwrap_or(1000)
}

/// Shows that the checks can fail: with the steps of the seed, which have no versions.
#[tokio::test]
async fn the_seeds_steps_alone_are_caught() {
    let renames = |name: &'static str| {
        Actor::new(0, move |world| async move {
            let (users, comments) = (world.namespace("users"), world.namespace("comments"));
            let now = world.sources.clock.now();
            let change = rawdoc! { "$set": { "name": name, "syncing": now } };
            world.store.update_one(&users, rawdoc! { "_id": 1 }, change).await.unwrap();
            let copies = rawdoc! { "$set": { "userName": name, "userInitial": &name[..1] } };
            world.store.update_many(&comments, rawdoc! { "user": 1 }, copies).await.unwrap();
            let unset = rawdoc! { "$unset": { "syncing": 1 } };
            world.store.update_one(&users, rawdoc! { "_id": 1 }, unset).await.unwrap();
        })
    };
    let recovers = async |world: &World| {
        let users = all(world, "users").await;
        if users[0].contains_key("syncing") {
            let name = users[0].get_str("name").unwrap().to_owned();
            let copies = rawdoc! { "$set": { "userName": name.as_str(), "userInitial": &name[..1] } };
            world.store.update_many(&world.namespace("comments"), rawdoc! { "user": 1 }, copies).await.unwrap();
            let unset = rawdoc! { "$unset": { "syncing": 1 } };
            world.store.update_one(&world.namespace("users"), rawdoc! { "_id": 1 }, unset).await.unwrap();
        }
    };
    let two = every_order(&[renames("Mary"), renames("Anna")], small, recovers, in_sync).await;
    assert!(two.orders == 69 && !two.failures.is_empty(), "{two:?}");
    let naive = Actor::new(0, |world| async move {
        let users = all(&world, "users").await;
        let name = users[0].get_str("name").unwrap();
        let comment = rawdoc! { "_id": 3, "user": 1, "userName": name, "userInitial": &name[..1] };
        insert(&world, "comments", comment).await;
    });
    let explored = every_order(&[renames("Mary"), naive], small, recovers, in_sync).await;
    assert!(!explored.failures.is_empty(), "{explored:?}");
}
