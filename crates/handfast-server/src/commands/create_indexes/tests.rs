use bson::raw::CString;
use bson::rawdoc;

use crate::testing::{ReplyFields, TestServer, batch, check, check_refused, write_error};

#[tokio::test]
async fn indexes_are_created_listed_and_enforced() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let create = || {
        rawdoc! { "createIndexes": "c", "indexes": [
            { "key": { "a": 1 }, "name": "a_1", "unique": true, "sparse": 1 },
            { "key": { "t": 1 }, "name": "t_1", "background": false, "expireAfterSeconds": 60 },
        ] }
    };
    let expected = rawdoc! { "numIndexesBefore": 1, "numIndexesAfter": 3, "createdCollectionAutomatically": true };
    check(&mut client, create(), expected).await;
    let expected = rawdoc! {
        "numIndexesBefore": 3, "numIndexesAfter": 3, "createdCollectionAutomatically": false,
        "note": "all indexes already exist",
    };
    check(&mut client, create(), expected).await;
    let reply = client.run("d", rawdoc! { "listIndexes": "c" }).await;
    let expected = [
        rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" },
        rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1", "unique": true, "sparse": true },
        rawdoc! { "v": 2, "key": { "t": 1 }, "name": "t_1", "background": false, "expireAfterSeconds": 60 },
    ];
    assert_eq!(batch(&reply), expected);
    let documents = [rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2, "a": 1 }];
    let reply = client.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &documents)]).await;
    let error = reply.get_array("writeErrors").unwrap().get_document(0).unwrap();
    assert_eq!(error.text("errmsg"), "E11000 duplicate key error collection: d.c index: a_1 dup key: { a: 1 }");
    assert_eq!(error.get_document("keyValue").unwrap(), &*rawdoc! { "a": 1 });
}

#[tokio::test]
async fn an_invalid_definition_is_refused() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    for (index, code) in [
        (rawdoc! { "key": { "a": "text" }, "name": "x" }, 67),
        (rawdoc! { "key": { "$**": 1 }, "name": "x" }, 67),
        (rawdoc! { "key": { "a": 1 }, "name": "" }, 67),
        (rawdoc! { "key": { "a": 1 } }, 9),
        (rawdoc! { "name": "x" }, 9),
        (rawdoc! { "key": { "a": 1 }, "name": "x", "wildcardProjection": {} }, 238),
        (rawdoc! { "key": { "a": 1 }, "name": "x", "foo": 1 }, 197),
        (rawdoc! { "key": { "_id": 1 }, "name": "_id_", "unique": true }, 197),
    ] {
        let body = rawdoc! { "createIndexes": "c", "indexes": [index.clone()] };
        assert_eq!(client.refused("d", body).await.0, code, "{index:?}");
    }
}

#[tokio::test]
async fn a_hashed_index_is_listed_as_it_was_made() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    let index = rawdoc! { "key": { "a": "hashed" }, "name": "a_hashed" };
    client.run("d", rawdoc! { "createIndexes": "c", "indexes": [index] }).await;
    let documents: Vec<_> = (0..100).map(|n| rawdoc! { "_id": n, "a": n }).collect();
    client.run_with("d", rawdoc! { "insert": "c" }, &[("documents", &documents)]).await;
    let listed = client.run("d", rawdoc! { "listIndexes": "c" }).await;
    let listed = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(listed.get_document(1).unwrap().get_document("key").unwrap(), &*rawdoc! { "a": "hashed" });
    let find = rawdoc! { "find": "c", "filter": { "a": 7 }, "hint": { "a": "hashed" } };
    assert_eq!(batch(&client.run("d", find).await), [rawdoc! { "_id": 7, "a": 7 }]);
    let array = rawdoc! { "insert": "c", "documents": [{ "_id": 100, "a": [1] }] };
    assert_eq!(write_error(&client.run("d", array).await).int("code"), 16_766);
}

#[tokio::test]
async fn an_index_without_a_name_is_refused_and_shown_as_it_was_sent() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let create = rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1, "b": -1 }, "unique": true }] };
    let expected = "Error in specification { key: { a: 1, b: -1 }, unique: true } :: caused by :: The 'name' field";
    check_refused(&mut client, create, 9, expected).await;
}

#[tokio::test]
async fn unknown_options_of_an_index_are_ignored_on_request() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let create = |option: &str, lenient: bool| {
        let mut index = rawdoc! { "key": { "a": 1 }, "name": "a_1" };
        index.append(CString::try_from(option).unwrap(), 1);
        rawdoc! { "createIndexes": "c", "indexes": [index], "ignoreUnknownIndexOptions": lenient }
    };
    let (code, _, text) = client.refused("d", create("fooBar", false)).await;
    assert_eq!((code, text.as_str()), (197, "BSON field 'createIndexes.indexes.fooBar' is an unknown field."));
    assert_eq!(client.run("d", create("fooBar", true)).await.int("numIndexesAfter"), 2);
    // A known option that is not supported is always refused: without it the index would be a different one.
    assert_eq!(
        client.refused("d", create("weights", true)).await.0,
        client.refused("d", create("weights", false)).await.0
    );
}
