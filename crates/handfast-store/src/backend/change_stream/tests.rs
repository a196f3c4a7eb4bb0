//! Streams over a log in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bson::{DateTime, RawBsonRef, RawDocumentBuf, Timestamp, rawdoc};
use tokio::sync::watch;

use super::difference::update_description;
use super::token::{ChangePosition, LogId, ResumeToken, TokenKind};
use super::{ChangeLog, LogExtent, LogPage, LoggedChange, history_lost, open, record};
use crate::{
    BatchLimit, ChangePage, ChangeStream, CommitTimestamp, FullDocument, Namespace, Result, Sources, Ticket, Watch,
    WatchScope, WatchStart, WriteKind,
};

struct TestLog {
    changes: Mutex<Vec<LoggedChange>>,
    since: CommitTimestamp,
    until: watch::Sender<CommitTimestamp>,
}

fn time(commit: u64) -> Timestamp {
    Timestamp { time: 100, increment: u32::try_from(commit).unwrap() }
}

impl TestLog {
    fn new(since: u64) -> Arc<Self> {
        let since = CommitTimestamp(since);
        Arc::new(TestLog { changes: Mutex::default(), since, until: watch::Sender::new(since) })
    }

    /// Adds a commit with these records.
    fn commit(&self, records: Vec<RawDocumentBuf>) {
        let commit = CommitTimestamp(self.until.borrow().0 + 1);
        for (index, content) in (0..).zip(records) {
            self.changes.lock().unwrap().push(LoggedChange {
                position: ChangePosition { commit, index },
                time: time(commit.0),
                wall_time: DateTime::from_millis(1),
                collection: [7; 16],
                content,
            });
        }
        self.until.send_replace(commit);
    }
}

#[async_trait]
impl ChangeLog for TestLog {
    async fn extent(&self) -> Result<LogExtent> {
        let until = *self.until.borrow();
        Ok(LogExtent { id: LogId(5), since: self.since, since_time: time(self.since.0), until })
    }

    async fn read(&self, after: ChangePosition, limit: BatchLimit) -> Result<LogPage> {
        if after < ChangePosition::end_of(self.since) {
            return Err(history_lost());
        }
        let changes = self.changes.lock().unwrap();
        let later = changes.iter().filter(|change| change.position > after);
        let page: Vec<_> = later.clone().take(limit.documents.clamp(1, 2)).cloned().collect();
        let is_end = page.len() == later.count();
        let end = ChangePosition::end_of(*self.until.borrow()).max(after);
        let until = if is_end { end } else { page.last().unwrap().position };
        Ok(LogPage { changes: page, until, is_end })
    }

    async fn position_at(&self, _: Timestamp) -> Result<ChangePosition> {
        Ok(ChangePosition::end_of(self.since))
    }

    async fn committed_after(&self, commit: CommitTimestamp) {
        self.until.subscribe().wait_for(|until| *until > commit).await.unwrap();
    }

    async fn document(&self, _: &Namespace, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        let mut document = rawdoc! { "found": true };
        document.append(bson::raw::cstr!("_id"), id);
        Ok(Some(document))
    }
}

fn namespace(collection: &str) -> Namespace {
    Namespace::valid("d", collection)
}

fn insert(collection: &str, id: i32) -> RawDocumentBuf {
    let document = rawdoc! { "_id": id };
    let after = Some(document.as_ref());
    let states = record::States { before: None, after, kind: WriteKind::Update, keeps_images: false };
    record::of_document(&namespace(collection), RawBsonRef::Int32(id), states).unwrap()
}

fn update(before: &RawDocumentBuf, after: &RawDocumentBuf, kind: WriteKind) -> RawDocumentBuf {
    let states = record::States { before: Some(before), after: Some(after), kind, keeps_images: false };
    record::of_document(&namespace("c"), before.get("_id").unwrap().unwrap(), states).unwrap()
}

fn collection() -> Watch {
    Watch::new(WatchScope::Collection(namespace("c")))
}

async fn stream(log: &Arc<TestLog>, watch: Watch) -> Result<Box<dyn ChangeStream>> {
    open(log.clone(), &Sources::seeded(1), watch).await
}

const ALL: BatchLimit = BatchLimit { documents: 100, bytes: 1 << 20 };

