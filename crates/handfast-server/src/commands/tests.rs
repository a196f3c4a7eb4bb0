mod backup;
mod documents;
mod fail_points;
mod outcome;
mod retryable;
mod server;
mod transactions;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bson::raw::{CString, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, RawBson, rawdoc};
use handfast_store::{CollectionCheck, Durability, IndexCheck};

use super::*;
use crate::lock::lock;
use crate::options::{CursorLimits, Options, Topology};
use crate::testing::{Look, TestClient, TestServer, TinyStore, batch, cursor_id, error_of};

fn numbered(count: i32) -> Vec<RawDocumentBuf> {
    (0..count).map(|id| rawdoc! { "_id": id }).collect()
}

async fn insert(client: &mut TestClient, collection: &str, documents: &[RawDocumentBuf]) {
    let reply = client.run_with("d", rawdoc! { "insert": collection }, &[("documents", documents)]).await;
    assert_eq!(reply, rawdoc! { "n": i32::try_from(documents.len()).unwrap(), "ok": 1.0 });
}

fn lsid(byte: u8) -> RawDocumentBuf {
    rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } }
}

#[test]
fn every_command_has_one_name() {
    let names: Vec<_> = COMMANDS
        .iter()
        .flat_map(|command| std::iter::once(command.name).chain(command.aliases.iter().copied()))
        .collect();
    let distinct: HashSet<_> = names.iter().collect();
    assert_eq!(names.len(), distinct.len());
    let sorted = COMMANDS.windows(2).all(|pair| pair[0].name.to_lowercase() < pair[1].name.to_lowercase());
    assert!(sorted, "listCommands shows them in order");
}

/// The expected properties are from MongoDB's manual: the pages on transactions, on retryable writes, on the read concern "snapshot"
/// and on `explain`; the counters are those of `opcounters` in `serverStatus`.
#[test]
fn the_properties_of_all_commands_are_those_of_mongodb() {
    let all = || COMMANDS.iter().chain(TEST_COMMANDS);
    let check = |expected: &[&str], has: &dyn Fn(&Command) -> bool| {
        let names: Vec<_> = all().filter(|command| has(command)).map(|command| command.name).collect();
        assert_eq!(names, expected);
    };
    let check_in_transaction = |kind, expected: &[&str]| check(expected, &|c| c.properties.in_transaction == kind);
    check_in_transaction(InTransaction::Abort, &["abortTransaction"]);
    check_in_transaction(InTransaction::Commit, &["commitTransaction"]);
    check_in_transaction(InTransaction::NotFirst, &["getMore", "killCursors"]);
    let statements = ["bulkWrite", "delete", "findAndModify", "insert", "update"];
    let collections = ["create", "createIndexes"];
    let reads = ["aggregate", "distinct", "find"];
    let mut allowed = [&statements[..], &collections, &reads].concat();
    allowed.sort_unstable();
    check_in_transaction(InTransaction::Allowed, &allowed);
    check(&statements, &|c| c.properties.retryable);
    check(&reads, &|c| c.properties.snapshots == SnapshotSupport::Allowed);
    check(&["getMore"], &|c| c.properties.snapshots == SnapshotSupport::OfCursor);
    check(&["getMore"], &|c| c.properties.time_limit == TimeLimit::OfCursor);
    check(&["find"], &|c| c.properties.counter == Counter::Query);
    check(&["getMore"], &|c| c.properties.counter == Counter::GetMore);
    check(&["bulkWrite", "delete", "insert", "update"], &|c| c.properties.counter == Counter::PerStatement);
    check(&["aggregate"], &|c| c.properties.access_of.is_some());
    check(&["bulkWrite"], &|c| c.properties.names_databases);
    check(&["logout", "saslStart"], &|c| c.properties.external_database);
    check(&["hello", "isMaster"], &|c| c.properties.legacy_query);
    check(&["configureFailPoint"], &|c| !c.properties.can_fail);
    let explained = ["aggregate", "count", "delete", "distinct", "find", "findAndModify", "update"];
    check(&explained, &|c| c.properties.explain.is_some());
    for command in all().filter(|command| command.properties.retryable) {
        assert_eq!(command.access, Access::Write, "{}", command.name);
    }
    for command in all().filter(|command| command.properties.snapshots != SnapshotSupport::Refused) {
        assert_eq!(command.access, Access::Read, "{}", command.name);
    }
}

