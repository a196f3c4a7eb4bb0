//! The log of changes: what is in it, when it is on, and what is removed from it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::change_stream::token::{ResumeToken, TokenKind};
use handfast_store::{
    BatchLimit, ChangePage, ChangeStream, DocumentStore, Insert, ManualClock, Namespace, Sources, StoreExt, Watch,
    WatchScope, WatchStart,
};
use handfast_txn::Database;

use crate::committer::{AnswerAfter, Writer};
use crate::engine::{Direction, Engine as _, Keyspace, Write};
use crate::format::ChangeLogState;
use crate::testing::faulty_engine::FaultyEngine;
use crate::testing::{find_all, namespace, open_faulty, replayed};
use crate::write::log_trimming;
use crate::{ChangeLog, EmbeddedStore, Options};

const ALL: BatchLimit = BatchLimit { documents: 1000, bytes: 1 << 20 };

async fn open(path: &std::path::Path, options: Options) -> EmbeddedStore {
    EmbeddedStore::open(path, Sources::seeded(1), options).await.unwrap()
}

fn on() -> Options {
    Options { change_log: ChangeLog::On, ..Options::small() }
}

fn everything(start: WatchStart) -> Watch {
    Watch { start, ..Watch::new(WatchScope::Deployment) }
}

async fn next(stream: &mut Box<dyn ChangeStream>) -> ChangePage {
    stream.next_events(ALL, Duration::ZERO).await.unwrap()
}

async fn shown(stream: &mut Box<dyn ChangeStream>) -> Vec<String> {
    next(stream).await.events.iter().map(describe).collect()
}

fn describe(event: &RawDocumentBuf) -> String {
    let namespace = event.get_document("ns").unwrap();
    let id = event.get_document("documentKey").ok().and_then(|key| key.get("_id").ok().flatten());
    let id = id.map_or_else(String::new, handfast_mql::text::value);
    let collection = namespace.get_str("coll").unwrap_or("");
    format!("{} {collection} {id}", event.get_str("operationType").unwrap()).trim().to_owned()
}

fn rows(store: &EmbeddedStore) -> usize {
    let view = store.context.latest().view;
    let everything = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    view.range(Keyspace::Changes, everything, Direction::Forward).count()
}

fn state(store: &EmbeddedStore) -> Option<ChangeLogState> {
    ChangeLogState::read(&*store.context.snapshot().view().unwrap()).unwrap()
}

async fn insert(store: &EmbeddedStore, id: i32) {
    store.insert_one(&namespace(), rawdoc! { "_id": id }).await.unwrap();
}

async fn code(store: &EmbeddedStore, start: WatchStart) -> i32 {
    store.watch(everything(start)).await.err().map_or(0, |error| error.code().0)
}

#[tokio::test]
async fn nothing_is_logged_before_the_first_stream_or_while_the_log_is_off() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options::small()).await;
    insert(&store, 1).await;
    assert_eq!((rows(&store), state(&store)), (0, None));
    let maps = || std::fs::read_dir(directory.path().join("engine/keyspaces")).unwrap().count();
    assert_eq!(maps(), 4);
    let mut stream = store.watch(everything(WatchStart::Now)).await.unwrap();
    assert_eq!(maps(), 5);
    insert(&store, 2).await;
    let page = next(&mut stream).await;
    assert_eq!(page.events.len(), 1);
    drop(stream);
    store.close().await.unwrap();
    // It goes on after a restart.
    let store = open(directory.path(), Options::small()).await;
    insert(&store, 3).await;
    let mut stream = store.watch(everything(WatchStart::ResumeAfter(page.resume_token.clone()))).await.unwrap();
    assert_eq!(shown(&mut stream).await, ["insert c 3"]);
    drop(stream);
    store.close().await.unwrap();
    // A program beside the server, with other settings, removes nothing from it.
    let as_it_is = Options { change_log: ChangeLog::AsItIs, change_log_age_max: Duration::ZERO, ..Options::small() };
    let store = open(directory.path(), as_it_is).await;
    let before = (rows(&store), state(&store));
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((rows(&store), state(&store)), before);
    store.close().await.unwrap();
    let off = Options { change_log: ChangeLog::Off, ..Options::small() };
    let store = open(directory.path(), off).await;
    assert_eq!(code(&store, WatchStart::Now).await, 40_573);
    store.trim_change_log().await.unwrap();
    insert(&store, 4).await;
    assert_eq!((rows(&store), state(&store)), (0, None));
    store.close().await.unwrap();
    // Another log is begun, which does not know the tokens of the first.
    let store = open(directory.path(), Options::small()).await;
    assert_eq!(code(&store, WatchStart::ResumeAfter(page.resume_token)).await, 286);
    let mut stream = store.watch(everything(WatchStart::Now)).await.unwrap();
    assert!(shown(&mut stream).await.is_empty());
    drop(stream);
    store.close().await.unwrap();
}

