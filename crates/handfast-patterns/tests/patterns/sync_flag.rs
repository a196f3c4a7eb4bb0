//! Sync flags: a name in comments, step by step; every crash point and every order; audits.

mod audited;
mod damaged;
mod declared;
mod killed;
mod ordered;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc, rawdoc};
use handfast_patterns::sync_flag::{
    Begun, Copied, FINAL_VERSION, Inserted, MainState, Staleness, SyncFlag, SyncOutcome,
};
use handfast_patterns::{
    CancellationToken, Change, Error, Link, OnDelete, Result, Round, RunnerOptions, SyncFlagOptions,
};
use handfast_store::decorator::{Fault, Faulty, Operation, Plan as Faults};
use handfast_store::{Applied, ErrorClass, Find, StoreExt};

use crate::crash::World;
use crate::fault::first;

const HOUR: Duration = Duration::from_secs(3600);

/// Returns links by which the user's name and its first letter have copies in comments, which may have an editor as
/// well. Likes are deleted with their user.
fn options(world: &World) -> SyncFlagOptions {
    let initial = |user: &Document| Some(Bson::from(user.get_str("name").ok()?.get(..1)?));
    SyncFlagOptions::new([
        Link::new(world.namespace("comments"), "user").field("name", "userName").computed("userInitial", initial),
        Link::new(world.namespace("comments"), "editor.id")
            .field("name", "editor.name")
            .on_delete(OnDelete::Set(doc! { "editor.name": "somebody" })),
        Link::new(world.namespace("likes"), "user").field("name", "userName").on_delete(OnDelete::Remove),
    ])
}

async fn open(world: &World) -> Result<SyncFlag> {
    SyncFlag::open_with(Arc::clone(&world.store), world.namespace("users"), world.sources.clone(), options(world)).await
}

fn renamed(name: &str) -> Change {
    Change::new(doc! { "$set": { "name": name } })
}

async fn insert(world: &World, collection: &str, document: bson::RawDocumentBuf) {
    world.store.insert_one(&world.namespace(collection), document).await.unwrap();
}

/// Inserts two users and their documents, as they were before there was a sync flag.
async fn site(world: &World) {
    insert(world, "users", rawdoc! { "_id": 1, "name": "John" }).await;
    insert(world, "users", rawdoc! { "_id": 2, "name": "Bill" }).await;
    insert(world, "comments", rawdoc! { "_id": 1, "user": 1, "userName": "John", "userInitial": "J" }).await;
    let edited = rawdoc! {
        "_id": 2, "user": 1, "userName": "John", "userInitial": "J", "editor": { "id": 2, "name": "Bill" },
    };
    insert(world, "comments", edited).await;
    insert(world, "comments", rawdoc! { "_id": 3, "user": 2, "userName": "Bill", "userInitial": "B" }).await;
    insert(world, "likes", rawdoc! { "_id": 1, "user": 1, "userName": "John" }).await;
}

async fn all(world: &World, collection: &str) -> Vec<Document> {
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(world.namespace(collection), rawdoc! {}) };
    let found = world.store.find_all(find).await.unwrap();
    found.iter().map(|document| Document::try_from(&**document).unwrap()).collect()
}

/// Returns the documents in a line: `John 1 flag | John 1 | ..`: users, comments, likes.
async fn shown(world: &World) -> String {
    let mut parts = Vec::new();
    for user in all(world, "users").await {
        let flag = match (user.contains_key("syncDeleted"), user.contains_key("syncing")) {
            (true, _) => " deleting",
            (false, true) => " syncing",
            (false, false) => "",
        };
        parts.push(format!("{} {}{flag}", user.get_str("name").unwrap(), user.get_i64("syncVersion").unwrap_or(0)));
    }
    for collection in ["comments", "likes"] {
        for copy in all(world, collection).await {
            let version = match copy.get_i64("userVersion") {
                Ok(FINAL_VERSION) => "final".to_owned(),
                Ok(version) => version.to_string(),
                Err(_) => "0".to_owned(),
            };
            let flag = if copy.contains_key("userSyncing") { " new" } else { "" };
            parts.push(format!("{} {version}{flag}", copy.get_str("userName").unwrap_or("-")));
        }
    }
    parts.join(" | ")
}