/// Whatever a command does, an unknown option is refused by name. A command that is not here is not listed.
#[tokio::test]
async fn every_command_refuses_an_unknown_option() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    // hello takes the offers of any client; these take any field by design.
    let open = ["hello", "isMaster", "currentOp", "getParameter", "serverStatus"];
    for command in COMMANDS.iter().filter(|command| !open.contains(&command.name)) {
        let value: RawBson = match command.name {
            "endSessions" | "refreshSessions" | "killSessions" | "killAllSessions" | "killAllSessionsByPattern" => {
                RawBson::Array(bson::RawArrayBuf::new())
            }
            "getMore" => RawBson::Int64(1),
            "explain" => RawBson::Document(rawdoc! { "count": "c" }),
            "renameCollection" => RawBson::String("d.c".to_owned()),
            _ => RawBson::String("c".to_owned()),
        };
        let mut body = RawDocumentBuf::new();
        body.append(CString::try_from(command.name).unwrap(), value);
        for element in &rawdoc! {
            "collection": "c", "cursors": [], "documents": [{ "_id": 1 }], "updates": [{ "q": {}, "u": {} }],
            "deletes": [{ "q": {}, "limit": 1 }], "pipeline": [], "cursor": {}, "key": "a", "indexes": [], "index": "*",
            "to": "d.e", "op": 1, "ops": [], "nsInfo": [], "update": {}, "pwd": "p", "roles": [], "conversationId": 1,
            "mechanism": "SCRAM-SHA-256", "payload": Binary { subtype: BinarySubtype::Generic, bytes: Vec::new() },
        } {
            let (name, value) = element.unwrap();
            let needed: &[&str] = match command.name {
                "getMore" => &["collection"],
                "killCursors" => &["cursors"],
                "insert" => &["documents"],
                "update" => &["updates"],
                "delete" => &["deletes"],
                "aggregate" => &["pipeline", "cursor"],
                "distinct" => &["key"],
                "createIndexes" => &["indexes"],
                "dropIndexes" => &["index"],
                "renameCollection" => &["to"],
                "killOp" => &["op"],
                "bulkWrite" => &["ops", "nsInfo"],
                "findAndModify" => &["update"],
                "createUser" => &["pwd", "roles"],
                "updateUser" => &["pwd"],
                "grantRolesToUser" | "revokeRolesFromUser" => &["roles"],
                "saslStart" => &["mechanism", "payload"],
                "saslContinue" => &["conversationId", "payload"],
                _ => &[],
            };
            if needed.contains(&name.as_str()) {
                body.append(name, value);
            }
        }
        body.append(bson::raw::cstr!("fooBar"), 1);
        if command.properties.in_transaction.is_end() {
            body.append(bson::raw::cstr!("lsid"), lsid(1));
            body.append(bson::raw::cstr!("txnNumber"), 1_i64);
            body.append(bson::raw::cstr!("autocommit"), false);
        }
        let (code, _, text) = client.refused(if command.admin_only { "admin" } else { "d" }, body).await;
        assert_eq!((code, text), (40_415, format!("BSON field '{}.fooBar' is an unknown field.", command.name)));
    }
}

#[tokio::test]
async fn what_is_not_there() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    let expected = (59, "CommandNotFound".to_owned(), "no such command: 'foo'".to_owned());
    assert_eq!(client.refused("d", rawdoc! { "foo": 1 }).await, expected);
    let (code, name, text) = client.refused("d", rawdoc! { "listDatabases": 1 }).await;
    assert_eq!((code, name.as_str()), (13, "Unauthorized"));
    assert_eq!(text, "listDatabases may only be run against the admin database.");
    let strict = rawdoc! { "serverStatus": 1, "apiVersion": "1", "apiStrict": true };
    assert_eq!(client.refused("admin", strict).await.0, 323);
}

