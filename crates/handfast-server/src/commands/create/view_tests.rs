//! Views through the commands.

use bson::raw::{RawDocumentBuf, cstr};
use bson::rawdoc;

use crate::testing::{
    ReplyFields, TestClient, TestServer, batch, check, check_refused, end, in_transaction, insert, write_error,
};

/// Creates a collection `c` of the numbers `n` from 0 to 9, and a view `v` of those from 5.
async fn created(server: &mut TestServer) -> TestClient {
    let mut client = server.connect();
    let documents: Vec<_> = (0..10).map(|n| rawdoc! { "_id": n, "n": n, "odd": n % 2, "text": "x" }).collect();
    insert(&mut client, "c", &documents).await;
    let create = rawdoc! { "create": "v", "viewOn": "c", "pipeline": [{ "$match": { "n": { "$gte": 5 } } }] };
    check(&mut client, create, rawdoc! {}).await;
    client
}

async fn ids(client: &mut TestClient, command: RawDocumentBuf) -> Vec<i32> {
    let reply = client.run("d", command).await;
    batch(&reply).iter().map(|document| document.int("_id")).collect()
}

#[tokio::test]
async fn a_view_is_read_as_a_collection() {
    for mut server in [TestServer::checked(), TestServer::transactional()] {
        let mut client = created(&mut server).await;
        assert_eq!(ids(&mut client, rawdoc! { "find": "v" }).await, [5, 6, 7, 8, 9]);
        let find = rawdoc! { "find": "v", "filter": { "odd": 1 }, "sort": { "n": -1 }, "skip": 1, "limit": 1 };
        assert_eq!(ids(&mut client, find).await, [7]);
        let find = rawdoc! { "find": "v", "filter": { "_id": 6 }, "projection": { "n": 1, "_id": 0 } };
        assert_eq!(batch(&client.run("d", find).await), [rawdoc! { "n": 6 }]);
        // By its `_id` alone, a document of the source that is not in the view is not found.
        assert!(ids(&mut client, rawdoc! { "find": "v", "filter": { "_id": 1 } }).await.is_empty());
        let aggregate = rawdoc! { "aggregate": "v", "pipeline": [{ "$match": { "odd": 0 } }, { "$sort": { "n": 1 } }], "cursor": {} };
        assert_eq!(ids(&mut client, aggregate).await, [6, 8]);
        check(&mut client, rawdoc! { "count": "v" }, rawdoc! { "n": 5 }).await;
        let count = rawdoc! { "count": "v", "query": { "odd": 1 }, "skip": 1, "limit": 1 };
        check(&mut client, count, rawdoc! { "n": 1 }).await;
        check(&mut client, rawdoc! { "count": "v", "query": { "n": 100 } }, rawdoc! { "n": 0 }).await;
        let distinct = rawdoc! { "distinct": "v", "key": "n", "query": { "odd": 0 } };
        check(&mut client, distinct, rawdoc! { "values": [6, 8] }).await;
        let more = rawdoc! { "find": "v", "batchSize": 2 };
        let first = client.run("d", more).await;
        let more = rawdoc! { "getMore": crate::testing::cursor_id(&first), "collection": "v" };
        assert_eq!(batch(&client.run("d", more).await).len(), 3);
    }
}

#[tokio::test]
async fn stages_read_views_as_collections() {
    let mut server = TestServer::checked();
    let mut client = created(&mut server).await;
    let create = rawdoc! { "create": "w", "viewOn": "v", "pipeline": [{ "$match": { "odd": 1 } }] };
    check(&mut client, create, rawdoc! {}).await;
    assert_eq!(ids(&mut client, rawdoc! { "find": "w" }).await, [5, 7, 9]);
    let on = |stage: RawDocumentBuf| {
        rawdoc! { "aggregate": "c", "pipeline": [{ "$match": { "_id": 5 } }, stage], "cursor": {} }
    };
    let found = |reply: &RawDocumentBuf| batch(reply)[0].get_array("f").unwrap().into_iter().count();
    let lookup = rawdoc! { "$lookup": { "from": "w", "localField": "odd", "foreignField": "odd", "as": "f" } };
    assert_eq!(found(&client.run("d", on(lookup)).await), 3);
    let lookup = rawdoc! { "$lookup": { "from": "w", "pipeline": [{ "$match": { "n": { "$gt": 5 } } }], "as": "f" } };
    assert_eq!(found(&client.run("d", on(lookup)).await), 2);
    let graph = rawdoc! { "$graphLookup": {
        "from": "w", "startWith": "$odd", "connectFromField": "odd", "connectToField": "odd", "as": "f",
    } };
    assert_eq!(found(&client.run("d", on(graph)).await), 3);
    assert_eq!(ids(&mut client, on(rawdoc! { "$unionWith": "w" })).await, [5, 5, 7, 9]);
}

