use bson::rawdoc;

use crate::testing::TestServer;

#[tokio::test]
async fn each_query_and_write_can_be_explained() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for inner in [
        rawdoc! { "find": "c", "filter": { "a": 1 } },
        rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {} },
        rawdoc! { "count": "c", "query": {} },
        rawdoc! { "distinct": "c", "key": "a" },
        rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] },
        rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] },
        rawdoc! { "findAndModify": "c", "query": {}, "remove": true },
    ] {
        let reply = client.run("d", rawdoc! { "explain": inner.clone(), "verbosity": "queryPlanner" }).await;
        assert!(reply.get_document("queryPlanner").is_ok(), "{inner:?}: {reply:?}");
        assert!(reply.get_document("serverInfo").is_ok());
    }
    let reply = client.run("d", rawdoc! { "aggregate": "c", "pipeline": [], "explain": true }).await;
    assert!(reply.get_document("queryPlanner").is_ok());
    assert_eq!(client.refused("d", rawdoc! { "explain": { "ping": 1 } }).await.0, 59);
    assert_eq!(client.refused("d", rawdoc! { "explain": { "find": "c" }, "verbosity": "x" }).await.0, 2);
}

#[tokio::test]
async fn an_unknown_option_of_the_explained_command_is_refused() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (inner, path) in [
        (rawdoc! { "find": "c", "fooBar": 1 }, "find"),
        (rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {}, "fooBar": 1 }, "aggregate"),
        (rawdoc! { "count": "c", "fooBar": 1 }, "count"),
        (rawdoc! { "distinct": "c", "key": "a", "fooBar": 1 }, "distinct"),
        (rawdoc! { "update": "c", "updates": [{ "q": {}, "u": {} }], "fooBar": 1 }, "update"),
        (rawdoc! { "update": "c", "updates": [{ "q": {}, "u": {}, "fooBar": 1 }] }, "update.updates"),
        (rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }], "fooBar": 1 }, "delete"),
        (rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1, "fooBar": 1 }] }, "delete.deletes"),
        (rawdoc! { "findAndModify": "c", "remove": true, "fooBar": 1 }, "findAndModify"),
    ] {
        let (code, _, text) = client.refused("d", rawdoc! { "explain": inner }).await;
        assert_eq!((code, text), (40_415, format!("BSON field '{path}.fooBar' is an unknown field.")));
    }
    let two = rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }, { "q": {}, "limit": 1 }] };
    assert_eq!(client.refused("d", rawdoc! { "explain": two }).await.0, 16, "one statement is explained");
}