#[tokio::test]
async fn insert_and_find() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    let reply = client.run("d", rawdoc! { "find": "c" }).await;
    let expected = rawdoc! {
        "cursor": { "firstBatch": [{ "_id": 0 }, { "_id": 1 }, { "_id": 2 }], "id": 0_i64, "ns": "d.c" }, "ok": 1.0,
    };
    assert_eq!(reply, expected);
    let reply = client.run("d", rawdoc! { "find": "c", "filter": { "_id": { "$gt": 0 } }, "limit": 1 }).await;
    assert_eq!(batch(&reply), [rawdoc! { "_id": 1 }]);
    let array = rawdoc! { "insert": "e", "documents": [{ "_id": 1 }, { "_id": 2 }] };
    assert_eq!(client.run("d", array).await.int("n"), 2);
    assert_eq!(client.run("d", rawdoc! { "count": "e" }).await, rawdoc! { "n": 2, "ok": 1.0 });
    let both = client.run_with("d", rawdoc! { "insert": "c", "documents": [] }, &[("documents", &numbered(1))]).await;
    assert_eq!(error_of(&both).0, 40_431);
}

#[tokio::test]
async fn write_errors_by_their_place() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(1)).await;
    let documents = [rawdoc! { "_id": 5 }, rawdoc! { "_id": 0 }, rawdoc! { "_id": 6 }];
    let reply = client.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &documents)]).await;
    let error = rawdoc! {
        "index": 1, "code": 11000, "keyPattern": { "_id": 1 }, "keyValue": { "_id": 0 },
        "errmsg": "E11000 duplicate key error collection: d.c index: _id_ dup key: { _id: 0 }",
    };
    assert_eq!(reply, rawdoc! { "n": 1, "writeErrors": [error], "ok": 1.0 });
    let unordered = rawdoc! { "insert": "c", "ordered": false };
    let reply = client.run_with("d", unordered, &[("documents", &documents)]).await;
    let places: Vec<_> = indexes(&reply);
    assert_eq!((reply.int("n"), places), (1, vec![0, 1]));
}

fn indexes(reply: &bson::RawDocument) -> Vec<i32> {
    let errors = reply.get_array("writeErrors").unwrap();
    errors.into_iter().map(|error| error.unwrap().as_document().unwrap().int("index")).collect()
}

fn nested(levels: usize) -> RawDocumentBuf {
    let mut document = rawdoc! { "x": 1 };
    for _ in 1..levels {
        document = rawdoc! { "x": document };
    }
    document
}

#[tokio::test]
async fn documents_that_cannot_be_stored_are_write_errors() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    let large = rawdoc! { "_id": 1, "x": "x".repeat(16 * 1024 * 1024) };
    let documents = [rawdoc! { "_id": 0 }, large.clone(), rawdoc! { "_id": 2 }];
    let reply = client.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &documents)]).await;
    assert_eq!((reply.int("n"), indexes(&reply)), (1, vec![1]));
    let documents = [large, rawdoc! { "_id": 0 }, rawdoc! { "_id": 2 }];
    let unordered = rawdoc! { "insert": "c", "ordered": false };
    let reply = client.run_with("d", unordered, &[("documents", &documents)]).await;
    assert_eq!((reply.int("n"), indexes(&reply)), (1, vec![0, 1]));
    // A hundred levels below the top. A document in an array of the body may be as deep as on its own, and no deeper.
    for (levels, good) in [(101, true), (102, false)] {
        let mut document = rawdoc! { "_id": i32::try_from(levels).unwrap() };
        document.append(bson::raw::cstr!("x"), nested(levels - 1));
        let reply = client.run("d", rawdoc! { "insert": "deep", "documents": [document] }).await;
        assert_eq!(reply.get("writeErrors").unwrap().is_none(), good, "{levels}");
    }
}

#[tokio::test]
async fn batches_of_a_cursor() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(250)).await;
    let first = client.run("d", rawdoc! { "find": "c" }).await;
    assert_eq!(batch(&first).len(), 101);
    let id = cursor_id(&first);
    assert_ne!(id, 0);
    let second = client.run("d", rawdoc! { "getMore": id, "collection": "c", "batchSize": 100 }).await;
    assert_eq!((batch(&second).len(), cursor_id(&second)), (100, id));
    let third = client.run("d", rawdoc! { "getMore": id, "collection": "c" }).await;
    assert_eq!((batch(&third).len(), cursor_id(&third)), (49, 0));
    let all = [batch(&first), batch(&second), batch(&third)].concat();
    assert_eq!(all, numbered(250));
    let expected = (43, "CursorNotFound".to_owned(), format!("cursor id {id} not found"));
    assert_eq!(client.refused("d", rawdoc! { "getMore": id, "collection": "c" }).await, expected);
}

