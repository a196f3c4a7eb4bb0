use bson::raw::RawDocument;
use bson::rawdoc;

use crate::testing::{ReplyFields, TestServer, check_refused, insert};

fn sizes(reply: &RawDocument) -> (i64, i64, bool) {
    (reply.long("numObjects"), reply.long("size"), reply.flag("estimate"))
}

#[tokio::test]
async fn all_documents_or_those_of_a_range_are_measured() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let documents: Vec<_> = (0..10).map(|id| rawdoc! { "_id": id, "n": id * 10 }).collect();
    let bytes = i64::try_from(documents[0].as_bytes().len()).unwrap();
    insert(&mut client, "c", &documents).await;
    let index = rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "n": 1 }, "name": "n_1" }] };
    client.run("d", index).await;
    for (command, count, estimate) in [
        (rawdoc! { "dataSize": "d.c" }, 10, false),
        (rawdoc! { "datasize": "d.c", "estimate": true }, 10, true),
        (rawdoc! { "dataSize": "d.c", "min": {}, "max": {} }, 10, false),
        (rawdoc! { "dataSize": "d.none" }, 0, false),
        (rawdoc! { "dataSize": "d.c", "keyPattern": { "n": 1 }, "min": { "n": 30 }, "max": { "n": 60 } }, 3, false),
        (rawdoc! { "dataSize": "d.c", "min": { "n": 80 }, "max": { "n": 1_000 } }, 2, false),
    ] {
        let reply = client.run("d", command.clone()).await;
        assert_eq!(sizes(&reply), (count, count * bytes, estimate), "{command:?}");
        assert!(reply.get_i64("millis").is_ok() && reply.iter().count() == 5, "{reply:?}");
    }
}

#[tokio::test]
async fn arguments_are_checked() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &[rawdoc! { "_id": 1 }]).await;
    client.run("d", rawdoc! { "create": "v", "viewOn": "c", "pipeline": [] }).await;
    for (command, code, text) in [
        (rawdoc! { "dataSize": 1 }, 14, "expected type 'string'"),
        (rawdoc! { "dataSize": "c" }, 73, "Invalid namespace specified 'c'"),
        (rawdoc! { "dataSize": "d." }, 73, ""),
        (rawdoc! { "dataSize": "d.v" }, 166, ""),
        (rawdoc! { "dataSize": "d.c", "min": { "a": 1 } }, 2, "only one of min or max specified"),
        (rawdoc! { "dataSize": "d.c", "max": { "a": 1 } }, 2, "only one of min or max specified"),
        (rawdoc! { "dataSize": "d.c", "min": 1 }, 14, "dataSize.min"),
        (rawdoc! { "dataSize": "d.c", "max": 1 }, 14, "dataSize.max"),
        (rawdoc! { "dataSize": "d.c", "keyPattern": 1 }, 14, "dataSize.keyPattern"),
        (rawdoc! { "dataSize": "d.c", "estimate": "x" }, 14, "dataSize.estimate"),
        (rawdoc! { "dataSize": "d.c", "x": 1 }, 40_415, "dataSize.x"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
    // There is no such index.
    let command = rawdoc! { "dataSize": "d.c", "min": { "a": 1 }, "max": { "a": 2 } };
    assert_eq!(client.run("d", command).await.double("ok"), 0.0);
}
