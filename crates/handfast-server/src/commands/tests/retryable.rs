//! Retryable writes: sent again, they are done once and say what they said.

use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{MemoryStore, Sources, StoreExt};
use handfast_txn::{Database, Local};

use super::*;

fn numbered_write(mut command: RawDocumentBuf, number: i64) -> RawDocumentBuf {
    command.append(bson::raw::cstr!("lsid"), lsid(1));
    command.append(bson::raw::cstr!("txnNumber"), number);
    command
}

/// Runs a command three times, the last time after a restart: all replies are the same, but for what says so.
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
async fn each_write_once() {
    for mut server in TestServer::over_each_engine() {
        let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 1, "n": 0 }, { "_id": 2, "n": 0 }] };
        thrice(&mut server, "d", numbered_write(insert, 1), "retriedStmtIds", bson::rawbson!([0, 1])).await;
        let update = rawdoc! { "update": "c", "updates": [
            { "q": { "_id": 9 }, "u": { "$inc": { "n": 1 } } },
            { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } },
            { "q": { "_id": 3 }, "u": { "$inc": { "n": 5 } }, "upsert": true },
        ] };
        thrice(&mut server, "d", numbered_write(update, 2), "retriedStmtIds", bson::rawbson!([1, 2])).await;
        let modify =
            rawdoc! { "findAndModify": "c", "query": { "_id": 2 }, "update": { "$inc": { "n": 7 } }, "new": true };
        thrice(&mut server, "d", numbered_write(modify, 3), "retriedStmtId", RawBson::Int32(0)).await;
        let delete = rawdoc! { "delete": "c", "deletes": [{ "q": { "n": { "$gte": 5 } }, "limit": 1 }] };
        thrice(&mut server, "d", numbered_write(delete, 4), "retriedStmtIds", bson::rawbson!([0])).await;
        assert_eq!(all(&mut server).await, [rawdoc! { "_id": 1, "n": 1 }, rawdoc! { "_id": 3, "n": 5 }]);
        let status = server.connect().run("admin", rawdoc! { "serverStatus": 1 }).await;
        assert!(status.get_document("transactions").unwrap().long("retriedStatementsCount") >= 1);
    }
}

#[tokio::test]
async fn several_collections_in_one_command() {
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
        thrice(&mut server, "admin", numbered_write(bulk, 1), "retriedStmtIds", bson::rawbson!([0, 1, 2, 3, 4, 5]))
            .await;
        assert_eq!(all(&mut server).await, [rawdoc! { "_id": 1, "n": 1 }]);
        assert_eq!(server.connect().run("e", rawdoc! { "count": "c" }).await.int("n"), 2);
    }
}

/// Half of a batch was done before the server went: the rest is done when it comes again.
#[tokio::test]
async fn the_rest_of_a_batch() {
    for mut server in TestServer::over_each_engine() {
        let part = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }] };
        server.connect().run("d", numbered_write(part, 1)).await;
        server.restart();
        let whole = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] };
        let reply = server.connect().run("d", numbered_write(whole, 1)).await;
        assert_eq!(reply, rawdoc! { "n": 3, "retriedStmtIds": [0, 1], "ok": 1.0 });
        assert_eq!(all(&mut server).await.len(), 3);
    }
}

#[tokio::test]
async fn many_statements() {
    for mut server in TestServer::over_each_engine() {
        let mut body = rawdoc! { "insert": "c", "ordered": false };
        body = numbered_write(body, 1);
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
async fn what_cannot_be_retried() {
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
        assert_eq!(client.refused(database, numbered_write(command, 1)).await, expected);
    }
    let insert = || rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] };
    client.run("d", numbered_write(insert(), 5)).await;
    let (code, name, text) = client.refused("d", numbered_write(insert(), 4)).await;
    assert_eq!((code, name.as_str()), (225, "TransactionTooOld"));
    assert!(text.contains("newer transaction with txnNumber 5"), "{text}");
    server.restart();
    assert_eq!(server.connect().refused("d", numbered_write(insert(), 4)).await.0, 225);
    let create = numbered_write(rawdoc! { "create": "e" }, 6);
    assert_eq!(server.connect().refused("d", create).await.0, 50_768);
    assert_eq!(all(&mut server).await.len(), 1);
}