#[tokio::test]
async fn shapes_of_a_find() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let empty = client.run("d", rawdoc! { "find": "c", "batchSize": 0 }).await;
    assert!(batch(&empty).is_empty() && cursor_id(&empty) != 0);
    let rest = client.run("d", rawdoc! { "getMore": cursor_id(&empty), "collection": "c", "batchSize": 0 }).await;
    assert_eq!(batch(&rest).len(), 10);
    let single = client.run("d", rawdoc! { "find": "c", "batchSize": 3, "singleBatch": true }).await;
    assert_eq!((batch(&single).len(), cursor_id(&single)), (3, 0));
    let zero = client.run("d", rawdoc! { "find": "c", "limit": 0 }).await;
    assert_eq!(batch(&zero).len(), 10);
    for (body, code) in [
        (rawdoc! { "find": "c", "limit": -1 }, 51_024),
        (rawdoc! { "find": "c", "batchSize": -1 }, 51_024),
        (rawdoc! { "find": "c", "tailable": true }, 238),
        (rawdoc! { "find": "c", "collation": { "locale": "de" } }, 238),
        (rawdoc! { "find": "c", "min": { "a": 1 } }, 51_173),
        (rawdoc! { "find": "c", "hint": 1 }, 9),
        (rawdoc! { "find": 1 }, 73),
        (rawdoc! { "find": "" }, 73),
        (rawdoc! { "find": "a$b" }, 73),
        (rawdoc! { "find": "c", "filter": { "$foo": 1 } }, 2),
        (rawdoc! { "getMore": "x", "collection": "c" }, 14),
        (rawdoc! { "getMore": 1_i64 }, 40_414),
        (rawdoc! { "getMore": 1_i64, "collection": "c", "maxTimeMS": 1 }, 2),
    ] {
        assert_eq!(client.refused("d", body.clone()).await.0, code, "{body:?}");
    }
}

#[tokio::test]
async fn cursors_end_in_many_ways() {
    let options = Options {
        cursors: CursorLimits { idle_timeout: Duration::from_secs(600), open_max: 100, per_connection_max: 3 },
        ..Options::default()
    };
    let mut server = TestServer::new(Arc::new(TinyStore::default()), options);
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let find = || rawdoc! { "find": "c", "batchSize": 1 };
    let killed = cursor_id(&client.run("d", find()).await);
    let reply = client.run("d", rawdoc! { "killCursors": "c", "cursors": [killed, 7_i64] }).await;
    let expected = rawdoc! {
        "cursorsKilled": [killed], "cursorsNotFound": [7_i64], "cursorsAlive": [], "cursorsUnknown": [], "ok": 1.0,
    };
    assert_eq!(reply, expected);
    let idle = cursor_id(&client.run("d", find()).await);
    server.advance(Duration::from_secs(601));
    assert_eq!(client.refused("d", rawdoc! { "getMore": idle, "collection": "c" }).await.0, 43);
    let forever = rawdoc! { "find": "c", "batchSize": 1, "noCursorTimeout": true };
    let forever = cursor_id(&client.run("d", forever).await);
    server.advance(Duration::from_secs(601));
    assert_eq!(batch(&client.run("d", rawdoc! { "getMore": forever, "collection": "c" }).await).len(), 9);
    // Those of a session end with it.
    let of_session = rawdoc! { "find": "c", "batchSize": 1, "lsid": lsid(1) };
    let of_session = cursor_id(&client.run("d", of_session).await);
    assert_eq!(client.refused("d", rawdoc! { "getMore": of_session, "collection": "c" }).await.0, 50_737);
    client.run("admin", rawdoc! { "endSessions": [lsid(1)] }).await;
    let more = rawdoc! { "getMore": of_session, "collection": "c", "lsid": lsid(1) };
    assert_eq!(client.refused("d", more).await.0, 43);
    for _ in 0..3 {
        client.run("d", find()).await;
    }
    assert_eq!(client.refused("d", find()).await.0, 96);
    assert_eq!(batch(&server.connect().run("d", find()).await).len(), 1);
}

