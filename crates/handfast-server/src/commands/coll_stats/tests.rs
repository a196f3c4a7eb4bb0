use bson::rawdoc;

use crate::testing::{ReplyFields, TestServer, batch, insert, numbered};

#[tokio::test]
async fn documents_and_their_average_size_are_counted() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    let stats = client.run("d", rawdoc! { "collStats": "c" }).await;
    assert_eq!((stats.int("count"), stats.int("avgObjSize")), (3, 14));
}

#[tokio::test]
async fn the_stage_has_the_parts_that_its_options_name() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    for _ in 0..2 {
        client.run("d", rawdoc! { "find": "c" }).await;
    }
    let options = rawdoc! { "latencyStats": {}, "storageStats": { "scale": 2 }, "count": {}, "queryExecStats": {} };
    let pipeline = bson::rawbson!([{ "$collStats": options }]);
    let reply = client.run("d", rawdoc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} }).await;
    let [stats] = &batch(&reply)[..] else { panic!("{reply:?}") };
    let names: Vec<_> = stats.iter().map(|field| field.unwrap().0.as_str()).collect();
    assert_eq!(names, ["ns", "host", "localTime", "latencyStats", "storageStats", "count", "queryExecStats"]);
    let latencies = stats.get_document("latencyStats").unwrap();
    let ops = |kind: &str| latencies.get_document(kind).unwrap().long("ops");
    assert_eq!((ops("reads"), ops("writes"), ops("commands"), ops("transactions")), (2, 1, 0, 0));
    let storage = stats.get_document("storageStats").unwrap();
    assert_eq!((storage.int("size"), storage.int("count"), storage.long("scaleFactor")), (21, 3, 2));
    assert_eq!(stats.int("count"), 3);
    assert!(stats.get_document("queryExecStats").unwrap().get_document("collectionScans").is_ok());
}

#[tokio::test]
async fn the_options_of_the_stage_are_checked() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(1)).await;
    for (collection, options, code) in [
        ("c", bson::rawbson!(1), 5_447_000),
        ("c", bson::rawbson!({ "x": 1 }), 40_415),
        ("c", bson::rawbson!({ "count": 1 }), 14),
        ("c", bson::rawbson!({ "count": { "x": 1 } }), 40_415),
        ("c", bson::rawbson!({ "queryExecStats": true }), 14),
        ("c", bson::rawbson!({ "latencyStats": { "histograms": true } }), 238),
        ("c", bson::rawbson!({ "latencyStats": { "x": 1 } }), 40_415),
        ("c", bson::rawbson!({ "storageStats": { "scale": 0 } }), 2),
        ("c", bson::rawbson!({ "storageStats": { "scale": "x" } }), 14),
        ("none", bson::rawbson!({ "count": {} }), 26),
        ("none", bson::rawbson!({ "storageStats": {} }), 26),
        ("none", bson::rawbson!({ "latencyStats": { "histograms": false } }), 0),
    ] {
        let pipeline = bson::rawbson!([{ "$collStats": options }]);
        let command = rawdoc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} };
        let reply = client.run("d", command.clone()).await;
        assert_eq!(reply.get_i32("code").unwrap_or_default(), code, "{command:?}: {reply:?}");
    }
    let of_database = rawdoc! { "aggregate": 1, "pipeline": [{ "$collStats": {} }], "cursor": {} };
    assert_eq!(client.refused("d", of_database).await.0, 73);
}
