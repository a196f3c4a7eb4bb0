//! Servers that are found, lost, and found again; and a store that retries meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::rawdoc;
use handfast_mongodb::{ConnectOptions, ServerDescription, ServerRole, TopologyObserver};
use handfast_server::Topology;
use handfast_store::decorator::Resilient;
use handfast_store::{Namespace, Sources, StoreExt};

use crate::support::{Proxy, ProxyAction, TestServer, connected, name_of};

type ObservedRoles = Arc<Mutex<Vec<ServerDescription>>>;

fn c() -> Namespace {
    Namespace::new("d", "c").expect("valid")
}

fn listening() -> (ConnectOptions, ObservedRoles) {
    let heard = ObservedRoles::default();
    let notes = Arc::clone(&heard);
    let observer = TopologyObserver::new(move |server| notes.lock().expect("not poisoned").push(server.clone()));
    (ConnectOptions { observer: Some(observer), ..ConnectOptions::default() }, heard)
}

/// Waits until these roles were reported, in this order and no others.
async fn expect_roles(heard: &ObservedRoles, roles: &[ServerRole]) {
    for _ in 0..1000 {
        let now: Vec<_> = heard.lock().expect("not poisoned").iter().map(|server| server.role).collect();
        if now == roles {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{roles:?} wanted, {:?} heard", heard.lock());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_sees_changes_of_a_server() {
    use ServerRole::{Primary, Standalone, Unknown};
    for (topology, role) in [(Topology::Standalone, Standalone), (Topology::default(), Primary)] {
        let server = TestServer::start(topology).await;
        let proxy = Proxy::before(&server).await;
        let (options, heard) = listening();
        let connection = connected(&proxy.uri(), options).await;
        expect_roles(&heard, &[role]).await;
        proxy.once("find", ProxyAction::LoseReply);
        connection.store.find_one(&c(), rawdoc! {}).await.expect_err("lost");
        expect_roles(&heard, &[role, Unknown, role]).await;
        let heard = heard.lock().expect("not poisoned");
        assert!(heard.iter().all(|server| server.address == format!("127.0.0.1:{}", proxy.port)));
        assert!(heard.iter().all(|server| server.error.is_some() == (server.role == Unknown)), "{heard:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resilient_store_waits_for_the_server_and_sends_it_once_more() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    let connection = connected(&proxy.uri(), ConnectOptions::default()).await;
    let store = Resilient::new(connection.store, Sources::seeded(3).ids);
    for act in [ProxyAction::LoseRequest, ProxyAction::LoseReply] {
        proxy.once("insert", act.clone());
        store.insert_one(&c(), rawdoc! { "_id": 1, "n": 0 }).await.expect("sent again");
        proxy.once("update", act.clone());
        let outcome = store.update_one(&c(), rawdoc! { "_id": 1 }, rawdoc! { "$set": { "n": 1 } }).await;
        assert_eq!(outcome.expect("sent again").matched, 1);
        let count = proxy.once("update", act.clone());
        let counted = store.update_one(&c(), rawdoc! { "_id": 1 }, rawdoc! { "$inc": { "n": 1 } }).await;
        counted.expect_err("it counts");
        assert_eq!(*count.lock().expect("not poisoned"), 1);
        proxy.once("delete", act.clone());
        store.delete_one(&c(), rawdoc! { "_id": 1 }).await.expect("sent again");
        assert_eq!(store.count_matching(&c(), rawdoc! {}).await.expect("counted"), 0);
    }
    // A server that steps down reports that the operation did not begin: everything is sent again,
    // once.
    let not_primary = || rawdoc! { "ok": 0, "code": 10107, "codeName": "NotWritablePrimary", "errmsg": "not primary" };
    store.insert_one(&c(), rawdoc! { "_id": 1, "n": 0 }).await.expect("inserted");
    proxy.once("update", ProxyAction::Answer(not_primary()));
    store.update_one(&c(), rawdoc! { "_id": 1 }, rawdoc! { "$inc": { "n": 1 } }).await.expect("sent again");
    proxy.play(
        move |command| {
            if name_of(command) == "update" { ProxyAction::Answer(not_primary()) } else { ProxyAction::Pass }
        },
    );
    let refused = store.update_one(&c(), rawdoc! { "_id": 1 }, rawdoc! { "$inc": { "n": 1 } }).await;
    assert_eq!(refused.expect_err("twice").applied(), handfast_store::Applied::No);
    let there = store.find_one(&c(), rawdoc! {}).await.expect("found");
    assert_eq!(there, Some(rawdoc! { "_id": 1, "n": 1 }));
}
