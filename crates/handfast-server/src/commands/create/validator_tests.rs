//! Validators through the commands.

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};

use crate::testing::{
    ReplyFields, TestClient, TestServer, batch, check, check_refused, end, in_transaction, write_error,
};

/// A validator that asks for a number `n` of at least 5.
fn least() -> RawDocumentBuf {
    rawdoc! { "$jsonSchema": { "required": ["n"], "properties": { "n": { "bsonType": "int", "minimum": 5 } } } }
}

async fn created(server: &mut TestServer) -> TestClient {
    let mut client = server.connect();
    check(&mut client, rawdoc! { "create": "c", "validator": least() }, rawdoc! {}).await;
    client
}

fn insert(id: i32, n: i32) -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "_id": id, "n": n }] }
}

fn update(id: i32, change: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "update": "c", "updates": [{ "q": { "_id": id }, "u": change, "upsert": true }] }
}

fn bypassing(mut command: RawDocumentBuf) -> RawDocumentBuf {
    command.append(cstr!("bypassDocumentValidation"), true);
    command
}

async fn refused(client: &mut TestClient, command: RawDocumentBuf) {
    let reply = client.run("d", command.clone()).await;
    let error = write_error(&reply);
    assert_eq!((error.int("code"), error.text("errmsg")), (121, "Document failed validation"), "{command:?}");
    assert!(error.get_document("errInfo").unwrap().get_document("details").is_ok(), "{error:?}");
}

async fn written(client: &mut TestClient, command: RawDocumentBuf) {
    let reply = client.run("d", command.clone()).await;
    assert!(reply.get("writeErrors").unwrap().is_none() && reply.double("ok") == 1.0, "{command:?}: {reply:?}");
}

#[tokio::test]
async fn each_write_is_checked_unless_it_bypasses_the_validator() {
    for mut server in [TestServer::checked(), TestServer::transactional()] {
        let mut client = created(&mut server).await;
        written(&mut client, insert(1, 5)).await;
        refused(&mut client, insert(2, 4)).await;
        refused(&mut client, update(1, rawdoc! { "$set": { "n": 4 } })).await;
        refused(&mut client, update(1, rawdoc! { "m": 4 })).await;
        refused(&mut client, update(3, rawdoc! { "$set": { "n": 4 } })).await;
        let many = rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$inc": { "n": -1 } }, "multi": true }] };
        refused(&mut client, many).await;
        written(&mut client, update(1, rawdoc! { "$set": { "n": 6 } })).await;
        let modify = |id: i32| {
            rawdoc! { "findAndModify": "c", "query": { "_id": id }, "update": { "$set": { "n": 1 } }, "upsert": true, "new": true }
        };
        for id in [1, 7] {
            check_refused(&mut client, modify(id), 121, "Document failed validation").await;
            assert_eq!(client.run("d", bypassing(modify(id))).await.get_document("value").unwrap().int("n"), 1);
        }
        written(&mut client, bypassing(insert(2, 4))).await;
        written(&mut client, bypassing(update(3, rawdoc! { "$set": { "n": 4 } }))).await;
        let merge = rawdoc! {
            "aggregate": 1, "cursor": {}, "pipeline": [{ "$documents": [{ "_id": 9, "n": 1 }] }, { "$merge": "c" }],
        };
        check_refused(&mut client, merge.clone(), 121, "Document failed validation").await;
        assert_eq!(client.run("d", bypassing(merge)).await.double("ok"), 1.0);
        let out = rawdoc! { "aggregate": 1, "cursor": {}, "pipeline": [{ "$documents": [{ "_id": 9, "n": 1 }] }, { "$out": "c" }] };
        check_refused(&mut client, out.clone(), 121, "Document failed validation").await;
        assert_eq!(client.run("d", rawdoc! { "count": "c" }).await.int("n"), 5);
        assert_eq!(client.run("d", bypassing(out)).await.double("ok"), 1.0);
        assert_eq!(client.run("d", rawdoc! { "count": "c" }).await.int("n"), 1);
        // The new collection has the validator of the old one.
        refused(&mut client, insert(2, 4)).await;
        let bulk = rawdoc! {
            "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 10, "n": 1 } }], "nsInfo": [{ "ns": "d.c" }],
        };
        let reply = client.run("admin", bulk.clone()).await;
        assert_eq!(reply.int("nErrors"), 1, "{reply:?}");
        assert_eq!(client.run("admin", bypassing(bulk)).await.int("nErrors"), 0);
    }
}

#[tokio::test]
async fn the_error_says_what_is_wrong() {
    let mut server = TestServer::checked();
    let mut client = created(&mut server).await;
    let reply = client.run("d", insert(1, 4)).await;
    let info = write_error(&reply).get_document("errInfo").unwrap();
    let expected = rawdoc! {
        "failingDocumentId": 1,
        "details": { "operatorName": "$jsonSchema", "schemaRulesNotSatisfied": [
            { "operatorName": "properties", "propertiesNotSatisfied": [{ "propertyName": "n", "details": [{
                "operatorName": "minimum", "specifiedAs": { "minimum": 5 }, "reason": "comparison failed", "consideredValue": 4,
            }] }] },
        ] },
    };
    assert_eq!(info, expected.as_ref());
}

