//! Transactions: the requests that a client may send, their replies, and the documents afterwards.

mod durable;
mod in_doubt;

use std::sync::Arc;
use std::time::Duration;

use bson::raw::{CString, RawDocumentBuf};
use bson::rawdoc;

use crate::options::{Options, Topology};
use crate::sessions::NumberState;
use crate::testing::{
    ReplyFields, TestClient, TestServer, batch, cursor_id, error_of, insert, labels, lsid, numbered, with_number,
};

/// Adds the fields that drivers add to each command of a transaction.
fn within(mut command: RawDocumentBuf, session: u8, number: i64) -> RawDocumentBuf {
    command.append(bson::raw::cstr!("lsid"), lsid(session));
    command.append(bson::raw::cstr!("txnNumber"), number);
    command.append(bson::raw::cstr!("autocommit"), false);
    command
}

/// Adds the fields of the first command of a transaction.
fn first(mut command: RawDocumentBuf, session: u8, number: i64) -> RawDocumentBuf {
    command.append(bson::raw::cstr!("startTransaction"), true);
    within(command, session, number)
}

fn insert_of(id: i32) -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "_id": id }] }
}

fn commit() -> RawDocumentBuf {
    rawdoc! { "commitTransaction": 1 }
}

fn abort() -> RawDocumentBuf {
    rawdoc! { "abortTransaction": 1 }
}

fn code_and_labels(reply: &bson::RawDocument) -> (i32, Vec<String>) {
    (error_of(reply).0, labels(reply))
}

const TRANSIENT: &str = "TransientTransactionError";

async fn count(client: &mut TestClient) -> i32 {
    client.run("d", rawdoc! { "count": "c" }).await.int("n")
}

#[tokio::test]
async fn a_transaction_is_applied_wholly_or_not_at_all() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.run("d", first(insert_of(1), 1, 1)).await;
        client.run("d", within(insert_of(2), 1, 1)).await;
        let seen = client.run("d", within(rawdoc! { "find": "c" }, 1, 1)).await;
        assert_eq!(batch(&seen).len(), 2);
        assert_eq!(count(&mut other).await, 0);
        for _ in 0..2 {
            assert_eq!(client.run("admin", within(commit(), 1, 1)).await, rawdoc! { "ok": 1.0 });
        }
        assert_eq!(count(&mut other).await, 2);
        client.run("d", first(insert_of(3), 1, 2)).await;
        for _ in 0..2 {
            assert_eq!(client.run("admin", within(abort(), 1, 2)).await, rawdoc! { "ok": 1.0 });
        }
        assert_eq!(count(&mut other).await, 2);
        let expected = (251, "NoSuchTransaction".to_owned(), "Transaction 2 has been aborted.".to_owned());
        assert_eq!(client.refused("admin", within(commit(), 1, 2)).await, expected);
        client.run("d", first(insert_of(3), 1, 3)).await;
        client.run("admin", within(commit(), 1, 3)).await;
        let expected = (256, "TransactionCommitted".to_owned(), "Transaction 3 has been committed.".to_owned());
        assert_eq!(client.refused("admin", within(abort(), 1, 3)).await, expected);
        assert_eq!(client.refused("d", within(insert_of(4), 1, 3)).await, expected);
        assert_eq!(server.shared.database.counts().open(), 0);
    }
}