/// Checks without the library that every copied field has the value of its main document, or the one after a delete,
/// and that there is no flag anywhere.
async fn in_sync(world: &World) -> Result<(), String> {
    let users = all(world, "users").await;
    if let Some(user) = users.iter().find(|user| user.contains_key("syncing") || user.contains_key("syncDeleted")) {
        return Err(format!("a flag is left: {user}"));
    }
    let name = |id: Option<&Bson>| users.iter().find(|user| user.get("_id") == id)?.get("name").cloned();
    for comment in all(world, "comments").await {
        let editor = comment.get_document("editor").cloned().unwrap_or_default();
        if comment.contains_key("userSyncing") || editor.contains_key("idSyncing") {
            return Err(format!("a flag is left: {comment}"));
        }
        let user = name(comment.get("user"));
        let initial = user.as_ref().map(|name| Bson::from(name.as_str().unwrap().get(..1).unwrap()));
        if comment.get("userName").cloned() != user || comment.get("userInitial").cloned() != initial {
            return Err(format!("its user is called {user:?}: {comment}"));
        }
        let expected = editor.get("id").map(|id| name(Some(id)).unwrap_or_else(|| "somebody".into()));
        if editor.get("name").cloned() != expected {
            return Err(format!("its editor is called {expected:?}: {comment}"));
        }
    }
    for like in all(world, "likes").await {
        let user = name(like.get("user"));
        if like.contains_key("userSyncing") || user.is_none() || like.get("userName").cloned() != user {
            return Err(format!("its user is called {user:?}: {like}"));
        }
    }
    Ok(())
}

/// Sweeps until there is nothing left to sweep.
async fn swept(world: &World) -> Result<()> {
    swept_by(&open(world).await?).await
}

async fn swept_by(flag: &SyncFlag) -> Result<()> {
    loop {
        let round = flag.sweep(10).await?;
        assert_eq!(round.failed, 0);
        if !round.more {
            return Ok(());
        }
    }
}

