//! The errors of writes whose outcome is unknown.

use std::sync::Arc;

use bson::raw::RawDocumentBuf;
use bson::rawdoc;
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{DocumentStore, MemoryStore, Sources};

use crate::options::Options;
use crate::testing::{ReplyFields, TestClient, TestServer, error_of, insert, labels, numbered};

/// Starts a server over a store, inserts two documents, and lets the request after that meet the fault.
async fn failing(fault: Fault) -> (TestServer, TestClient, Arc<Faulty<MemoryStore>>) {
    let others =
        [Operation::Update, Operation::Delete, Operation::FindAndModify, Operation::Aggregate, Operation::Find];
    let requests = others.map(Address::first).into_iter().chain([Address::second(Operation::Insert)]);
    let plan = Plan::at_requests(requests.map(|request| (request, fault)));
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Sources::seeded(3))), plan));
    let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, Options::default());
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(2)).await;
    (server, client, store)
}

fn writes() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "insert": "c", "documents": [{ "_id": 7 }] },
        rawdoc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$set": { "a": 1 } } }] },
        rawdoc! { "delete": "c", "deletes": [{ "q": { "_id": 0 }, "limit": 1 }] },
        rawdoc! { "findAndModify": "c", "query": { "_id": 0 }, "remove": true },
        rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {} },
    ]
}

#[tokio::test]
async fn a_lost_write_has_an_unknown_outcome_whether_it_happened_or_not() {
    for fault in [Fault::LoseRequest, Fault::LoseReply] {
        for command in writes() {
            let (_server, mut client, store) = failing(fault).await;
            let reply = client.run("d", command.clone()).await;
            assert_eq!(store.injected().len(), 1, "{command:?}");
            assert_eq!(error_of(&reply).0, 9001, "{command:?}: {reply:?}");
            assert!(reply.get_str("errmsg").unwrap().starts_with("the outcome is unknown: "), "{reply:?}");
            assert_eq!(labels(&reply), ["OutcomeUnknown"], "no driver may send it again: {reply:?}");
        }
    }
}

#[tokio::test]
async fn the_outcome_of_a_bulk_write_is_unknown() {
    let (_server, mut client, _) = failing(Fault::LoseReply).await;
    let operations = rawdoc! {
        "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 7 } }], "nsInfo": [{ "ns": "d.c" }],
    };
    let reply = client.run("admin", operations).await;
    assert_eq!((error_of(&reply).0, labels(&reply)), (9001, vec!["OutcomeUnknown".to_owned()]), "{reply:?}");
}

#[tokio::test]
async fn a_bulk_write_counts_what_was_applied_before_the_failure() {
    let plan = Plan::at_request(Address::first(Operation::Delete).of("c"), Fault::LoseReply);
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Sources::seeded(3))), plan));
    let mut server = TestServer::new(store as Arc<dyn DocumentStore>, Options::default());
    let operations = rawdoc! {
        "bulkWrite": 1, "nsInfo": [{ "ns": "d.c" }], "ops": [
            { "insert": 0, "document": { "_id": 7 } },
            { "insert": 0, "document": { "_id": 8 } },
            { "update": 0, "filter": { "_id": 7 }, "updateMods": { "$set": { "a": 1 } } },
            { "delete": 0, "filter": { "_id": 8 } },
        ],
    };
    let reply = server.connect().run("admin", operations).await;
    assert_eq!((error_of(&reply).0, labels(&reply)), (9001, vec!["OutcomeUnknown".to_owned()]), "{reply:?}");
    let counts = ["nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"].map(|name| reply.int(name));
    assert_eq!(counts, [2, 1, 1, 0, 0], "{reply:?}");
}

#[tokio::test]
async fn a_writing_pipeline_may_be_a_document_sequence() {
    let (_server, mut client, _) = failing(Fault::LoseReply).await;
    let stages = [rawdoc! { "$out": "d" }];
    let reply = client.run_with("d", rawdoc! { "aggregate": "c", "cursor": {} }, &[("pipeline", &stages)]).await;
    assert_eq!((error_of(&reply).0, labels(&reply)), (9001, vec!["OutcomeUnknown".to_owned()]), "{reply:?}");
}

#[tokio::test]
async fn a_refused_write_has_a_known_outcome() {
    for command in writes() {
        let (_server, mut client, _) = failing(Fault::Refuse).await;
        let reply = client.run("d", command.clone()).await;
        assert_eq!((error_of(&reply).0, labels(&reply)), (6, Vec::new()), "{command:?}: {reply:?}");
        assert!(!reply.get_str("errmsg").unwrap().contains("unknown"), "{reply:?}");
    }
    let (_server, mut client, _) = failing(Fault::LoseReply).await;
    let reply = client.run("d", rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {} }).await;
    assert_eq!((error_of(&reply).0, labels(&reply)), (9001, Vec::new()), "a read changes nothing: {reply:?}");
}

#[tokio::test]
async fn a_write_that_ran_out_of_time_may_have_happened() {
    for fault in [Fault::FreezeBefore, Fault::FreezeAfter] {
        let (_server, mut client, _) = failing(fault).await;
        let update = rawdoc! {
            "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$set": { "a": 1 } } }], "maxTimeMS": 30,
        };
        let reply = client.run("d", update).await;
        assert_eq!((error_of(&reply).0, labels(&reply)), (50, vec!["OutcomeUnknown".to_owned()]), "{reply:?}");
    }
    let (_server, mut client, _) = failing(Fault::FreezeBefore).await;
    let reply = client.run("d", rawdoc! { "find": "c", "maxTimeMS": 30 }).await;
    assert_eq!((error_of(&reply).0, labels(&reply)), (50, Vec::new()), "{reply:?}");
}