#[tokio::test]
async fn requests_against_the_rules_are_refused_and_do_not_touch_the_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", insert_of(0)).await;
    client.run("d", first(insert_of(1), 1, 5)).await;
    let with = |mut command: RawDocumentBuf, field: &'static str, value: RawDocumentBuf| {
        command.append(CString::try_from(field).unwrap(), value);
        command
    };
    let find = || rawdoc! { "find": "c" };
    let aggregate = |stage: RawDocumentBuf| rawdoc! { "aggregate": "c", "pipeline": [stage], "cursor": {} };
    let mut alone = commit();
    alone.append(bson::raw::cstr!("lsid"), lsid(1));
    let counted = with_number(find(), 6);
    let write_at_same = with_number(insert_of(9), 5);
    for (database, command, code) in [
        ("d", within(rawdoc! { "count": "c" }, 1, 5), 263),
        ("d", within(rawdoc! { "listCollections": 1 }, 1, 5), 263),
        ("d", within(rawdoc! { "listIndexes": "c" }, 1, 5), 263),
        ("d", within(rawdoc! { "explain": { "count": "c" } }, 1, 5), 263),
        ("d", within(rawdoc! { "drop": "c" }, 1, 5), 263),
        ("d", within(rawdoc! { "ping": 1 }, 1, 5), 263),
        ("d", within(aggregate(rawdoc! { "$out": "o" }), 1, 5), 263),
        ("d", within(aggregate(rawdoc! { "$merge": { "into": "o" } }), 1, 5), 263),
        ("config", within(insert_of(1), 1, 5), 263),
        ("local", within(insert_of(1), 1, 5), 263),
        ("admin", within(find(), 1, 5), 263),
        ("d", first(rawdoc! { "getMore": 1_i64, "collection": "c" }, 1, 6), 263),
        ("d", first(rawdoc! { "killCursors": "c", "cursors": [1_i64] }, 1, 6), 263),
        ("admin", first(commit(), 1, 6), 263),
        ("d", within(commit(), 1, 5), 13),
        ("d", within(abort(), 1, 5), 13),
        ("admin", alone, 125),
        ("d", counted, 50_768),
        ("d", write_at_same, 72),
        ("d", first(insert_of(9), 1, 5), 117),
        ("d", first(insert_of(9), 1, 4), 225),
        ("d", within(insert_of(9), 1, 4), 225),
        ("admin", within(commit(), 1, 4), 225),
        ("admin", within(abort(), 1, 4), 225),
        ("d", within(insert_of(9), 1, 6), 251),
        ("admin", within(commit(), 1, 6), 251),
        ("admin", within(abort(), 1, 6), 251),
        ("admin", within(commit(), 7, 1), 251),
        ("d", within(with(find(), "readConcern", rawdoc! { "level": "snapshot" }), 1, 5), 72),
        ("d", first(with(find(), "readConcern", rawdoc! { "level": "linearizable" }), 1, 6), 72),
        ("d", within(with(insert_of(9), "writeConcern", rawdoc! { "w": 1 }), 1, 5), 72),
    ] {
        assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
    }
    // The transaction is still open.
    client.run("d", within(insert_of(2), 1, 5)).await;
    let concern = rawdoc! { "commitTransaction": 1, "writeConcern": { "w": "majority" }, "recoveryToken": {} };
    client.run("admin", within(concern, 1, 5)).await;
    assert_eq!(count(&mut client).await, 3);
}

#[tokio::test]
async fn statistics_plans_and_internal_collections_are_refused_in_a_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", insert_of(0)).await;
    let statistics = rawdoc! { "aggregate": "c", "pipeline": [{ "$collStats": { "count": {} } }], "cursor": {} };
    let plan = rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {}, "explain": true };
    let bulk = rawdoc! {
        "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 1 } }], "nsInfo": [{ "ns": "config.c" }],
    };
    for (number, (database, command)) in (1_i64..).zip([("d", statistics), ("d", plan), ("admin", bulk)]) {
        assert_eq!(client.refused(database, first(command, 1, number)).await.0, 263);
    }
    let bulk = rawdoc! {
        "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 1 } }, { "delete": 1, "filter": { "_id": 0 } }],
        "nsInfo": [{ "ns": "e.c" }, { "ns": "d.c" }],
    };
    client.run("admin", first(bulk, 1, 9)).await;
    client.run("admin", within(commit(), 1, 9)).await;
    assert_eq!((count(&mut client).await, client.run("e", rawdoc! { "count": "c" }).await.int("n")), (0, 1));
}

#[tokio::test]
async fn a_standalone_server_refuses_transaction_numbers() {
    let (sources, _) = handfast_store::Sources::manual(1);
    let store = handfast_store::MemoryStore::new(sources);
    let options = Options { topology: Topology::Standalone, ..Options::default() };
    let mut server = TestServer::new(Arc::new(store), options);
    let text = "Transaction numbers are only allowed on a replica set member or mongos";
    let expected = (20, "IllegalOperation".to_owned(), text.to_owned());
    assert_eq!(server.connect().refused("d", first(insert_of(1), 1, 1)).await, expected);
    // A retryable write is refused too. From this code and text drivers derive their advice to turn retryWrites off.
    let write = with_number(insert_of(1), 1);
    let reply = server.connect().run("d", write).await;
    assert_eq!((error_of(&reply), labels(&reply)), (expected, Vec::new()));
    assert_eq!(count(&mut server.connect()).await, 0);
}

