//! Retryable writes: a write that is sent again is applied once and has the same reply.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::RawDocumentBuf;
use bson::{RawBson, rawdoc};
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{MemoryStore, Sources, StoreExt};
use handfast_txn::{Database, Local};

use crate::options::Options;
use crate::testing::{ReplyFields, TestClient, TestServer, batch, error_of, numbered, with_number, write_error};

/// Runs a command three times, the last time after a restart. All replies are equal, except that `field` lists the statements
/// that were applied before.
async fn thrice(server: &mut TestServer, database: &str, command: RawDocumentBuf, field: &str, statements: RawBson) {
    let first = server.connect().run(database, command.clone()).await;
    assert_eq!(first.double("ok"), 1.0, "{first:?}");
    assert!(first.get(field).unwrap().is_none());
    for restart in [false, true] {
        if restart {
            server.restart();
        }
        let again = server.connect().run(database, command.clone()).await;
        assert_eq!(again.get(field).unwrap(), Some(statements.as_raw_bson_ref()), "{again:?}");
        let without = |reply: &bson::RawDocument| {
            let mut rest = RawDocumentBuf::new();
            for element in reply {
                let (name, value) = element.unwrap();
                if name.as_str() != field {
                    rest.append(name, value);
                }
            }
            rest
        };
        assert_eq!(without(&again), without(&first));
    }
}

async fn all(server: &mut TestServer) -> Vec<RawDocumentBuf> {
    batch(&server.connect().run("d", rawdoc! { "find": "c", "sort": { "_id": 1 } }).await)
}

#[tokio::test]
async fn each_kind_of_write_is_applied_once() {
    for mut server in TestServer::over_each_engine() {
        let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 1, "n": 0 }, { "_id": 2, "n": 0 }] };
        thrice(&mut server, "d", with_number(insert, 1), "retriedStmtIds", bson::rawbson!([0, 1])).await;
        let update = rawdoc! { "update": "c", "updates": [
            { "q": { "_id": 9 }, "u": { "$inc": { "n": 1 } } },
            { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } },
            { "q": { "_id": 3 }, "u": { "$inc": { "n": 5 } }, "upsert": true },
        ] };
        thrice(&mut server, "d", with_number(update, 2), "retriedStmtIds", bson::rawbson!([1, 2])).await;
        let modify =
            rawdoc! { "findAndModify": "c", "query": { "_id": 2 }, "update": { "$inc": { "n": 7 } }, "new": true };
        thrice(&mut server, "d", with_number(modify, 3), "retriedStmtId", RawBson::Int32(0)).await;
        let delete = rawdoc! { "delete": "c", "deletes": [{ "q": { "n": { "$gte": 5 } }, "limit": 1 }] };
        thrice(&mut server, "d", with_number(delete, 4), "retriedStmtIds", bson::rawbson!([0])).await;
        assert_eq!(all(&mut server).await, [rawdoc! { "_id": 1, "n": 1 }, rawdoc! { "_id": 3, "n": 5 }]);
        let status = server.connect().run("admin", rawdoc! { "serverStatus": 1 }).await;
        assert!(status.get_document("transactions").unwrap().long("retriedStatementsCount") >= 1);
    }
}

#[tokio::test]
async fn a_bulk_write_to_several_collections_is_applied_once() {
    for mut server in TestServer::over_each_engine() {
        let bulk = rawdoc! {
            "bulkWrite": 1, "nsInfo": [{ "ns": "d.c" }, { "ns": "e.c" }],
            "ops": [
                { "insert": 0, "document": { "_id": 1, "n": 0 } },
                { "insert": 0, "document": { "_id": 2, "n": 0 } },
                { "update": 0, "filter": { "_id": 1 }, "updateMods": { "$inc": { "n": 1 } } },
                { "insert": 1, "document": { "_id": 1 } },
                { "delete": 0, "filter": { "_id": 2 } },
                { "update": 1, "filter": { "_id": 5 }, "updateMods": { "$inc": { "n": 1 } }, "upsert": true },
            ],
        };
        thrice(&mut server, "admin", with_number(bulk, 1), "retriedStmtIds", bson::rawbson!([0, 1, 2, 3, 4, 5])).await;
        assert_eq!(all(&mut server).await, [rawdoc! { "_id": 1, "n": 1 }]);
        assert_eq!(server.connect().run("e", rawdoc! { "count": "c" }).await.int("n"), 2);
    }
}