#[tokio::test]
async fn the_stores_errors_arrive_as_they_are() {
    let store = Arc::new(TinyStore::default());
    let mut server = TestServer::new(Arc::clone(&store) as Arc<dyn DocumentStore>, Options::default());
    let error = handfast_store::Error::command(handfast_mql::Code::OutOfDiskSpace, "the disk is full");
    *lock(&store.failure) = Some(error.with_details(rawdoc! { "free": 0 }));
    let reply = server.connect().run_with("d", rawdoc! { "insert": "c" }, &[("documents", &numbered(1))]).await;
    let expected =
        rawdoc! { "ok": 0.0, "errmsg": "the disk is full", "code": 14031, "codeName": "OutOfDiskSpace", "free": 0 };
    assert_eq!(reply, expected);
}

#[tokio::test]
async fn batches_of_writes_are_bounded() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    let text = |count| format!("Write batch sizes must be between 1 and 100000. Got {count} operations.");
    let none = rawdoc! { "insert": "c", "documents": [] };
    assert_eq!(client.refused("d", none).await, (16, "InvalidLength".to_owned(), text(0)));
    let many = vec![rawdoc! { "q": {}, "limit": 1 }; 100_001];
    let reply = client.run_with("d", rawdoc! { "delete": "c" }, &[("deletes", &many)]).await;
    assert_eq!(error_of(&reply), (16, "InvalidLength".to_owned(), text(100_001)));
    // The connection goes on.
    client.run("d", rawdoc! { "ping": 1 }).await;
}

#[tokio::test]
async fn deletes() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(5)).await;
    let statements = [rawdoc! { "q": { "_id": { "$lt": 3 } }, "limit": 0 }, rawdoc! { "q": {}, "limit": 1 }];
    let reply = client.run_with("d", rawdoc! { "delete": "c" }, &[("deletes", &statements)]).await;
    assert_eq!(reply, rawdoc! { "n": 4, "ok": 1.0 });
    let wrong = rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 2 }] };
    assert_eq!(client.refused("d", wrong).await.0, 9);
    let missing = rawdoc! { "delete": "c", "deletes": [{ "q": {} }] };
    let text = "BSON field 'delete.deletes.limit' is missing but a required field";
    assert_eq!(client.refused("d", missing).await, (40_414, "Location40414".to_owned(), text.to_owned()));
}

#[tokio::test]
async fn lists() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    insert(&mut client, "b", &numbered(1)).await;
    insert(&mut client, "a", &numbered(1)).await;
    let reply = client.run("d", rawdoc! { "listCollections": 1, "filter": { "name": "b" } }).await;
    let collections = batch(&reply);
    assert_eq!(collections.len(), 1);
    assert_eq!(collections[0].text("name"), "b");
    assert_eq!(collections[0].get_document("info").unwrap().get_binary("uuid").unwrap().subtype, BinarySubtype::Uuid);
    let names = client.run("d", rawdoc! { "listCollections": 1, "nameOnly": true, "cursor": { "batchSize": 1 } }).await;
    assert_eq!(batch(&names), [rawdoc! { "name": "a", "type": "collection" }]);
    let more = rawdoc! { "getMore": cursor_id(&names), "collection": "$cmd.listCollections" };
    assert_eq!(batch(&client.run("d", more).await), [rawdoc! { "name": "b", "type": "collection" }]);
    let reply = client.run("d", rawdoc! { "listIndexes": "a" }).await;
    assert_eq!(batch(&reply), [rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" }]);
    assert_eq!(client.refused("d", rawdoc! { "listIndexes": "none" }).await.0, 26);
    let reply = client.run("admin", rawdoc! { "listDatabases": 1 }).await;
    let expected = rawdoc! {
        "databases": [{ "name": "d", "sizeOnDisk": 8392_i64, "empty": false }],
        "totalSize": 8392_i64, "totalSizeMb": 0_i64, "ok": 1.0,
    };
    assert_eq!(reply, expected);
    let reply =
        client.run("admin", rawdoc! { "listDatabases": 1, "nameOnly": true, "filter": { "name": /* */ "x" } }).await;
    assert_eq!(reply, rawdoc! { "databases": [], "ok": 1.0 });
}

#[tokio::test]
async fn collections_come_and_go() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    client.run("d", rawdoc! { "create": "c" }).await;
    for (command, named) in [
        (rawdoc! { "create": "x", "pipeline": [], "viewOn": "c" }, "create.viewOn"),
        (rawdoc! { "create": "x", "size": 1, "max": 1, "capped": true }, "create.capped"),
        (rawdoc! { "create": "x", "validationLevel": "strict", "validator": {} }, "create.validator"),
        (rawdoc! { "create": "x", "expireAfterSeconds": 1, "timeseries": {} }, "create.timeseries"),
        (rawdoc! { "collMod": "c", "pipeline": [], "viewOn": "c" }, "collMod.viewOn"),
        (rawdoc! { "collMod": "c", "validationAction": "warn", "validator": {} }, "collMod.validator"),
    ] {
        let expected = (238, "NotImplemented".to_owned(), format!("the option '{named}' is not supported"));
        assert_eq!(client.refused("d", command).await, expected);
    }
    let reply = client.run("admin", rawdoc! { "renameCollection": "d.c", "to": "d.e" }).await;
    assert_eq!(reply, rawdoc! { "ok": 1.0 });
    let reply = client.run("d", rawdoc! { "drop": "e" }).await;
    assert_eq!(reply, rawdoc! { "nIndexesWas": 1, "ns": "d.e", "ok": 1.0 });
    assert_eq!(client.run("d", rawdoc! { "drop": "e" }).await, rawdoc! { "ok": 1.0 });
    client.run("d", rawdoc! { "create": "c" }).await;
    assert_eq!(client.run("d", rawdoc! { "dropDatabase": 1 }).await, rawdoc! { "dropped": "d", "ok": 1.0 });
    assert_eq!(client.run("d", rawdoc! { "dropDatabase": 1 }).await, rawdoc! { "ok": 1.0 });
}

