use std::sync::Arc;
use std::time::Duration;

use bson::raw::{CString, RawDocumentBuf};
use bson::{RawBson, rawdoc};

use crate::frame::timer_now;
use crate::options::{Options, Topology};
use crate::testing::{AdjustableStore, ReplyFields, TestServer};

#[tokio::test]
async fn the_reply_has_what_drivers_need() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (name, primary) in [("hello", "isWritablePrimary"), ("isMaster", "ismaster"), ("ismaster", "ismaster")] {
        let mut body = RawDocumentBuf::new();
        body.append(CString::try_from(name).unwrap(), 1);
        body.append(bson::raw::cstr!("backpressure"), true);
        body.append(
            bson::raw::cstr!("compression"),
            ["snappy", "lz4", "zlib", "snappy"].map(RawBson::from).into_iter().collect::<bson::RawArrayBuf>(),
        );
        let reply = client.run("admin", body).await;
        assert!(reply.flag(primary), "{reply:?}");
        assert_eq!(reply.int("maxBsonObjectSize"), 16_777_216);
        assert_eq!(reply.int("maxMessageSizeBytes"), 48_000_000);
        assert_eq!(reply.int("maxWriteBatchSize"), 100_000);
        assert_eq!(reply.int("logicalSessionTimeoutMinutes"), 30);
        assert_eq!(reply.int("maxWireVersion"), 25);
        assert_eq!(
            reply.get_array("compression").unwrap(),
            &*bson::rawbson!(["snappy", "zlib"]).as_array().unwrap().to_owned()
        );
        assert_eq!(reply.text("setName"), "handfast");
        assert!(reply.get("msg").unwrap().is_none());
    }
}

#[tokio::test]
async fn the_reply_shows_the_topology() {
    let shape = |topology| async {
        let options = Options { topology, ..Options::default() };
        let mut server = TestServer::new(Arc::new(AdjustableStore::default()), options);
        server.connect().run("admin", rawdoc! { "hello": 1 }).await
    };
    let reply = shape(Topology::ReplicaSet { name: "rs".to_owned(), advertise: None }).await;
    assert_eq!((reply.text("setName"), reply.text("primary")), ("rs", "localhost:27017"));
    assert_eq!(reply.get_array("hosts").unwrap().get_str(0).unwrap(), "localhost:27017");
    let reply = shape(Topology::ReplicaSet { name: "rs".to_owned(), advertise: Some("db:1".to_owned()) }).await;
    assert_eq!((reply.text("me"), reply.text("primary")), ("db:1", "db:1"));
    assert_eq!(shape(Topology::Mongos).await.text("msg"), "isdbgrid");
    let reply = shape(Topology::Standalone).await;
    assert!(reply.get("setName").unwrap().is_none() && reply.get("msg").unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn it_waits_while_the_topology_is_the_one_that_the_client_knows() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let reply = client.run("admin", rawdoc! { "hello": 1 }).await;
    let version = reply.get_document("topologyVersion").unwrap().to_owned();
    let began = timer_now();
    let wait = rawdoc! { "hello": 1, "topologyVersion": version.clone(), "maxAwaitTimeMS": 10_000 };
    client.run("admin", wait).await;
    assert!(began.elapsed() >= Duration::from_secs(10));
    // A client that knows another run of the server is answered at once.
    let began = timer_now();
    let other = rawdoc! { "processId": bson::oid::ObjectId::from_bytes([9; 12]), "counter": 0_i64 };
    client.run("admin", rawdoc! { "hello": 1, "topologyVersion": other, "maxAwaitTimeMS": 10_000 }).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(client.refused("admin", rawdoc! { "hello": 1, "topologyVersion": version }).await.0, 31_368);
}
