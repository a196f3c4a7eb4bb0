use bson::{RawBson, rawdoc};

use crate::testing::{TestServer, check, check_refused};

#[tokio::test]
async fn sparse_indexes_are_errors_of_the_strict_api() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let indexes = rawdoc! { "createIndexes": "c", "indexes": [
        { "key": { "a": 1 }, "name": "a_1" }, { "key": { "s": 1 }, "name": "s_1", "sparse": true },
    ] };
    for database in ["d", "e"] {
        client.run(database, indexes.clone()).await;
    }
    let error = |database: &str| {
        rawdoc! {
            "ns": format!("{database}.c"), "code": 323, "codeName": "APIStrictError",
            "errmsg": "The index with name s_1 is not allowed in API version 1.",
        }
    };
    let both = bson::rawbson!([error("d"), error("e")]);
    let one = || bson::rawbson!([error("d")]);
    let none = || bson::rawbson!([]);
    let strict = || rawdoc! { "version": "1", "strict": true, "deprecationErrors": true };
    let command = |api: bson::RawDocumentBuf| rawdoc! { "validateDBMetadata": 1, "apiParameters": api };
    check(&mut client, command(strict()), rawdoc! { "apiVersionErrors": both }).await;
    check(&mut client, command(rawdoc! { "version": "1" }), rawdoc! { "apiVersionErrors": none() }).await;
    for (database, collections, expected) in [
        ("d", RawBson::Null, one()),
        ("d", bson::rawbson!(["c"]), one()),
        ("d", bson::rawbson!(["x"]), none()),
        ("none", RawBson::Null, none()),
    ] {
        let mut command = command(strict());
        command.append(bson::raw::cstr!("db"), database);
        command.append(bson::raw::cstr!("collections"), collections);
        check(&mut client, command, rawdoc! { "apiVersionErrors": expected }).await;
    }
}

#[tokio::test]
async fn arguments_are_checked() {
    let mut server = TestServer::checked();
    let mut client = server.connect();
    let api = || rawdoc! { "version": "1" };
    for (command, code) in [
        (rawdoc! { "validateDBMetadata": 1 }, 40_414),
        (rawdoc! { "validateDBMetadata": 1, "apiParameters": 1 }, 14),
        (rawdoc! { "validateDBMetadata": 1, "apiParameters": {} }, 40_414),
        (rawdoc! { "validateDBMetadata": 1, "apiParameters": { "version": "2" } }, 322),
        (rawdoc! { "validateDBMetadata": 1, "apiParameters": { "version": "1", "strict": 1 } }, 14),
        (rawdoc! { "validateDBMetadata": 1, "apiParameters": { "version": "1", "x": 1 } }, 40_415),
        (rawdoc! { "validateDBMetadata": 1, "apiParameters": api(), "db": 1 }, 14),
        (rawdoc! { "validateDBMetadata": 1, "apiParameters": api(), "collections": "x" }, 14),
        (rawdoc! { "validateDBMetadata": 1, "apiParameters": api(), "collections": [1] }, 14),
        (rawdoc! { "validateDBMetadata": 1, "apiParameters": api(), "x": 1 }, 40_415),
    ] {
        check_refused(&mut client, command, code, "").await;
    }
}
