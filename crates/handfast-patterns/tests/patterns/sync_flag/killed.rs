//! Faults at every operation, and within one.

use std::sync::Arc;

use bson::{doc, rawdoc};
use handfast_patterns::sync_flag::{Begun, Copied, Inserted, SyncOutcome};
use handfast_patterns::{Result, Round};
use handfast_store::StoreExt;

use super::{HOUR, all, in_sync, insert, open, renamed, shown, site, swept, version};
use crate::black_pipe::{assert_right, every_pair};
use crate::crash::{Stage, World, every_point};

/// Records the result of a change of user 1.
fn changed(world: &World, outcome: SyncOutcome) -> SyncOutcome {
    let (SyncOutcome::Synced { version } | SyncOutcome::Later { version, .. }) = outcome else { panic!("{outcome:?}") };
    world.acknowledge(&outcome, "users", doc! { "_id": 1, "syncVersion": { "$gte": version } });
    if let SyncOutcome::Synced { .. } = outcome {
        let older = doc! { "user": 1, "userVersion": { "$not": { "$gte": version } } };
        world.acknowledge_none(&outcome, "comments", older.clone());
        world.acknowledge_none(&outcome, "likes", older);
    }
    outcome
}

/// Renames a user, who writes a comment and a like, and renames it again; deletes another one.
async fn killed_at_every_operation(stage: Stage) {
    let run = async |world: &World| {
        let flag = open(world).await?;
        let first = changed(world, flag.change(flag.token(), 1, &renamed("Mary")).await?);
        let comment = doc! { "_id": 4, "user": 1, "editor": { "id": 2 } };
        let copied = flag.insert_copy(&world.namespace("comments"), comment).await?;
        world.acknowledge(copied, "comments", doc! { "_id": 4, "user": 1 });
        let _: Copied = flag.insert_copy(&world.namespace("likes"), doc! { "_id": 2, "user": 2 }).await?;
        let second = changed(world, flag.change(flag.token(), 1, &renamed("Anna")).await?);
        let deleted = flag.delete(2).await?;
        world.acknowledge_none(&deleted, "users", doc! { "_id": 2, "syncDeleted": { "$exists": false } });
        if let SyncOutcome::Synced { .. } = deleted {
            world.acknowledge_none(&deleted, "likes", doc! { "user": 2 });
        }
        Ok([first, second, deleted])
    };
    let recover = async |world: &World, _: &Result<_>| swept(world).await;
    let check = async |world: &World, answer: &Result<[SyncOutcome; 3]>| {
        let users = all(world, "users").await;
        let named = |name: &str| users.iter().any(|user| user.get_str("name").is_ok_and(|is| is == name));
        if answer.is_ok() && !(named("Anna") && users.len() == 1) {
            return Err(format!("said to be done, and there are {users:?}"));
        }
        in_sync(world).await
    };
    let report = every_point(&stage, site, run, recover, check).await;
    report.assert_clean("sync flag, two changes, two new copies and a delete", &stage, 315);
}

/// Renames a user, whose name has copies in three documents.
#[tokio::test(flavor = "multi_thread")]
async fn changed_over_the_wire() {
    let run = async |world: &World| {
        let flag = open(world).await?;
        Ok(changed(world, flag.change(flag.token(), 1, &renamed("Mary")).await?))
    };
    let recover = async |world: &World, _: &Result<SyncOutcome>| swept(world).await;
    let check = async |world: &World, _: &Result<SyncOutcome>| in_sync(world).await;
    assert_right("sync flag", &every_pair(site, run, recover, check).await, 40);
}