#[tokio::test]
async fn a_transaction_is_checked_at_its_statements() {
    let mut server = TestServer::transactional();
    let mut client = created(&mut server).await;
    written(&mut client, insert(1, 5)).await;
    let failed = client.run("d", in_transaction(update(1, rawdoc! { "$set": { "n": 1 } }), 1, true)).await;
    assert_eq!(write_error(&failed).int("code"), 121);
    written(&mut client, in_transaction(bypassing(insert(2, 1)), 2, true)).await;
    // What was written without the validator may be changed within the transaction only so that it fulfils it.
    refused(&mut client, in_transaction(update(2, rawdoc! { "$set": { "m": 1 } }), 2, false)).await;
    written(&mut client, in_transaction(bypassing(insert(3, 1)), 3, true)).await;
    assert_eq!(end(&mut client, "commitTransaction", 3).await.double("ok"), 1.0);
    // A collection that the transaction creates has its validator at once.
    let create = rawdoc! { "create": "made", "validator": least() };
    assert_eq!(client.run("d", in_transaction(create, 4, true)).await.double("ok"), 1.0);
    let bad = rawdoc! { "insert": "made", "documents": [{ "_id": 1, "n": 1 }] };
    assert_eq!(write_error(&client.run("d", in_transaction(bad.clone(), 4, false)).await).int("code"), 121);
    let create = rawdoc! { "create": "made", "validator": least() };
    assert_eq!(client.run("d", in_transaction(create, 5, true)).await.double("ok"), 1.0);
    assert_eq!(end(&mut client, "commitTransaction", 5).await.double("ok"), 1.0);
    refused(&mut client, bad).await;
}

#[tokio::test]
async fn the_level_and_the_action_are_changed() {
    let mut server = TestServer::checked();
    let mut client = created(&mut server).await;
    written(&mut client, bypassing(insert(1, 1))).await;
    written(&mut client, insert(2, 5)).await;
    let invalid = update(1, rawdoc! { "$set": { "m": 1 } });
    refused(&mut client, invalid.clone()).await;
    check(&mut client, rawdoc! { "collMod": "c", "validationLevel": "moderate" }, rawdoc! {}).await;
    written(&mut client, invalid).await;
    refused(&mut client, update(2, rawdoc! { "$set": { "n": 1 } })).await;
    refused(&mut client, insert(3, 1)).await;
    check(&mut client, rawdoc! { "collMod": "c", "validationAction": "warn" }, rawdoc! {}).await;
    written(&mut client, insert(3, 1)).await;
    let options = |reply: &RawDocumentBuf| batch(reply)[0].get_document("options").unwrap().to_owned();
    let listed = client.run("d", rawdoc! { "listCollections": 1 }).await;
    let shown = rawdoc! { "validator": least(), "validationLevel": "moderate", "validationAction": "warn" };
    assert_eq!(options(&listed), shown);
    check(&mut client, rawdoc! { "collMod": "c", "validationAction": "error", "validationLevel": "off" }, rawdoc! {})
        .await;
    written(&mut client, insert(4, 1)).await;
    let filter = rawdoc! { "collMod": "c", "validator": { "n": { "$lt": 3 } }, "validationLevel": "strict" };
    check(&mut client, filter, rawdoc! {}).await;
    refused(&mut client, insert(5, 3)).await;
    check(&mut client, rawdoc! { "collMod": "c", "validator": {} }, rawdoc! {}).await;
    written(&mut client, insert(5, 3)).await;
    let listed = client.run("d", rawdoc! { "listCollections": 1 }).await;
    assert_eq!(options(&listed), rawdoc! {});
}

#[tokio::test]
async fn invalid_options_and_other_options_of_a_collection_are_refused() {
    let mut server = TestServer::checked();
    let mut client = created(&mut server).await;
    check(&mut client, rawdoc! { "create": "c", "validator": least() }, rawdoc! {}).await;
    for (command, code, text) in [
        (rawdoc! { "create": "c" }, 48, "already exists with different options"),
        (rawdoc! { "create": "x", "validator": 1 }, 14, "validator"),
        (rawdoc! { "create": "x", "validator": { "$jsonSchema": { "x": 1 } } }, 9, "Unknown $jsonSchema keyword: x"),
        (rawdoc! { "create": "x", "validator": { "a": { "$x": 1 } } }, 2, "unknown operator: $x"),
        (rawdoc! { "create": "x", "validationLevel": "none" }, 2, "'none' for field 'validationLevel'"),
        (rawdoc! { "create": "x", "validationAction": "none" }, 2, "'none' for field 'validationAction'"),
        (rawdoc! { "collMod": "c", "validator": { "$jsonSchema": { "x": 1 } } }, 9, "Unknown $jsonSchema keyword: x"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
    for database in ["admin", "config", "local"] {
        let refused = client.refused(database, rawdoc! { "create": "x", "validator": least() }).await;
        assert!(refused.2.contains("not allowed") || refused.0 == 73, "{refused:?}");
    }
    // In front of another server there are no validators.
    let mut server = TestServer::over_single_documents();
    let mut client = server.connect();
    check_refused(&mut client, rawdoc! { "create": "c", "validator": least() }, 238, "no validator").await;
}