#[tokio::test]
async fn each_kind_of_write_is_an_event_in_commit_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), on()).await;
    let mut stream = store.watch(everything(WatchStart::Now)).await.unwrap();
    let c = namespace();
    store
        .insert(Insert::new(c.clone(), vec![rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2, "a": 1 }]))
        .await
        .unwrap();
    store.update_one(&c, rawdoc! { "_id": 1 }, rawdoc! { "$set": { "a": 2 } }).await.unwrap();
    store.update_one(&c, rawdoc! { "_id": 1 }, rawdoc! { "$set": { "a": 2 } }).await.unwrap();
    store.update_one(&c, rawdoc! { "_id": 2 }, rawdoc! { "b": 1 }).await.unwrap();
    store.update_many(&c, rawdoc! {}, rawdoc! { "$inc": { "n": 1 } }).await.unwrap();
    store.upsert_one(&c, rawdoc! { "_id": 3 }, rawdoc! { "$set": { "a": 1 } }).await.unwrap();
    store.delete_many(&c, rawdoc! { "_id": 1 }).await.unwrap();
    // A refused insert leaves nothing.
    store.insert_one(&c, rawdoc! { "_id": 2 }).await.unwrap_err();
    store.insert_one(&Namespace::new("config", "x").unwrap(), rawdoc! { "_id": 1 }).await.unwrap();
    let shown = shown(&mut stream).await;
    let expected = [
        "insert c 1",
        "insert c 2",
        "update c 1",
        "replace c 2",
        "update c 1",
        "update c 2",
        "insert c 3",
        "delete c 1",
    ];
    assert_eq!(shown, expected);
    assert_eq!(replayed(&store, &c).await, find_all(&store).await);
    let other = Namespace::new("db", "d").unwrap();
    let request = handfast_store::RenameCollection { from: c, to: other.clone(), drop_target: false };
    store.rename_collection(request).await.unwrap();
    assert!(store.drop_collection(&other).await.unwrap());
    insert(&store, 1).await;
    store.drop_database("db").await.unwrap();
    let page = next(&mut stream).await;
    let shown: Vec<_> = page.events.iter().map(describe).collect();
    assert_eq!(shown, ["rename c", "drop d", "insert c 1", "drop c", "dropDatabase"]);
    let times: Vec<_> = page.events.iter().map(|event| event.get_timestamp("clusterTime").unwrap()).collect();
    assert!(times.is_sorted_by_key(|time| (time.time, time.increment)), "{times:?}");
}