async fn next(stream: &mut Box<dyn ChangeStream>) -> ChangePage {
    stream.next_events(ALL, Duration::from_millis(1)).await.unwrap()
}

/// Returns the types of events with their keys.
fn shown(page: &ChangePage) -> Vec<String> {
    let shown = |event: &RawDocumentBuf| {
        let id = event.get_document("documentKey").ok().and_then(|key| key.get("_id").ok().flatten());
        let id = id.map_or_else(String::new, handfast_mql::text::value);
        format!("{} {id}", event.get_str("operationType").unwrap()).trim().to_owned()
    };
    page.events.iter().map(shown).collect()
}

fn token(page: &ChangePage, index: usize) -> RawDocumentBuf {
    page.events[index].get_document("_id").unwrap().to_owned()
}

async fn code(log: &Arc<TestLog>, watch: Watch) -> i32 {
    stream(log, watch).await.err().map_or(0, |error| error.code().0)
}

#[test]
fn the_difference_of_two_documents() {
    let check = |before: RawDocumentBuf, after: RawDocumentBuf, expected: Option<RawDocumentBuf>| {
        assert_eq!(update_description(&before, &after), expected, "{before:?} {after:?}");
    };
    let description = |updated: RawDocumentBuf, removed: &[&str], truncated: &[(&str, i32)]| {
        let removed: bson::RawArrayBuf = removed.iter().copied().collect();
        let truncated: bson::RawArrayBuf =
            truncated.iter().map(|(field, size)| rawdoc! { "field": *field, "newSize": *size }).collect();
        Some(rawdoc! { "updatedFields": updated, "removedFields": removed, "truncatedArrays": truncated })
    };
    check(rawdoc! { "a": 1 }, rawdoc! { "a": 2 }, description(rawdoc! { "a": 2 }, &[], &[]));
    check(rawdoc! { "a": 1 }, rawdoc! { "a": 1_i64 }, description(rawdoc! { "a": 1_i64 }, &[], &[]));
    check(rawdoc! { "a": 0.0 }, rawdoc! { "a": -0.0 }, description(rawdoc! { "a": -0.0 }, &[], &[]));
    check(rawdoc! { "a": f64::NAN }, rawdoc! { "a": f64::NAN }, None);
    check(
        rawdoc! { "a": 1, "b": { "c": 1, "d": 2 }, "e": [1, 2, 3], "f": 0 },
        rawdoc! { "a": 2, "b": { "c": 1 }, "e": [1, 5], "g": 9 },
        description(rawdoc! { "a": 2, "e.1": 5, "g": 9 }, &["b.d", "f"], &[("e", 2)]),
    );
    check(rawdoc! { "a": [1] }, rawdoc! { "a": [1, { "x": 1 }] }, description(rawdoc! { "a.1": { "x": 1 } }, &[], &[]));
    check(
        rawdoc! { "a": [{ "x": 1, "y": 1 }, 2] },
        rawdoc! { "a": [{ "x": 2 }, 2] },
        description(rawdoc! { "a.0.x": 2 }, &["a.0.y"], &[]),
    );
    check(rawdoc! { "a": [] }, rawdoc! { "a": {} }, description(rawdoc! { "a": {} }, &[], &[]));
    // The order of fields: of a subdocument it is a change of the whole, of the document it is a replacement.
    let reordered = description(rawdoc! { "a": { "y": 1, "x": 1 } }, &[], &[]);
    check(rawdoc! { "a": { "x": 1, "y": 1 } }, rawdoc! { "a": { "y": 1, "x": 1 } }, reordered);
    check(rawdoc! { "x": 1, "y": 1 }, rawdoc! { "y": 1, "x": 1 }, None);
    check(rawdoc! { "x": 1, "y": 1, "z": 1 }, rawdoc! { "y": 2, "x": 1 }, None);
    check(rawdoc! { "x": 1, "z": 1 }, rawdoc! { "x": 2, "y": 1, "z": 1 }, None);
    let moved = rawdoc! { "e": { "b": 1, "a": 1, "c": 5 } };
    check(rawdoc! { "e": { "a": 1, "b": 1, "c": 1 } }, moved.clone(), description(moved, &[], &[]));
    let inserted = rawdoc! { "e": [{ "a": 1, "b": 1, "c": 1 }] };
    let expected = description(rawdoc! { "e.0": { "a": 1, "b": 1, "c": 1 } }, &[], &[]);
    check(rawdoc! { "e": [{ "a": 1, "c": 1 }] }, inserted, expected);
}

