use std::sync::Arc;

use bson::rawdoc;

use crate::options::{CursorLimits, Options};
use crate::testing::{AdjustableStore, TestServer, batch, cursor_id, insert, numbered};

#[tokio::test]
async fn batch_size_and_limit_bound_the_first_batch() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let empty = client.run("d", rawdoc! { "find": "c", "batchSize": 0 }).await;
    assert!(batch(&empty).is_empty() && cursor_id(&empty) != 0);
    let rest = client.run("d", rawdoc! { "getMore": cursor_id(&empty), "collection": "c", "batchSize": 0 }).await;
    assert_eq!(batch(&rest).len(), 10);
    let single = client.run("d", rawdoc! { "find": "c", "batchSize": 3, "singleBatch": true }).await;
    assert_eq!((batch(&single).len(), cursor_id(&single)), (3, 0));
    let zero = client.run("d", rawdoc! { "find": "c", "limit": 0 }).await;
    assert_eq!(batch(&zero).len(), 10);
}

#[tokio::test]
async fn invalid_and_unsupported_options_are_refused() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (body, code) in [
        (rawdoc! { "find": "c", "limit": -1 }, 51_024),
        (rawdoc! { "find": "c", "batchSize": -1 }, 51_024),
        (rawdoc! { "find": "c", "tailable": true }, 238),
        (rawdoc! { "find": "c", "collation": { "locale": "xx" } }, 2),
        (rawdoc! { "find": "c", "let": { "COLLATION": { "locale": "de" } } }, 9),
        (rawdoc! { "find": "c", "min": { "a": 1 } }, 51_173),
        (rawdoc! { "find": "c", "hint": 1 }, 9),
        (rawdoc! { "find": 1 }, 73),
        (rawdoc! { "find": "" }, 73),
        (rawdoc! { "find": "a$b" }, 73),
        (rawdoc! { "find": "c", "filter": { "$foo": 1 } }, 2),
    ] {
        assert_eq!(client.refused("d", body.clone()).await.0, code, "{body:?}");
    }
}

#[tokio::test]
async fn a_query_is_filtered_sorted_and_limited() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let sorted =
        rawdoc! { "find": "c", "filter": { "_id": { "$gte": 5 } }, "sort": { "_id": -1 }, "skip": 1, "limit": 2 };
    assert_eq!(batch(&client.run("d", sorted).await), [rawdoc! { "_id": 8 }, rawdoc! { "_id": 7 }]);
    let computed = rawdoc! { "find": "c", "filter": { "$expr": { "$eq": ["$_id", "$$want"] } }, "let": { "want": 3 } };
    assert_eq!(batch(&client.run("d", computed).await), [rawdoc! { "_id": 3 }]);
}

#[tokio::test]
async fn a_connection_may_have_a_limited_number_of_open_cursors() {
    let cursors = CursorLimits { per_connection_max: 3, ..CursorLimits::default() };
    let options = Options { cursors, ..Options::default() };
    let mut server = TestServer::new(Arc::new(AdjustableStore::default()), options);
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(10)).await;
    let find = || rawdoc! { "find": "c", "batchSize": 1 };
    for _ in 0..3 {
        client.run("d", find()).await;
    }
    assert_eq!(client.refused("d", find()).await.0, 96);
    assert_eq!(batch(&server.connect().run("d", find()).await).len(), 1);
}

/// The indexes and queries of a program that takes names without regard to capital letters.
#[tokio::test]
async fn names_are_unique_and_found_without_regard_to_capital_letters() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let folded = || rawdoc! { "locale": "en_US", "strength": 2 };
    let index = rawdoc! { "key": { "username": 1 }, "name": "case_insensitive_username", "unique": true, "collation": folded() };
    client.run("d", rawdoc! { "createIndexes": "users", "indexes": [index] }).await;
    let listed = client.run("d", rawdoc! { "listIndexes": "users" }).await;
    let full = batch(&listed)[1].get_document("collation").unwrap().to_owned();
    assert_eq!(
        (full.get_str("locale").unwrap(), full.get_i32("strength").unwrap(), full.iter().count()),
        ("en_US", 2, 10)
    );
    let users = [rawdoc! { "_id": 1, "username": "Bob" }, rawdoc! { "_id": 2, "username": "bob" }];
    let reply = client.run_with("d", rawdoc! { "insert": "users" }, &[("documents", &users)]).await;
    let errors = reply.get_array("writeErrors").unwrap();
    assert_eq!(errors.into_iter().next().unwrap().unwrap().as_document().unwrap().get_i32("code").unwrap(), 11_000);
    let find = |collation| {
        let mut find = rawdoc! { "find": "users", "filter": { "username": "BOB" } };
        if let Some(collation) = collation {
            find.append(bson::raw::cstr!("collation"), collation);
        }
        find
    };
    assert_eq!(batch(&client.run("d", find(Some(folded()))).await).len(), 1);
    assert_eq!(batch(&client.run("d", find(None)).await).len(), 0);
    assert_eq!(batch(&client.run("d", find(Some(rawdoc! { "locale": "simple" }))).await).len(), 0);
    let count = rawdoc! { "count": "users", "query": { "username": "BOB" }, "collation": folded() };
    assert_eq!(client.run("d", count).await.get_i32("n").unwrap(), 1);
    let distinct =
        rawdoc! { "distinct": "users", "key": "username", "query": { "username": "BOB" }, "collation": folded() };
    assert_eq!(client.run("d", distinct).await.get_array("values").unwrap().into_iter().count(), 1);
    let change = rawdoc! { "q": { "username": "BOB" }, "u": { "$set": { "n": 1 } }, "collation": folded() };
    let reply = client.run("d", rawdoc! { "update": "users", "updates": [change.clone()] }).await;
    assert_eq!(reply.get_i32("nModified").unwrap(), 1);
    let plain = rawdoc! { "q": { "username": "BOB" }, "u": { "$set": { "n": 2 } } };
    let reply = client.run("d", rawdoc! { "update": "users", "updates": [change, plain] }).await;
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    let join =
        rawdoc! { "$lookup": { "from": "users", "localField": "who", "foreignField": "username", "as": "found" } };
    let documents = rawdoc! { "$documents": [{ "who": "BOB" }, { "who": "bOB" }] };
    let pipeline = [documents, join, rawdoc! { "$project": { "found": { "$size": "$found" } } }];
    let pipeline: bson::RawArrayBuf = pipeline.into_iter().collect();
    let joined = rawdoc! { "aggregate": 1, "pipeline": pipeline, "cursor": {}, "collation": folded() };
    assert_eq!(batch(&client.run("d", joined).await), vec![rawdoc! { "found": 1 }; 2]);
    let gone = rawdoc! { "q": { "username": "BOB" }, "limit": 1, "collation": folded() };
    assert_eq!(client.run("d", rawdoc! { "delete": "users", "deletes": [gone] }).await.get_i32("n").unwrap(), 1);
}
