//! Commands over the in-memory store: what comes back from a store that knows the whole language.

use handfast_store::Sources;

use super::*;
use crate::testing::checked;

fn memory() -> TestServer {
    TestServer::new(Arc::new(checked(&Sources::seeded(3))), Options::default())
}

/// Runs a command on database `d`; its reply, without `ok: 1`, is as expected.
async fn check(client: &mut TestClient, command: RawDocumentBuf, mut expected: RawDocumentBuf) {
    expected.append(bson::raw::cstr!("ok"), 1.0);
    assert_eq!(client.run("d", command.clone()).await, expected, "{command:?}");
}

#[tokio::test]
async fn updates() {
    let mut server = memory();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(5)).await;
    let some = rawdoc! { "update": "c", "updates": [
        { "q": { "_id": { "$lt": 3 } }, "u": { "$set": { "a": 1 } }, "multi": true },
        { "q": { "_id": 0 }, "u": { "$set": { "a": 1 } } },
    ] };
    check(&mut client, some, rawdoc! { "n": 4, "nModified": 3 }).await;
    let upsert = rawdoc! { "update": "c", "updates": [
        { "q": { "_id": 4 }, "u": { "$inc": { "b": 1 } } },
        { "q": { "_id": "new" }, "u": { "$set": { "a": 9 } }, "upsert": true },
    ] };
    let expected = rawdoc! { "n": 2, "upserted": [{ "index": 1, "_id": "new" }], "nModified": 1 };
    check(&mut client, upsert, expected).await;
    let found = client.run("d", rawdoc! { "find": "c", "filter": { "_id": 4 } }).await;
    assert_eq!(batch(&found), [rawdoc! { "_id": 4, "b": 1 }]);
    let wrong = rawdoc! { "update": "c", "ordered": false, "updates": [
        { "q": { "_id": 4 }, "u": { "$set": { "_id": 5 } } },
        { "q": { "_id": 4 }, "u": { "$inc": { "b": 1 } } },
    ] };
    let reply = client.run("d", wrong).await;
    let error = reply.get_array("writeErrors").unwrap().get_document(0).unwrap();
    assert_eq!((error.int("index"), error.int("code")), (0, 66));
    assert_eq!((reply.int("n"), reply.int("nModified")), (1, 1));
}

/// A command is refused with this code, and a message that contains this.
async fn check_refused(client: &mut TestClient, command: RawDocumentBuf, code: i32, expected: &str) {
    let reply = client.run("d", command.clone()).await;
    assert_eq!(reply.int("code"), code, "{command:?}: {reply:?}");
    let message = reply.get_str("errmsg").unwrap();
    assert!(message.contains(expected), "{command:?}: {message}");
}

#[tokio::test]
async fn what_would_have_no_effect_is_refused() {
    let mut server = memory();
    let mut client = server.connect();
    let constants = rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "c": { "x": 1 } }] };
    let reply = client.run("d", constants).await;
    let error = reply.get_array("writeErrors").unwrap().get_document(0).unwrap();
    assert_eq!(error.int("code"), 51_198);
    let constants =
        rawdoc! { "update": "c", "updates": [{ "q": {}, "u": [{ "$set": { "a": "$$x" } }], "c": { "x": 1 } }] };
    check(&mut client, constants, rawdoc! { "n": 0, "nModified": 0 }).await;
    for option in ["storageEngine", "indexOptionDefaults"] {
        let name = bson::raw::CString::try_from(option.to_owned()).unwrap();
        let create = |value: RawDocumentBuf| {
            let mut create = rawdoc! { "create": option };
            create.append(&name, value);
            create
        };
        check_refused(&mut client, create(rawdoc! { "wiredTiger": {} }), 238, option).await;
        check(&mut client, create(rawdoc! {}), rawdoc! {}).await;
    }
}

