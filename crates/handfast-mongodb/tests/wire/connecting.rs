//! Connecting: refused servers, detected capabilities, and the removal of what the detection has written.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{RawBsonRef, RawDocument, rawdoc};
use handfast_mongodb::{Capability, ConnectOptions, Deployment, TopologyObserver, connect};
use handfast_mql::Code;
use handfast_server::Topology;
use handfast_store::{Applied, Error, ErrorClass, Find, Hint, Namespace, Sources, StoreExt};

use crate::support::{Proxy, ProxyAction, TestServer, as_ferretdb_1, connected, name_of};

async fn refused(uri: &str) -> Error {
    match connect(uri, Sources::seeded(2), ConnectOptions::default()).await {
        Ok(_) => panic!("{uri} was accepted"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn an_unreachable_server_is_an_outage() {
    let error = refused("mongodb://boss:s3cret@127.0.0.1:1/?serverSelectionTimeoutMS=100").await;
    assert_eq!((error.class(), error.applied()), (ErrorClass::Outage, Applied::No), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
}

#[tokio::test]
async fn a_user_without_write_access_is_refused() {
    let server = TestServer::with_a_reader().await;
    let error = refused(&format!("mongodb://reader:p@127.0.0.1:{}/", server.port)).await;
    assert_eq!(error.code(), Code::Unauthorized, "{error}");
    assert!(!error.message().contains("in front of another server"), "{error}");
}

#[tokio::test]
async fn a_server_of_another_replica_set_is_named() {
    let server = TestServer::start(Topology::default()).await;
    let error = refused(&format!("{}?replicaSet=wrong&serverSelectionTimeoutMS=3000", server.uri())).await;
    assert_eq!((error.class(), error.applied()), (ErrorClass::Outage, Applied::No), "{error:?}");
    let message = format!("127.0.0.1:{} answers, but is of the replica set handfast and not of wrong", server.port);
    assert!(error.message().starts_with(&message), "{error}");
}

/// The server is behind a forwarded port, and the driver connects to the advertised address, where no server listens.
#[tokio::test]
async fn a_server_that_advertises_another_address_is_named() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let elsewhere = silent.local_addr().expect("an address").to_string();
    let topology = Topology::ReplicaSet { name: "rs".to_owned(), advertise: Some(elsewhere.clone()) };
    let server = TestServer::start(topology).await;
    let error = refused(&format!("{}?serverSelectionTimeoutMS=3000", server.uri())).await;
    let message = format!("127.0.0.1:{} answers, but says that it is {elsewhere}: ", server.port);
    assert!(error.message().contains(&message), "{error}");
    assert!(error.message().contains("directConnection=true"), "{error}");
    assert!(error.message().contains(&format!("{elsewhere}: no answer: ")), "{error}");
}

#[tokio::test]
async fn a_bad_connection_string_is_refused() {
    let error = refused("mongodb://127.0.0.1:1/?w=1").await;
    assert_eq!((error.class(), error.code()), (ErrorClass::Command, Code::BadValue));
}

#[tokio::test]
async fn the_server_is_known_and_nothing_is_left_behind() {
    for (topology, deployment) in [
        (Topology::Standalone, Deployment::Standalone),
        (Topology::default(), Deployment::ReplicaSet),
        (Topology::Mongos, Deployment::Sharded),
    ] {
        let server = TestServer::start(topology).await;
        let connection = server.connect().await;
        assert_eq!(connection.server.deployment, deployment);
        assert!(connection.server.product.starts_with("Handfast "), "{:?}", connection.server);
        assert_eq!(connection.server.address, format!("mongodb://127.0.0.1:{}", server.port));
        let missing = connection.server.capabilities.missing();
        let sharded: &[Capability] = &[Capability::RenameAcrossDatabases];
        assert_eq!(missing, if deployment == Deployment::Sharded { sharded } else { &[] });
        assert_eq!(connection.store.list_databases().await.expect("databases"), Vec::<String>::new());
    }
}

fn unknown() -> ProxyAction {
    ProxyAction::Answer(rawdoc! { "ok": 0, "code": 238, "codeName": "NotImplemented", "errmsg": "not implemented" })
}

/// The behaviour of a server that lacks a capability.
type Lack = fn(&RawDocument) -> ProxyAction;

fn has_field(command: &RawDocument, list: &str, field: &str) -> bool {
    let statements = command.get_array(list).into_iter().flatten().flatten();
    statements.filter_map(bson::RawBsonRef::as_document).any(|one| one.get(field).ok().flatten().is_some())
}

fn refuses_array_filters(command: &RawDocument) -> ProxyAction {
    if has_field(command, "updates", "arrayFilters") { unknown() } else { ProxyAction::Pass }
}

/// Returns the action of a proxy for a server that accepts an option and ignores it.
fn ignores_sparse(command: &RawDocument) -> ProxyAction {
    if !has_field(command, "indexes", "sparse") {
        return ProxyAction::Pass;
    }
    ProxyAction::Answer(rawdoc! { "numIndexesBefore": 1, "numIndexesAfter": 2, "ok": 1 })
}

/// Returns the action of a proxy for a server that closes the connection on an unknown type of value.
fn hangs_up_on_decimals(command: &RawDocument) -> ProxyAction {
    let documents = command.get_array("documents").into_iter().flatten().flatten();
    let mut documents = documents.filter_map(bson::RawBsonRef::as_document);
    let is_decimal = |document: &RawDocument| matches!(document.get("v"), Ok(Some(bson::RawBsonRef::Decimal128(_))));
    if documents.any(is_decimal) { ProxyAction::LoseRequest } else { ProxyAction::Pass }
}

fn ignores_hints(command: &RawDocument) -> ProxyAction {
    if name_of(command) != "delete" || !has_field(command, "deletes", "hint") {
        return ProxyAction::Pass;
    }
    ProxyAction::Answer(rawdoc! { "n": 0, "ok": 1 })
}

/// Returns the action of a proxy for a server for which NaN differs from NaN, and is another `_id`.
fn refuses_to_replace_nan_ids(command: &RawDocument) -> ProxyAction {
    let statements = command.get_array("updates").into_iter().flatten().flatten();
    let mut changes = statements.filter_map(|one| one.as_document()?.get_document("u").ok());
    if !changes.any(|change| change.get_f64("_id").is_ok_and(f64::is_nan)) {
        return ProxyAction::Pass;
    }
    let refused = rawdoc! { "index": 0, "code": 66, "errmsg": "immutable field '_id' was altered to nan" };
    ProxyAction::Answer(rawdoc! { "n": 0, "nModified": 0, "writeErrors": [refused], "ok": 1 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_capabilities_are_detected() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    let lacks: [(Lack, &[Capability]); 6] = [
        (|_| ProxyAction::Pass, &[]),
        (refuses_array_filters, &[Capability::ArrayFilters]),
        (ignores_sparse, &[Capability::SparseIndexes]),
        (hangs_up_on_decimals, &[Capability::Decimals]),
        (ignores_hints, &[Capability::Hints]),
        (refuses_to_replace_nan_ids, &[Capability::NanIds]),
    ];
    for (lack, missing) in lacks {
        proxy.play(lack);
        let connection = connected(&proxy.uri(), ConnectOptions::default()).await;
        assert_eq!(connection.server.capabilities.missing(), missing);
    }
    proxy.play(ignores_hints);
    let connection = connected(&proxy.uri(), ConnectOptions::default()).await;
    // The request is refused before it is sent: the server would have accepted a find with a hint.
    let namespace = Namespace::new("d", "c").expect("valid");
    let find = Find { hint: Some(Hint::Name("_id_".to_owned())), ..Find::new(namespace, rawdoc! {}) };
    let error = connection.store.find_all(find).await.expect_err("refused");
    assert_eq!(error.code(), Code::CommandNotSupported);
    assert!(error.message().ends_with("has no hints"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_that_the_network_cuts_once_is_tried_again() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    for name in ["update", "createIndexes", "collMod"] {
        proxy.once(name, ProxyAction::LoseReply);
        let connection = connected(&proxy.uri(), ConnectOptions::default()).await;
        assert_eq!(connection.server.capabilities.missing(), [], "{name}");
    }
}

/// As FerretDB 1 does at a value that it does not know.
fn closes_at_decimals(command: &RawDocument) -> ProxyAction {
    let documents = command.get_array("documents").into_iter().flatten().flatten();
    let mut values = documents.filter_map(|document| document.as_document()?.get("v").ok()?);
    match values.any(|value| matches!(value, RawBsonRef::Decimal128(_))) {
        true => ProxyAction::LoseRequest,
        false => ProxyAction::Pass,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_that_closes_its_connection_does_not_make_the_server_a_lost_one() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    proxy.play(closes_at_decimals);
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&errors);
    let observer = TopologyObserver::new(move |server| {
        seen.lock().expect("not poisoned").extend(server.error.clone());
    });
    let options = ConnectOptions { observer: Some(observer), ..ConnectOptions::default() };
    let connection = connected(&proxy.uri(), options).await;
    assert_eq!(connection.server.capabilities.missing(), [Capability::Decimals]);
    assert_eq!(*errors.lock().expect("not poisoned"), [""; 0]);
}

/// A server with the name of FerretDB 1 is refused without the option of a sole writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_atomic_updates_needs_a_sole_writer() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    proxy.play(as_ferretdb_1);
    let error = refused(&proxy.uri()).await;
    assert_eq!(error.code(), Code::CommandNotSupported);
    assert!(error.message().contains("FerretDB 1, version v1.24.2) has no atomic updates"), "{error}");
    let options = ConnectOptions { sole_writer: true, ..ConnectOptions::default() };
    let connection = connected(&proxy.uri(), options).await;
    let missing = connection.server.capabilities.missing();
    assert_eq!(missing, [Capability::AtomicUpdates, Capability::RenameAcrossDatabases]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_times_out() {
    let server = TestServer::start(Topology::Standalone).await;
    let proxy = Proxy::before(&server).await;
    let options = ConnectOptions { reply_timeout: Duration::from_secs(2), ..ConnectOptions::default() };
    let store = connected(&proxy.uri(), options).await.store;
    let namespace = Namespace::new("d", "c").expect("valid");
    let kept: Arc<Mutex<u32>> = proxy.once("insert", ProxyAction::KeepReply);
    let error = store.insert_one(&namespace, rawdoc! { "_id": 1 }).await.expect_err("no answer");
    assert_eq!((error.class(), error.applied()), (ErrorClass::TransientNetwork, Applied::Maybe));
    assert_eq!(error.code(), Code::NetworkTimeout);
    assert_eq!(*kept.lock().expect("not poisoned"), 1, "it was sent once");
    let found = store.find_one(&namespace, rawdoc! { "_id": 1 }).await.expect("another connection");
    assert_eq!(found, Some(rawdoc! { "_id": 1 }), "it was done, though nobody heard of it");
}