fn version(outcome: &SyncOutcome) -> i64 {
    match outcome {
        SyncOutcome::Synced { version } => *version,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_seeds_renaming_document_by_document() {
    let mut lines: Vec<String> = Vec::new();
    for number in 0.. {
        let world = World::in_memory();
        site(&world).await;
        let dying = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::at(number, Fault::CrashAfter)));
        let run = async |world: &World| {
            let flag = open(world).await?;
            flag.change(flag.token(), 1, &renamed("Mary")).await
        };
        let result = run(&world.on(dying)).await;
        let line = shown(&world).await;
        if lines.last() != Some(&line) {
            lines.push(line);
        }
        if let Ok(SyncOutcome::Synced { version }) = result {
            assert_eq!(version, 1);
            break;
        }
    }
    let expected = [
        "John 0 | Bill 0 | John 0 | John 0 | Bill 0 | John 0",
        "Mary 1 syncing | Bill 0 | John 0 | John 0 | Bill 0 | John 0",
        "Mary 1 syncing | Bill 0 | Mary 1 | Mary 1 | Bill 0 | John 0",
        "Mary 1 syncing | Bill 0 | Mary 1 | Mary 1 | Bill 0 | Mary 1",
        "Mary 1 | Bill 0 | Mary 1 | Mary 1 | Bill 0 | Mary 1",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn every_link_is_carried() {
    let world = World::in_memory();
    site(&world).await;
    let flag = open(&world).await.unwrap();
    assert_eq!(version(&flag.change(flag.token(), 2, &renamed("Sue")).await.unwrap()), 1);
    let comments = all(&world, "comments").await;
    assert_eq!(comments[1].get_document("editor").unwrap(), &doc! { "id": 2, "name": "Sue", "idVersion": 1_i64 });
    let expected = doc! { "_id": 3, "user": 2, "userName": "Sue", "userInitial": "S", "userVersion": 1_i64 };
    assert_eq!(comments[2], expected);
    in_sync(&world).await.unwrap();
}

/// A field that is removed from the main document is removed from the copies, too.
#[tokio::test]
async fn a_field_that_is_gone_is_gone_from_the_copies() {
    let world = World::in_memory();
    site(&world).await;
    let flag = open(&world).await.unwrap();
    let nameless = Change::new(doc! { "$unset": { "name": "" } });
    assert_eq!(version(&flag.change(flag.token(), 1, &nameless).await.unwrap()), 1);
    assert_eq!(all(&world, "comments").await[0], doc! { "_id": 1, "user": 1, "userVersion": 1_i64 });
}

#[tokio::test]
async fn a_token_is_used_once_and_a_guard_is_kept() {
    let world = World::in_memory();
    site(&world).await;
    let flag = open(&world).await.unwrap();
    let token = flag.token();
    let counted = Change::new(doc! { "$inc": { "renamed": 1 }, "$set": { "name": "Mary" } });
    for _ in 0..2 {
        assert_eq!(version(&flag.change(token, 1, &counted).await.unwrap()), 1);
    }
    assert_eq!(all(&world, "users").await[0].get_i32("renamed").unwrap(), 1);
    let guarded = renamed("Anna").guarded(doc! { "name": "John" });
    assert!(matches!(flag.change(flag.token(), 1, &guarded).await.unwrap(), SyncOutcome::Refused));
    assert!(matches!(flag.change(flag.token(), 7, &guarded).await.unwrap(), SyncOutcome::Missing));
    for wrong in [renamed("Anna").or_insert(), Change::increment("syncVersion", 1), Change::new(doc! { "a": 1 })] {
        let refused = flag.change(flag.token(), 1, &wrong).await.expect_err("it makes no sense");
        assert_eq!(refused.applied(), Applied::No);
    }
    assert_eq!(shown(&world).await, "Mary 1 | Bill 0 | Mary 1 | Mary 1 | Bill 0 | Mary 1");
}

#[tokio::test]
async fn the_sweeper_leaves_young_flags_alone() {
    let world = World::in_memory();
    site(&world).await;
    let flag = open(&world).await.unwrap();
    // The process is killed with the flag set.
    let dying = world.fault_at(first(Operation::FindAndModify, "users"), Fault::CrashAfter);
    let dead = open(&world.on(dying)).await.unwrap();
    assert_eq!(dead.change(dead.token(), 1, &renamed("Mary")).await.unwrap_err().class(), ErrorClass::Outage);
    assert_eq!(flag.staleness().await.unwrap(), Staleness { mains: 1, copies: 0, oldest: Some(Duration::ZERO) });
    assert_eq!(flag.list(10).await.unwrap()[0].state, MainState::Syncing);
    world.clock.advance(HOUR - Duration::from_millis(1));
    assert_eq!(flag.sweep(10).await.unwrap(), Round::default(), "it is not an hour old");
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(flag.staleness().await.unwrap().oldest, Some(HOUR));
    assert_eq!(flag.sweep(1).await.unwrap(), Round { done: 1, failed: 0, more: true });
    assert_eq!(flag.sweep(1).await.unwrap(), Round::default());
    assert_eq!(flag.staleness().await.unwrap(), Staleness::default());
    in_sync(&world).await.unwrap();
}

/// Reading repairs the main document with all its copies, or the one copy.
#[tokio::test]
async fn a_read_repairs_stale_copies() {
    let world = World::in_memory();
    site(&world).await;
    let flag = open(&world).await.unwrap();
    let interrupted = async |name: &str| {
        let begun = flag.within(Arc::clone(&world.store)).begin(flag.token(), 1, &renamed(name)).await.unwrap();
        assert!(matches!(begun, Begun::Flagged { .. }));
    };
    interrupted("Mary").await;
    let comment = flag.read_copy(&world.namespace("comments"), 1).await.unwrap().unwrap();
    assert_eq!(comment.get_str("userName").unwrap(), "Mary");
    assert_eq!(shown(&world).await, "Mary 1 syncing | Bill 0 | Mary 1 | John 0 | Bill 0 | John 0");
    let user = flag.read(1).await.unwrap().unwrap();
    assert_eq!(user.get_str("name").unwrap(), "Mary");
    in_sync(&world).await.unwrap();
    interrupted("Anna").await;
    assert_eq!(version(&flag.sync(1).await.unwrap()), 2);
    in_sync(&world).await.unwrap();
    assert_eq!(flag.read(7).await.unwrap(), None);
    assert!(flag.read_copy(&world.namespace("users"), 1).await.is_err(), "no link leads there");
}

#[tokio::test]
async fn copies_are_treated_as_declared_when_their_main_document_is_deleted() {
    let world = World::in_memory();
    site(&world).await;
    let flag = open(&world).await.unwrap();
    assert_eq!(version(&flag.delete(1).await.unwrap()), 1);
    assert_eq!(shown(&world).await, "Bill 0 | - final | - final | Bill 0");
    assert_eq!(version(&flag.delete(2).await.unwrap()), 1);
    let edited = all(&world, "comments").await.remove(1);
    assert_eq!(edited.get_document("editor").unwrap().get_str("name").unwrap(), "somebody");
    in_sync(&world).await.unwrap();
    assert!(matches!(flag.delete(1).await.unwrap(), SyncOutcome::Missing));
    assert!(matches!(flag.change(flag.token(), 1, &renamed("Mary")).await.unwrap(), SyncOutcome::Missing));
}

/// Readers do not see a user that is being deleted.
#[tokio::test]
async fn a_document_that_is_being_deleted_is_gone_for_readers() {
    let world = World::in_memory();
    site(&world).await;
    let flag = open(&world).await.unwrap();
    let within = flag.within(Arc::clone(&world.store));
    assert_eq!(within.begin_delete(1).await.unwrap(), Begun::Flagged { version: 1 });
    assert!(matches!(flag.change(flag.token(), 1, &renamed("Mary")).await.unwrap(), SyncOutcome::Missing));
    let comments = world.namespace("comments");
    let refused = flag.insert_copy(&comments, doc! { "_id": 4, "user": 1 }).await.unwrap();
    assert!(matches!(refused, Copied::MainMissing { main: Bson::Int32(1) }), "{refused:?}");
    assert_eq!(flag.read(1).await.unwrap(), None);
    assert_eq!(all(&world, "users").await.len(), 1, "reading has finished the delete");
    in_sync(&world).await.unwrap();
}

/// The network fails after the main document was changed: the caller learns that it was changed.
#[tokio::test]
async fn an_outage_at_the_copies_is_not_an_outage_of_the_change() {
    let world = World::in_memory();
    site(&world).await;
    open(&world).await.unwrap();
    // The first update of copies comes right after the change.
    let failing = world.fault_at(first(Operation::Update, "comments"), Fault::CrashBefore);
    let flag = open(&world.on(failing)).await.unwrap();
    let outcome = flag.change(flag.token(), 1, &renamed("Mary")).await.unwrap();
    let SyncOutcome::Later { version: 1, error } = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.class(), ErrorClass::Outage);
    world.clock.advance(2 * HOUR);
    swept(&world).await.unwrap();
    in_sync(&world).await.unwrap();
}

/// A flag that a transaction sets exists if and only if the transaction commits. A copy that it inserts has its own
/// flag, and gets the values of changes that were made meanwhile.
#[tokio::test]
async fn changes_in_a_transaction_take_effect_if_and_only_if_it_commits() {
    let world = World::in_memory();
    let memory = handfast_store::MemoryStore::new(world.sources.clone());
    let database = handfast_txn::Database::local(memory, world.sources.clone());
    let world = world.on(Arc::new(database.clone()));
    site(&world).await;
    let flag = open(&world).await.unwrap();
    for commit in [false, true] {
        let tx = database.begin().await.unwrap();
        let within = flag.within(Arc::new(tx.clone()));
        let begun = within.begin(flag.token(), 1, &renamed("Mary")).await.unwrap();
        assert_eq!(begun, Begun::Flagged { version: 1 });
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.abort();
        }
        let expected = if commit { "Mary 1 syncing" } else { "John 0" };
        assert!(shown(&world).await.starts_with(expected));
    }
    assert_eq!(version(&flag.sync(1).await.unwrap()), 1);

    let tx = database.begin().await.unwrap();
    let inserted =
        flag.within(Arc::new(tx.clone())).insert_copy(&world.namespace("comments"), doc! { "_id": 4, "user": 1 }).await;
    assert_eq!(inserted.unwrap(), Inserted::Flagged { id: 4.into() });
    assert_eq!(version(&flag.change(flag.token(), 1, &renamed("Anna")).await.unwrap()), 2);
    tx.commit().await.unwrap();
    assert_eq!(shown(&world).await, "Anna 2 | Bill 0 | Anna 2 | Anna 2 | Bill 0 | Mary 1 new | Anna 2");
    world.clock.advance(2 * HOUR);
    swept(&world).await.unwrap();
    in_sync(&world).await.unwrap();
}

