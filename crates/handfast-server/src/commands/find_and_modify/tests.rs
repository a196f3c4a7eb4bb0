use bson::RawBson;
use bson::rawdoc;

use crate::testing::{TestServer, check, insert, numbered};

#[tokio::test]
async fn contradictory_arguments_are_refused() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (body, text) in [
        (rawdoc! { "findAndModify": "c" }, "Either an update or remove=true must be specified"),
        (
            rawdoc! { "findandmodify": "c", "remove": true, "update": {} },
            "Cannot specify both an update and remove=true",
        ),
        (
            rawdoc! { "findAndModify": "c", "remove": 1, "new": true },
            "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
        ),
    ] {
        assert_eq!(client.refused("d", body).await, (9, "FailedToParse".to_owned(), text.to_owned()));
    }
}

#[tokio::test]
async fn the_reply_has_the_document_before_or_after_the_change() {
    let mut server = TestServer::checked();
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
