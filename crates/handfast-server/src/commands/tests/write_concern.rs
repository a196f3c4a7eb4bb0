//! The durability of writes, and write concerns that this server cannot satisfy.

use std::sync::Arc;

use bson::{RawBson, rawdoc};
use handfast_store::{DocumentStore, Durability};

use crate::lock::lock;
use crate::options::{Options, Topology};
use crate::testing::{AdjustableStore, ReplyFields, TestServer, error_of, numbered};

#[tokio::test]
async fn durability_is_the_stronger_one_of_server_and_client() {
    for (default, concern, expected) in [
        (Durability::Journaled, rawdoc! {}, Durability::Journaled),
        (Durability::Journaled, rawdoc! { "j": false }, Durability::Journaled),
        (Durability::Memory, rawdoc! {}, Durability::Memory),
        (Durability::Memory, rawdoc! { "j": true }, Durability::Journaled),
        (Durability::Memory, rawdoc! { "w": "majority" }, Durability::Journaled),
    ] {
        let store = Arc::new(AdjustableStore::default());
        let options = Options { durability: default, ..Options::default() };
        let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, options);
        let body = rawdoc! { "insert": "c", "writeConcern": concern };
        server.connect().run_with("d", body, &[("documents", &numbered(1))]).await;
        assert_eq!(*lock(&store.inserts), [expected]);
    }
}

/// The write is applied, and the reply says that it is not on as many members as the request asked
/// for.
#[tokio::test]
async fn an_unsatisfiable_write_concern_is_reported_beside_the_applied_write() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for (w, code, text) in [
        (RawBson::Int32(2), 100, "Not enough data-bearing nodes"),
        (RawBson::String("far".to_owned()), 79, "No write concern mode named 'far' found in replica set configuration"),
    ] {
        let concern = rawdoc! { "w": w };
        let insert = rawdoc! { "insert": "c", "documents": [{}], "writeConcern": concern.clone() };
        let reply = client.run("d", insert).await;
        let error = reply.get_document("writeConcernError").unwrap();
        assert_eq!((reply.int("n"), error.int("code"), error.text("errmsg")), (1, code, text));
        assert_eq!(error.get_document("errInfo").unwrap().get_document("writeConcern").unwrap(), &*concern);
    }
    let refused = rawdoc! { "insert": "c", "documents": [{}], "nonsense": 1, "writeConcern": { "w": 2 } };
    let reply = client.run("d", refused).await;
    assert_eq!((error_of(&reply).0, reply.get_document("writeConcernError").unwrap().int("code")), (40_415, 100));
    let out = |level: &str| {
        rawdoc! {
            "aggregate": "c", "pipeline": [{ "$out": "o" }], "cursor": {},
            "readConcern": { "level": level }, "writeConcern": { "w": 2 },
        }
    };
    assert!(client.run("d", out("majority")).await.get_document("writeConcernError").is_ok());
    assert_eq!(client.refused("d", out("linearizable")).await.0, 72);
    assert_eq!(client.run("d", rawdoc! { "count": "c", "writeConcern": { "w": 1 } }).await.int("n"), 2);
    let mut server = TestServer::in_memory(Options { topology: Topology::Standalone, ..Options::default() });
    let insert = rawdoc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 2 } };
    assert_eq!(server.connect().refused("d", insert).await.0, 2);
}
