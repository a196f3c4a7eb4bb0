use bson::{RawBson, Timestamp, rawdoc};

use crate::testing::TestServer;

#[tokio::test]
async fn parameters_are_returned_by_name_or_all() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let time = Timestamp { time: 0, increment: 0 };
    let changes = || {
        rawdoc! {
            "_id": "changeStreamOptions", "clusterParameterTime": time, "preAndPostImages": { "expireAfterSeconds": "off" },
        }
    };
    let limit = || rawdoc! { "_id": "defaultMaxTimeMS", "clusterParameterTime": time, "readOperations": 0_i64 };
    for (asked, expected) in [
        (bson::rawbson!("*"), bson::rawbson!([changes(), limit()])),
        (bson::rawbson!("defaultMaxTimeMS"), bson::rawbson!([limit()])),
        (bson::rawbson!(["defaultMaxTimeMS", "changeStreamOptions"]), bson::rawbson!([limit(), changes()])),
    ] {
        let reply = client.run("admin", rawdoc! { "getClusterParameter": asked }).await;
        assert_eq!(reply, rawdoc! { "clusterParameters": expected, "ok": 1.0 });
    }
    for (database, asked, code) in [
        ("admin", bson::rawbson!("x"), 4),
        ("admin", bson::rawbson!(["defaultMaxTimeMS", "x"]), 4),
        ("admin", bson::rawbson!([]), 2),
        ("admin", bson::rawbson!([1]), 14),
        ("admin", bson::rawbson!(1), 14),
        ("d", bson::rawbson!("*"), 13),
    ] {
        let command = rawdoc! { "getClusterParameter": asked };
        assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
    }
}

#[tokio::test]
async fn only_the_values_that_they_have_can_be_set() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let same: [RawBson; 2] = [
        bson::rawbson!({ "defaultMaxTimeMS": { "readOperations": 0 } }),
        bson::rawbson!({ "changeStreamOptions": { "preAndPostImages": { "expireAfterSeconds": "off" } } }),
    ];
    for value in same {
        assert_eq!(client.run("admin", rawdoc! { "setClusterParameter": value }).await, rawdoc! { "ok": 1.0 });
    }
    for (database, value, code) in [
        ("admin", bson::rawbson!({ "defaultMaxTimeMS": { "readOperations": 5 } }), 115),
        ("admin", bson::rawbson!({ "defaultMaxTimeMS": {} }), 115),
        ("admin", bson::rawbson!({ "defaultMaxTimeMS": 5 }), 2),
        ("admin", bson::rawbson!({ "x": {} }), 4),
        ("admin", bson::rawbson!({}), 72),
        ("admin", bson::rawbson!({ "defaultMaxTimeMS": {}, "changeStreamOptions": {} }), 72),
        ("admin", bson::rawbson!(1), 14),
        ("d", bson::rawbson!({ "x": {} }), 13),
    ] {
        let command = rawdoc! { "setClusterParameter": value };
        assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
    }
}