#[test]
fn tokens_sort_in_the_order_of_the_log() {
    let token = |commit, index, kind| {
        let position = ChangePosition { commit: CommitTimestamp(commit), index };
        ResumeToken { position, kind, log: LogId(u64::MAX - 3) }
    };
    let in_order = [
        token(1, 0, TokenKind::Event),
        token(1, 0, TokenKind::Invalidation),
        token(1, 1, TokenKind::Event),
        token(1, 300, TokenKind::Event),
        token(1, u32::MAX, TokenKind::ReadUpTo),
        token(2, 0, TokenKind::Event),
        token(256, 0, TokenKind::Event),
    ];
    for pair in in_order.windows(2) {
        assert!(pair[0].to_text() < pair[1].to_text(), "{pair:?}");
    }
    for token in in_order {
        assert_eq!(ResumeToken::read(&token.to_document()).unwrap(), token);
    }
    let code = |document: RawDocumentBuf| ResumeToken::read(&document).unwrap_err().code().0;
    assert_eq!(code(rawdoc! {}), 40_647);
    assert_eq!(code(rawdoc! { "_data": 1 }), 40_647);
    assert_eq!(code(rawdoc! { "_data": "xyz" }), 9);
    assert_eq!(code(rawdoc! { "_data": "ABC" }), 9);
    assert_eq!(code(rawdoc! { "_data": "8200" }), 260);
}

#[tokio::test]
async fn a_stream_shows_the_changes_of_its_scope_from_its_opening_on() {
    let log = TestLog::new(10);
    log.commit(vec![insert("c", 0)]);
    let mut of_collection = stream(&log, collection()).await.unwrap();
    let mut of_database = stream(&log, Watch::new(WatchScope::Database("d".to_owned()))).await.unwrap();
    let mut of_other = stream(&log, Watch::new(WatchScope::Database("e".to_owned()))).await.unwrap();
    log.commit(vec![insert("c", 1), insert("x", 2), insert("c", 3)]);
    let (before, after) = (rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 1, "a": 2 });
    log.commit(vec![update(&before, &after, WriteKind::Update), update(&before, &after, WriteKind::Replacement)]);
    let page = next(&mut of_collection).await;
    assert_eq!(shown(&page), ["insert 1", "insert 3", "update 1", "replace 1"]);
    assert_eq!(page.events[0].get_document("fullDocument").unwrap(), rawdoc! { "_id": 1 }.as_ref());
    assert_eq!(page.events[0].get_document("ns").unwrap(), rawdoc! { "db": "d", "coll": "c" }.as_ref());
    assert_eq!(page.events[0].get_timestamp("clusterTime").unwrap(), time(12));
    let description = rawdoc! { "updatedFields": { "a": 2 }, "removedFields": [], "truncatedArrays": [] };
    assert_eq!(page.events[2].get_document("updateDescription").unwrap(), description.as_ref());
    assert!(page.events[2].get("fullDocument").unwrap().is_none());
    assert_eq!(page.events[3].get_document("fullDocument").unwrap(), after.as_ref());
    assert_eq!(shown(&next(&mut of_database).await), ["insert 1", "insert 2", "insert 3", "update 1", "replace 1"]);
    let page = next(&mut of_other).await;
    assert!(page.events.is_empty() && !page.is_ended);
    // The token is behind all that was read.
    let read = ResumeToken::read(&page.resume_token).unwrap();
    assert_eq!((read.position, read.kind), (ChangePosition::end_of(CommitTimestamp(13)), TokenKind::ReadUpTo));
}

