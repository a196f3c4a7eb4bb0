use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bson::{RawDocumentBuf, Timestamp, rawdoc};
use handfast_store::decorator::DelegatingStore;
use handfast_store::{
    BatchLimit, ChangePage, ChangeStream, MemoryStore, Result, Sources, Watch, WatchScope, WatchStart,
};

use crate::options::{Options, Topology};
use crate::testing::TestServer;

/// A store whose streams return the events that a test has put into it.
struct Streaming {
    store: MemoryStore,
    opened: Mutex<Vec<Watch>>,
    events: Arc<Events>,
}

#[derive(Default)]
struct Events {
    ready: Mutex<VecDeque<i32>>,
    more: tokio::sync::Notify,
}

impl Streaming {
    fn new() -> Arc<Self> {
        let store = MemoryStore::new(Sources::seeded(1));
        Arc::new(Streaming { store, opened: Mutex::default(), events: Arc::default() })
    }

    fn add(&self, event: i32) {
        self.events.ready.lock().unwrap().push_back(event);
        self.events.more.notify_waiters();
    }

    fn last(&self) -> Watch {
        self.opened.lock().unwrap().pop().unwrap()
    }
}

#[async_trait]
impl DelegatingStore for Streaming {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.store
    }

    async fn watch(&self, request: Watch) -> Result<Box<dyn ChangeStream>> {
        self.opened.lock().unwrap().push(request);
        Ok(Box::new(TestStream(Arc::clone(&self.events))))
    }
}

struct TestStream(Arc<Events>);

fn token(number: i32) -> RawDocumentBuf {
    rawdoc! { "_data": number.to_string() }
}

#[async_trait]
impl ChangeStream for TestStream {
    async fn next_events(&mut self, limit: BatchLimit, wait: Duration) -> Result<ChangePage> {
        let more = self.0.more.notified();
        if limit.documents > 0 && self.0.ready.lock().unwrap().is_empty() {
            let _ = tokio::time::timeout(wait, more).await;
        }
        let mut ready = self.0.ready.lock().unwrap();
        let count = ready.len().min(limit.documents);
        let numbers: Vec<i32> = ready.drain(..count).collect();
        let last = numbers.last().copied().unwrap_or(0);
        let events = numbers.into_iter().map(|number| rawdoc! { "_id": token(number) }).collect();
        Ok(ChangePage { events, resume_token: token(last), is_ended: last < 0 })
    }
}

fn open(options: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": options }], "cursor": {} }
}

#[tokio::test]
async fn options_become_a_request() {
    let store = Streaming::new();
    let mut server = TestServer::new(store.clone(), Options::default());
    let mut client = server.connect();
    let time = Timestamp { time: 7, increment: 2 };
    client.run("d", open(rawdoc! { "startAtOperationTime": time, "fullDocument": "updateLookup" })).await;
    assert_eq!(store.last().start, WatchStart::At(time));
    client.run("d", open(rawdoc! { "resumeAfter": { "_data": "82" } })).await;
    assert_eq!(store.last().start, WatchStart::ResumeAfter(rawdoc! { "_data": "82" }));
    let all = rawdoc! { "$changeStream": { "allChangesForCluster": true, "showExpandedEvents": true } };
    let reply = client.run("admin", rawdoc! { "aggregate": 1, "pipeline": [all], "cursor": {} }).await;
    assert_eq!(reply.get_document("cursor").unwrap().get_str("ns").unwrap(), "admin.$cmd.aggregate");
    let last = store.last();
    assert!(last.expanded && last.scope == WatchScope::Deployment);
    let stages = rawdoc! { "aggregate": 1, "pipeline": [{ "$changeStream": {} }, { "$match": {} }], "cursor": {} };
    client.run("d", stages).await;
    let last = store.last();
    assert_eq!((last.scope, last.pipeline.len()), (WatchScope::Database("d".to_owned()), 1));
}