/// Half of a batch was applied before the server stopped: the repeated batch applies the rest.
#[tokio::test]
async fn a_repeated_batch_applies_only_the_statements_that_are_missing() {
    for mut server in TestServer::over_each_engine() {
        let part = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }] };
        server.connect().run("d", with_number(part, 1)).await;
        server.restart();
        let whole = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] };
        let reply = server.connect().run("d", with_number(whole, 1)).await;
        assert_eq!(reply, rawdoc! { "n": 3, "retriedStmtIds": [0, 1], "ok": 1.0 });
        assert_eq!(all(&mut server).await.len(), 3);
    }
}

#[tokio::test]
async fn a_large_batch_is_applied_once() {
    for mut server in TestServer::over_each_engine() {
        let mut body = rawdoc! { "insert": "c", "ordered": false };
        body = with_number(body, 1);
        let mut client = server.connect();
        let documents = numbered(150);
        let first = client.run_with("d", body.clone(), &[("documents", &documents)]).await;
        assert_eq!(first.int("n"), 150);
        let again = client.run_with("d", body, &[("documents", &documents)]).await;
        assert_eq!(again.int("n"), 150);
        assert_eq!(again.get_array("retriedStmtIds").unwrap().into_iter().count(), 150);
        assert_eq!(all(&mut server).await.len(), 101);
    }
}

#[tokio::test]
async fn writes_of_many_documents_old_numbers_and_other_commands_are_refused() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let update = rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "multi": true }] };
    let delete = rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] };
    let bulk = rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "d.c" }], "ops": [
        { "insert": 0, "document": { "_id": 1 } }, { "delete": 0, "filter": {}, "multi": true },
    ] };
    for (database, command, option) in
        [("d", update, "multi=true"), ("d", delete, "limit=0"), ("admin", bulk, "multi=true")]
    {
        let expected = (72, "InvalidOptions".to_owned(), format!("Cannot use retryable writes with {option}"));
        assert_eq!(client.refused(database, with_number(command, 1)).await, expected);
    }
    let insert = || rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] };
    client.run("d", with_number(insert(), 5)).await;
    let (code, name, text) = client.refused("d", with_number(insert(), 4)).await;
    assert_eq!((code, name.as_str()), (225, "TransactionTooOld"));
    assert!(text.contains("newer transaction with txnNumber 5"), "{text}");
    server.restart();
    assert_eq!(server.connect().refused("d", with_number(insert(), 4)).await.0, 225);
    let create = with_number(rawdoc! { "create": "e" }, 6);
    assert_eq!(server.connect().refused("d", create).await.0, 50_768);
    assert_eq!(all(&mut server).await.len(), 1);
}

/// The labels show that the write can be sent again, and whether anything was written.
#[tokio::test]
async fn a_shutdown_has_the_labels_of_a_retryable_error() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("admin", rawdoc! { "ping": 1 }).await;
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] };
    client.send(handfast_wire::Flags::default(), "d", with_number(insert, 1), &[]).await;
    server.shared.shut_down();
    let (_, _, reply) = client.receive().await.unwrap();
    assert_eq!(error_of(&reply).0, 91);
    let labels = bson::rawbson!(["RetryableWriteError", "NoWritesPerformed"]);
    assert_eq!(reply.get("errorLabels").unwrap(), Some(labels.as_raw_bson_ref()));
}

