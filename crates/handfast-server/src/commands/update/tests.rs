use bson::rawdoc;

use crate::testing::{ReplyFields, TestServer, batch, check, insert, numbered, write_error};

#[tokio::test]
async fn the_reply_counts_matched_modified_and_upserted_documents() {
    let mut server = TestServer::checked();
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
    let error = write_error(&reply);
    assert_eq!((error.int("index"), error.int("code")), (0, 66));
    assert_eq!((reply.int("n"), reply.int("nModified")), (1, 1));
}

#[tokio::test]
async fn constants_are_for_updates_by_pipeline_only() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let constants = rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "c": { "x": 1 } }] };
    let reply = client.run("d", constants).await;
    assert_eq!(write_error(&reply).int("code"), 51_198);
    let constants =
        rawdoc! { "update": "c", "updates": [{ "q": {}, "u": [{ "$set": { "a": "$$x" } }], "c": { "x": 1 } }] };
    check(&mut client, constants, rawdoc! { "n": 0, "nModified": 0 }).await;
}

#[tokio::test]
async fn an_update_may_be_a_pipeline() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let pipeline = rawdoc! { "update": "c", "updates": [{ "q": { "_id": 4 }, "u": [{ "$set": { "c": "$_id" } }] }] };
    check(&mut client, pipeline, rawdoc! { "n": 1, "nModified": 1 }).await;
}