#[tokio::test]
async fn sorts_by_natural_order() {
    let mut server = memory();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(5)).await;
    let some = || rawdoc! { "_id": { "$gte": 2 } };
    for (direction, ids) in [(RawBson::Int32(1), [2, 3, 4]), (RawBson::Double(-1.0), [4, 3, 2])] {
        let find = rawdoc! { "find": "c", "filter": some(), "sort": { "$natural": direction.clone() } };
        let found = client.run("d", find).await;
        assert_eq!(batch(&found), ids.map(|id| rawdoc! { "_id": id }));
        let modify = rawdoc! { "findAndModify": "c", "query": some(), "sort": { "$natural": direction.clone() }, "update": { "$set": { "_id": ids[0] } } };
        let reply = client.run("d", modify).await;
        assert_eq!(reply.get_document("value").unwrap(), &*rawdoc! { "_id": ids[0] });
        let set = rawdoc! { "$set": { "first": true } };
        let update =
            rawdoc! { "update": "c", "updates": [{ "q": some(), "u": set, "sort": { "$natural": direction } }] };
        check(&mut client, update, rawdoc! { "n": 1, "nModified": 1 }).await;
        let unset = rawdoc! { "$unset": { "first": 1 } };
        let unset = rawdoc! { "update": "c", "updates": [{ "q": { "_id": ids[0], "first": true }, "u": unset }] };
        check(&mut client, unset, rawdoc! { "n": 1, "nModified": 1 }).await;
    }
    let find = |sort: RawDocumentBuf, hint: RawDocumentBuf| rawdoc! { "find": "c", "sort": sort, "hint": hint };
    let same = client.run("d", find(rawdoc! { "$natural": -1 }, rawdoc! { "$natural": -1 })).await;
    assert_eq!(batch(&same)[0], rawdoc! { "_id": 4 });
    for (sort, hint, expected) in [
        (
            rawdoc! { "$natural": 1, "a": 1 },
            rawdoc! {},
            "Cannot include '$natural' in compound sort: { $natural: 1, a: 1 }",
        ),
        (rawdoc! { "a": 1, "$natural": 1 }, rawdoc! {}, "Cannot include '$natural' in compound sort"),
        (rawdoc! { "$natural": 2 }, rawdoc! {}, "value other than -1 or 1"),
        (rawdoc! { "$natural": "x" }, rawdoc! {}, "value other than -1 or 1"),
        (rawdoc! { "$natural": 1 }, rawdoc! { "$natural": -1 }, "goes with no hint, or with the same one"),
        (rawdoc! { "$natural": 1 }, rawdoc! { "_id": 1 }, "goes with no hint, or with the same one"),
    ] {
        check_refused(&mut client, find(sort, hint), 2, expected).await;
    }
}

#[tokio::test]
async fn an_index_without_a_name_is_shown_as_it_was_sent() {
    let mut server = memory();
    let mut client = server.connect();
    let create = rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1, "b": -1 }, "unique": true }] };
    let expected = "Error in specification { key: { a: 1, b: -1 }, unique: true } :: caused by :: The 'name' field";
    check_refused(&mut client, create, 9, expected).await;
}

#[tokio::test]
async fn find_and_modify() {
    let mut server = memory();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(2)).await;
    let before = rawdoc! { "findAndModify": "c", "query": { "_id": 0 }, "update": { "$set": { "a": 1 } } };
    let expected = rawdoc! { "lastErrorObject": { "n": 1, "updatedExisting": true }, "value": { "_id": 0 } };
    check(&mut client, before, expected).await;
    let after = rawdoc! {
        "findAndModify": "c", "query": { "_id": 0 }, "update": { "$inc": { "a": 1 } }, "new": true,
        "fields": { "_id": 0 },
    };
    let expected = rawdoc! { "lastErrorObject": { "n": 1, "updatedExisting": true }, "value": { "a": 2 } };
    check(&mut client, after, expected).await;
    let upsert =
        rawdoc! { "findAndModify": "c", "query": { "_id": 7 }, "update": { "$set": { "a": 1 } }, "upsert": true };
    let expected = rawdoc! {
        "lastErrorObject": { "n": 1, "updatedExisting": false, "upserted": 7 }, "value": RawBson::Null,
    };
    check(&mut client, upsert, expected).await;
    let remove = rawdoc! { "findAndModify": "c", "query": {}, "sort": { "_id": -1 }, "remove": true };
    let expected = rawdoc! { "lastErrorObject": { "n": 1 }, "value": { "_id": 7, "a": 1 } };
    check(&mut client, remove, expected).await;
    let none = rawdoc! { "findAndModify": "c", "query": { "_id": 99 }, "update": { "$set": { "a": 1 } } };
    let expected = rawdoc! { "lastErrorObject": { "n": 0, "updatedExisting": false }, "value": RawBson::Null };
    check(&mut client, none, expected).await;
}