#[tokio::test]
async fn arguments_of_find_and_modify() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    for (body, text) in [
        (rawdoc! { "findAndModify": "c" }, "Either an update or remove=true must be specified"),
        (
            rawdoc! { "findandmodify": "c", "remove": true, "update": {} },
            "Cannot specify both an update and remove=true",
        ),
        (
            rawdoc! { "findAndModify": "c", "remove": 1, "new": true },
            "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
        ),
    ] {
        assert_eq!(client.refused("d", body).await, (9, "FailedToParse".to_owned(), text.to_owned()));
    }
}

#[tokio::test]
async fn bulk_writes_over_collections() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    insert(&mut client, "a", &numbered(1)).await;
    let ops = [
        rawdoc! { "insert": 0, "document": { "_id": 1 } },
        rawdoc! { "insert": 0, "document": { "_id": 0 } },
        rawdoc! { "insert": 1, "document": { "_id": 7 } },
        rawdoc! { "delete": 0, "filter": {}, "multi": true },
    ];
    let info = [rawdoc! { "ns": "d.a" }, rawdoc! { "ns": "d.b" }];
    let mut run = async |body| client.run_with("admin", body, &[("ops", &ops), ("nsInfo", &info)]).await;
    let reply = run(rawdoc! { "bulkWrite": 1 }).await;
    let results = batch(&reply);
    assert_eq!(results[0], rawdoc! { "ok": 1.0, "idx": 0, "n": 1 });
    assert_eq!((results.len(), results[1].int("code"), results[1].int("idx")), (2, 11_000, 1));
    assert_eq!((reply.int("nErrors"), reply.int("nInserted")), (1, 1));
    let reply = run(rawdoc! { "bulkWrite": 1, "ordered": false, "errorsOnly": true }).await;
    assert_eq!(batch(&reply).len(), 2, "{reply:?}");
    let counts = ["nErrors", "nInserted", "nDeleted", "nMatched"].map(|name| reply.int(name));
    assert_eq!(counts, [2, 1, 2, 0]);
    assert_eq!(reply.get_document("cursor").unwrap().text("ns"), "admin.$cmd.bulkWrite");
    let wrong = [rawdoc! { "insert": 0, "document": { "_id": 99 } }, rawdoc! { "insert": 2, "document": {} }];
    let reply = client.run_with("admin", rawdoc! { "bulkWrite": 1 }, &[("ops", &wrong), ("nsInfo", &info)]).await;
    assert_eq!(error_of(&reply).0, 2);
    let count = client.run("d", rawdoc! { "count": "a" }).await;
    assert_eq!(count.int("n"), 0, "nothing is written if one operation is malformed");
}