#[tokio::test]
async fn wrong_requests_get_the_codes_of_mongodb() {
    let mut server = TestServer::new(Streaming::new(), Options::default());
    let mut client = server.connect();
    let time = Timestamp { time: 7, increment: 2 };
    for (options, code) in [
        (rawdoc! { "nonsense": 1 }, 40_415),
        (rawdoc! { "fullDocument": "all" }, 2),
        (rawdoc! { "fullDocumentBeforeChange": "on" }, 2),
        (rawdoc! { "resumeAfter": 1 }, 14),
        (rawdoc! { "startAtOperationTime": 1 }, 14),
        (rawdoc! { "resumeAfter": { "_data": "" }, "startAfter": { "_data": "" } }, 50_865),
        (rawdoc! { "resumeAfter": { "_data": "" }, "startAtOperationTime": time }, 40_674),
        (rawdoc! { "allChangesForCluster": true }, 72),
        (rawdoc! { "showSystemEvents": true }, 238),
    ] {
        let refused = client.refused("d", open(options.clone())).await;
        assert_eq!(refused.0, code, "{options:?}: {refused:?}");
    }
    assert_eq!(client.refused("admin", open(rawdoc! {})).await.0, 73);
    let system = rawdoc! { "aggregate": "system.x", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
    assert_eq!(client.refused("d", system).await.0, 73);
    let later = rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, { "$changeStream": {} }], "cursor": {} };
    assert_eq!(client.refused("d", later).await.0, 40_602);
    let mut local = open(rawdoc! {});
    local.append(bson::raw::cstr!("readConcern"), rawdoc! { "level": "local" });
    assert_eq!(client.refused("d", local).await.0, 72);
    let standalone = Options { topology: Topology::Standalone, ..Options::default() };
    let mut server = TestServer::new(Streaming::new(), standalone);
    assert_eq!(server.connect().refused("d", open(rawdoc! {})).await.0, 40_573);
    // A store without a log.
    let mut server = TestServer::transactional();
    let (code, _, text) = server.connect().refused("d", open(rawdoc! {})).await;
    assert!(code == 40_573 && text.contains("--data"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_getmore_waits_for_an_event_and_each_reply_has_a_token() {
    let store = Streaming::new();
    let mut server = TestServer::new(store.clone(), Options::default());
    let mut client = server.connect();
    store.add(1);
    let reply = client.run("d", open(rawdoc! {})).await;
    let cursor = reply.get_document("cursor").unwrap();
    let id = cursor.get_i64("id").unwrap();
    assert_eq!(cursor.get_document("postBatchResumeToken").unwrap(), token(1).as_ref());
    assert_eq!(cursor.get_array("firstBatch").unwrap().into_iter().count(), 1);
    let more = |time: i32| rawdoc! { "getMore": id, "collection": "c", "maxTimeMS": time };
    let began = tokio::time::Instant::from_std(std::time::Instant::from(tokio::time::sleep(Duration::ZERO).deadline()));
    let reply = client.run("d", more(5000)).await;
    let waited = tokio::time::sleep(Duration::ZERO).deadline().duration_since(began);
    assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(6), "{waited:?}");
    assert_eq!(reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap().into_iter().count(), 0);
    let (reply, ()) = tokio::join!(client.run("d", more(3_600_000)), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.add(2);
    });
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_document("postBatchResumeToken").unwrap(), token(2).as_ref());
    // The last event closes the cursor.
    store.add(-1);
    let reply = client.run("d", more(1)).await;
    assert_eq!(reply.get_document("cursor").unwrap().get_i64("id").unwrap(), 0);
    assert_eq!(client.refused("d", more(1)).await.0, 43);
}

#[tokio::test(start_paused = true)]
async fn a_getmore_that_waits_ends_with_its_cursor_and_with_the_server() {
    let mut server = TestServer::new(Streaming::new(), Options::default());
    let (mut client, mut other) = (server.connect(), server.connect());
    let id = client.run("d", open(rawdoc! {})).await.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = |id: i64| rawdoc! { "getMore": id, "collection": "c", "maxTimeMS": 3_600_000 };
    let (refused, _) = tokio::join!(client.refused("d", more(id)), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.run("d", rawdoc! { "killCursors": "c", "cursors": [id] }).await
    });
    assert_eq!(refused.0, 237);
    let id = client.run("d", open(rawdoc! {})).await.get_document("cursor").unwrap().get_i64("id").unwrap();
    client.send(handfast_wire::Flags::default(), "d", more(id), &[]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.shared.shut_down();
    let (.., reply) = client.receive_all().await.unwrap();
    assert_eq!(reply.get_i32("code").unwrap(), 11_600);
    let labels: Vec<_> = reply.get_array("errorLabels").unwrap().into_iter().flatten().collect();
    assert_eq!(labels, [bson::RawBsonRef::String("ResumableChangeStreamError")]);
}

#[tokio::test]
async fn an_error_of_a_getmore_says_whether_the_stream_can_be_resumed() {
    let options = Options { test_commands: true, ..Options::default() };
    let mut server = TestServer::new(Streaming::new(), options);
    let mut client = server.connect();
    for (code, label) in [(91, "ResumableChangeStreamError"), (280, "NonResumableChangeStreamError")] {
        let id = client.run("d", open(rawdoc! {})).await.get_document("cursor").unwrap().get_i64("id").unwrap();
        let point = rawdoc! {
            "configureFailPoint": "failGetMoreAfterCursorCheckout", "mode": { "times": 1 }, "data": { "errorCode": code },
        };
        client.run("admin", point).await;
        client.send(handfast_wire::Flags::default(), "d", rawdoc! { "getMore": id, "collection": "c" }, &[]).await;
        let (.., reply) = client.receive_all().await.unwrap();
        assert_eq!(reply.get_i32("code").unwrap(), code);
        let labels: Vec<_> = reply.get_array("errorLabels").unwrap().into_iter().flatten().collect();
        assert_eq!(labels, [bson::RawBsonRef::String(label)]);
        assert_eq!(client.refused("d", rawdoc! { "getMore": id, "collection": "c" }).await.0, 43);
    }
}

#[tokio::test]
async fn only_a_change_stream_has_a_waiting_time() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    crate::testing::insert(&mut client, "c", &crate::testing::numbered(10)).await;
    let id = crate::testing::cursor_id(&client.run("d", rawdoc! { "find": "c", "batchSize": 1 }).await);
    let more = rawdoc! { "getMore": id, "collection": "c", "maxTimeMS": 10 };
    assert_eq!(client.refused("d", more).await.0, 2);
    client.run("d", rawdoc! { "getMore": id, "collection": "c" }).await;
}