#[tokio::test]
async fn the_events_of_a_transaction_come_together_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), on()).await;
    let mut stream = store.watch(everything(WatchStart::Now)).await.unwrap();
    let expanded = Watch { expanded: true, ..everything(WatchStart::Now) };
    let mut expanded = store.watch(expanded).await.unwrap();
    let database = Database::local(store.clone(), Sources::seeded(2));
    let (b, a) = (Namespace::new("db", "b").unwrap(), Namespace::new("db", "a").unwrap());
    let aborted = database.begin().await.unwrap();
    aborted.insert_one(&a, rawdoc! { "_id": 9 }).await.unwrap();
    let transaction = database.begin().await.unwrap();
    transaction.insert_one(&b, rawdoc! { "_id": 2 }).await.unwrap();
    transaction.insert_one(&a, rawdoc! { "_id": 1 }).await.unwrap();
    transaction.insert_one(&b, rawdoc! { "_id": 1 }).await.unwrap();
    transaction.update_one(&b, rawdoc! { "_id": 2 }, rawdoc! { "$set": { "x": 1 } }).await.unwrap();
    insert(&store, 7).await;
    assert_eq!(shown(&mut stream).await, ["insert c 7"]);
    transaction.commit().await.unwrap();
    aborted.abort();
    let change = database.begin().await.unwrap();
    change.update_one(&b, rawdoc! { "_id": 1 }, rawdoc! { "x": 1 }).await.unwrap();
    change.update_one(&b, rawdoc! { "_id": 2 }, rawdoc! { "$set": { "x": 2 } }).await.unwrap();
    change.delete_many(&a, rawdoc! { "_id": 1 }).await.unwrap();
    change.commit().await.unwrap();
    let page = next(&mut stream).await;
    let shown: Vec<_> = page.events.iter().map(describe).collect();
    assert_eq!(shown, ["insert b 2", "insert a 1", "insert b 1", "replace b 1", "update b 2", "delete a 1"]);
    assert_eq!(page.events[0].get_document("fullDocument").unwrap(), rawdoc! { "_id": 2, "x": 1 }.as_ref());
    // The collections that it has created come first.
    let created = next(&mut expanded).await.events;
    let created: Vec<_> = created.iter().map(|event| event.get_str("operationType").unwrap()).collect();
    assert_eq!(created[..7], ["create", "insert", "create", "create", "insert", "insert", "insert"], "c; a and b");
    let of =
        |event: &RawDocumentBuf| (event.get_document("lsid").unwrap().to_owned(), event.get_i64("txnNumber").unwrap());
    assert!(of(&page.events[0]) == of(&page.events[2]) && of(&page.events[0]) != of(&page.events[3]));
}

#[tokio::test]
async fn a_stream_begins_at_a_moment() {
    let directory = tempfile::tempdir().unwrap();
    let (sources, clock) = Sources::manual(1);
    let store = EmbeddedStore::open(directory.path(), sources, on()).await.unwrap();
    let mut all = store.watch(everything(WatchStart::Now)).await.unwrap();
    for id in 0..40 {
        insert(&store, id).await;
        if id % 3 == 0 {
            clock.advance(Duration::from_millis(1500));
            store.insert_one(&Namespace::new("config", "x").unwrap(), rawdoc! {}).await.unwrap();
        }
    }
    let events = next(&mut all).await.events;
    assert_eq!(events.len(), 40);
    for (place, event) in events.iter().enumerate() {
        let start = WatchStart::At(event.get_timestamp("clusterTime").unwrap());
        let mut stream = store.watch(everything(start)).await.unwrap();
        assert_eq!(next(&mut stream).await.events, events[place..], "{place}");
    }
    let later = store.context.sources.cluster_clock.advance();
    let mut stream = store.watch(everything(WatchStart::At(later))).await.unwrap();
    assert!(shown(&mut stream).await.is_empty());
    insert(&store, 100).await;
    assert_eq!(shown(&mut stream).await, ["insert c 100"]);
}

async fn open_manual(path: &std::path::Path, options: Options) -> (EmbeddedStore, Arc<ManualClock>) {
    let (sources, clock) = Sources::manual(1);
    (EmbeddedStore::open(path, sources, options).await.unwrap(), clock)
}

#[tokio::test]
async fn old_changes_are_removed_and_their_tokens_refused() {
    let directory = tempfile::tempdir().unwrap();
    let age = Duration::from_secs(3600);
    let options = Options { change_log_age_max: age, step_documents_max: 2, ..on() };
    let (store, clock) = open_manual(directory.path(), options).await;
    let mut stream = store.watch(everything(WatchStart::Now)).await.unwrap();
    let began = store.context.sources.cluster_clock.now();
    for id in 0..5 {
        insert(&store, id).await;
        clock.advance(Duration::from_secs(600));
    }
    let page = next(&mut stream).await;
    let token = |index: usize| WatchStart::ResumeAfter(page.events[index].get_document("_id").unwrap().to_owned());
    store.trim_change_log().await.unwrap();
    assert_eq!(code(&store, token(0)).await, 0, "nothing is old yet");
    clock.advance(Duration::from_secs(1300));
    store.trim_change_log().await.unwrap();
    // The changes of the moments 0 and 600 are older than an hour.
    assert_eq!(rows(&store), 3);
    assert_eq!((code(&store, token(0)).await, code(&store, token(1)).await), (286, 286));
    assert_eq!(code(&store, WatchStart::At(began)).await, 286);
    let mut resumed = store.watch(everything(token(2))).await.unwrap();
    assert_eq!(shown(&mut resumed).await, ["insert c 3", "insert c 4"]);
    // A stream that is behind learns of it when it reads on; one that has read everything goes on.
    let mut behind = store.watch(everything(token(2))).await.unwrap();
    clock.advance(Duration::from_secs(100_000));
    store.trim_change_log().await.unwrap();
    assert_eq!(rows(&store), 1);
    assert_eq!(code(&store, token(4)).await, 0, "nothing was written after it");
    assert_eq!(behind.next_events(ALL, Duration::ZERO).await.unwrap_err().code().0, 286);
    insert(&store, 9).await;
    assert_eq!(shown(&mut stream).await, ["insert c 9"]);
}