#[tokio::test]
async fn changed_and_killed_at_every_operation() {
    killed_at_every_operation(Stage::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_and_killed_at_every_operation_embedded() {
    let directory = tempfile::tempdir().unwrap();
    killed_at_every_operation(Stage::embedded(directory.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_and_killed_at_every_operation_on_a_server() {
    killed_at_every_operation(Stage::server().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ext_changed_and_killed_at_every_operation_on_ferretdb() {
    if let Some(stage) = Stage::ferretdb().await {
        killed_at_every_operation(stage).await;
    }
}

/// The sweep fails at every operation, and another process sweeps.
#[tokio::test]
async fn a_sweep_that_is_killed_at_every_operation() {
    let prepare = async |world: &World| {
        site(world).await;
        let flag = open(world).await.unwrap();
        let within = flag.within(Arc::clone(&world.store));
        let _: Begun = within.begin(flag.token(), 1, &renamed("Mary")).await.unwrap();
        let _: Inserted = within.insert_copy(&world.namespace("likes"), doc! { "_id": 2, "user": 2 }).await.unwrap();
        let _: Begun = within.begin_delete(2).await.unwrap();
        world.clock.advance(2 * HOUR);
    };
    let run = async |world: &World| {
        let flag = open(world).await?;
        while flag.sweep(1).await?.done > 0 {
            world.acknowledge("something was swept", "users", doc! {});
        }
        world.acknowledge_none("nothing is left", "users", doc! { "syncing": { "$exists": true } });
        swept(world).await
    };
    let recover = async |world: &World, _: &Result<()>| swept(world).await;
    let check = async |world: &World, _: &Result<()>| in_sync(world).await;
    let report = every_point(&Stage::Memory, prepare, run, recover, check).await;
    report.assert_clean("sync flag, the sweep", &Stage::Memory, 399);
}

/// The first run over existing documents fails at every operation, and is run again.
#[tokio::test]
async fn a_backfill_that_is_killed_at_every_operation() {
    let prepare = async |world: &World| {
        site(world).await;
        insert(world, "likes", rawdoc! { "_id": 2, "user": 1 }).await;
    };
    let run = async |world: &World| {
        let round = open(world).await?.backfill(1).await?;
        world.acknowledge_none(round, "users", doc! { "syncVersion": { "$exists": false } });
        open(world).await?;
        Ok(round)
    };
    let recover = async |world: &World, _: &Result<_>| {
        swept(world).await?;
        assert_eq!(open(world).await?.backfill(10).await?, Round { done: 2, failed: 0, more: false });
        Ok(())
    };
    let check = async |world: &World, _: &Result<Round>| match in_sync(world).await {
        Ok(()) if shown(world).await == "John 1 | Bill 1 | John 1 | John 1 | Bill 1 | John 1 | John 1" => Ok(()),
        Ok(()) => Err(shown(world).await),
        Err(what) => Err(what),
    };
    let report = every_point(&Stage::Memory, prepare, run, recover, check).await;
    report.assert_clean("sync flag, the backfill", &Stage::Memory, 217);
}

/// The process dies within the one request that changes many copies: any of them may have the new version.
#[tokio::test]
async fn a_death_within_the_request_that_changes_the_copies_is_repaired() {
    for changed in 0..8_u32 {
        let world = World::in_memory();
        site(&world).await;
        insert(&world, "comments", rawdoc! { "_id": 4, "user": 1, "userName": "John", "userInitial": "J" }).await;
        let flag = open(&world).await.unwrap();
        assert_eq!(version(&flag.change(flag.token(), 1, &renamed("Mary")).await.unwrap()), 1);
        let within = flag.within(Arc::clone(&world.store));
        let _: Begun = within.begin(flag.token(), 1, &renamed("Anna")).await.unwrap();
        for (bit, id) in [1, 2, 4].into_iter().enumerate() {
            if changed & (1 << bit) != 0 {
                let anna = rawdoc! { "$set": { "userName": "Anna", "userInitial": "A", "userVersion": 2_i64 } };
                world.store.update_one(&world.namespace("comments"), rawdoc! { "_id": id }, anna).await.unwrap();
            }
        }
        world.clock.advance(2 * HOUR);
        swept(&world).await.unwrap();
        in_sync(&world).await.unwrap();
        assert_eq!(all(&world, "users").await[0].get_str("name").unwrap(), "Anna");
    }
}