#[tokio::test]
async fn writes_and_commands_about_indexes_are_refused() {
    for mut server in [TestServer::checked(), TestServer::transactional()] {
        let mut client = created(&mut server).await;
        let text = "Namespace d.v is a view, not a collection";
        for write in [
            rawdoc! { "insert": "v", "documents": [{ "_id": 1 }] },
            rawdoc! { "update": "v", "updates": [{ "q": { "_id": 5 }, "u": { "$set": { "n": 1 } } }] },
            rawdoc! { "update": "v", "updates": [{ "q": { "_id": 100 }, "u": { "$set": { "n": 1 } }, "upsert": true }] },
            rawdoc! { "update": "v", "updates": [{ "q": {}, "u": { "$set": { "n": 1 } }, "multi": true }] },
            rawdoc! { "delete": "v", "deletes": [{ "q": {}, "limit": 1 }] },
            rawdoc! { "delete": "v", "deletes": [{ "q": {}, "limit": 0 }] },
        ] {
            let reply = client.run("d", write.clone()).await;
            let error = write_error(&reply);
            assert_eq!((error.int("code"), error.text("errmsg")), (166, text), "{write:?}");
        }
        for command in [
            rawdoc! { "findAndModify": "v", "query": {}, "remove": true },
            rawdoc! { "findAndModify": "v", "query": { "_id": 1 }, "update": { "$set": { "n": 1 } }, "upsert": true },
            rawdoc! { "createIndexes": "v", "indexes": [{ "key": { "n": 1 }, "name": "n" }] },
            rawdoc! { "dropIndexes": "v", "index": "*" },
            rawdoc! { "listIndexes": "v" },
            rawdoc! { "collStats": "v" },
            rawdoc! { "validate": "v" },
            rawdoc! { "aggregate": "v", "pipeline": [{ "$collStats": { "count": {} } }], "cursor": {} },
            rawdoc! { "explain": { "update": "v", "updates": [{ "q": {}, "u": { "$set": { "n": 1 } } }] } },
            rawdoc! { "explain": { "delete": "v", "deletes": [{ "q": {}, "limit": 1 }] } },
            rawdoc! { "explain": { "findAndModify": "v", "query": {}, "remove": true } },
            rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "v" }], "cursor": {} },
            rawdoc! { "aggregate": "c", "pipeline": [{ "$merge": "v" }], "cursor": {} },
        ] {
            check_refused(&mut client, command, 166, text).await;
        }
        check_refused(&mut client, rawdoc! { "collMod": "c", "viewOn": "x" }, 72, "only supported on a view").await;
        let level = rawdoc! { "collMod": "v", "validationLevel": "off" };
        check_refused(&mut client, level, 72, "option not supported on a view").await;
        let rename = |from: &str, to: &str| rawdoc! { "renameCollection": from, "to": to, "dropTarget": true };
        for (from, to, code) in [("d.v", "d.x", 166), ("d.c", "d.v", 48)] {
            assert_eq!(client.refused("admin", rename(from, to)).await.0, code);
        }
        check_refused(&mut client, rawdoc! { "create": "v" }, 48, "already exists").await;
        check(&mut client, rawdoc! { "count": "c" }, rawdoc! { "n": 10 }).await;
    }
}

#[tokio::test]
async fn definitions_are_shown_changed_and_dropped() {
    let mut server = TestServer::checked();
    let mut client = created(&mut server).await;
    // The same definition again changes nothing.
    let pipeline = rawdoc! { "$match": { "n": { "$gte": 5 } } };
    check(&mut client, rawdoc! { "create": "v", "viewOn": "c", "pipeline": [pipeline.clone()] }, rawdoc! {}).await;
    let listed = batch(&client.run("d", rawdoc! { "listCollections": 1, "filter": { "type": "view" } }).await);
    let shown = rawdoc! {
        "name": "v", "type": "view", "options": { "viewOn": "c", "pipeline": [pipeline.clone()] }, "info": { "readOnly": true },
    };
    assert_eq!(listed, [shown]);
    let names = batch(&client.run("d", rawdoc! { "listCollections": 1, "nameOnly": true }).await);
    let kinds = [("c", "collection"), ("system.views", "collection"), ("v", "view")];
    assert_eq!(names, kinds.map(|(name, kind)| rawdoc! { "name": name, "type": kind }));
    let definitions = batch(&client.run("d", rawdoc! { "find": "system.views" }).await);
    assert_eq!(definitions, [rawdoc! { "_id": "d.v", "viewOn": "c", "pipeline": [pipeline] }]);
    let stats = client.run("d", rawdoc! { "dbStats": 1 }).await;
    assert_eq!((stats.get_i64("collections").unwrap(), stats.get_i64("views").unwrap()), (1, 1));
    let modify = rawdoc! { "collMod": "v", "viewOn": "c", "pipeline": [{ "$match": { "n": 3 } }] };
    check(&mut client, modify, rawdoc! {}).await;
    assert_eq!(ids(&mut client, rawdoc! { "find": "v" }).await, [3]);
    check_refused(&mut client, rawdoc! { "collMod": "v", "viewOn": "v" }, 5, "View cycle detected: v => v").await;
    assert_eq!(ids(&mut client, rawdoc! { "find": "v" }).await, [3]);
    // A view of a collection that is not there is empty.
    check(&mut client, rawdoc! { "collMod": "v", "viewOn": "none" }, rawdoc! {}).await;
    check(&mut client, rawdoc! { "count": "v" }, rawdoc! { "n": 0 }).await;
    check(&mut client, rawdoc! { "drop": "v" }, rawdoc! { "ns": "d.v" }).await;
    assert_eq!(batch(&client.run("d", rawdoc! { "listCollections": 1 }).await).len(), 1);
    // The name is free for a collection.
    insert(&mut client, "v", &[rawdoc! { "_id": 1 }]).await;
    check(&mut client, rawdoc! { "count": "v" }, rawdoc! { "n": 1 }).await;
}

