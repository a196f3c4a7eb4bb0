//! Each route, when everything works.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::world::{Client, World};

/// Sends requests one after the other, and compares the answers. A row is a request, a header (or nothing), a body, and the JSON of the answer.
async fn check(client: &Client, rows: &[(&str, &str, &str, Value)]) {
    for (line, header, body, expected) in rows {
        let headers: Vec<&str> = [*header].into_iter().filter(|header| !header.is_empty()).collect();
        let mut headers = headers;
        if !body.is_empty() {
            headers.push("content-type: application/json");
        }
        let answer = client.send(line, &headers, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{line}: {answer:?}");
        assert_eq!(answer.json(), *expected, "{line}");
    }
}

fn total(id: &str, total: u64) -> Value {
    json!({ "kind": "ads", "id": id, "total": total, "partial": false })
}

/// The answer to a request that was counted.
fn counted(id: &str, views: u64) -> Value {
    json!({ "kind": "ads", "id": id, "total": views, "partial": false, "counted": true })
}

#[tokio::test]
async fn each_route_answers() {
    let world = World::new();
    let counters = world.healthy(1).await;
    let client = Client::new(&counters).await;
    let views = "POST /v1/ads/7/views";
    check(
        &client,
        &[
            ("GET /healthz", "", "", json!({ "status": "ok" })),
            ("GET /readyz", "", "", json!({ "ready": true, "parts": [] })),
            ("GET /v1/ads/7", "", "", total("7", 0)),
            (views, "", "", counted("7", 1)),
            (views, "", "{}", counted("7", 2)),
            (views, "", r#"{"n": 10}"#, counted("7", 12)),
            (views, "idempotency-key: a", "", counted("7", 13)),
            (views, "Idempotency-Key: a", "", counted("7", 13)),
            (views, "idempotency-key: b", r#"{"n": 1000000}"#, counted("7", 1_000_013)),
            ("POST /v1/ads/%38/views", "", "", counted("8", 1)),
            ("GET /v1/ads/7", "", "", total("7", 1_000_013)),
            ("GET /v1/news/7", "", "", json!({ "kind": "news", "id": "7", "total": 0, "partial": false })),
        ],
    )
    .await;
    counters.flush().await.expect("saved");
    let item = |id: &str, total: u64| json!({ "id": id, "total": total, "partial": false });
    let day = |day: &str, views: u64| json!({ "day": day, "views": views });
    let days = json!({
        "kind": "ads", "id": "7", "from": "2026-11-29", "to": "2026-12-01", "time_zone": "Europe/Berlin", "views": 1_000_013,
        "days": [day("2026-11-29", 0), day("2026-11-30", 1_000_013), day("2026-12-01", 0)],
    });
    let both = json!([{ "id": "7", "views": 1_000_013 }, { "id": "8", "views": 1 }]);
    check(
        &client,
        &[
            (
                "GET /v1/ads?ids=8,none,7",
                "",
                "",
                json!({ "kind": "ads", "totals": [item("8", 1), item("none", 0), item("7", 1_000_013)] }),
            ),
            ("GET /v1/ads?ids=8%2C7", "", "", json!({ "kind": "ads", "totals": [item("8", 1), item("7", 1_000_013)] })),
            ("GET /v1/ads/7/daily?from=2026-11-29&to=2026-12-01", "", "", days),
            ("GET /v1/ads/top", "", "", json!({ "kind": "ads", "day": null, "items": both })),
            (
                "GET /v1/ads/top?n=1&day=2026-11-30",
                "",
                "",
                json!({ "kind": "ads", "day": "2026-11-30", "items": [{ "id": "7", "views": 1_000_013 }] }),
            ),
            ("GET /v1/ads/top?day=2026-11-29", "", "", json!({ "kind": "ads", "day": "2026-11-29", "items": [] })),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_report_without_days_is_of_the_last_thirty() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    let report = client.ask("GET /v1/ads/7/daily").await.json();
    assert_eq!((&report["from"], &report["to"]), (&json!("2026-11-01"), &json!("2026-11-30")));
    assert_eq!(report["days"].as_array().map(Vec::len), Some(30));
    let report = client.ask("GET /v1/ads/7/daily?to=2024-03-01").await.json();
    assert_eq!((&report["from"], &report["to"]), (&json!("2024-02-01"), &json!("2024-03-01")));
}

#[tokio::test]
async fn a_deleted_item_begins_at_zero() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    client.ask("POST /v1/ads/7/views").await;
    for _ in 0..2 {
        let answer = client.ask("DELETE /v1/ads/7").await;
        assert_eq!((answer.status, answer.body.len()), (StatusCode::NO_CONTENT, 0));
        assert_eq!(client.ask("GET /v1/ads/7").await.json(), total("7", 0));
    }
    assert_eq!(client.ask("POST /v1/ads/7/views").await.json(), counted("7", 1));
}

#[tokio::test]
async fn a_badge_shows_the_total() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    client.send("POST /v1/ads/7/views", &["content-type: application/json; charset=utf-8"], r#"{"n": 1234}"#).await;
    let badge = client.ask("GET /v1/ads/7/badge.svg").await;
    assert_eq!(badge.header("content-type"), Some("image/svg+xml"));
    assert!(String::from_utf8_lossy(&badge.body).contains("views: 1,234"), "{badge:?}");
    let badge = client.ask("GET /v1/ads/7/badge.svg?label=seen%20%26%20read").await;
    assert!(String::from_utf8_lossy(&badge.body).contains("seen &amp; read: 1,234"), "{badge:?}");
}

#[tokio::test]
async fn a_head_request_has_no_body() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    let answer = client.ask("HEAD /v1/ads/7").await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0));
}