/// The second writer of a document gets the conflict at once, and its transaction ends.
/// The statements of several collations run one after the other, and are one command for the transaction.
#[tokio::test]
async fn a_conflict_of_a_later_statement_under_another_collation_ends_the_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", insert_of(1)).await;
    client.run("d", insert_of(2)).await;
    let change = |id: i32| rawdoc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } };
    client.run("d", first(rawdoc! { "update": "c", "updates": [change(2)] }, 1, 1)).await;
    let mut other = change(2);
    other.append(bson::raw::cstr!("collation"), rawdoc! { "locale": "en", "strength": 2 });
    let both = rawdoc! { "update": "c", "updates": [change(1), other] };
    let reply = client.run("d", first(both, 2, 1)).await;
    assert_eq!(code_and_labels(&reply), (112, vec![TRANSIENT.to_owned()]));
    let deletes = rawdoc! { "delete": "c", "deletes": [
        { "q": { "_id": 1 }, "limit": 1 }, { "q": { "_id": 2 }, "limit": 1, "collation": { "locale": "en" } },
    ] };
    let reply = client.run("d", first(deletes, 3, 1)).await;
    assert_eq!(code_and_labels(&reply), (112, vec![TRANSIENT.to_owned()]));
}

#[tokio::test]
async fn a_conflict_ends_the_transaction_of_the_second_writer() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", insert_of(1)).await;
    let update = || rawdoc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }] };
    client.run("d", first(update(), 1, 1)).await;
    let reply = client.run("d", first(update(), 2, 1)).await;
    assert_eq!(code_and_labels(&reply), (112, vec![TRANSIENT.to_owned()]));
    let reply = client.run("d", within(update(), 2, 1)).await;
    assert_eq!(code_and_labels(&reply), (251, vec![TRANSIENT.to_owned()]));
    let reply = client.run("admin", within(commit(), 2, 1)).await;
    assert_eq!(code_and_labels(&reply), (251, vec![TRANSIENT.to_owned()]));
    assert_eq!(client.refused("admin", within(abort(), 2, 1)).await.0, 251);
    client.run("admin", within(commit(), 1, 1)).await;
    client.run("d", first(update(), 2, 2)).await;
    client.run("admin", within(commit(), 2, 2)).await;
    let found = client.run("d", rawdoc! { "find": "c" }).await;
    assert_eq!(batch(&found), [rawdoc! { "_id": 1, "n": 2 }]);
    // After a write outside of the transaction the commit reports a conflict, and is not applied.
    client.run("d", first(update(), 1, 2)).await;
    client.run("d", update()).await;
    let reply = client.run("admin", within(commit(), 1, 2)).await;
    assert_eq!(code_and_labels(&reply), (112, vec![TRANSIENT.to_owned()]));
    let found = client.run("d", rawdoc! { "find": "c" }).await;
    assert_eq!(batch(&found), [rawdoc! { "_id": 1, "n": 3 }]);
}

/// A statement that is refused ends the transaction, whether the command as a whole fails or not.
#[tokio::test]
async fn a_failure_ends_the_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", insert_of(1)).await;
    let bad_update = || rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$inc": { "_id": "x" } } }] };
    let bulk =
        || rawdoc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 1 } }], "nsInfo": [{ "ns": "d.c" }] };
    for (number, (database, command, ok)) in (1_i64..).zip([
        ("d", insert_of(1), 1.0),
        ("d", bad_update(), 1.0),
        ("admin", bulk(), 1.0),
        ("d", rawdoc! { "find": "c", "filter": { "$bad": 1 } }, 0.0),
        ("d", rawdoc! { "find": "c", "unknown": 1 }, 0.0),
        ("d", rawdoc! { "getMore": 99_i64, "collection": "c" }, 0.0),
    ]) {
        client.run("d", first(insert_of(7), 1, number)).await;
        let reply = client.run(database, within(command.clone(), 1, number)).await;
        assert_eq!(reply.double("ok"), ok, "{reply:?}");
        assert_eq!(client.refused("d", within(insert_of(8), 1, number)).await.0, 251, "{command:?}");
        assert_eq!(count(&mut client).await, 1);
    }
    assert_eq!(server.shared.database.counts().open(), 0);
}

