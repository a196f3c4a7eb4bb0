use bson::rawdoc;

use crate::testing::{TestServer, batch, check, check_refused, insert, numbered};

#[tokio::test]
async fn the_cache_and_the_filters_are_empty() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(1)).await;
    for collection in ["c", "none"] {
        for command in ["planCacheClear", "planCacheClearFilters"] {
            let mut plain = crate::testing::named(command, 1);
            plain = plain.iter().map(|_| (bson::raw::CString::try_from(command).unwrap(), collection)).collect();
            check(&mut client, plain.clone(), rawdoc! {}).await;
            plain.append(bson::raw::cstr!("query"), rawdoc! { "a": 1 });
            plain.append(bson::raw::cstr!("sort"), rawdoc! { "a": 1 });
            plain.append(bson::raw::cstr!("projection"), rawdoc! {});
            plain.append(bson::raw::cstr!("collation"), rawdoc! { "locale": "de" });
            check(&mut client, plain, rawdoc! {}).await;
        }
        check(&mut client, rawdoc! { "planCacheListFilters": collection }, rawdoc! { "filters": [] }).await;
        let stage = rawdoc! { "aggregate": collection, "pipeline": [{ "$planCacheStats": {} }, { "$count": "n" }], "cursor": {} };
        assert!(batch(&client.run("d", stage).await).is_empty());
    }
}

#[tokio::test]
async fn a_filter_is_refused_by_name() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let filter = rawdoc! { "planCacheSetFilter": "c", "query": { "a": 1 }, "indexes": [{ "a": 1 }, "a_1"] };
    check_refused(&mut client, filter, 115, "index filters are not supported").await;
}

#[tokio::test]
async fn arguments_are_checked() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    client.run("d", rawdoc! { "create": "v", "viewOn": "c", "pipeline": [] }).await;
    for (command, code, text) in [
        (rawdoc! { "planCacheClear": 1 }, 73, "collection name has invalid type"),
        (rawdoc! { "planCacheClear": "v" }, 166, ""),
        (rawdoc! { "planCacheClear": "c", "x": 1 }, 40_415, "planCacheClear.x"),
        (rawdoc! { "planCacheClear": "c", "query": 1 }, 2, "required field query must be an object"),
        (rawdoc! { "planCacheClear": "c", "query": {}, "sort": 1 }, 2, "optional field sort must be an object"),
        (
            rawdoc! { "planCacheClear": "c", "query": {}, "projection": 1 },
            2,
            "optional field projection must be an object",
        ),
        (
            rawdoc! { "planCacheClear": "c", "query": {}, "collation": {} },
            2,
            "optional field collation cannot be empty",
        ),
        (rawdoc! { "planCacheClear": "c", "sort": {} }, 2, "provided without query"),
        (rawdoc! { "planCacheClearFilters": "c", "projection": {} }, 2, "provided without query"),
        (rawdoc! { "planCacheListFilters": "c", "x": 1 }, 40_415, "planCacheListFilters.x"),
        (rawdoc! { "planCacheListFilters": "v" }, 166, ""),
        (rawdoc! { "planCacheSetFilter": "c", "query": {} }, 2, "required field indexes missing"),
        (
            rawdoc! { "planCacheSetFilter": "c", "query": {}, "indexes": 1 },
            2,
            "required field indexes must be an array",
        ),
        (rawdoc! { "planCacheSetFilter": "c", "query": {}, "indexes": [] }, 2, "must contain at least one index"),
        (rawdoc! { "planCacheSetFilter": "c", "query": {}, "indexes": [1] }, 2, "each item in indexes"),
        (rawdoc! { "planCacheSetFilter": "c", "query": {}, "indexes": [""] }, 2, "each item in indexes"),
        (rawdoc! { "planCacheSetFilter": "c", "indexes": ["a"] }, 2, "required field query missing"),
        (rawdoc! { "planCacheSetFilter": "c", "query": {}, "indexes": ["a"], "x": 1 }, 40_415, "planCacheSetFilter.x"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
    for (collection, options, code) in [
        (bson::rawbson!("c"), bson::rawbson!(1), 9),
        (bson::rawbson!("c"), bson::rawbson!({ "allHosts": true }), 9),
        (bson::rawbson!("c"), bson::rawbson!({ "allHosts": 1 }), 14),
        (bson::rawbson!("c"), bson::rawbson!({ "x": 1 }), 40_415),
        (bson::rawbson!("v"), bson::rawbson!({}), 166),
        (bson::rawbson!(1), bson::rawbson!({}), 73),
    ] {
        let pipeline = bson::rawbson!([{ "$planCacheStats": options }]);
        check_refused(&mut client, rawdoc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} }, code, "")
            .await;
    }
}