#[tokio::test]
async fn invalid_options_are_refused() {
    let mut server = TestServer::checked();
    let mut client = created(&mut server).await;
    for (command, code, text) in [
        (rawdoc! { "create": "x", "viewOn": "" }, 2, "cannot be empty"),
        (rawdoc! { "create": "x", "viewOn": 1 }, 14, "viewOn"),
        (rawdoc! { "create": "x", "viewOn": "c", "pipeline": 1 }, 14, "pipeline"),
        (rawdoc! { "create": "x", "viewOn": "c", "pipeline": [1] }, 14, "must be an object"),
        (rawdoc! { "create": "x", "pipeline": [] }, 72, "'pipeline' requires 'viewOn'"),
        (
            rawdoc! { "create": "x", "viewOn": "c", "capped": true, "size": 1 },
            72,
            "option not supported on a view: capped",
        ),
        (rawdoc! { "create": "x", "viewOn": "c", "validator": {} }, 72, "option not supported on a view: validator"),
        (rawdoc! { "create": "x", "viewOn": "c", "none": 1 }, 40_415, "unknown field"),
        (rawdoc! { "create": "x", "viewOn": "c", "pipeline": [{ "$out": "y" }] }, 167, "writes to disk"),
        (rawdoc! { "create": "system.views", "viewOn": "c" }, 73, "Invalid system namespace"),
        (rawdoc! { "find": "v", "returnKey": true }, 168, "Option returnKey not supported in aggregation."),
        (rawdoc! { "find": "v", "showRecordId": true }, 168, "Option showRecordId not supported in aggregation."),
        (rawdoc! { "insert": "system.views", "documents": [{}] }, 73, "Invalid system namespace"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
    let mut server = TestServer::over_single_documents();
    let mut client = server.connect();
    check_refused(&mut client, rawdoc! { "create": "x", "viewOn": "c" }, 238, "no views in front of another server")
        .await;
    insert(&mut client, "c", &[rawdoc! { "_id": 1 }]).await;
    check_refused(&mut client, rawdoc! { "collMod": "c", "viewOn": "x" }, 238, "no views").await;
}

#[tokio::test]
async fn a_view_compares_strings_by_its_own_collation() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &[rawdoc! { "_id": 1, "s": "A" }, rawdoc! { "_id": 2, "s": "a" }]).await;
    let collation = rawdoc! { "locale": "en", "strength": 2 };
    check(&mut client, rawdoc! { "create": "v", "viewOn": "c", "collation": collation.clone() }, rawdoc! {}).await;
    let find = |collation: Option<RawDocumentBuf>| {
        let mut find = rawdoc! { "find": "v", "filter": { "s": "a" } };
        collation.into_iter().for_each(|collation| find.append(cstr!("collation"), collation));
        find
    };
    assert_eq!(ids(&mut client, find(None)).await, [1, 2]);
    assert_eq!(ids(&mut client, find(Some(collation.clone()))).await, [1, 2]);
    check(&mut client, rawdoc! { "distinct": "v", "key": "s" }, rawdoc! { "values": ["A"] }).await;
    check(&mut client, rawdoc! { "count": "v", "query": { "s": "a" } }, rawdoc! { "n": 2 }).await;
    let other = rawdoc! { "locale": "de" };
    check_refused(&mut client, find(Some(other.clone())), 167, "Cannot override a view's default collation").await;
    let on = rawdoc! { "create": "w", "viewOn": "v", "collation": other };
    check_refused(&mut client, on, 167, "does not match the collation of view v").await;
}

