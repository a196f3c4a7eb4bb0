use std::time::Duration;

use bson::{RawBson, rawdoc};

use crate::testing::{ReplyFields, TestServer, cursor_id, in_transaction, insert, numbered};

#[tokio::test]
async fn a_parameter_is_changed_and_its_previous_value_returned() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (command, was) in [
        (rawdoc! { "setParameter": 1, "cursorTimeoutMillis": 5_000 }, RawBson::Int64(600_000)),
        (rawdoc! { "setParameter": 1, "cursorTimeoutMillis": 7_000.0, "comment": "x" }, RawBson::Int64(5_000)),
        (
            rawdoc! { "setParameter": 1, "slowOpThresholdMs": 7, "transactionLifetimeLimitSeconds": 9 },
            RawBson::Int32(100),
        ),
        (rawdoc! { "setParameter": 1, "slowOpThresholdMs": 0 }, RawBson::Int32(7)),
        (rawdoc! { "setParameter": 1, "transactionLifetimeLimitSeconds": 60_i64 }, RawBson::Int32(9)),
        (rawdoc! { "setParameter": 1, "requireApiVersion": false }, RawBson::Boolean(false)),
    ] {
        assert_eq!(client.run("admin", command.clone()).await, rawdoc! { "was": was, "ok": 1.0 }, "{command:?}");
    }
    let all = client.run("admin", rawdoc! { "getParameter": "*" }).await;
    assert_eq!((all.long("cursorTimeoutMillis"), all.int("slowOpThresholdMs")), (7_000, 0));
}

#[tokio::test]
async fn the_time_outs_are_those_that_were_set() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    insert(&mut client, "c", &numbered(3)).await;
    let command = rawdoc! { "setParameter": 1, "cursorTimeoutMillis": 5_000, "transactionLifetimeLimitSeconds": 9 };
    client.run("admin", command).await;
    let cursor = cursor_id(&client.run("d", rawdoc! { "find": "c", "batchSize": 1 }).await);
    client.run("d", in_transaction(rawdoc! { "find": "c" }, 1, true)).await;
    server.advance(Duration::from_secs(6));
    assert_eq!(client.refused("d", rawdoc! { "getMore": cursor, "collection": "c" }).await.0, 43);
    assert_eq!(server.shared.sessions.transactions().len(), 1);
    server.advance(Duration::from_secs(4));
    assert_eq!(client.refused("d", in_transaction(rawdoc! { "find": "c" }, 1, false)).await.0, 251);
}

#[tokio::test]
async fn other_names_and_values_are_refused_and_nothing_is_changed() {
    let mut server = TestServer::adjustable();
    let mut client = server.connect();
    for (database, command, code, text) in [
        ("admin", rawdoc! { "setParameter": 1 }, 72, "no option found to set, use help:true to see options "),
        (
            "admin",
            rawdoc! { "setParameter": 1, "slowOpThresholdMs": 5, "x": 1 },
            72,
            "attempted to set unrecognized parameter [x], use help:true to see options ",
        ),
        (
            "admin",
            rawdoc! { "setParameter": 1, "slowOpThresholdMs": 5, "enableTestCommands": 1 },
            20,
            "not allowed to change [enableTestCommands] at runtime",
        ),
        (
            "admin",
            rawdoc! { "setParameter": 1, "maxSessions": 1 },
            20,
            "not allowed to change [maxSessions] at runtime",
        ),
        (
            "admin",
            rawdoc! { "setParameter": 1, "slowOpThresholdMs": 5, "slowOpThresholdMs": 6 },
            72,
            "attempted to set parameter [slowOpThresholdMs] twice in the same setParameter command",
        ),
        (
            "admin",
            rawdoc! { "setParameter": 1, "slowOpThresholdMs": 5, "cursorTimeoutMillis": "x" },
            2,
            "Invalid value for parameter cursorTimeoutMillis: it must be a number",
        ),
        (
            "admin",
            rawdoc! { "setParameter": 1, "cursorTimeoutMillis": 0 },
            2,
            "Invalid value for parameter cursorTimeoutMillis: it must be greater than or equal to 1",
        ),
        (
            "admin",
            rawdoc! { "setParameter": 1, "transactionLifetimeLimitSeconds": 61 },
            2,
            "Invalid value for parameter transactionLifetimeLimitSeconds: it must be at most 60",
        ),
        (
            "admin",
            rawdoc! { "setParameter": 1, "requireApiVersion": true },
            2,
            "Invalid value for parameter requireApiVersion: the server cannot require an API version",
        ),
        (
            "d",
            rawdoc! { "setParameter": 1, "slowOpThresholdMs": 5 },
            13,
            "setParameter may only be run against the admin database.",
        ),
    ] {
        let (found, _, message) = client.refused(database, command.clone()).await;
        assert_eq!((found, message.as_str()), (code, text), "{command:?}");
    }
    let asked = rawdoc! { "getParameter": 1, "slowOpThresholdMs": 1 };
    assert_eq!(client.run("admin", asked).await.int("slowOpThresholdMs"), 100);
}
