use bson::rawdoc;

use crate::testing::{ReplyFields, TestServer, batch, error_of, insert, numbered};

#[tokio::test]
async fn each_operation_has_its_result() {
    let mut server = TestServer::checked();
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
async fn an_ordered_bulk_write_stops_at_the_first_error() {
    let mut server = TestServer::adjustable();
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
