//! Documents that another program has changed: each is found, and none prevents others from being found and
//! repaired.

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::Round;
use handfast_patterns::sync_flag::{FINAL_VERSION, Staleness, SyncFlag};
use handfast_store::StoreExt;

use super::{all, in_sync, open, site};
use crate::crash::World;

async fn change(world: &World, collection: &str, id: i32, update: Document) {
    let update = bson::RawDocumentBuf::try_from(&update).unwrap();
    world.store.update_one(&world.namespace(collection), rawdoc! { "_id": id }, update).await.unwrap();
}

async fn filled(world: &World) -> SyncFlag {
    site(world).await;
    let flag = open(world).await.unwrap();
    assert_eq!(flag.backfill(1).await.unwrap().done, 2);
    flag
}

/// Returns every copy that is reported, with the kind of difference.
async fn found(flag: &SyncFlag) -> Vec<String> {
    let mut found = Vec::new();
    let audit = flag
        .drift(2, |copy| found.push(format!("{} {} of {}: {}", copy.target.collection(), copy.id, copy.main, copy.why)))
        .await
        .unwrap();
    assert_eq!((audit.stale, audit.in_flight), (found.len() as u64, 0), "{found:?}");
    found.sort();
    found
}

/// The version or the flag of user 1 cannot be read: its copies cannot be compared, but those of user 2 can.
#[tokio::test]
async fn an_unreadable_main_document_does_not_hide_stale_copies() {
    let odd = [
        doc! { "$set": { "syncVersion": "two" } },
        doc! { "$set": { "syncVersion": 1.5 } },
        doc! { "$set": { "syncing": "yes" } },
        doc! { "$set": { "syncing": null } },
        // No process completes a delete without a flag.
        doc! { "$set": { "syncDeleted": true } },
    ];
    for odd in odd {
        let world = World::in_memory();
        let flag = filled(&world).await;
        change(&world, "users", 1, odd.clone()).await;
        change(&world, "comments", 3, doc! { "$set": { "userName": "Eve" } }).await;
        let unreadable = ["comments 1 of 1: unreadable", "comments 2 of 1: unreadable", "likes 1 of 1: unreadable"];
        let all = found(&flag).await;
        assert_eq!(all, [&unreadable[..2], &["comments 3 of 2: different"], &unreadable[2..]].concat(), "{odd}");
        assert_eq!(flag.repair(2).await.unwrap(), Round { done: 1, failed: 3, more: false }, "{odd}");
        assert_eq!(found(&flag).await, unreadable, "{odd}");
        assert_eq!(all_names(&world).await, ["John", "John", "Bill"], "{odd}");
    }
}

/// A copy that looks like one of a deleted document does not prove that its main document is gone.
#[tokio::test]
async fn a_copy_that_looks_like_one_of_a_deleted_document_is_found_if_its_main_document_is_unreadable() {
    let world = World::in_memory();
    let flag = filled(&world).await;
    change(&world, "users", 1, doc! { "$set": { "syncVersion": "two" } }).await;
    let left = doc! { "$set": { "userVersion": FINAL_VERSION }, "$unset": { "userName": "", "userInitial": "" } };
    change(&world, "comments", 1, left).await;
    let found = found(&flag).await;
    assert!(found.contains(&"comments 1 of 1: unreadable".to_owned()), "{found:?}");
}

async fn all_names(world: &World) -> Vec<String> {
    all(world, "comments")
        .await
        .iter()
        .map(|comment| comment.get_str("userName").unwrap_or("none").to_owned())
        .collect()
}

/// Only a date is a flag that the sweep finds.
#[tokio::test]
async fn a_copy_with_a_flag_that_nobody_settles_is_found() {
    for odd in [Bson::from("x"), Bson::Null, Bson::Int32(1)] {
        let world = World::in_memory();
        let flag = filled(&world).await;
        change(&world, "comments", 1, doc! { "$set": { "userSyncing": odd, "userName": "Eve" } }).await;
        assert_eq!(found(&flag).await, ["comments 1 of 1: different"]);
        assert_eq!(flag.repair(2).await.unwrap().done, 1);
        assert_eq!(found(&flag).await, [""; 0]);
        in_sync(&world).await.unwrap();
    }
}

/// A clock was ahead when the flags were written, and was corrected since.
#[tokio::test]
async fn flags_from_the_future_are_settled() {
    let world = World::in_memory();
    let flag = filled(&world).await;
    let now = world.sources.clock.now().timestamp_millis();
    let years = bson::DateTime::from_millis(now + 10 * 365 * 24 * 3_600_000);
    let soon = bson::DateTime::from_millis(now + 60_000);
    let of_user = |date| doc! { "$set": { "name": "Mary", "syncing": date }, "$inc": { "syncVersion": 1 } };
    change(&world, "users", 1, of_user(soon)).await;
    assert_eq!(flag.sweep(10).await.unwrap(), Round::default(), "clocks differ a little");
    change(&world, "users", 1, of_user(years)).await;
    change(&world, "comments", 3, doc! { "$set": { "userName": "Eve", "userSyncing": years } }).await;
    assert_eq!(flag.sweep(10).await.unwrap(), Round { done: 2, failed: 0, more: false });
    assert_eq!(found(&flag).await, [""; 0]);
    assert_eq!(flag.staleness().await.unwrap(), Staleness::default());
    in_sync(&world).await.unwrap();
}