#[tokio::test]
async fn a_cursor_belongs_to_its_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let find = || rawdoc! { "find": "c", "batchSize": 2 };
    let more = |id: i64| rawdoc! { "getMore": id, "collection": "c", "batchSize": 3 };
    let id = cursor_id(&client.run("d", first(find(), 1, 1)).await);
    // It reads the snapshot and the transaction's own writes as they were when it was opened.
    client.run("d", insert_of(100)).await;
    assert_eq!(batch(&client.run("d", within(more(id), 1, 1)).await).len(), 3);
    let mut outside = more(id);
    outside.append(bson::raw::cstr!("lsid"), lsid(1));
    assert_eq!(client.refused("d", outside).await.0, 50_740);
    let rest = client.run("d", within(rawdoc! { "getMore": id, "collection": "c" }, 1, 1)).await;
    assert_eq!((batch(&rest).len(), cursor_id(&rest)), (5, 0));
    let id = cursor_id(&client.run("d", within(find(), 1, 1)).await);
    let killed = client.run("d", within(rawdoc! { "killCursors": "c", "cursors": [id] }, 1, 1)).await;
    assert_eq!(killed.get_array("cursorsKilled").unwrap().into_iter().count(), 1);
    let id = cursor_id(&client.run("d", within(find(), 1, 1)).await);
    client.run("admin", within(commit(), 1, 1)).await;
    let mut outside = more(id);
    outside.append(bson::raw::cstr!("lsid"), lsid(1));
    assert_eq!(client.refused("d", outside).await.0, 43);
    assert_eq!(server.shared.cursors.counts().open, 0);
}

#[tokio::test]
async fn a_transaction_ends_after_its_lifetime() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    client.run("d", first(insert_of(100), 1, 1)).await;
    client.run("d", within(rawdoc! { "find": "c", "batchSize": 1 }, 1, 1)).await;
    server.advance(Duration::from_secs(59));
    client.run("d", within(insert_of(101), 1, 1)).await;
    assert_eq!(server.shared.database.counts().open(), 1);
    server.advance(Duration::from_secs(1));
    // It ends without a request of a client.
    assert_eq!(server.shared.database.counts().open(), 0);
    assert_eq!(server.shared.cursors.counts().open, 0);
    let reply = client.run("admin", within(commit(), 1, 1)).await;
    assert_eq!(code_and_labels(&reply), (251, vec![TRANSIENT.to_owned()]));
    assert_eq!(count(&mut client).await, 10);
    // It has ended even if it is not removed yet.
    client.run("d", first(insert_of(100), 1, 2)).await;
    server.clock.advance(Duration::from_secs(61));
    let reply = client.run("d", within(insert_of(101), 1, 2)).await;
    assert_eq!(code_and_labels(&reply), (251, vec![TRANSIENT.to_owned()]));
    client.run("d", first(insert_of(100), 1, 3)).await;
    server.clock.advance(Duration::from_secs(61));
    assert_eq!(client.refused("admin", within(commit(), 1, 3)).await.0, 251);
    assert_eq!(count(&mut client).await, 10);
}

#[tokio::test]
async fn the_end_of_a_session_is_the_end_of_its_transaction() {
    let mut server = TestServer::transactional();
    let (mut client, mut admin) = (server.connect(), server.connect());
    for (number, command) in (1_i64..).zip([
        rawdoc! { "endSessions": [lsid(1)] },
        rawdoc! { "killSessions": [lsid(1)] },
        rawdoc! { "killAllSessions": [] },
        rawdoc! { "killAllSessionsByPattern": [] },
        rawdoc! { "killAllSessionsByPattern": [{ "lsid": lsid(1) }] },
    ]) {
        client.run("d", first(insert_of(1), 1, number)).await;
        client.run("d", first(insert_of(2), 2, number)).await;
        admin.run("admin", command.clone()).await;
        let left = server.shared.database.counts().open();
        let all = matches!(number, 3 | 4);
        assert_eq!(left, u64::from(!all), "{command:?}");
        assert_eq!(client.refused("admin", within(commit(), 1, number)).await.0, 251);
        let _ended = client.run("admin", within(abort(), 2, number)).await;
    }
    // A client that goes away leaves its transaction for any client that knows its session.
    client.run("d", first(insert_of(3), 1, 9)).await;
    drop(client);
    tokio::task::yield_now().await;
    admin.run("admin", within(commit(), 1, 9)).await;
    assert_eq!(count(&mut admin).await, 1);
    // A newer number takes the place of an older one.
    admin.run("d", first(insert_of(4), 1, 10)).await;
    admin.run("d", first(insert_of(5), 1, 11)).await;
    assert_eq!(server.shared.database.counts().open(), 1);
    let write = with_number(insert_of(4), 12);
    admin.run("d", write).await;
    assert_eq!(server.shared.database.counts().open(), 0);
    server.advance(Duration::from_secs(31 * 60));
    assert_eq!(server.shared.sessions.len(), 0);
}

