//! Audits: every stale copy is found, and nothing else.

use std::sync::Arc;

use bson::{Bson, doc, rawdoc};
use handfast_patterns::sync_flag::{Begun, Stale, StaleCopy, SyncFlag, SyncOutcome};
use handfast_patterns::{CancellationToken, Error, Link, Round, RunnerOptions};
use handfast_store::StoreExt;

use super::{HOUR, all, in_sync, insert, open, options, renamed, shown, site, swept, version};
use crate::crash::World;
use crate::turns::{Actor, these_orders};

async fn change(world: &World, collection: &str, id: i32, update: bson::RawDocumentBuf) {
    world.store.update_one(&world.namespace(collection), rawdoc! { "_id": id }, update).await.unwrap();
}

async fn stale(flag: &SyncFlag) -> Vec<StaleCopy> {
    let mut found = Vec::new();
    let audit = flag.drift(2, |copy| found.push(copy)).await.unwrap();
    assert_eq!(audit.stale, found.len() as u64);
    found
}

/// Inserts users 1 and 2 with all their copies at version 1.
async fn filled(world: &World) -> SyncFlag {
    site(world).await;
    let flag = open(world).await.unwrap();
    assert_eq!(flag.backfill(1).await.unwrap(), Round { done: 2, failed: 0, more: false });
    assert_eq!(shown(world).await, "John 1 | Bill 1 | John 1 | John 1 | Bill 1 | John 1");
    assert_eq!(stale(&flag).await, []);
    flag
}

#[tokio::test]
async fn every_planted_stale_copy_is_found_and_repaired() {
    let world = World::in_memory();
    let flag = filled(&world).await;
    // The copies: one that was changed directly, one without a version, one that is ahead, and one whose user does not
    // exist.
    change(&world, "comments", 1, rawdoc! { "$set": { "userInitial": "X" } }).await;
    change(&world, "comments", 3, rawdoc! { "$set": { "userName": "Joe" }, "$unset": { "userVersion": 1 } }).await;
    change(&world, "likes", 1, rawdoc! { "$set": { "userVersion": 9 } }).await;
    insert(&world, "likes", rawdoc! { "_id": 2, "user": 7, "userName": "Nobody" }).await;
    change(&world, "comments", 2, rawdoc! { "$set": { "editor.name": "Ed", "editor.idVersion": 0 } }).await;
    let found = stale(&flag).await;
    let mut lines: Vec<_> = found
        .iter()
        .map(|copy| {
            format!("{} {}: {}, {} for {}", copy.target.collection(), copy.id, copy.why, copy.found, copy.expected)
        })
        .collect();
    lines.sort();
    let expected = [
        r#"comments 1: different, { "userInitial": "X" } for { "userInitial": "J" }"#,
        r#"comments 2: behind, { "editor.name": "Ed" } for { "editor.name": "Bill" }"#,
        r#"comments 3: behind, { "userName": "Joe" } for { "userName": "Bill" }"#,
        r#"likes 1: ahead, {} for {}"#,
        r#"likes 2: orphan, {} for {}"#,
    ];
    assert_eq!(lines, expected);
    assert_eq!(flag.repair(2).await.unwrap(), Round { done: 5, failed: 0, more: false });
    assert_eq!(stale(&flag).await, []);
    in_sync(&world).await.unwrap();
    assert_eq!(version(&flag.change(flag.token(), 1, &renamed("Mary")).await.unwrap()), 2);
    in_sync(&world).await.unwrap();
}

/// Damages each of a hundred copies in turn, in each way that its values can be wrong.
#[tokio::test]
async fn each_copy_is_looked_at() {
    let world = World::in_memory();
    site(&world).await;
    for id in 10..40 {
        insert(&world, "comments", rawdoc! { "_id": id, "user": 1 + id % 2 }).await;
    }
    let flag = open(&world).await.unwrap();
    assert_eq!(flag.backfill(7).await.unwrap().done, 2);
    for id in 10..40 {
        let spoil = match id % 4 {
            0 => rawdoc! { "$set": { "userName": "Eve" } },
            1 => rawdoc! { "$unset": { "userName": "" } },
            2 => rawdoc! { "$set": { "userName": null } },
            _ => rawdoc! { "$set": { "userName": { "is": "Eve" } } },
        };
        change(&world, "comments", id, spoil).await;
        let found = stale(&flag).await;
        assert_eq!(found.iter().map(|copy| copy.id.clone()).collect::<Vec<_>>(), [Bson::Int32(id)]);
        assert_eq!(flag.repair(100).await.unwrap().done, 1);
    }
    in_sync(&world).await.unwrap();
}

/// Copies with a change under way are counted, not reported.
#[tokio::test]
async fn changes_in_flight_are_not_reported_as_drift() {
    let world = World::in_memory();
    let flag = filled(&world).await;
    let within = flag.within(Arc::clone(&world.store));
    assert_eq!(within.begin(flag.token(), 1, &renamed("Mary")).await.unwrap(), Begun::Flagged { version: 2 });
    let audit = flag.drift(10, |copy| panic!("{copy:?}")).await.unwrap();
    assert_eq!((audit.copies, audit.in_flight, audit.stale), (5, 3, 0));
    assert_eq!(flag.repair(10).await.unwrap(), Round::default());
}

