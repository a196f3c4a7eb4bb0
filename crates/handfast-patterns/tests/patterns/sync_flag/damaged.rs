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

/// Documents that no sweep can complete have the oldest flags, and more of them than a batch has documents.
#[tokio::test]
async fn documents_that_cannot_be_swept_keep_no_others_waiting() {
    let world = World::in_memory();
    let flag = filled(&world).await;
    let old = bson::DateTime::from_millis(0);
    for id in 10..15 {
        let user = rawdoc! { "_id": id, "name": "Eve", "syncVersion": "odd", "syncing": old };
        world.store.insert_one(&world.namespace("users"), user).await.unwrap();
        // It names no main document, so that there is nothing to compare it with.
        let comment = rawdoc! { "_id": id, "user": null, "userSyncing": old };
        world.store.insert_one(&world.namespace("comments"), comment).await.unwrap();
    }
    let young = bson::DateTime::from_millis(1);
    change(&world, "users", 2, doc! { "$set": { "name": "Mary", "syncVersion": 2_i64, "syncing": young } }).await;
    change(&world, "comments", 1, doc! { "$set": { "userName": "Eve", "userSyncing": young } }).await;
    let round = flag.abandoned_after(std::time::Duration::ZERO).sweep(2).await.unwrap();
    assert_eq!((round.done, round.failed), (2, 5), "{round:?}");
    assert_eq!(all_names(&world).await[..3], ["John", "John", "Mary"]);
}

/// A document whose key is null or a list is no copy of a main document that has this `_id`, or one of those in the list.
#[tokio::test]
async fn a_null_and_a_list_are_no_keys() {
    let world = World::in_memory();
    site(&world).await;
    for document in [
        rawdoc! { "_id": 11, "user": [1, 2] },
        rawdoc! { "_id": 12, "user": null },
        rawdoc! { "_id": 13, "editor": [{ "id": 1 }] },
        rawdoc! { "_id": 14 },
    ] {
        for collection in ["comments", "likes"] {
            world.store.insert_one(&world.namespace(collection), document.clone()).await.unwrap();
        }
    }
    world.store.insert_one(&world.namespace("users"), rawdoc! { "_id": null, "name": "Nobody" }).await.unwrap();
    let others = async || {
        let all = [all(&world, "comments").await, all(&world, "likes").await].concat();
        all.into_iter().filter(|document| document.get_i32("_id").unwrap() > 10).collect::<Vec<_>>()
    };
    let before = others().await;
    let flag = open(&world).await.unwrap();
    assert_eq!(flag.backfill(10).await.unwrap(), Round { done: 2, failed: 1, more: false });
    let renamed = |name| handfast_patterns::Change::new(doc! { "$set": { "name": name } });
    assert!(flag.change(flag.token(), 1, &renamed("Mary")).await.is_ok());
    let refused = flag.change(flag.token(), Bson::Null, &renamed("All")).await.unwrap_err();
    assert!(refused.to_string().contains("cannot have the _id null"), "{refused}");
    assert!(flag.delete(Bson::Null).await.is_err());
    assert!(flag.delete(1).await.is_ok());
    flag.repair(10).await.unwrap();
    assert_eq!(others().await, before);
    assert_eq!(all(&world, "likes").await.len(), 4, "those of user 1 are deleted with it");
}

/// The version of a main document cannot be read after the change of it: the error does not say that nothing was changed.
#[tokio::test]
async fn an_error_after_the_change_says_that_it_may_have_been_made() {
    let world = World::in_memory();
    let flag = filled(&world).await;
    change(&world, "users", 1, doc! { "$set": { "syncVersion": 1.5 } }).await;
    let renamed = handfast_patterns::Change::new(doc! { "$set": { "name": "Mary" } });
    let error = flag.change(flag.token(), 1, &renamed).await.unwrap_err();
    assert_eq!(error.applied(), handfast_store::Applied::Maybe, "{error}");
    assert!(error.to_string().contains("its syncVersion is 2.5, not an integer"), "{error}");
    let error = flag.delete(1).await.unwrap_err();
    assert_eq!(error.applied(), handfast_store::Applied::Maybe, "{error}");
}