/// A client that asks for the outcome during the commit must not get the reply that there was no transaction.
#[tokio::test]
async fn a_session_that_is_ended_during_its_commit_stays_until_the_commit_has_finished() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let sessions = Arc::clone(&server.shared.sessions);
    for (number, committed) in (1_i64..).zip([true, false]) {
        client.run("d", first(insert_of(i32::try_from(number).unwrap()), 1, number)).await;
        let open = sessions.transactions().pop().unwrap();
        assert!(sessions.begin_commit(&open).is_ok());
        assert_eq!(sessions.end_all(), [open.session]);
        assert!(sessions.end(open.session), "it is ended again");
        let latest = sessions.latest(open.session).unwrap();
        assert!(latest.number == number && matches!(latest.state, NumberState::Committing(_)));
        let used = if committed {
            open.transaction.clone().commit().await.unwrap();
            NumberState::Committed
        } else {
            open.transaction.clone().abort();
            NumberState::Aborted { by_client: false }
        };
        sessions.set_state(&open, used);
        assert_eq!(sessions.len(), 0, "then it ends");
        // A repeated commit asks the store for the outcome.
        match committed {
            true => drop(client.run("admin", within(commit(), 1, number)).await),
            false => assert_eq!(client.refused("admin", within(commit(), 1, number)).await.0, 251),
        }
        sessions.end_all();
    }
    // A transaction whose session was ended first does not commit.
    client.run("d", first(insert_of(9), 1, 9)).await;
    let open = sessions.transactions().pop().unwrap();
    sessions.end_all();
    assert!(sessions.begin_commit(&open).is_err_and(|latest| latest.is_none()));
    assert_eq!(count(&mut client).await, 1);
}

/// The second of two requests of a transaction waits for the first one.
#[tokio::test]
async fn two_connections_share_a_transaction_in_turns() {
    let mut server = TestServer::transactional();
    let (mut one, mut two) = (server.connect(), server.connect());
    one.run("d", first(insert_of(1), 1, 1)).await;
    let open = server.shared.sessions.transactions().pop().unwrap();
    let turn = Arc::clone(&open.turn).lock_owned().await;
    two.send(handfast_wire::Flags::default(), "d", within(insert_of(2), 1, 1), &[]).await;
    one.send(handfast_wire::Flags::default(), "admin", within(commit(), 1, 1), &[]).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(open.transaction.is_open());
    drop(turn);
    let (_, _, first) = two.receive().await.unwrap();
    let (_, _, second) = one.receive().await.unwrap();
    assert_eq!(second.double("ok"), 1.0);
    // The two requests run in either order. The write was applied, or its error says that it came after the commit.
    let expected = if first.double("ok") == 1.0 { 2 } else { 1 };
    assert!(expected == 2 || error_of(&first).0 == 256);
    assert_eq!(count(&mut one).await, expected);
}

#[tokio::test]
async fn a_commit_is_remembered_after_a_restart() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        client.run("d", first(insert_of(1), 1, 4)).await;
        client.run("admin", within(commit(), 1, 4)).await;
        client.run("d", first(insert_of(2), 2, 1)).await;
        server.restart();
        let mut client = server.connect();
        for _ in 0..2 {
            assert_eq!(client.run("admin", within(commit(), 1, 4)).await, rawdoc! { "ok": 1.0 });
        }
        assert_eq!(client.refused("admin", within(commit(), 2, 1)).await.0, 251);
        server.restart();
        let mut client = server.connect();
        assert_eq!(client.refused("d", first(insert_of(2), 1, 3)).await.0, 225);
        assert_eq!(client.refused("d", first(insert_of(2), 1, 4)).await.0, 117);
        assert_eq!(client.run("admin", within(commit(), 1, 4)).await, rawdoc! { "ok": 1.0 });
        client.run("d", first(insert_of(3), 1, 5)).await;
        client.run("admin", within(commit(), 1, 5)).await;
        assert_eq!(count(&mut client).await, 2);
    }
}

