use std::time::Duration;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{RawBson, rawdoc};

use crate::testing::{ReplyFields, TestClient, TestServer, batch, in_transaction, insert, numbered};

async fn stage(client: &mut TestClient, options: RawBson) -> RawDocumentBuf {
    let pipeline = bson::rawbson!([{ "$currentOp": options }]);
    client.run("admin", rawdoc! { "aggregate": 1, "pipeline": pipeline, "cursor": {} }).await
}

fn types(documents: &[RawDocumentBuf]) -> Vec<(String, bool)> {
    let active = |document: &RawDocument| document.get_bool("active").unwrap_or_default();
    documents.iter().map(|document| (document.text("type").to_owned(), active(document))).collect()
}

#[tokio::test]
async fn a_command_has_the_name_of_its_application() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    client.run("admin", rawdoc! { "hello": 1, "client": { "application": { "name": "app" } } }).await;
    let reply = client.run("admin", rawdoc! { "currentOp": 1 }).await;
    let own = reply.get_array("inprog").unwrap().get_document(0).unwrap();
    assert_eq!(own.text("appName"), "app");
    let metadata = rawdoc! { "application": { "name": "app" } };
    assert_eq!(own.get_document("clientMetadata").unwrap(), &*metadata);
}

#[tokio::test]
async fn idle_connections_transactions_and_cursors_are_listed_on_request() {
    let mut server = TestServer::transactional();
    let (mut client, mut other) = (server.connect(), server.connect());
    insert(&mut client, "c", &numbered(3)).await;
    other.run("d", rawdoc! { "find": "c", "batchSize": 1 }).await;
    other.run("d", in_transaction(rawdoc! { "find": "c" }, 1, true)).await;
    server.advance(Duration::from_secs(2));
    let named = |kind: &str, active: bool| (kind.to_owned(), active);
    let (own, transaction, cursor, idle) =
        (named("op", true), named("idleSession", false), named("idleCursor", false), named("op", false));
    for (options, expected) in [
        (rawdoc! {}, vec![&own, &transaction]),
        (rawdoc! { "idleSessions": false }, vec![&own]),
        (rawdoc! { "idleSessions": false, "idleCursors": true }, vec![&own, &cursor]),
        (rawdoc! { "idleSessions": false, "idleConnections": true }, vec![&own, &idle]),
        (
            rawdoc! { "allUsers": true, "localOps": true, "truncateOps": true, "backtrace": true, "targetAllNodes": false },
            vec![&own, &transaction],
        ),
    ] {
        let listed = types(&batch(&stage(&mut client, RawBson::Document(options.clone())).await));
        assert_eq!(listed.iter().collect::<Vec<_>>(), expected, "{options:?}");
    }
    let cursors = rawdoc! { "idleSessions": false, "idleCursors": true };
    let listed = batch(&stage(&mut client, RawBson::Document(cursors)).await);
    let cursor = &listed[1];
    assert_eq!(cursor.text("ns"), "d.c");
    let facts = cursor.get_document("cursor").unwrap();
    assert_eq!((facts.flag("noCursorTimeout"), facts.flag("tailable"), facts.flag("awaitData")), (false, false, false));
    let used = facts.get_datetime("lastAccessDate").unwrap().timestamp_millis();
    assert_eq!(server.shared.sources.clock.now().timestamp_millis() - used, 2_000);
    // The command lists idle connections with `$all`.
    for (command, count) in
        [(rawdoc! { "currentOp": 1, "type": "op" }, 1), (rawdoc! { "currentOp": 1, "$all": true, "type": "op" }, 2)]
    {
        let reply = client.run("admin", command.clone()).await;
        assert_eq!(reply.get_array("inprog").unwrap().into_iter().count(), count, "{command:?}");
    }
}

#[tokio::test]
async fn options_of_the_stage_are_checked() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    for (options, code, text) in [
        (bson::rawbson!(1), 14, "$currentOp options must be specified in an object, but found: int"),
        (
            bson::rawbson!({ "allUsers": 1 }),
            14,
            "The 'allUsers' parameter of the $currentOp stage must be a boolean value, but found: int",
        ),
        (bson::rawbson!({ "localOps": "x" }), 14, "but found: string"),
        (bson::rawbson!({ "idleCursors": 1 }), 9, "The 'idleCursors' parameter of the $currentOp stage"),
        (bson::rawbson!({ "idleConnections": null }), 9, "but found: null"),
        (bson::rawbson!({ "idleSessions": 0 }), 9, "'idleSessions'"),
        (bson::rawbson!({ "backtrace": 0 }), 9, "'backtrace'"),
        (bson::rawbson!({ "truncateOps": 0 }), 9, "'truncateOps'"),
        (bson::rawbson!({ "targetAllNodes": 0 }), 9, "'targetAllNodes'"),
        (bson::rawbson!({ "x": true }), 9, "Unrecognized option 'x' in $currentOp stage."),
    ] {
        let reply = stage(&mut client, options.clone()).await;
        assert_eq!(reply.int("code"), code, "{options:?}: {reply:?}");
        assert!(reply.text("errmsg").contains(text), "{options:?}: {reply:?}");
    }
}

#[tokio::test]
async fn a_user_sees_its_own_operations_and_others_with_the_right_to() {
    let mut server = TestServer::guarded();
    let mut clients = Vec::new();
    for (name, role) in [("ann", "read@shop"), ("eve", "clusterMonitor@admin")] {
        server.add_user("admin", name, &[role]).await;
        let mut client = server.connect();
        assert!(client.log_in("admin", name, name).await.flag("done"));
        clients.push(client);
    }
    let idle = |all: bool| bson::rawbson!({ "allUsers": all, "idleConnections": true });
    let own = batch(&stage(&mut clients[0], idle(false)).await);
    let users = rawdoc! { "effectiveUsers": [{ "user": "ann", "db": "admin" }] };
    assert_eq!(types(&own), [("op".to_owned(), true)]);
    assert_eq!(own[0].get_array("effectiveUsers").unwrap(), users.get_array("effectiveUsers").unwrap());
    assert_eq!(stage(&mut clients[0], idle(true)).await.int("code"), 13);
    assert_eq!(batch(&stage(&mut clients[1], idle(true)).await).len(), 2);
    // The command shows those of all users, unless the client asks for its own ones.
    for (place, command, count) in [
        (0, rawdoc! { "currentOp": 1 }, None),
        (0, rawdoc! { "currentOp": 1, "$ownOps": true }, Some(1)),
        (1, rawdoc! { "currentOp": 1, "$all": true }, Some(2)),
        (1, rawdoc! { "currentOp": 1, "$all": true, "$ownOps": true }, Some(1)),
    ] {
        let reply = clients[place].run("admin", command.clone()).await;
        let found = reply.get_array("inprog").ok().map(|listed| listed.into_iter().count());
        assert_eq!(found, count, "{command:?}: {reply:?}");
    }
}