#[tokio::test]
async fn results_are_removed_after_their_retention() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for number in 1..20 {
        let insert = rawdoc! { "insert": "c", "documents": [{ "_id": i32::try_from(number).unwrap() }] };
        client.run("d", with_number(insert, number)).await;
    }
    let count =
        async |client: &mut TestClient| client.run("config", rawdoc! { "count": "transactions" }).await.int("n");
    assert_eq!(count(&mut client).await, 1);
    server.clock.advance(Duration::from_secs(24 * 60 * 60));
    server.shared.forget_outcomes().await;
    assert_eq!(count(&mut client).await, 1);
    server.clock.advance(Duration::from_secs(1));
    server.shared.forget_outcomes().await;
    assert_eq!(count(&mut client).await, 0);
}

/// A client gives up a slow request of many statements and sends its next one, whose write must not be overwritten.
#[tokio::test]
async fn no_statement_of_a_request_is_applied_after_the_next_request() {
    let (sources, clock) = Sources::manual(7);
    let memory = Arc::new(MemoryStore::new(sources.clone()));
    let namespace = handfast_store::Namespace::new("d", "c").unwrap();
    memory.insert_one(&namespace, rawdoc! { "_id": 1, "by": 0 }).await.unwrap();
    let first_update = Address::first(Operation::Update).of("c");
    let faulty = Arc::new(Faulty::new(memory, Plan::at_request(first_update, Fault::FreezeBefore)));
    let database = Database::new(Arc::new(Local::new(faulty.clone(), sources.clone())), sources);
    let mut server = TestServer::over(database, clock, Options::default());
    let update = |by: i32, count: usize| {
        let mut statements = bson::RawArrayBuf::new();
        for _ in 0..count {
            statements.push(rawdoc! { "q": { "_id": 1 }, "u": { "$set": { "by": by } } });
        }
        with_number(rawdoc! { "update": "c", "updates": statements }, i64::from(by))
    };
    let mut slow = server.connect();
    let slow = tokio::spawn(async move { slow.run("d", update(12, 100)).await });
    while faulty.frozen() == 0 {
        tokio::task::yield_now().await;
    }
    let mut next = server.connect();
    let next = tokio::spawn(async move { next.run("d", update(13, 1)).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    faulty.release();
    assert_eq!(slow.await.unwrap().double("ok"), 1.0);
    assert_eq!(next.await.unwrap().int("nModified"), 1);
    assert_eq!(all(&mut server).await, [rawdoc! { "_id": 1, "by": 13 }]);
}

/// A retry must ask for the same kind of result as the first request. The codes are MongoDB's.
#[tokio::test]
async fn a_number_cannot_be_used_for_another_request() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        client.run("d", rawdoc! { "insert": "c", "documents": [{ "_id": 1, "n": 0 }, { "_id": 2, "n": 0 }] }).await;
        let modify = |new: bool| {
            let change = rawdoc! { "$inc": { "n": 1 } };
            rawdoc! { "findAndModify": "c", "query": { "_id": 1 }, "update": change, "new": new }
        };
        let remove = || rawdoc! { "findAndModify": "c", "query": { "_id": 1 }, "remove": true };
        let insert = || rawdoc! { "insert": "c", "documents": [{ "_id": 3 }] };
        client.run("d", with_number(modify(true), 1)).await;
        for (again, code) in [(modify(false), 40_612), (remove(), 40_609)] {
            let (found, _, text) = client.refused("d", with_number(again, 1)).await;
            assert_eq!(found, code, "{text}");
        }
        // A write that is refused is in the reply.
        let reply = client.run("d", with_number(insert(), 1)).await;
        let error = write_error(&reply);
        assert_eq!((error.int("code"), reply.int("n")), (217, 0));
        client.run("d", with_number(insert(), 2)).await;
        let (code, name, text) = client.refused("d", with_number(modify(true), 2)).await;
        assert_eq!((code, name.as_str()), (217, "IncompleteTransactionHistory"));
        assert_eq!(text, "the number of this request was used for another kind of request in the same session");
        client.run("d", with_number(remove(), 3)).await;
        assert_eq!(client.refused("d", with_number(modify(true), 3)).await.0, 40_606);
        assert_eq!(all(&mut server).await, [rawdoc! { "_id": 2, "n": 0 }, rawdoc! { "_id": 3 }]);
    }
}