#[tokio::test]
async fn indexes() {
    let mut server = memory();
    let mut client = server.connect();
    let create = || {
        rawdoc! { "createIndexes": "c", "indexes": [
            { "key": { "a": 1 }, "name": "a_1", "unique": true, "sparse": 1 },
            { "key": { "t": 1 }, "name": "t_1", "expireAfterSeconds": 60 },
        ] }
    };
    let expected = rawdoc! { "numIndexesBefore": 1, "numIndexesAfter": 3, "createdCollectionAutomatically": true };
    check(&mut client, create(), expected).await;
    let expected = rawdoc! {
        "numIndexesBefore": 3, "numIndexesAfter": 3, "createdCollectionAutomatically": false,
        "note": "all indexes already exist",
    };
    check(&mut client, create(), expected).await;
    let reply = client.run("d", rawdoc! { "listIndexes": "c" }).await;
    let expected = [
        rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" },
        rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1", "unique": true, "sparse": true },
        rawdoc! { "v": 2, "key": { "t": 1 }, "name": "t_1", "expireAfterSeconds": 60 },
    ];
    assert_eq!(batch(&reply), expected);
    let modify = rawdoc! { "collMod": "c", "index": { "name": "t_1", "expireAfterSeconds": 90 } };
    assert_eq!(client.run("d", modify).await.double("ok"), 1.0);
    let documents = [rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2, "a": 1 }];
    let reply = client.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &documents)]).await;
    let error = reply.get_array("writeErrors").unwrap().get_document(0).unwrap();
    assert_eq!(error.text("errmsg"), "E11000 duplicate key error collection: d.c index: a_1 dup key: { a: 1 }");
    assert_eq!(error.get_document("keyValue").unwrap(), &*rawdoc! { "a": 1 });
    check(&mut client, rawdoc! { "dropIndexes": "c", "index": "t_1" }, rawdoc! { "nIndexesWas": 3 }).await;
    let expected = rawdoc! { "nIndexesWas": 2, "msg": "non-_id indexes dropped for collection" };
    check(&mut client, rawdoc! { "dropIndexes": "c", "index": "*" }, expected).await;
    for (index, code) in [
        (rawdoc! { "key": { "a": "text" }, "name": "x" }, 67),
        (rawdoc! { "key": { "$**": 1 }, "name": "x" }, 67),
        (rawdoc! { "key": { "a": 1 }, "name": "" }, 67),
        (rawdoc! { "key": { "a": 1 } }, 9),
        (rawdoc! { "name": "x" }, 9),
        (rawdoc! { "key": { "a": 1 }, "name": "x", "wildcardProjection": {} }, 238),
        (rawdoc! { "key": { "a": 1 }, "name": "x", "foo": 1 }, 197),
    ] {
        let body = rawdoc! { "createIndexes": "c", "indexes": [index.clone()] };
        assert_eq!(client.refused("d", body).await.0, code, "{index:?}");
    }
    assert_eq!(client.refused("d", rawdoc! { "dropIndexes": "c", "index": "none" }).await.0, 27);
    assert_eq!(client.refused("d", rawdoc! { "collMod": "none" }).await.0, 26);
}

#[tokio::test]
async fn queries() {
    let mut server = memory();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let sorted =
        rawdoc! { "find": "c", "filter": { "_id": { "$gte": 5 } }, "sort": { "_id": -1 }, "skip": 1, "limit": 2 };
    assert_eq!(batch(&client.run("d", sorted).await), [rawdoc! { "_id": 8 }, rawdoc! { "_id": 7 }]);
    check(
        &mut client,
        rawdoc! { "count": "c", "query": { "_id": { "$gt": 1 } }, "skip": 3, "limit": -4 },
        rawdoc! { "n": 4 },
    )
    .await;
    check(
        &mut client,
        rawdoc! { "distinct": "c", "key": "_id", "query": { "_id": { "$lt": 2 } } },
        rawdoc! { "values": [0, 1] },
    )
    .await;
    let missing = rawdoc! { "aggregate": "none", "pipeline": [{ "$collStats": {} }], "cursor": {} };
    assert_eq!(client.refused("d", missing).await.0, 26);
}