/// Counts the operations for a change.
#[tokio::test]
async fn operations_per_change() {
    let world = World::in_memory();
    site(&world).await;
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Faults::none()));
    let flag = open(&world.on(counting.clone())).await.unwrap();
    let mut before = counting.operations();
    let mut cost = || {
        let now = counting.operations();
        std::mem::replace(&mut before, now).abs_diff(now)
    };
    let _: SyncOutcome = flag.change(flag.token(), 1, &renamed("Mary")).await.unwrap();
    assert_eq!(cost(), 5, "change and flag, 3 links, unset");
    let _: Copied = flag.insert_copy(&world.namespace("likes"), doc! { "_id": 2, "user": 1 }).await.unwrap();
    assert_eq!(cost(), 2 + 1 + 2 + 2 + 1, "read the user, insert, read the copy, read the user again, confirm");
    let _: SyncOutcome = flag.delete(1).await.unwrap();
    assert_eq!(cost(), 5, "mark, 3 links, delete");
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_runs_in_the_background_and_stops() {
    let world = World::in_memory();
    site(&world).await;
    let flag = open(&world).await.unwrap();
    let begun = flag.within(Arc::clone(&world.store)).begin(flag.token(), 1, &renamed("Mary")).await.unwrap();
    assert_eq!(begun, Begun::Flagged { version: 1 });
    world.clock.advance(2 * HOUR);
    let cancel = CancellationToken::new();
    let sweeper = flag.spawn_sweep(RunnerOptions { jitter: 0.0, ..RunnerOptions::default() }, &cancel).unwrap();
    while sweeper.counts().done == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    in_sync(&world).await.unwrap();
    cancel.cancel();
    sweeper.stop().await;
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let world = World::in_memory();
    let open = async |options| {
        let target = world.namespace("users");
        SyncFlag::open_with(Arc::clone(&world.store), target, world.sources.clone(), options).await.err()
    };
    assert!(matches!(open(SyncFlagOptions::new([])).await, Some(Error::Invalid { .. })));
    let forgetful = SyncFlagOptions { tokens_max: 0, ..options(&world) };
    assert!(matches!(open(forgetful).await, Some(Error::Invalid { .. })));
}

