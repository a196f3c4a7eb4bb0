//! Sessions, their snapshot reads, and their cursors and transactions at their end.

use std::time::Duration;

use bson::raw::RawDocumentBuf;
use bson::rawdoc;

use crate::testing::{ReplyFields, TestClient, TestServer, batch, cursor_id, error_of, insert, lsid, numbered};

#[tokio::test]
async fn sessions_are_started_refreshed_and_ended() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let reply = client.run("admin", rawdoc! { "startSession": 1 }).await;
    let id = reply.get_document("id").unwrap();
    assert_eq!(id.get_binary("id").unwrap().bytes.len(), 16);
    client.run("d", rawdoc! { "ping": 1, "lsid": lsid(1) }).await;
    assert_eq!(server.shared.sessions.len(), 2);
    server.advance(Duration::from_secs(20 * 60));
    client.run("admin", rawdoc! { "refreshSessions": [lsid(1)] }).await;
    server.advance(Duration::from_secs(20 * 60));
    assert_eq!(server.shared.sessions.len(), 1);
    client.run("admin", rawdoc! { "endSessions": [lsid(1), lsid(2)] }).await;
    assert_eq!(server.shared.sessions.len(), 0);
}

/// A session reads one snapshot outside of a transaction, for as long as a transaction may be open.
#[tokio::test]
async fn a_session_reads_a_snapshot() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    let of = |mut command: RawDocumentBuf, session: u8, at: Option<bson::Timestamp>| {
        let mut concern = rawdoc! { "level": "snapshot" };
        if let Some(at) = at {
            concern.append(bson::raw::cstr!("atClusterTime"), at);
        }
        command.append(bson::raw::cstr!("lsid"), lsid(session));
        command.append(bson::raw::cstr!("readConcern"), concern);
        command
    };
    let find = || rawdoc! { "find": "c", "batchSize": 2 };
    let first = client.run("d", of(find(), 1, None)).await;
    let at = first.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    insert(&mut client, "c", &[rawdoc! { "_id": 3 }]).await;

    // The snapshot is read by the cursor and by further reads of each kind; another session reads the newest state.
    let more = rawdoc! { "getMore": cursor_id(&first), "collection": "c" };
    assert_eq!(batch(&client.run("d", of(more, 1, Some(at))).await), [rawdoc! { "_id": 2 }]);
    let again = client.run("d", of(rawdoc! { "find": "c" }, 1, Some(at))).await;
    assert_eq!(batch(&again).len(), 3);
    assert_eq!(again.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap(), at);
    let distinct = client.run("d", of(rawdoc! { "distinct": "c", "key": "_id" }, 1, Some(at))).await;
    assert_eq!(distinct.get_array("values").unwrap().into_iter().count(), 3);
    assert_eq!(distinct.get_timestamp("atClusterTime").unwrap(), at);
    let count = rawdoc! { "aggregate": "c", "pipeline": [{ "$count": "n" }], "cursor": {} };
    assert_eq!(batch(&client.run("d", of(count, 1, Some(at))).await), [rawdoc! { "n": 3 }]);
    assert_eq!(client.refused("d", of(find(), 2, Some(at))).await.0, 239);
    assert_eq!(batch(&client.run("d", of(rawdoc! { "find": "c" }, 2, None)).await).len(), 4);

    // Commands that cannot read a snapshot are refused.
    let out = rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "o" }], "cursor": {} };
    let write = rawdoc! { "insert": "c", "documents": [{}] };
    for command in [out, write, rawdoc! { "count": "c" }, rawdoc! { "listCollections": 1 }] {
        assert_eq!(client.refused("d", of(command.clone(), 1, Some(at))).await.0, 72, "{command:?}");
    }

    // A snapshot ends after its lifetime, with its session, or when the session reads the next one and its cursors are closed.
    assert_eq!(server.shared.database.counts().snapshots, 2);
    let before = client.run("d", of(find(), 2, None)).await;
    let at_before = before.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    assert_eq!(server.shared.database.counts().snapshots, 2);
    insert(&mut client, "c", &[rawdoc! { "_id": 4 }]).await;
    assert_eq!(batch(&client.run("d", of(rawdoc! { "find": "c" }, 2, None)).await).len(), 5);
    assert_eq!(server.shared.database.counts().snapshots, 3);
    let more = rawdoc! { "getMore": cursor_id(&before), "collection": "c" };
    assert_eq!(
        batch(&client.run("d", of(more, 2, Some(at_before))).await),
        [rawdoc! { "_id": 2 }, rawdoc! { "_id": 3 }]
    );
    assert_eq!(server.shared.database.counts().snapshots, 2);
    client.run("d", rawdoc! { "endSessions": [lsid(2)] }).await;
    assert_eq!(server.shared.database.counts().snapshots, 1);
    server.advance(Duration::from_secs(61));
    assert_eq!(server.shared.database.counts().snapshots, 0);
    assert_eq!(client.refused("d", of(find(), 1, Some(at))).await.0, 239);
}

