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
        (rawdoc! { "find": "c", "collation": { "locale": "de" } }, 238),
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