#[tokio::test]
async fn the_log_has_at_most_so_many_bytes_and_whole_commits() {
    let directory = tempfile::tempdir().unwrap();
    let bytes_max = 10_000;
    let (store, _clock) = open_manual(directory.path(), Options { change_log_bytes_max: bytes_max, ..on() }).await;
    let mut stream = store.watch(everything(WatchStart::Now)).await.unwrap();
    let text = "x".repeat(900);
    for commit in 0..20 {
        let documents = (0..3).map(|n| rawdoc! { "_id": commit * 3 + n, "text": text.as_str() }).collect();
        store.insert(Insert::new(namespace(), documents)).await.unwrap();
    }
    store.trim_change_log().await.unwrap();
    let kept = rows(&store);
    assert!(kept.is_multiple_of(3) && (6..=10).contains(&kept), "{kept} records");
    assert_eq!(stream.next_events(ALL, Duration::ZERO).await.unwrap_err().code().0, 286);
    // A commit that is larger than the log may be is kept while it is the newest.
    let token = store.watch(everything(WatchStart::Now)).await.unwrap().next_events(ALL, Duration::ZERO).await.unwrap();
    let documents = (100..130).map(|id| rawdoc! { "_id": id, "text": text.as_str() }).collect();
    store.insert(Insert::new(namespace(), documents)).await.unwrap();
    store.trim_change_log().await.unwrap();
    let mut resumed = store.watch(everything(WatchStart::ResumeAfter(token.resume_token))).await.unwrap();
    assert_eq!(next(&mut resumed).await.events.len(), 30);
    // The size is known again after a restart.
    drop((stream, resumed));
    store.close().await.unwrap();
    let (store, _clock) = open_manual(directory.path(), Options { change_log_bytes_max: bytes_max, ..on() }).await;
    insert(&store, 200).await;
    store.trim_change_log().await.unwrap();
    assert_eq!(rows(&store), 1);
}

#[tokio::test]
async fn a_log_that_nobody_reads_ends() {
    let directory = tempfile::tempdir().unwrap();
    let age = Duration::from_secs(3600);
    let options = Options { change_log_age_max: age, ..Options::small() };
    let (store, clock) = open_manual(directory.path(), options).await;
    let mut stream = store.watch(everything(WatchStart::Now)).await.unwrap();
    insert(&store, 1).await;
    clock.advance(Duration::from_secs(3000));
    let token = next(&mut stream).await.resume_token;
    clock.advance(Duration::from_secs(3000));
    store.trim_change_log().await.unwrap();
    assert!(state(&store).is_some(), "it was read less than an hour ago");
    drop(stream);
    clock.advance(Duration::from_secs(3000));
    store.trim_change_log().await.unwrap();
    assert_eq!((rows(&store), state(&store)), (0, None));
    assert_eq!(code(&store, WatchStart::ResumeAfter(token)).await, 286);
}