/// While users are renamed nothing is reported, wherever two changes fall between the reads of the audit.
#[tokio::test]
async fn an_audit_beside_changes_reports_nothing() {
    let audits = Actor::new(4, |world| async move {
        let flag = open(&world).await.unwrap();
        let _ = flag.drift(2, |copy| panic!("{copy:?}")).await.unwrap();
    });
    let renames = |name: &'static str| {
        Actor::new(4, move |world| async move {
            let flag = open(&world).await.unwrap();
            let _: SyncOutcome = flag.change(flag.token(), 1, &renamed(name)).await.unwrap();
        })
    };
    let prepare = async |world: &World| {
        filled(world).await;
    };
    let recover = async |world: &World| swept(world).await.unwrap();
    let orders = (0..20).flat_map(|first| {
        (0..20).map(move |second| [vec![0; first], vec![1; 5], vec![0; second], vec![2; 5], vec![0; 60]].concat())
    });
    let actors = [audits, renames("Mary"), renames("Anna")];
    let explored = these_orders(&actors, orders, prepare, recover, in_sync).await;
    explored.assert_clean("sync flag, an audit beside two changes");
}

/// A new link is declared, and the backfill gives its copies their first values.
#[tokio::test]
async fn a_link_that_is_declared_later_is_filled() {
    let world = World::in_memory();
    let flag = filled(&world).await;
    assert_eq!(version(&flag.change(flag.token(), 1, &renamed("Mary")).await.unwrap()), 2);
    insert(&world, "badges", rawdoc! { "_id": 1, "owner": 1 }).await;
    let mut options = options(&world);
    options.links.push(Link::new(world.namespace("badges"), "owner").field("name", "ownerName"));
    let users = world.namespace("users");
    SyncFlag::change_settings(Arc::clone(&world.store), users.clone(), &options).await.unwrap();
    let flag = SyncFlag::open_with(Arc::clone(&world.store), users, world.sources.clone(), options).await.unwrap();
    assert_eq!(stale(&flag).await[0].why, Stale::Behind);
    assert_eq!(flag.backfill(10).await.unwrap().done, 2);
    let expected = doc! { "_id": 1, "owner": 1, "ownerName": "Mary", "ownerVersion": 2_i64 };
    assert_eq!(all(&world, "badges").await, [expected]);
    assert_eq!(shown(&world).await, "Mary 2 | Bill 1 | Mary 2 | Mary 2 | Bill 1 | Mary 2");
}

/// An `_id` is used again: the repair updates the copies of the first document.
#[tokio::test]
async fn a_repair_updates_copies_of_an_earlier_document_with_the_same_id() {
    let world = World::in_memory();
    let flag = filled(&world).await;
    assert_eq!(version(&flag.delete(2).await.unwrap()), 2);
    insert(&world, "users", rawdoc! { "_id": 2, "name": "Sue" }).await;
    assert_eq!(stale(&flag).await.iter().map(|copy| copy.why).collect::<Vec<_>>(), [Stale::Ahead; 2]);
    assert_eq!(flag.repair(10).await.unwrap().done, 2);
    assert_eq!(version(&flag.change(flag.token(), 2, &renamed("Ann")).await.unwrap()), 1);
    in_sync(&world).await.unwrap();
}

/// A version of a main document that is not a number is reported.
#[tokio::test]
async fn a_main_document_that_is_damaged_is_reported() {
    let world = World::in_memory();
    let flag = filled(&world).await;
    change(&world, "users", 1, rawdoc! { "$set": { "syncVersion": "two" } }).await;
    let refused = flag.read(1).await.expect_err("no version");
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn audits_and_repairs_run_in_the_background() {
    let world = World::in_memory();
    site(&world).await;
    let flag = open(&world).await.unwrap();
    assert_eq!(flag.backfill(10).await.unwrap().failed, 0);
    let tampered = rawdoc! { "$set": { "userName": "Eve" } };
    world.store.update_one(&world.namespace("comments"), rawdoc! { "_id": 1 }, tampered).await.unwrap();
    let cancel = CancellationToken::new();
    let options = RunnerOptions { interval: HOUR, ..RunnerOptions::default() };
    let drift = flag.spawn_drift(options.clone(), &cancel).unwrap();
    tokio::time::sleep(2 * HOUR).await;
    assert!(drift.counts().rounds > 0 && drift.counts().rounds_failed == 0);
    assert!(in_sync(&world).await.is_err(), "an audit changes nothing");
    let repair = flag.spawn_repair(options, &cancel).unwrap();
    tokio::time::sleep(3 * HOUR).await;
    assert_eq!((repair.counts().done, repair.counts().failed), (1, 0));
    in_sync(&world).await.unwrap();
}