#[tokio::test]
async fn aggregations() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    let reply = client.run("d", rawdoc! { "aggregate": "c", "pipeline": [], "cursor": { "batchSize": 2 } }).await;
    assert_eq!((batch(&reply).len(), cursor_id(&reply) != 0), (2, true));
    for (body, code) in [
        (rawdoc! { "aggregate": "c", "pipeline": [] }, 9),
        (rawdoc! { "aggregate": "c", "cursor": {} }, 40_414),
        (rawdoc! { "aggregate": 2, "pipeline": [], "cursor": {} }, 9),
        (rawdoc! { "aggregate": true, "pipeline": [], "cursor": {} }, 73),
        (rawdoc! { "aggregate": "c", "pipeline": [1], "cursor": {} }, 14),
        (rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} }, 40_573),
    ] {
        assert_eq!(client.refused("d", body.clone()).await.0, code, "{body:?}");
    }
}

#[tokio::test]
async fn explanations() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    for inner in [
        rawdoc! { "find": "c", "filter": { "a": 1 } },
        rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {} },
        rawdoc! { "count": "c", "query": {} },
        rawdoc! { "distinct": "c", "key": "a" },
        rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] },
        rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] },
        rawdoc! { "findAndModify": "c", "query": {}, "remove": true },
    ] {
        let reply = client.run("d", rawdoc! { "explain": inner.clone(), "verbosity": "queryPlanner" }).await;
        assert!(reply.get_document("queryPlanner").is_ok(), "{inner:?}: {reply:?}");
        assert!(reply.get_document("serverInfo").is_ok());
    }
    let reply = client.run("d", rawdoc! { "aggregate": "c", "pipeline": [], "explain": true }).await;
    assert!(reply.get_document("queryPlanner").is_ok());
    assert_eq!(client.refused("d", rawdoc! { "explain": { "ping": 1 } }).await.0, 59);
    assert_eq!(client.refused("d", rawdoc! { "explain": { "find": "c" }, "verbosity": "x" }).await.0, 2);
}

#[tokio::test]
async fn what_is_explained_has_no_unknown_options_either() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    for (inner, path) in [
        (rawdoc! { "find": "c", "fooBar": 1 }, "find"),
        (rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {}, "fooBar": 1 }, "aggregate"),
        (rawdoc! { "count": "c", "fooBar": 1 }, "count"),
        (rawdoc! { "distinct": "c", "key": "a", "fooBar": 1 }, "distinct"),
        (rawdoc! { "update": "c", "updates": [{ "q": {}, "u": {} }], "fooBar": 1 }, "update"),
        (rawdoc! { "update": "c", "updates": [{ "q": {}, "u": {}, "fooBar": 1 }] }, "update.updates"),
        (rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }], "fooBar": 1 }, "delete"),
        (rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1, "fooBar": 1 }] }, "delete.deletes"),
        (rawdoc! { "findAndModify": "c", "remove": true, "fooBar": 1 }, "findAndModify"),
    ] {
        let (code, _, text) = client.refused("d", rawdoc! { "explain": inner }).await;
        assert_eq!((code, text), (40_415, format!("BSON field '{path}.fooBar' is an unknown field.")));
    }
    let two = rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }, { "q": {}, "limit": 1 }] };
    assert_eq!(client.refused("d", rawdoc! { "explain": two }).await.0, 16, "one statement is explained");
}

#[tokio::test]
async fn unknown_index_options_are_passed_over_if_asked() {
    let mut server = TestServer::tiny();
    let mut client = server.connect();
    let create = |option: &str, lenient: bool| {
        let mut index = rawdoc! { "key": { "a": 1 }, "name": "a_1" };
        index.append(CString::try_from(option).unwrap(), 1);
        rawdoc! { "createIndexes": "c", "indexes": [index], "ignoreUnknownIndexOptions": lenient }
    };
    let (code, _, text) = client.refused("d", create("fooBar", false)).await;
    assert_eq!((code, text.as_str()), (197, "BSON field 'createIndexes.indexes.fooBar' is an unknown field."));
    assert_eq!(client.run("d", create("fooBar", true)).await.int("numIndexesAfter"), 2);
    // What is known and not supported would make another index than the one that was asked for.
    assert_eq!(
        client.refused("d", create("weights", true)).await.0,
        client.refused("d", create("weights", false)).await.0
    );
}