#[tokio::test]
async fn a_waiting_stream_is_woken_and_a_copy_has_a_log_of_its_own() {
    let directories = tempfile::tempdir().unwrap();
    let (original, copy) = (directories.path().join("original"), directories.path().join("copy"));
    let store = open(&original, on()).await;
    let mut stream = store.watch(everything(WatchStart::Now)).await.unwrap();
    let (page, ()) = tokio::join!(stream.next_events(ALL, Duration::from_secs(3600)), async {
        tokio::task::yield_now().await;
        insert(&store, 1).await;
    });
    let page = page.unwrap();
    assert_eq!(page.events.len(), 1);
    let token = ResumeToken::read(&page.resume_token).unwrap();
    assert_eq!(token.kind, TokenKind::ReadUpTo);
    store.backup(&copy).await.unwrap();
    let copied = open(&copy, Options::small()).await;
    assert_eq!((rows(&copied), state(&copied)), (0, None));
    assert_eq!(code(&copied, WatchStart::ResumeAfter(page.resume_token)).await, 286);
}

#[tokio::test]
async fn a_missing_map_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), on()).await;
    insert(&store, 1).await;
    store.close().await.unwrap();
    std::fs::remove_dir_all(directory.path().join("engine/keyspaces/4")).unwrap();
    let error = EmbeddedStore::open(directory.path(), Sources::seeded(1), on()).await.unwrap_err();
    assert!(error.to_string().contains("log of changes"), "{error}");
}

/// Opens a store whose log nobody else trims.
fn open_to_damage(path: &std::path::Path) -> (Arc<FaultyEngine>, EmbeddedStore) {
    open_faulty(path, Options { change_log: ChangeLog::AsItIs, step_documents_max: 2, ..Options::small() })
}

/// Puts a value that is none of a record in the place of the first change. The views of the store see it after the next commit.
fn damage_first(engine: &FaultyEngine) {
    let everything = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let first = engine.view().range(Keyspace::Changes, everything, Direction::Forward).nth(1);
    let (key, _) = first.unwrap().unwrap();
    let write = Write { keyspace: Keyspace::Changes, key: key.to_vec(), value: Some(vec![0]) };
    engine.apply(vec![write]).unwrap();
}

#[tokio::test]
async fn a_damaged_log_ends_and_a_damaged_record_of_an_earlier_log_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, store) = open_to_damage(directory.path());
    log_trimming::begin(&store.context).await.unwrap();
    insert(&store, 1).await;
    damage_first(&engine);
    insert(&store, 2).await;
    store.trim_change_log().await.unwrap();
    assert_eq!((rows(&store), state(&store)), (0, None));

    log_trimming::begin(&store.context).await.unwrap();
    for id in 3..7 {
        insert(&store, id).await;
    }
    damage_first(&engine);
    log_trimming::end(&store.context).await.unwrap();
    log_trimming::begin(&store.context).await.unwrap();
    let state_of_next = state(&store);
    insert(&store, 7).await;
    let before = store.costs().operations;
    store.trim_change_log().await.unwrap();
    assert_eq!((rows(&store), state(&store)), (2, state_of_next), "its first record, and the last insert");
    assert!(store.costs().operations - before >= 3, "five records, at most two in an operation");
}

#[tokio::test]
async fn a_log_whose_rows_are_unreadable_ends_and_its_removal_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, store) = open_to_damage(directory.path());
    log_trimming::begin(&store.context).await.unwrap();
    insert(&store, 1).await;
    engine.damage_changes.store(true, Ordering::Relaxed);
    assert!(store.trim_change_log().await.unwrap_err().message().contains("a block"));
    assert_eq!(state(&store), None);
    assert!(store.trim_change_log().await.is_err(), "it ends although the log is off");
    engine.damage_changes.store(false, Ordering::Relaxed);
    store.trim_change_log().await.unwrap();
    assert_eq!(rows(&store), 0);
}

#[tokio::test]
async fn a_trim_that_comes_late_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, clock) = open_manual(directory.path(), on()).await;
    insert(&store, 1).await;
    insert(&store, 2).await;
    let before = state(&store).unwrap();
    clock.advance(Duration::from_secs(10_000_000));
    store.trim_change_log().await.unwrap();
    let trimmed = state(&store).unwrap();
    assert!(trimmed.since > before.since);
    let of_another = ChangeLogState { id: before.id + 1, ..trimmed };
    for late in [Some(before), Some(of_another), None] {
        let trim = move |writer: &mut Writer<'_>| {
            writer.trim_log(Vec::new(), late);
            Ok(())
        };
        store.context.committer.submit(AnswerAfter::Published, 0, trim).await.unwrap();
        assert_eq!(state(&store), Some(trimmed), "{late:?}");
    }
}