/// An error that another attempt may not meet is labelled, and it says whether anything was written.
#[tokio::test]
async fn labels() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("admin", rawdoc! { "ping": 1 }).await;
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] };
    client.send(handfast_wire::Flags::default(), "d", numbered_write(insert, 1), &[]).await;
    server.shared.shut_down();
    let (_, _, reply) = client.receive().await.unwrap();
    assert_eq!(error_of(&reply).0, 91);
    let labels = bson::rawbson!(["RetryableWriteError", "NoWritesPerformed"]);
    assert_eq!(reply.get("errorLabels").unwrap(), Some(labels.as_raw_bson_ref()));
}

/// Results are removed when no client can ask for them any more.
#[tokio::test]
async fn records_do_not_pile_up() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for number in 1..20 {
        let insert = rawdoc! { "insert": "c", "documents": [{ "_id": i32::try_from(number).unwrap() }] };
        client.run("d", numbered_write(insert, number)).await;
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

/// A request of many statements is slow; its client has given it up, and goes on. What it wrote later stays.
#[tokio::test]
async fn the_rest_of_a_request_does_not_come_after_the_next_one() {
    let (sources, clock) = Sources::manual(7);
    let memory = Arc::new(MemoryStore::new(sources.clone()));
    let namespace = handfast_store::Namespace::new("d", "c").unwrap();
    memory.insert_one(&namespace, rawdoc! { "_id": 1, "by": 0 }).await.unwrap();
    // The first operation looks for what the session did before, the second one is the update.
    let faulty = Arc::new(Faulty::new(memory, Plan::at(1, Fault::FreezeBefore)));
    let database = Database::new(Arc::new(Local::new(faulty.clone(), sources.clone())), sources);
    let mut server = TestServer::over(database, clock, Options::default());
    let update = |by: i32, count: usize| {
        let mut statements = bson::RawArrayBuf::new();
        for _ in 0..count {
            statements.push(rawdoc! { "q": { "_id": 1 }, "u": { "$set": { "by": by } } });
        }
        numbered_write(rawdoc! { "update": "c", "updates": statements }, i64::from(by))
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

/// A retry must ask for the same kind of result as the first request: MongoDB's codes.
#[tokio::test]
async fn a_number_is_not_used_for_something_else() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        client.run("d", rawdoc! { "insert": "c", "documents": [{ "_id": 1, "n": 0 }, { "_id": 2, "n": 0 }] }).await;
        let modify = |new: bool| {
            let change = rawdoc! { "$inc": { "n": 1 } };
            rawdoc! { "findAndModify": "c", "query": { "_id": 1 }, "update": change, "new": new }
        };
        let remove = || rawdoc! { "findAndModify": "c", "query": { "_id": 1 }, "remove": true };
        let insert = || rawdoc! { "insert": "c", "documents": [{ "_id": 3 }] };
        client.run("d", numbered_write(modify(true), 1)).await;
        for (again, code) in [(modify(false), 40_612), (remove(), 40_609)] {
            let (found, _, text) = client.refused("d", numbered_write(again, 1)).await;
            assert_eq!(found, code, "{text}");
        }
        // A write that is refused is in the reply.
        let reply = client.run("d", numbered_write(insert(), 1)).await;
        let error = reply.get_array("writeErrors").unwrap().get_document(0).unwrap();
        assert_eq!((error.int("code"), reply.int("n")), (217, 0));
        client.run("d", numbered_write(insert(), 2)).await;
        let (code, name, text) = client.refused("d", numbered_write(modify(true), 2)).await;
        assert_eq!((code, name.as_str()), (217, "IncompleteTransactionHistory"));
        assert_eq!(text, "the number of this request was used for another kind of request in the same session");
        client.run("d", numbered_write(remove(), 3)).await;
        assert_eq!(client.refused("d", numbered_write(modify(true), 3)).await.0, 40_606);
        assert_eq!(all(&mut server).await, [rawdoc! { "_id": 2, "n": 0 }, rawdoc! { "_id": 3 }]);
    }
}