#[tokio::test]
async fn a_transaction_reads_views_and_neither_writes_nor_makes_them() {
    let mut server = TestServer::transactional();
    let mut client = created(&mut server).await;
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 11, "n": 11, "odd": 1 }] };
    client.run("d", in_transaction(insert, 1, true)).await;
    let find = || rawdoc! { "find": "v", "filter": { "odd": 1 } };
    assert_eq!(ids(&mut client, in_transaction(find(), 1, false)).await, [5, 7, 9, 11]);
    let aggregate = rawdoc! { "aggregate": "v", "pipeline": [{ "$match": { "odd": 1 } }], "cursor": {} };
    assert_eq!(ids(&mut client, in_transaction(aggregate, 1, false)).await, [5, 7, 9, 11]);
    let distinct = client.run("d", in_transaction(rawdoc! { "distinct": "v", "key": "n" }, 1, false)).await;
    assert_eq!(distinct.get_array("values").unwrap().into_iter().count(), 6);
    assert_eq!(ids(&mut client, find()).await, [5, 7, 9]);
    assert_eq!(end(&mut client, "commitTransaction", 1).await.double("ok"), 1.0);
    assert_eq!(ids(&mut client, find()).await, [5, 7, 9, 11]);
    let write = rawdoc! { "insert": "v", "documents": [{ "_id": 1 }] };
    let reply = client.run("d", in_transaction(write, 2, true)).await;
    assert_eq!(write_error(&reply).int("code"), 166);
    let create = rawdoc! { "create": "w", "viewOn": "c" };
    assert_eq!(client.run("d", in_transaction(create, 3, true)).await.int("code"), 263);
}

#[tokio::test]
async fn a_transaction_does_not_write_to_a_name_that_has_become_a_view() {
    let mut server = TestServer::transactional();
    let mut client = created(&mut server).await;
    let write = rawdoc! { "insert": "w", "documents": [{ "_id": 1 }] };
    assert_eq!(client.run("d", in_transaction(write, 1, true)).await.int("n"), 1);
    let mut other = server.connect();
    check(&mut other, rawdoc! { "create": "w", "viewOn": "c" }, rawdoc! {}).await;
    assert_eq!(end(&mut client, "commitTransaction", 1).await.int("code"), 166);
    check(&mut client, rawdoc! { "count": "w" }, rawdoc! { "n": 10 }).await;
}

#[tokio::test]
async fn a_user_needs_the_right_to_read_what_a_view_reads() {
    let mut server = TestServer::guarded();
    for (name, role) in [("owner", "dbOwner@d"), ("reader", "read@d"), ("admin", "dbAdmin@d"), ("root", "root@admin")] {
        server.add_user("admin", name, &[role]).await;
    }
    let mut owner = server.connect();
    owner.log_in("admin", "owner", "owner").await;
    check(&mut owner, rawdoc! { "create": "v", "viewOn": "c" }, rawdoc! {}).await;
    let mut reader = server.connect();
    reader.log_in("admin", "reader", "reader").await;
    check(&mut reader, rawdoc! { "count": "v" }, rawdoc! { "n": 0 }).await;
    let mut admin = server.connect();
    admin.log_in("admin", "admin", "admin").await;
    // Without the right to find, a collection can be created and a view cannot.
    check(&mut admin, rawdoc! { "create": "x" }, rawdoc! {}).await;
    check_refused(&mut admin, rawdoc! { "create": "y", "viewOn": "c" }, 13, "not authorized").await;
    let union = rawdoc! { "collMod": "v", "pipeline": [{ "$unionWith": "x" }] };
    check_refused(&mut admin, union, 13, "not authorized").await;
    // Half of a definition does not say what the view reads.
    for half in [rawdoc! { "collMod": "v", "pipeline": [{ "$limit": 1 }] }, rawdoc! { "collMod": "v", "viewOn": "c" }] {
        check_refused(&mut owner, half, 72, "Must specify both 'viewOn' and 'pipeline'").await;
    }
    let whole = rawdoc! { "collMod": "v", "viewOn": "c", "pipeline": [{ "$limit": 1 }] };
    check(&mut owner, whole, rawdoc! {}).await;
    // Nobody can read the users and their secrets through a view.
    let mut root = server.connect();
    root.log_in("admin", "root", "root").await;
    for create in [
        rawdoc! { "create": "y", "viewOn": "system.users" },
        rawdoc! { "create": "y", "viewOn": "x", "pipeline": [{ "$unionWith": "system.users" }] },
    ] {
        assert_eq!(root.refused("admin", create).await.0, 13);
    }
}