#[tokio::test]
async fn collections_and_indexes_are_created_in_a_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", first(rawdoc! { "create": "c" }, 1, 1)).await;
    let indexes = rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1", "unique": true }] };
    let reply = client.run("d", within(indexes, 1, 1)).await;
    assert!(!reply.flag("createdCollectionAutomatically"));
    client.run("d", within(insert_of(1), 1, 1)).await;
    client.run("admin", within(commit(), 1, 1)).await;
    let indexes = client.run("d", rawdoc! { "listIndexes": "c" }).await;
    assert_eq!(batch(&indexes).len(), 2);
    let more = rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "b": 1 }, "name": "b_1" }] };
    assert_eq!(client.refused("d", first(more, 1, 2)).await.0, 263);
}

#[tokio::test]
async fn an_open_transaction_is_shown_and_counted() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", insert_of(0)).await;
    let mut find = rawdoc! { "find": "c", "readConcern": { "level": "snapshot" } };
    find.append(bson::raw::cstr!("startTransaction"), true);
    client.run("d", within(find, 1, 3)).await;
    let reply = client.run("admin", rawdoc! { "currentOp": 1, "transaction.parameters.txnNumber": 3 }).await;
    let open = reply.get_array("inprog").unwrap().get_document(0).unwrap();
    assert_eq!((open.text("type"), open.flag("active")), ("idleSession", false));
    let parameters = open.get_document("transaction").unwrap().get_document("parameters").unwrap();
    let expected = rawdoc! { "txnNumber": 3_i64, "autocommit": false, "readConcern": { "level": "snapshot" } };
    assert_eq!(parameters, &*expected);
    let counts = |reply: &bson::RawDocument| {
        let counts = reply.get_document("transactions").unwrap();
        ["currentOpen", "currentInactive", "totalStarted", "totalCommitted", "totalAborted"]
            .map(|name| counts.long(name))
    };
    assert_eq!(counts(&client.run("admin", rawdoc! { "serverStatus": 1 }).await), [1, 1, 1, 0, 0]);
    client.run("admin", within(commit(), 1, 3)).await;
    client.run("d", first(insert_of(1), 1, 4)).await;
    client.run("admin", within(abort(), 1, 4)).await;
    assert_eq!(counts(&client.run("admin", rawdoc! { "serverStatus": 1 }).await), [0, 0, 2, 1, 1]);
}

/// Outside of a transaction `create` accepts a collection that exists; in a transaction it has to create it.
#[tokio::test]
async fn a_collection_is_created_once_in_a_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let create = || rawdoc! { "create": "c" };
    for command in [first(create(), 1, 1), within(insert_of(1), 1, 1)] {
        assert_eq!(client.run("d", command).await.double("ok"), 1.0);
    }
    assert_eq!(client.refused("d", within(create(), 1, 1)).await.0, 48);
    assert_eq!(client.run("d", create()).await.double("ok"), 1.0);
    assert_eq!(client.run("d", create()).await.double("ok"), 1.0);
    assert_eq!(client.refused("d", first(create(), 1, 2)).await.0, 48);
}

#[tokio::test]
async fn a_later_number_closes_the_cursors_of_a_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &numbered(10))]).await;
    let find = || rawdoc! { "find": "c", "batchSize": 1, "noCursorTimeout": true };
    let write = with_number(insert_of(100), 2);
    for (number, next) in [(1, write), (3, first(find(), 1, 4))] {
        client.run("d", first(find(), 1, number)).await;
        assert_eq!(server.shared.cursors.counts().open, 1);
        client.run("d", next).await;
        assert_eq!(server.shared.cursors.counts().open, u64::from(number == 3));
    }
    client.run("admin", within(abort(), 1, 4)).await;
    assert_eq!((server.shared.cursors.counts().open, server.shared.database.counts().open()), (0, 0));
}

#[tokio::test]
async fn a_pipeline_beside_the_body_is_known_to_write() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let aggregate = first(rawdoc! { "aggregate": "c", "cursor": {} }, 1, 1);
    let stages = [rawdoc! { "$out": "x" }];
    let reply = client.run_with("d", aggregate, &[("pipeline", &stages)]).await;
    let (code, _, text) = error_of(&reply);
    assert_eq!((code, &*text), (263, "$out and $merge cannot run in a multi-document transaction."));
}
