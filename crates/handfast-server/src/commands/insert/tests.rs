use bson::raw::RawDocumentBuf;
use bson::rawdoc;

use crate::testing::{ReplyFields, TestServer, batch, error_of, insert, numbered, write_error_indexes};

#[tokio::test]
async fn inserted_documents_are_found() {
    let mut server = TestServer::adjustable();
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
async fn a_write_error_has_the_index_of_its_document() {
    let mut server = TestServer::adjustable();
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
    assert_eq!((reply.int("n"), write_error_indexes(&reply)), (1, vec![0, 1]));
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
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let large = rawdoc! { "_id": 1, "x": "x".repeat(16 * 1024 * 1024) };
    let documents = [rawdoc! { "_id": 0 }, large.clone(), rawdoc! { "_id": 2 }];
    let reply = client.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &documents)]).await;
    assert_eq!((reply.int("n"), write_error_indexes(&reply)), (1, vec![1]));
    let documents = [large, rawdoc! { "_id": 0 }, rawdoc! { "_id": 2 }];
    let unordered = rawdoc! { "insert": "c", "ordered": false };
    let reply = client.run_with("d", unordered, &[("documents", &documents)]).await;
    assert_eq!((reply.int("n"), write_error_indexes(&reply)), (1, vec![0, 1]));
    // The limit is a hundred levels below the top. A document in an array of the body may be as deep as a single one,
    // and no deeper.
    for (levels, good) in [(101, true), (102, false)] {
        let mut document = rawdoc! { "_id": i32::try_from(levels).unwrap() };
        document.append(bson::raw::cstr!("x"), nested(levels - 1));
        let reply = client.run("d", rawdoc! { "insert": "deep", "documents": [document] }).await;
        assert_eq!(reply.get("writeErrors").unwrap().is_none(), good, "{levels}");
    }
}

#[tokio::test]
async fn an_empty_timestamp_becomes_the_time_of_the_insert() {
    let mut server = TestServer::checked();
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

#[tokio::test]
async fn an_empty_timestamp_is_kept_if_the_command_says_so() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let empty = bson::Timestamp { time: 0, increment: 0 };
    let document = |id: i32| rawdoc! { "_id": id, "t": empty };
    insert(&mut client, "c", &[rawdoc! { "_id": 3 }, rawdoc! { "_id": 5 }]).await;
    let bulk = rawdoc! { "bulkWrite": 1, "bypassEmptyTsReplacement": true, "nsInfo": [{ "ns": "d.c" }], "ops": [
        { "insert": 0, "document": document(2) },
        { "update": 0, "filter": { "_id": 3 }, "updateMods": document(3) },
    ] };
    client.run("admin", bulk).await;
    for command in [
        rawdoc! { "insert": "c", "documents": [document(1)], "bypassEmptyTsReplacement": true },
        rawdoc! { "update": "c", "bypassEmptyTsReplacement": 1, "bypassDocumentValidation": 1, "updates": [
            { "q": { "_id": 4 }, "u": { "$set": { "t": empty } }, "upsert": true },
            { "q": { "_id": 5 }, "u": document(5) },
        ] },
        rawdoc! { "findAndModify": "c", "query": { "_id": 6 }, "update": document(6), "upsert": true, "bypassEmptyTsReplacement": true },
        rawdoc! { "delete": "c", "deletes": [{ "q": { "_id": 7 }, "limit": 1 }], "bypassEmptyTsReplacement": true, "bypassDocumentValidation": true },
    ] {
        client.run("d", command).await;
    }
    let found = client.run("d", rawdoc! { "find": "c", "sort": { "_id": 1 } }).await;
    assert_eq!(batch(&found), [1, 2, 3, 4, 5, 6].map(document));
    let replaced = rawdoc! { "insert": "c", "documents": [document(8)], "bypassEmptyTsReplacement": false };
    client.run("d", replaced).await;
    let found = client.run("d", rawdoc! { "find": "c", "filter": { "_id": 8 } }).await;
    assert_eq!(batch(&found), [rawdoc! { "_id": 8, "t": server.shared.sources.cluster_time() }]);
}