#[tokio::test]
async fn links_by_paths_that_no_field_has_are_refused() {
    let world = World::in_memory();
    let comments = || world.namespace("comments");
    let links = [
        Link::new(comments(), "").field("name", "userName"),
        Link::new(comments(), "user").field("name.", "userName"),
        Link::new(comments(), "user").field("name", "$userName"),
        Link::new(comments(), "user").field("name", "a..b"),
        Link::new(comments(), "user.$id").field("name", "userName"),
        Link::new(comments(), "user").field("name", "userName").with_fields("v\0", "s"),
    ];
    for link in links {
        let (target, options) = (world.namespace("users"), SyncFlagOptions::new([link.clone()]));
        let opened =
            SyncFlag::open_with(Arc::clone(&world.store), target.clone(), world.sources.clone(), options).await;
        let error = opened.err().expect("refused").to_string();
        assert!(error.contains("which no field can have"), "{link:?}: {error}");
        assert!(SyncFlag::declared(Arc::clone(&world.store), &target).await.unwrap().is_none(), "{link:?}");
    }
    // A copy may have the `_id` of its main document, and copy the parts of it.
    let link = Link::new(comments(), "_id").field("_id.country", "country");
    let options = SyncFlagOptions::new([link]);
    SyncFlag::open_with(Arc::clone(&world.store), world.namespace("users"), world.sources.clone(), options)
        .await
        .unwrap();
}

/// A second insert of the same document changes nothing. An insert of another document with its `_id` is refused.
#[tokio::test]
async fn another_document_with_the_id_of_a_copy_is_no_repetition() {
    let world = World::in_memory();
    site(&world).await;
    let (flag, comments) = (open(&world).await.unwrap(), world.namespace("comments"));
    let comment = doc! { "_id": 9, "user": 1, "userName": "?", "editor": { "id": 2 }, "text": "first", "stars": 1 };
    let _: Copied = flag.insert_copy(&comments, comment.clone()).await.unwrap();
    assert!(flag.change(flag.token(), 1, &renamed("Mary")).await.is_ok());
    // A program adds a field, and sends the insert again.
    let added = rawdoc! { "$set": { "read": true } };
    world.store.update_one(&comments, rawdoc! { "_id": 9 }, added).await.unwrap();
    let again = doc! { "_id": 9_i64, "user": 1, "text": "first", "editor": { "id": 2 }, "stars": 1.0 };
    assert!(matches!(flag.insert_copy(&comments, again).await, Ok(Copied::Settled { .. })));
    let before = all(&world, "comments").await;
    for (other, field) in [
        (doc! { "_id": 9, "user": 2, "text": "first", "editor": { "id": 2 }, "stars": 1 }, "user"),
        (doc! { "_id": 9, "user": 1, "text": "second", "editor": { "id": 2 }, "stars": 1 }, "text"),
        (doc! { "_id": 9, "user": 1, "text": "first", "editor": { "id": 1 }, "stars": 1 }, "editor"),
        (doc! { "_id": 9, "user": 1, "text": "first", "lines": 1 }, "lines"),
    ] {
        let error = flag.insert_copy(&comments, other).await.unwrap_err().to_string();
        assert!(error.contains("another document of") && error.contains(&format!("its {field} differs")), "{error}");
    }
    assert_eq!(all(&world, "comments").await, before);
}
