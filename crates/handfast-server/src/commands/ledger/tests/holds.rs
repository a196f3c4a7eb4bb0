//! Holds: they are captured in full or in part, released, or expire; once each.

use std::time::Duration;

use bson::{DateTime, RawDocumentBuf, rawdoc};

use super::{balance, check_too_little, open_ann, posted, reconcile, transfer};
use crate::testing::{ReplyFields, TestClient, TestServer, check, check_refused, end, in_transaction};

fn hold(id: &str, value: i64, expires_at: Option<DateTime>) -> RawDocumentBuf {
    let mut hold = rawdoc! { "_id": id, "payer": "ann", "payee": "shop", "value": value, "asset": "EUR", "metadata": { "order": 7 } };
    if let Some(expires_at) = expires_at {
        hold.append(bson::raw::cstr!("expiresAt"), expires_at);
    }
    rawdoc! { "handfastPostHold": "tx", "hold": hold }
}

fn capture(id: &str, value: Option<i64>) -> RawDocumentBuf {
    let mut command = rawdoc! { "handfastCaptureHold": "tx", "hold": { "_id": id } };
    if let Some(value) = value {
        command.append(bson::raw::cstr!("value"), value);
    }
    command
}

fn release(id: &str) -> RawDocumentBuf {
    rawdoc! { "handfastReleaseHold": "tx", "hold": { "_id": id } }
}

fn held(id: &str, posted: bool, state: &str) -> RawDocumentBuf {
    rawdoc! { "_id": id, "posted": posted, "holdState": state }
}

fn resolved(id: &str, state: &str) -> RawDocumentBuf {
    rawdoc! { "_id": { "resolves": id }, "holdState": state }
}

/// Checks that a hold is not resolved in another way than before.
async fn check_otherwise(client: &mut TestClient, command: RawDocumentBuf, state: &str) {
    let reply = client.run("d", command).await;
    assert_eq!(reply.int("code"), 20, "{reply:?}");
    assert_eq!(reply.get_document("errInfo").unwrap().text("holdState"), state);
}

#[tokio::test]
async fn a_hold_is_captured_or_released_once() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        for first in [true, false] {
            check(&mut client, hold("part", 60, None), held("part", first, "open")).await;
        }
        check_too_little(&client.run("d", hold("more", 41, None)).await);
        check(&mut client, hold("all", 20, None), held("all", true, "open")).await;
        check(&mut client, hold("free", 20, None), held("free", true, "open")).await;
        assert_eq!(balance(&mut client, "ann").await, (100, 0));
        for _ in 0..2 {
            check(&mut client, capture("part", Some(50)), resolved("part", "captured")).await;
            check(&mut client, capture("all", None), resolved("all", "captured")).await;
            check(&mut client, release("free"), resolved("free", "released")).await;
        }
        assert_eq!(balance(&mut client, "ann").await, (30, 30));
        assert_eq!(balance(&mut client, "shop").await, (70, 70));
        check_otherwise(&mut client, capture("part", Some(60)), "captured").await;
        check_otherwise(&mut client, release("all"), "captured").await;
        check_otherwise(&mut client, capture("free", None), "released").await;
        check(&mut client, hold("part", 60, None), held("part", false, "captured")).await;
        for command in [capture("none", None), release("none"), release("deposit")] {
            check_refused(&mut client, command, 4, "there is no hold").await;
        }
        check(&mut client, hold("last", 30, None), held("last", true, "open")).await;
        for value in [0, 31] {
            check_refused(&mut client, capture("last", Some(value)), 2, "only from 1 to that").await;
        }
    }
}

#[tokio::test]
async fn a_hold_whose_time_is_over_is_free() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        open_ann(&mut client).await;
        let soon = DateTime::from_millis(server.shared.sources.clock.now().timestamp_millis() + 1000);
        for id in ["looked at", "forgotten"] {
            check(&mut client, hold(id, 50, Some(soon)), held(id, true, "open")).await;
        }
        assert_eq!(reconcile(&mut client).await.1, 0);
        server.clock.advance(Duration::from_secs(1));
        let late = client.run("d", in_transaction(capture("looked at", None), 1, true)).await;
        assert_eq!(late.int("code"), 20, "{late:?}");
        assert_eq!(balance(&mut client, "ann").await, (100, 0), "the transaction was aborted");
        check_otherwise(&mut client, capture("looked at", None), "expired").await;
        assert_eq!(balance(&mut client, "ann").await, (100, 50));
        assert_eq!(reconcile(&mut client).await.1, 1);
        assert_eq!(balance(&mut client, "ann").await, (100, 100));
        check_otherwise(&mut client, capture("forgotten", None), "expired").await;
    }
}

#[tokio::test]
async fn a_hold_is_posted_and_captured_if_and_only_if_its_transaction_commits() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        open_ann(&mut client).await;
        check(&mut client, transfer("first", "cash", "shop", 1), posted("first", true)).await;
        let later = DateTime::from_millis(server.shared.sources.clock.now().timestamp_millis() + 60_000);
        let mut number = 0;
        for (command, expected) in [
            (hold("order 7", 50, Some(later)), [(100, 100), (100, 50)]),
            (capture("order 7", None), [(100, 50), (50, 50)]),
        ] {
            for (end_command, expected) in ["abortTransaction", "commitTransaction"].into_iter().zip(expected) {
                number += 1;
                let reply = client.run("d", in_transaction(command.clone(), number, true)).await;
                assert_eq!(reply.double("ok"), 1.0, "{reply:?}");
                assert_eq!(end(&mut client, end_command, number).await.double("ok"), 1.0);
                assert_eq!(balance(&mut other, "ann").await, expected, "{command:?} {end_command}");
            }
        }
        assert_eq!(client.run("d", rawdoc! { "count": "hold" }).await.int("n"), 0, "it expires no more");
    }
}

#[tokio::test]
async fn a_hold_that_is_sent_again_with_another_time_is_another_hold() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    open_ann(&mut client).await;
    let at = |seconds: i64| {
        Some(DateTime::from_millis(server.shared.sources.clock.now().timestamp_millis() + seconds * 1000))
    };
    for posted in [true, false] {
        check(&mut client, hold("h", 50, at(60)), held("h", posted, "open")).await;
    }
    for other in [at(1), None] {
        check_refused(&mut client, hold("h", 50, other), 2, "another entry has the id").await;
    }
    assert_eq!(client.run("d", rawdoc! { "count": "hold" }).await.int("n"), 1);
    assert_eq!(reconcile(&mut client).await.1, 0);
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(reconcile(&mut client).await.1, 1);
}
