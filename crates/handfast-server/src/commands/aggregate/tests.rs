use bson::RawBson;
use bson::rawdoc;

use crate::testing::{ReplyFields, TestServer, batch, cursor_id, insert, numbered};

#[tokio::test]
async fn invalid_arguments_are_refused() {
    let mut server = TestServer::adjustable();
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
async fn pipelines_read_collections_documents_and_statistics() {
    let mut server = TestServer::checked();
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
    let missing = rawdoc! { "aggregate": "none", "pipeline": [{ "$collStats": { "count": {} } }], "cursor": {} };
    assert_eq!(client.refused("d", missing).await.0, 26);
}

#[tokio::test]
async fn the_values_of_let_are_evaluated_and_not_evaluated_again() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let values = rawdoc! { "sum": { "$add": [1, 2] }, "text": { "$literal": "$_id" } };
    let pipeline = rawdoc! { "$set": { "sum": "$$sum", "text": "$$text" } };
    let aggregate = rawdoc! { "aggregate": "c", "pipeline": [{ "$limit": 1 }, pipeline], "cursor": {}, "let": values };
    let expected = rawdoc! { "_id": 0, "sum": 3, "text": "$_id" };
    assert_eq!(batch(&client.run("d", aggregate).await), [expected]);
}

#[tokio::test]
async fn a_stage_does_not_write_into_a_database_of_the_server() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (stage, code) in [
        (rawdoc! { "$out": "x" }, 31_321),
        (rawdoc! { "$out": { "coll": "x" } }, 31_321),
        (rawdoc! { "$merge": "x" }, 31_320),
        (rawdoc! { "$merge": { "into": "x" } }, 31_320),
        (rawdoc! { "$merge": { "into": { "coll": "x" } } }, 31_320),
    ] {
        let pipeline = || rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, stage.clone()], "cursor": {} };
        for database in ["admin", "config", "local"] {
            assert_eq!(client.refused(database, pipeline()).await.0, code, "{database} {stage:?}");
        }
    }
    let elsewhere = rawdoc! { "aggregate": "c", "pipeline": [{ "$out": { "db": "d", "coll": "x" } }], "cursor": {} };
    client.run("admin", elsewhere).await;
}