/// `serverStatus` counts snapshots apart from transactions, and the error of an expired snapshot has no label of a transaction.
#[tokio::test]
async fn a_snapshot_read_is_not_counted_as_a_transaction() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    let read = rawdoc! { "level": "snapshot" };
    let find =
        |session: u8| rawdoc! { "find": "c", "batchSize": 1, "lsid": lsid(session), "readConcern": read.clone() };
    let cursors = [client.run("d", find(1)).await, client.run("d", find(2)).await].map(|reply| cursor_id(&reply));
    let counted = async |client: &mut TestClient| {
        let status = client.run("admin", rawdoc! { "serverStatus": 1 }).await;
        let transactions = status.get_document("transactions").unwrap();
        ["totalStarted", "totalAborted", "currentOpen", "currentSnapshots"].map(|name| transactions.long(name))
    };
    assert_eq!(counted(&mut client).await, [0, 0, 0, 2]);
    let more = |cursor: i64, session: u8| rawdoc! { "getMore": cursor, "collection": "c", "lsid": lsid(session) };
    // The snapshot is refused as too old both before and after it is removed.
    server.clock.advance(Duration::from_secs(61));
    let reply = client.run("d", more(cursors[0], 1)).await;
    assert_eq!((error_of(&reply).0, reply.get("errorLabels").unwrap()), (239, None), "{reply:?}");
    server.advance(Duration::from_secs(1));
    assert_eq!(client.refused("d", more(cursors[1], 2)).await.0, 239);
    assert_eq!(counted(&mut client).await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn expired_transactions_snapshots_cursors_sessions_and_outcomes_are_removed() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let of = |mut command: RawDocumentBuf, session: u8, more: RawDocumentBuf| {
        command.append(bson::raw::cstr!("lsid"), lsid(session));
        for element in &more {
            let (name, value) = element.unwrap();
            command.append(name, value);
        }
        command
    };
    let first = || rawdoc! { "txnNumber": 1_i64, "autocommit": false, "startTransaction": true };
    let insert = |id: i32| rawdoc! { "insert": "c", "documents": [{ "_id": id }, { "_id": id + 1 }] };
    for command in [
        of(insert(1), 1, rawdoc! { "txnNumber": 1_i64 }),
        of(insert(10), 2, first()),
        of(insert(20), 3, first()),
        of(rawdoc! { "find": "c" }, 4, rawdoc! { "readConcern": { "level": "snapshot" } }),
        of(rawdoc! { "find": "c", "batchSize": 1 }, 5, rawdoc! {}),
    ] {
        assert_eq!(client.run("d", command).await.double("ok"), 1.0);
    }
    let commit = rawdoc! { "commitTransaction": 1, "txnNumber": 1_i64, "autocommit": false };
    assert_eq!(client.run("admin", of(commit, 2, rawdoc! {})).await.double("ok"), 1.0);

    let counts = async |client: &mut TestClient| {
        let status = client.run("admin", rawdoc! { "serverStatus": 1 }).await;
        let transactions = status.get_document("transactions").unwrap();
        let cursors = status.get_document("metrics").unwrap().get_document("cursor").unwrap();
        let sessions = status.get_document("logicalSessionRecordCache").unwrap();
        let records = client.run("config", rawdoc! { "count": "transactions" }).await.int("n");
        (
            transactions.long("currentOpen"),
            transactions.long("currentSnapshots"),
            cursors.get_document("open").unwrap().long("total"),
            sessions.long("activeSessionsCount"),
            records,
        )
    };
    assert_eq!(counts(&mut client).await, (1, 1, 1, 5, 2));
    server.advance(Duration::from_secs(60));
    assert_eq!(counts(&mut client).await, (0, 0, 1, 5, 2));
    server.advance(Duration::from_secs(30 * 60));
    assert_eq!(counts(&mut server.connect()).await, (0, 0, 0, 0, 2));
    server.shared.forget_outcomes().await;
    assert_eq!(counts(&mut server.connect()).await, (0, 0, 0, 0, 2));
    server.advance(server.shared.options.outcome_retention);
    server.shared.forget_outcomes().await;
    // A record stays, which has the time up to which outcomes were removed.
    let mut client = server.connect();
    assert_eq!(counts(&mut client).await, (0, 0, 0, 0, 1));
    let status = client.run("admin", rawdoc! { "serverStatus": 1 }).await;
    let sessions = status.get_document("logicalSessionRecordCache").unwrap();
    assert_eq!(sessions.long("transactionReaperJobCount"), 2);
    assert_eq!(sessions.long("lastTransactionReaperJobEntriesCleanedUp"), 2);
    assert!(sessions.get_datetime("lastTransactionReaperJobTimestamp").is_ok());
}
