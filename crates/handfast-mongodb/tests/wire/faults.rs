//! Lost requests and lost replies: the error, the effect on the server, and that nothing was sent twice.

use bson::{RawDocumentBuf, rawdoc};
use handfast_mongodb::{ConnectOptions, Connection, run_admin_command};
use handfast_server::Topology;
use handfast_store::{
    Applied, BatchLimit, Delete, DeleteStatement, DocumentStore, ErrorClass, Find, FindAndModify, Insert, Modification,
    Namespace, Result, ReturnDocument, StoreExt, Update, UpdateSpec, UpdateStatement,
};

use crate::support::{Proxy, ProxyAction, TestServer, connected, name_of};

fn c() -> Namespace {
    Namespace::new("d", "c").expect("valid")
}

fn increment() -> UpdateSpec {
    UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } })
}

/// Sends a write, by the name of its command.
async fn write(store: &dyn DocumentStore, name: &str) -> Result<()> {
    match name {
        "insert" => store.insert(Insert::new(c(), vec![rawdoc! { "_id": "new" }])).await.map(drop),
        "update" => {
            let statement = UpdateStatement::one(rawdoc! { "_id": 1 }, increment());
            store.update(Update::new(c(), vec![statement])).await.map(drop)
        }
        "delete" => {
            let statement = DeleteStatement { filter: rawdoc! { "_id": 1 }, multi: false, hint: None };
            store.delete(Delete::new(c(), vec![statement])).await.map(drop)
        }
        "findAndModify" => {
            let modification = Modification::Update {
                update: increment(),
                upsert: false,
                returns: ReturnDocument::After,
                array_filters: vec![],
            };
            let request = FindAndModify::new(c(), rawdoc! { "_id": 1 }, modification);
            store.find_and_modify(request).await.map(drop)
        }
        "drop" => store.drop_collection(&c()).await.map(drop),
        other => panic!("{other} is none of the writes"),
    }
}

async fn all(connection: &Connection) -> Vec<RawDocumentBuf> {
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(c(), rawdoc! {}) };
    connection.store.find_all(find).await.expect("a find")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_write_is_in_doubt_and_was_sent_once() {
    for name in ["insert", "update", "delete", "findAndModify", "drop"] {
        for (act, is_done) in [(ProxyAction::LoseRequest, false), (ProxyAction::LoseReply, true)] {
            let server = TestServer::start(Topology::Standalone).await;
            let proxy = Proxy::before(&server).await;
            let connection = connected(&proxy.uri(), ConnectOptions::default()).await;
            connection.store.insert_one(&c(), rawdoc! { "_id": 1, "n": 0 }).await.expect("an insert");
            let before = all(&connection).await;
            let count = proxy.once(name, act.clone());
            let error = write(&*connection.store, name).await.expect_err("lost");
            let reported = (error.class(), error.applied());
            assert_eq!(reported, (ErrorClass::TransientNetwork, Applied::Maybe), "{name} {act:?}: {error:?}");
            assert_eq!(*count.lock().expect("not poisoned"), 1, "{name} {act:?}");
            assert_eq!(all(&connection).await != before, is_done, "{name} {act:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_read_changes_nothing() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    let connection = connected(&proxy.uri(), ConnectOptions::default()).await;
    connection.store.insert_one(&c(), rawdoc! { "_id": 1 }).await.expect("an insert");
    for act in [ProxyAction::LoseRequest, ProxyAction::LoseReply] {
        let count = proxy.once("find", act);
        let error = connection.store.find_one(&c(), rawdoc! {}).await.expect_err("lost");
        assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, Applied::No), "{error:?}");
        assert_eq!(*count.lock().expect("not poisoned"), 1);
        assert_eq!(all(&connection).await.len(), 1);
    }
}

/// The cursor returns the documents before the error first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_that_breaks_gives_what_it_has_first() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    let connection = connected(&proxy.uri(), ConnectOptions::default()).await;
    let documents: Vec<_> = (0..300).map(|n| rawdoc! { "_id": n }).collect();
    connection.store.insert(Insert::new(c(), documents)).await.expect("an insert");
    proxy.once("getMore", ProxyAction::LoseReply);
    let mut cursor = connection.store.find(Find::new(c(), rawdoc! {})).await.expect("a cursor");
    let page = cursor.next_page(BatchLimit::REPLY).await.expect("the first batch");
    assert!(!page.documents.is_empty() && page.documents.len() < 300 && !page.exhausted, "{}", page.documents.len());
    let error = cursor.next_page(BatchLimit::REPLY).await.expect_err("lost");
    assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, Applied::No));
    assert!(cursor.next_page(BatchLimit::REPLY).await.expect("the end").exhausted);
}

/// A request that is too large for one command takes several, of which some were applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_several_commands_that_breaks_in_the_middle_is_in_doubt() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    let connection = connected(&proxy.uri(), ConnectOptions::default()).await;
    let mut inserts = 0;
    proxy.play(move |command| {
        if name_of(command) != "insert" {
            return ProxyAction::Pass;
        }
        inserts += 1;
        let not_primary = rawdoc! { "ok": 0, "code": 10107, "codeName": "NotWritablePrimary", "errmsg": "not primary" };
        if inserts == 2 { ProxyAction::Answer(not_primary) } else { ProxyAction::Pass }
    });
    let megabyte = "x".repeat(1024 * 1024);
    let documents: Vec<_> = (0..20).map(|n| rawdoc! { "_id": n, "a": megabyte.as_str() }).collect();
    let error = connection.store.insert(Insert::new(c(), documents)).await.expect_err("refused in the middle");
    assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, Applied::Maybe));
    let kept = connection.store.count_matching(&c(), rawdoc! {}).await.expect("a count");
    assert!(kept > 0 && kept < 20, "{kept} of 20");
    // A request of one command would certainly not have been applied.
    proxy.once(
        "insert",
        ProxyAction::Answer(
            rawdoc! { "ok": 0, "code": 10107, "codeName": "NotWritablePrimary", "errmsg": "not primary" },
        ),
    );
    let error = connection.store.insert_one(&c(), rawdoc! { "_id": "one" }).await.expect_err("refused");
    assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, Applied::No));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_sent_once_and_a_lost_answer_leaves_it_open() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    let reply = run_admin_command(&proxy.uri(), rawdoc! { "ping": 1 }).await.expect("an answer");
    assert_eq!(reply.get_f64("ok").ok(), Some(1.0));
    let refused = run_admin_command(&proxy.uri(), rawdoc! { "noSuchCommand": 1 }).await.expect_err("no such command");
    assert_eq!((refused.code(), refused.applied()), (handfast_mql::Code::CommandNotFound, Applied::No), "{refused:?}");
    let count = proxy.once("ping", ProxyAction::LoseReply);
    let lost = run_admin_command(&proxy.uri(), rawdoc! { "ping": 1 }).await.expect_err("a lost answer");
    assert_eq!((lost.class(), lost.applied()), (ErrorClass::TransientNetwork, Applied::Maybe), "{lost:?}");
    assert_eq!(*count.lock().expect("not poisoned"), 1);
}