#[tokio::test]
async fn bulk_writes() {
    let mut server = memory();
    let mut client = server.connect();
    let ops = [
        rawdoc! { "insert": 0, "document": { "_id": 1 } },
        rawdoc! { "update": 0, "filter": { "_id": 1 }, "updateMods": { "$set": { "a": 1 } } },
        rawdoc! { "update": 1, "filter": { "_id": 2 }, "updateMods": { "$set": { "a": 1 } }, "upsert": true },
        rawdoc! { "delete": 0, "filter": { "a": 1 } },
    ];
    let info = [rawdoc! { "ns": "d.a" }, rawdoc! { "ns": "e.b" }];
    let reply = client.run_with("admin", rawdoc! { "bulkWrite": 1 }, &[("ops", &ops), ("nsInfo", &info)]).await;
    let expected = rawdoc! {
        "cursor": {
            "firstBatch": [
                { "ok": 1.0, "idx": 0, "n": 1 },
                { "ok": 1.0, "idx": 1, "n": 1, "nModified": 1 },
                { "ok": 1.0, "idx": 2, "n": 1, "nModified": 0, "upserted": { "_id": 2 } },
                { "ok": 1.0, "idx": 3, "n": 1 },
            ],
            "id": 0_i64,
            "ns": "admin.$cmd.bulkWrite",
        },
        "nErrors": 0, "nInserted": 1, "nMatched": 1, "nModified": 1, "nUpserted": 1, "nDeleted": 1, "ok": 1.0,
    };
    assert_eq!(reply, expected);
}

#[tokio::test]
async fn expressions_and_updates_by_pipeline() {
    let mut server = memory();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let computed = rawdoc! { "find": "c", "filter": { "$expr": { "$eq": ["$_id", "$$want"] } }, "let": { "want": 3 } };
    assert_eq!(batch(&client.run("d", computed).await), [rawdoc! { "_id": 3 }]);
    let values = rawdoc! { "sum": { "$add": [1, 2] }, "text": { "$literal": "$_id" } };
    let pipeline = rawdoc! { "$set": { "sum": "$$sum", "text": "$$text" } };
    let aggregate = rawdoc! { "aggregate": "c", "pipeline": [{ "$limit": 1 }, pipeline], "cursor": {}, "let": values };
    let expected = rawdoc! { "_id": 0, "sum": 3, "text": "$_id" };
    assert_eq!(batch(&client.run("d", aggregate).await), [expected]);
    let pipeline = rawdoc! { "update": "c", "updates": [{ "q": { "_id": 4 }, "u": [{ "$set": { "c": "$_id" } }] }] };
    check(&mut client, pipeline, rawdoc! { "n": 1, "nModified": 1 }).await;
}

#[tokio::test]
async fn pipelines() {
    let mut server = memory();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let group = rawdoc! {
        "aggregate": "c", "cursor": {},
        "pipeline": [{ "$match": { "_id": { "$lt": 4 } } }, { "$group": { "_id": null, "sum": { "$sum": "$_id" } } }],
    };
    assert_eq!(batch(&client.run("d", group).await), [rawdoc! { "_id": RawBson::Null, "sum": 6 }]);
    let alone = rawdoc! { "aggregate": 1, "pipeline": [{ "$documents": [{ "a": 1 }] }], "cursor": {} };
    let reply = client.run("d", alone).await;
    assert_eq!(batch(&reply), [rawdoc! { "a": 1 }]);
    assert_eq!(reply.get_document("cursor").unwrap().text("ns"), "d.$cmd.aggregate");
    let statistics = rawdoc! {
        "aggregate": "c", "cursor": {},
        "pipeline": [{ "$collStats": { "storageStats": {}, "count": {} } }, { "$project": { "count": 1, "n": "$storageStats.count" } }],
    };
    assert_eq!(batch(&client.run("d", statistics).await), [rawdoc! { "count": 10, "n": 10 }]);
    let running = rawdoc! {
        "aggregate": 1, "cursor": {},
        "pipeline": [{ "$currentOp": { "allUsers": true } }, { "$project": { "_id": 0, "ns": 1 } }],
    };
    assert_eq!(batch(&client.run("admin", running.clone()).await), [rawdoc! { "ns": "admin.$cmd" }]);
    assert_eq!(client.refused("d", running).await.0, 73);
}

#[tokio::test]
async fn an_empty_timestamp_is_the_time_of_the_insert() {
    let mut server = memory();
    let mut client = server.connect();
    let empty = bson::Timestamp { time: 0, increment: 0 };
    let document = |id: i32| rawdoc! { "_id": id, "t": empty, "n": { "t": empty } };
    insert(&mut client, "c", &[document(1)]).await;
    let bulk = rawdoc! {
        "bulkWrite": 1, "ops": [{ "insert": 0, "document": document(2) }], "nsInfo": [{ "ns": "d.c" }],
    };
    client.run("admin", bulk).await;
    let now = server.shared.sources.cluster_time();
    assert!(now.time > 0);
    let found = client.run("d", rawdoc! { "find": "c", "sort": { "_id": 1 } }).await;
    let stored = |id: i32| rawdoc! { "_id": id, "t": now, "n": { "t": empty } };
    assert_eq!(batch(&found), [stored(1), stored(2)], "at the top level only");
}