#[tokio::test]
async fn a_consumer_that_resumes_after_any_token_sees_each_later_event_once() {
    let log = TestLog::new(0);
    for commit in 0..5 {
        log.commit((0..3).map(|id| insert(if id == 1 { "x" } else { "c" }, commit * 3 + id)).collect());
    }
    let at = |start| Watch { start, ..collection() };
    let everything = at(WatchStart::At(time(1)));
    let mut events = Vec::new();
    let mut tokens = Vec::new();
    let mut all = stream(&log, everything).await.unwrap();
    while events.len() < 10 {
        let page = all.next_events(BatchLimit { documents: 1, ..ALL }, Duration::ZERO).await.unwrap();
        events.extend(shown(&page));
        if !page.events.is_empty() {
            tokens.push(token(&page, 0));
            tokens.push(page.resume_token);
        }
    }
    for (place, token) in tokens.into_iter().enumerate() {
        for start in [WatchStart::ResumeAfter(token.clone()), WatchStart::StartAfter(token)] {
            let mut resumed = stream(&log, at(start)).await.unwrap();
            let mut rest = Vec::new();
            while rest.len() < 10 - place / 2 - 1 {
                rest.extend(shown(&next(&mut resumed).await));
            }
            assert_eq!(rest, events[place / 2 + 1..], "after token {place}");
            assert!(next(&mut resumed).await.events.is_empty());
        }
    }
}

#[tokio::test]
async fn a_stream_that_waits_is_woken_by_a_commit() {
    let log = TestLog::new(0);
    let mut waiting = stream(&log, collection()).await.unwrap();
    let (page, ()) = tokio::join!(waiting.next_events(ALL, Duration::from_secs(3600)), async {
        tokio::task::yield_now().await;
        log.commit(vec![insert("x", 1)]);
        tokio::task::yield_now().await;
        log.commit(vec![insert("c", 2)]);
    });
    assert_eq!(shown(&page.unwrap()), ["insert 2"]);
}

#[tokio::test]
async fn a_drop_ends_the_stream_of_a_collection() {
    let log = TestLog::new(0);
    let mut dropped = stream(&log, collection()).await.unwrap();
    let mut of_database = stream(&log, Watch::new(WatchScope::Database("d".to_owned()))).await.unwrap();
    log.commit(vec![insert("c", 1), record::of_drop(&namespace("c")), record::of_drop_database("d")]);
    log.commit(vec![insert("c", 2)]);
    let page = next(&mut dropped).await;
    assert_eq!(shown(&page), ["insert 1", "drop", "invalidate"]);
    assert!(page.is_ended);
    assert_eq!(page.resume_token, token(&page, 2));
    let at = |start| Watch { start, ..collection() };
    // The invalidation follows the drop again, and nothing follows the invalidation but for a new stream.
    let mut again = stream(&log, at(WatchStart::ResumeAfter(token(&page, 1)))).await.unwrap();
    assert_eq!(shown(&next(&mut again).await), ["invalidate"]);
    assert_eq!(code(&log, at(WatchStart::ResumeAfter(token(&page, 2)))).await, 260);
    let mut after = stream(&log, at(WatchStart::StartAfter(token(&page, 2)))).await.unwrap();
    assert_eq!(shown(&next(&mut after).await), ["insert 2"]);
    let mut pages = Vec::new();
    while pages.len() < 4 {
        pages.extend(shown(&next(&mut of_database).await));
    }
    assert_eq!(pages, ["insert 1", "drop", "dropDatabase", "invalidate"]);
}

#[tokio::test]
async fn a_renamed_collection_ends_the_streams_of_both_names() {
    for name in ["c", "new"] {
        let log = TestLog::new(0);
        let mut stream = stream(&log, Watch::new(WatchScope::Collection(namespace(name)))).await.unwrap();
        log.commit(vec![record::of_rename(&namespace("c"), &namespace("new"), None)]);
        let page = next(&mut stream).await;
        assert_eq!(shown(&page), ["rename", "invalidate"]);
        assert_eq!(page.events[0].get_document("to").unwrap(), rawdoc! { "db": "d", "coll": "new" }.as_ref());
    }
}

