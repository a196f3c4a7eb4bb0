use std::time::Duration;

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{DateTime, rawdoc};
use handfast_store::PlanSummary;

use crate::testing::{ReplyFields, TestClient, TestServer, batch, check_refused, insert, numbered};

async fn stats(client: &mut TestClient) -> Vec<RawDocumentBuf> {
    let stage = rawdoc! { "aggregate": "c", "pipeline": [{ "$indexStats": {} }], "cursor": {} };
    batch(&client.run("d", stage).await)
}

/// Returns the name of each index, the number of its uses, and the moment from which they are counted.
fn uses(stats: &[RawDocumentBuf]) -> Vec<(&str, i64, DateTime)> {
    let accesses = stats.iter().map(|index| (index.text("name"), index.get_document("accesses").unwrap()));
    accesses.map(|(name, uses)| (name, uses.long("ops"), uses.get_datetime("since").unwrap())).collect()
}

/// The plans are those that a backend with a planner reports; the embedded store does so.
#[tokio::test]
async fn the_uses_of_each_index_are_counted_until_one_is_dropped() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(1)).await;
    let index =
        rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1, "b": -1 }, "name": "ab", "sparse": true }] };
    client.run("d", index).await;
    let started = server.shared.started_at();
    assert_eq!(uses(&stats(&mut client).await), [("_id_", 0, started), ("ab", 0, started)]);
    let counters = server.shared.metrics.namespace("d.c").unwrap();
    let ab = PlanSummary::IndexScan(rawdoc! { "a": 1, "b": -1 }).to_string();
    for plans in [
        ab.as_str(),
        &format!("COLLSCAN, {ab}"),
        &format!("IDHACK, {ab}, IXSCAN {{ a: 1 }}"),
        "IDHACK",
        "IXSCAN { _id: 1 }",
        "COLLSCAN",
        "IXSCAN { a: 1 }",
        "",
    ] {
        counters.count_plans(plans);
    }
    let listed = stats(&mut client).await;
    assert_eq!(uses(&listed), [("_id_", 3, started), ("ab", 3, started)]);
    let names: Vec<_> = listed[1].iter().map(|field| field.unwrap().0.as_str()).collect();
    assert_eq!(names, ["name", "key", "host", "accesses", "spec"]);
    assert_eq!(listed[1].get_document("key").unwrap(), &*rawdoc! { "a": 1, "b": -1 });
    let spec = rawdoc! { "v": 2, "key": { "a": 1, "b": -1 }, "name": "ab", "sparse": true };
    assert_eq!(listed[1].get("spec").unwrap(), Some(RawBsonRef::Document(&spec)));
    server.advance(Duration::from_secs(3));
    client.run("d", rawdoc! { "dropIndexes": "c", "index": "ab" }).await;
    let now = server.shared.sources.clock.now();
    assert_eq!(uses(&stats(&mut client).await), [("_id_", 0, now)]);
    for dropping in ["drop", "dropDatabase"] {
        counters.count_plans("IDHACK");
        assert_eq!(uses(&stats(&mut client).await)[0].1, 1);
        let command = if dropping == "drop" {
            rawdoc! { "drop": "c" }
        } else {
            rawdoc! { "dropDatabase": 1 }
        };
        client.run("d", command).await;
        assert!(stats(&mut client).await.is_empty());
        insert(&mut client, "c", &numbered(1)).await;
    }
    counters.count_plans("IDHACK");
    client.run("admin", rawdoc! { "renameCollection": "d.c", "to": "d.e" }).await;
    client.run("admin", rawdoc! { "renameCollection": "d.e", "to": "d.c" }).await;
    assert_eq!(uses(&stats(&mut client).await), [("_id_", 0, now)]);
}

#[tokio::test]
async fn options_and_views_are_refused() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    client.run("d", rawdoc! { "create": "v", "viewOn": "c", "pipeline": [] }).await;
    for (collection, options, code) in
        [("c", bson::rawbson!(1), 28_803), ("c", bson::rawbson!({ "x": 1 }), 28_803), ("v", bson::rawbson!({}), 166)]
    {
        let pipeline = bson::rawbson!([{ "$indexStats": options }]);
        let command = rawdoc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} };
        check_refused(&mut client, command, code, "").await;
    }
}

#[tokio::test]
async fn later_batches_need_no_right_to_read_the_collection() {
    let mut server = TestServer::guarded();
    for (name, role) in [("root", "root@admin"), ("monitor", "clusterMonitor@admin")] {
        server.add_user("admin", name, &[role]).await;
    }
    let mut root = server.connect();
    root.log_in("admin", "root", "root").await;
    root.run("d", rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] }).await;
    let mut monitor = server.connect();
    monitor.log_in("admin", "monitor", "monitor").await;
    let stage = rawdoc! { "aggregate": "c", "pipeline": [{ "$indexStats": {} }], "cursor": { "batchSize": 1 } };
    let opened = monitor.run("d", stage).await;
    assert_eq!(batch(&opened).len(), 1);
    let cursor = opened.get_document("cursor").unwrap();
    let collection = cursor.get_str("ns").unwrap().strip_prefix("d.").unwrap();
    let more = rawdoc! { "getMore": cursor.get_i64("id").unwrap(), "collection": collection };
    assert_eq!(batch(&monitor.run("d", more).await).len(), 1);
    let two = rawdoc! { "aggregate": "c", "pipeline": [{ "$indexStats": {}, "$limit": 1 }], "cursor": {} };
    check_refused(&mut monitor, two, 40_323, "exactly one field").await;
}
