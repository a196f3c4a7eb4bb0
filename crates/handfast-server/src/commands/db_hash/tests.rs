use bson::raw::RawDocumentBuf;
use bson::rawdoc;

use crate::testing::{ReplyFields, TestClient, TestServer, check_refused, insert, numbered};

async fn hash(client: &mut TestClient, database: &str) -> RawDocumentBuf {
    client.run(database, rawdoc! { "dbHash": 1 }).await
}

/// The expected values are MD5 (RFC 1321) of the BSON of the documents, and of the hashes.
#[tokio::test]
async fn collections_and_the_database_have_the_hashes_of_mongodb() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "b", &numbered(2)).await;
    client.run("d", rawdoc! { "create": "a" }).await;
    client.run("d", rawdoc! { "create": "v", "viewOn": "b", "pipeline": [] }).await;
    let reply = hash(&mut client, "d").await;
    let expected = rawdoc! { "a": EMPTY, "b": TWO };
    assert_eq!(reply.get_document("collections").unwrap(), &*expected);
    assert_eq!(reply.text("md5"), BOTH);
    let names: Vec<_> = reply.iter().map(|field| field.unwrap().0.as_str()).collect();
    assert_eq!(names, ["host", "collections", "capped", "uuids", "md5", "timeMillis", "ok"]);
    assert_eq!(reply.get_document("uuids").unwrap().iter().count(), 2);
    let reply = client.run("d", rawdoc! { "dbHash": 1, "collections": ["b", "none"] }).await;
    assert_eq!(reply.get_document("collections").unwrap(), &*rawdoc! { "b": TWO });
    assert_eq!(hash(&mut client, "none").await.text("md5"), EMPTY);
}

/// `printf '' | md5sum`
const EMPTY: &str = "d41d8cd98f00b204e9800998ecf8427e";
/// Of `{_id: 0}` and `{_id: 1}`, which are 14 bytes each.
const TWO: &str = "f56e097a0f93c34fd03cfaaec4d9de2e";
/// Of the texts of the two hashes.
const BOTH: &str = "02bc8924ef3e6ad018b9b1181770a493";

#[tokio::test]
async fn an_equal_copy_has_the_same_hash_and_a_changed_one_another() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let documents = [rawdoc! { "_id": 2 }, rawdoc! { "_id": 1 }];
    insert(&mut client, "c", &documents).await;
    client
        .run_with("e", rawdoc! { "insert": "c" }, &[("documents", &[rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }])])
        .await;
    let first = hash(&mut client, "d").await.text("md5").to_owned();
    assert_eq!(hash(&mut client, "e").await.text("md5"), first);
    let change = rawdoc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "n": 1 } } }] };
    client.run("e", change).await;
    assert_ne!(hash(&mut client, "e").await.text("md5"), first);
}

#[tokio::test]
async fn arguments_are_checked() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    for (command, code) in [
        (rawdoc! { "dbHash": 1, "collections": 1 }, 14),
        (rawdoc! { "dbHash": 1, "collections": [1] }, 2),
        (rawdoc! { "dbHash": 1, "skipTempCollections": "x" }, 14),
        (rawdoc! { "dbHash": 1, "x": 1 }, 40_415),
    ] {
        check_refused(&mut client, command, code, "").await;
    }
}