#[tokio::test]
async fn stages_run_on_events_and_must_leave_their_tokens() {
    let log = TestLog::new(0);
    let with = |stages: Vec<RawDocumentBuf>| Watch { pipeline: stages, ..collection() };
    let of_two = rawdoc! { "$match": { "fullDocument._id": 2 } };
    let project = rawdoc! { "$project": { "operationType": 1, "documentKey": 1 } };
    let mut filtered = stream(&log, with(vec![of_two, project])).await.unwrap();
    let mut broken = stream(&log, with(vec![rawdoc! { "$project": { "_id": 0 } }])).await.unwrap();
    log.commit(vec![insert("c", 1), insert("c", 2)]);
    let page = next(&mut filtered).await;
    assert_eq!(shown(&page), ["insert 2"]);
    assert_eq!(page.events[0].iter().count(), 3);
    assert_eq!(broken.next_events(ALL, Duration::ZERO).await.unwrap_err().code().0, 280);
    assert_eq!(code(&log, with(vec![rawdoc! { "$group": { "_id": null } }])).await, 20);
    assert_eq!(code(&log, with(vec![rawdoc! { "$nonsense": {} }])).await, 40_324);
    assert_eq!(code(&log, with(vec![rawdoc! { "$changeStream": {} }])).await, 40_602);
}

#[tokio::test]
async fn tokens_that_the_log_does_not_have_are_refused() {
    let log = TestLog::new(10);
    log.commit(vec![insert("c", 1)]);
    let of = |commit, index, kind, log| {
        let position = ChangePosition { commit: CommitTimestamp(commit), index };
        let token = ResumeToken { position, kind, log: LogId(log) }.to_document();
        Watch { start: WatchStart::ResumeAfter(token), ..collection() }
    };
    for (watch, expected) in [
        (of(11, 0, TokenKind::Event, 5), 0),
        (of(10, u32::MAX, TokenKind::ReadUpTo, 5), 0),
        (of(10, 0, TokenKind::Event, 5), 286),
        (of(9, u32::MAX, TokenKind::ReadUpTo, 5), 286),
        (of(11, 0, TokenKind::Event, 6), 286),
        (of(11, 1, TokenKind::Event, 5), 280),
        (of(12, 0, TokenKind::Event, 5), 280),
        (Watch { start: WatchStart::At(time(9)), ..collection() }, 286),
        (Watch { start: WatchStart::At(time(10)), ..collection() }, 0),
    ] {
        let start = watch.start.clone();
        assert_eq!(code(&log, watch).await, expected, "{start:?}");
    }
}

#[tokio::test]
async fn events_of_updates_have_the_document_as_asked_for() {
    let log = TestLog::new(0);
    let with = |full_document| Watch { full_document, ..collection() };
    let mut lookup = stream(&log, with(FullDocument::UpdateLookup)).await.unwrap();
    let mut available = stream(&log, with(FullDocument::WhenAvailable)).await.unwrap();
    let mut required = stream(&log, with(FullDocument::Required)).await.unwrap();
    log.commit(vec![update(&rawdoc! { "_id": 1, "a": 1 }, &rawdoc! { "_id": 1 }, WriteKind::Update)]);
    let found = rawdoc! { "found": true, "_id": 1 };
    assert_eq!(next(&mut lookup).await.events[0].get_document("fullDocument").unwrap(), found.as_ref());
    assert_eq!(next(&mut available).await.events[0].get("fullDocument").unwrap(), Some(RawBsonRef::Null));
    assert_eq!(required.next_events(ALL, Duration::ZERO).await.unwrap_err().code().0, 47);
}

#[tokio::test]
async fn the_events_of_a_transaction_name_it() {
    let log = TestLog::new(0);
    let mut stream = stream(&log, collection()).await.unwrap();
    let mut record = insert("c", 1);
    let ticket = Ticket { session: [9; 16], number: 4, statement: 0, requested: Default::default() };
    record::add_transaction(&mut record, ticket);
    log.commit(vec![record]);
    let event = next(&mut stream).await.events.remove(0);
    assert_eq!(event.get_i64("txnNumber").unwrap(), 4);
    assert_eq!(event.get_document("lsid").unwrap().get_binary("id").unwrap().bytes, [9; 16]);
}

#[tokio::test]
async fn changes_of_the_catalog_are_shown_when_asked_for() {
    let log = TestLog::new(0);
    let mut plain = stream(&log, collection()).await.unwrap();
    let mut expanded = stream(&log, Watch { expanded: true, ..collection() }).await.unwrap();
    log.commit(vec![record::of_create(&namespace("c")), insert("c", 1)]);
    assert_eq!(shown(&next(&mut plain).await), ["insert 1"]);
    let page = next(&mut expanded).await;
    assert_eq!(shown(&page), ["create", "insert 1"]);
    assert!(page.events[0].get_document("operationDescription").is_ok());
    assert_eq!(page.events[1].get_binary("collectionUUID").unwrap().bytes, [7; 16]);
}

