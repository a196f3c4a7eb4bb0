use bson::rawdoc;

use crate::commands::parameters::PARAMETERS;
use crate::testing::{ReplyFields, TestServer};

#[tokio::test]
async fn one_parameter_or_all_are_returned() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let reply = client.run("admin", rawdoc! { "getParameter": 1, "featureCompatibilityVersion": 1 }).await;
    assert_eq!(reply, rawdoc! { "featureCompatibilityVersion": { "version": "8.0" }, "ok": 1.0 });
    let reply = client.run("admin", rawdoc! { "getParameter": 1, "authSchemaVersion": 1 }).await;
    assert_eq!(reply, rawdoc! { "authSchemaVersion": 5, "ok": 1.0 });
    assert_eq!(client.refused("admin", rawdoc! { "getParameter": 1, "nothing": 1 }).await.0, 72);
    for all in [bson::rawbson!("*"), bson::rawbson!({ "allParameters": true })] {
        let reply = client.run("admin", rawdoc! { "getParameter": all }).await;
        // All of them, and `ok`.
        assert_eq!(reply.iter().count(), PARAMETERS.len() + 1, "{reply:?}");
    }
    let names: Vec<_> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
    assert!(names.is_sorted(), "{names:?}");
}

#[tokio::test]
async fn details_and_the_time_of_setting_are_returned() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    let details = rawdoc! { "getParameter": { "showDetails": true }, "cursorTimeoutMillis": 1, "maxSessions": 1 };
    let expected = rawdoc! {
        "cursorTimeoutMillis": { "value": 600_000_i64, "settableAtRuntime": true, "settableAtStartup": true },
        "maxSessions": { "value": 1_000_000, "settableAtRuntime": false, "settableAtStartup": false },
        "ok": 1.0,
    };
    assert_eq!(client.run("admin", details).await, expected);
    for (time, expected) in [
        (
            "runtime",
            &["cursorTimeoutMillis", "requireApiVersion", "slowOpThresholdMs", "transactionLifetimeLimitSeconds"][..],
        ),
        (
            "startup",
            &[
                "cursorTimeoutMillis",
                "enableTestCommands",
                "networkMessageCompressors",
                "slowOpThresholdMs",
                "transactionLifetimeLimitSeconds",
            ],
        ),
    ] {
        let asked = rawdoc! { "getParameter": { "allParameters": true, "setAt": time } };
        let reply = client.run("admin", asked).await;
        let names: Vec<_> = reply.iter().map(|field| field.unwrap().0.as_str()).filter(|name| *name != "ok").collect();
        assert_eq!(names, expected);
    }
    let not_then = rawdoc! { "getParameter": { "setAt": "startup" }, "maxSessions": 1 };
    assert_eq!(client.refused("admin", not_then).await.0, 72);
}

#[tokio::test]
async fn options_are_checked() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (options, code) in [
        (bson::rawbson!({ "showDetails": 1 }), 14),
        (bson::rawbson!({ "allParameters": "x" }), 14),
        (bson::rawbson!({ "setAt": 1 }), 14),
        (bson::rawbson!({ "setAt": "never" }), 2),
        (bson::rawbson!({ "x": 1 }), 40_415),
    ] {
        let command = rawdoc! { "getParameter": options, "maxSessions": 1 };
        assert_eq!(client.refused("admin", command.clone()).await.0, code, "{command:?}");
    }
    let commented = rawdoc! { "getParameter": 1, "maxSessions": 1, "comment": "x" };
    assert_eq!(client.run("admin", commented).await.int("maxSessions"), 1_000_000);
    assert_eq!(client.refused("d", rawdoc! { "getParameter": "*" }).await.0, 13);
}