/// Each part of a description has its whole path, so that a description could be larger than the document many times over.
#[test]
fn a_description_is_no_larger_than_the_document() {
    let name = "n".repeat(100_000);
    let mut many = RawDocumentBuf::new();
    for field in 0..2_000 {
        many.append(bson::raw::CString::try_from(format!("f{field}")).unwrap(), 1);
    }
    let at = |value: RawDocumentBuf| {
        let mut document = rawdoc! { "_id": 1 };
        document.append(bson::raw::CString::try_from(name.clone()).unwrap(), value);
        document
    };
    let description = update_description(&at(many), &at(rawdoc! { "x": 1 })).unwrap();
    assert!(description.as_bytes().len() < 2 * name.len(), "{} bytes", description.as_bytes().len());
    let updated = description.get_document("updatedFields").unwrap();
    assert_eq!(updated.get_document(name.as_str()).unwrap(), &*rawdoc! { "x": 1 }, "the whole field");
    // All elements of an array move by one place.
    let array = |from: i32| rawdoc! { "_id": 1, "list": (from..from + 100_000).collect::<bson::RawArrayBuf>() };
    let description = update_description(&array(0), &array(1)).unwrap();
    assert!(description.as_bytes().len() < array(0).as_bytes().len() + 200);
    // Many fields with long names: not even the document is described by less than itself.
    let (mut before, mut after) = (rawdoc! { "_id": 1 }, rawdoc! { "_id": 1 });
    for field in 0..10 {
        before.append(bson::raw::CString::try_from(format!("{name}{field}")).unwrap(), 1);
    }
    after.append(bson::raw::cstr!("a"), 1);
    assert!(update_description(&before, &after).is_none(), "it is shown as a replacement");
}

/// A log that never ends, of another collection.
struct EndlessLog;

#[async_trait]
impl ChangeLog for EndlessLog {
    async fn extent(&self) -> Result<LogExtent> {
        Ok(LogExtent { id: LogId(5), since: CommitTimestamp(0), since_time: time(0), until: CommitTimestamp(0) })
    }

    async fn read(&self, after: ChangePosition, _: BatchLimit) -> Result<LogPage> {
        let position = ChangePosition::end_of(CommitTimestamp(after.commit.0 + 1));
        Ok(LogPage { changes: Vec::new(), until: position, is_end: false })
    }

    async fn position_at(&self, _: Timestamp) -> Result<ChangePosition> {
        Ok(ChangePosition::end_of(CommitTimestamp(0)))
    }

    async fn committed_after(&self, _: CommitTimestamp) {}

    async fn document(&self, _: &Namespace, _: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
        Ok(None)
    }
}

#[tokio::test]
async fn a_stream_answers_in_time_where_it_has_much_to_read() {
    let mut stream = open(Arc::new(EndlessLog), &Sources::seeded(1), collection()).await.unwrap();
    let next = stream.next_events(ALL, Duration::from_millis(20));
    let page = tokio::time::timeout(Duration::from_secs(60), next).await.expect("an answer in time").unwrap();
    assert!(page.events.is_empty());
}

#[tokio::test]
async fn an_empty_first_batch_after_a_drop_does_not_hide_the_end() {
    let log = TestLog::new(3);
    let mut first = stream(&log, collection()).await.unwrap();
    log.commit(vec![record::of_drop(&namespace("c"))]);
    let one = BatchLimit { documents: 1, ..ALL };
    let dropped = first.next_events(one, Duration::from_millis(1)).await.unwrap();
    assert_eq!(shown(&dropped), ["drop"]);
    let mut resumed = dropped.resume_token;
    for _ in 0..2 {
        let watch = Watch { start: WatchStart::ResumeAfter(resumed.clone()), ..collection() };
        let none = BatchLimit { documents: 0, ..ALL };
        resumed = stream(&log, watch).await.unwrap().next_events(none, Duration::ZERO).await.unwrap().resume_token;
    }
    let watch = Watch { start: WatchStart::ResumeAfter(resumed), ..collection() };
    assert_eq!(shown(&next(&mut stream(&log, watch).await.unwrap()).await), ["invalidate"]);
}
