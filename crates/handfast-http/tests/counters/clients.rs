//! Visitors, bots, and limits of clients.

use std::time::Duration;

use axum::http::{HeaderName, StatusCode};
use handfast_counters::{ItemId, Kind};
use handfast_http::counters::{BotPolicy, ServiceOptions};
use handfast_http::{AccessOptions, ClientLimit, ProblemKind, TokenHash};
use serde_json::{Value, json};

use crate::world::{Client, World};

const WINDOW: Duration = Duration::from_secs(30 * 60);
const VIEWS: &str = "POST /v1/ads/7/views";
const JSON: &str = "content-type: application/json";

fn one_view_in_a_window() -> ServiceOptions {
    let visitor_windows = [(Kind::new("ads").expect("a kind"), WINDOW)].into_iter().collect();
    ServiceOptions { visitor_windows, ..ServiceOptions::default() }
}

fn counted(total: u64) -> Value {
    json!({ "kind": "ads", "id": "7", "total": total, "partial": false, "counted": true })
}

fn not_counted(total: u64, reason: &str) -> Value {
    json!({ "kind": "ads", "id": "7", "total": total, "partial": false, "counted": false, "reason": reason })
}

#[tokio::test]
async fn a_visitor_is_counted_once_in_a_window() {
    let world = World::new();
    let client = Client::with(&world.healthy(1).await, one_view_in_a_window()).await;
    let named = async |name: &str| client.send(VIEWS, &[&format!("visitor: {name}")], "").await.json();
    assert_eq!(named("a").await, counted(1));
    assert_eq!(named("a").await, not_counted(1, "repeated"));
    assert_eq!(client.send(VIEWS, &[JSON], r#"{"visitor": "a"}"#).await.json(), not_counted(1, "repeated"));
    assert_eq!(named("b").await, counted(2));
    assert_eq!(client.send("POST /v1/news/7/views", &["visitor: a"], "").await.json()["counted"], true);
    assert_eq!(client.send("POST /v1/news/7/views", &["visitor: a"], "").await.json()["total"], 2, "it has no window");
    world.clock.advance(WINDOW);
    assert_eq!(named("a").await, counted(3));
    let several = client.send(VIEWS, &[JSON, "visitor: c"], r#"{"n": 2}"#).await;
    let detail = several.problem(ProblemKind::InvalidRequest);
    assert_eq!(detail, "the field n must be 1, and is 2: one view of a visitor of ads is counted at a time");
}

#[tokio::test]
async fn a_request_with_a_key_may_be_repeated_by_its_visitor() {
    let world = World::new();
    let client = Client::with(&world.healthy(1).await, one_view_in_a_window()).await;
    for _ in 0..2 {
        assert_eq!(client.send(VIEWS, &["visitor: a", "idempotency-key: k"], "").await.json(), counted(1));
    }
    let other = client.send(VIEWS, &["visitor: a", "idempotency-key: other"], "").await.json();
    assert_eq!(other, not_counted(1, "repeated"));
}

#[tokio::test]
async fn without_a_name_a_visitor_is_an_address_and_a_browser() {
    let world = World::new();
    let mut client = Client::with(&world.healthy(1).await, one_view_in_a_window()).await;
    client.peer = "192.0.2.7".parse().expect("an address");
    assert_eq!(client.send(VIEWS, &["user-agent: Firefox"], "").await.json(), counted(1));
    assert_eq!(client.send(VIEWS, &["user-agent: Firefox"], "").await.json(), not_counted(1, "repeated"));
    let passed_on = client.send(VIEWS, &[JSON, "user-agent: axum"], r#"{"user_agent": "Firefox"}"#).await;
    assert_eq!(passed_on.json(), not_counted(1, "repeated"));
    assert_eq!(client.send(VIEWS, &["user-agent: Safari"], "").await.json(), counted(2));
    client.peer = "192.0.2.8".parse().expect("an address");
    let forwarded = ["user-agent: Firefox", "x-forwarded-for: 192.0.2.7"];
    assert_eq!(client.send(VIEWS, &forwarded, "").await.json(), counted(3), "a header that nothing was said about");
    let named = client.send(VIEWS, &["visitor: 192.0.2.8 Firefox"], "").await;
    assert_eq!(named.json(), counted(4), "a name is not an address");
}

#[tokio::test]
async fn behind_a_proxy_the_address_is_in_a_header() {
    let world = World::new();
    let client_address_header = Some(HeaderName::from_static("x-forwarded-for"));
    let options = ServiceOptions { client_address_header, ..one_view_in_a_window() };
    let client = Client::with(&world.healthy(1).await, options).await;
    for (forwarded, expected) in [
        ("192.0.2.7", counted(1)),
        ("192.0.2.8", counted(2)),
        ("192.0.2.9, 192.0.2.7", not_counted(2, "repeated")),
        ("192.0.2.7, 192.0.2.9", counted(3)),
    ] {
        let answer = client.send(VIEWS, &[&format!("x-forwarded-for: {forwarded}")], "").await;
        assert_eq!(answer.json(), expected, "{forwarded}");
    }
}

#[tokio::test]
async fn bots_are_counted_unless_they_are_refused() {
    const BOT: &str = "user-agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
    let world = World::new();
    let counters = world.healthy(1).await;
    let counting = Client::new(&counters).await;
    assert_eq!(counting.send(VIEWS, &[BOT], "").await.json(), counted(1));
    let refusing =
        Client::with(&counters, ServiceOptions { bots: BotPolicy::Refuse, ..ServiceOptions::default() }).await;
    assert_eq!(refusing.send(VIEWS, &[BOT], "").await.json(), not_counted(1, "bot"));
    assert_eq!(refusing.send(VIEWS, &["user-agent: Firefox"], "").await.json(), counted(2));
    assert_eq!(refusing.ask(VIEWS).await.json(), counted(3));
    assert_eq!(refusing.send(VIEWS, &["user-agent: Googlebot/2.1 é"], "").await.json(), not_counted(3, "bot"));
    // A site's server says who reads.
    let passed_on = async |agent: &str| {
        refusing.send(VIEWS, &[JSON, "user-agent: axum"], &json!({ "user_agent": agent }).to_string()).await.json()
    };
    assert_eq!(passed_on("Baiduspider/2.0").await, not_counted(3, "bot"));
    assert_eq!(passed_on("Firefox").await, counted(4));
    assert_eq!(refusing.ask("GET /v1/ads/7").await.json()["total"], 4);
}

#[tokio::test]
async fn a_kind_has_rules_of_its_own_for_bots_and_limits() {
    const BOT: &str = "user-agent: Googlebot/2.1";
    let world = World::new();
    let limit = |requests| ClientLimit { requests, time: Duration::from_secs(60) };
    let kind = |name| Kind::new(name).expect("a kind");
    let options = ServiceOptions {
        bots: BotPolicy::Refuse,
        bots_of_kinds: [(kind("news"), BotPolicy::Count)].into(),
        client_limit: Some(limit(3)),
        client_limits_of_kinds: [(kind("news"), limit(1))].into(),
        ..ServiceOptions::default()
    };
    let client = Client::with(&world.healthy(1).await, options).await;
    let news = "POST /v1/news/7/views";
    assert_eq!(client.send(news, &[BOT], "").await.json()["counted"], true);
    for line in [news, "GET /v1/news/7", "GET /v1/news?ids=7", "GET /v1/%6Eews/7"] {
        client.ask(line).await.problem(ProblemKind::TooManyRequests);
    }
    assert_eq!(client.send(VIEWS, &[BOT], "").await.json(), not_counted(0, "bot"));
    for _ in 0..2 {
        assert!(client.ask(VIEWS).await.status.is_success(), "those of news do not count for others");
    }
    client.ask(VIEWS).await.problem(ProblemKind::TooManyRequests);
}

/// Options with which pictures count views of ads, and a token is needed otherwise.
fn pixels_of_ads() -> ServiceOptions {
    let access = AccessOptions { tokens: vec![TokenHash::of("a")], ..AccessOptions::default() };
    ServiceOptions { pixels: [Kind::new("ads").expect("a kind")].into(), access, ..ServiceOptions::default() }
}

#[tokio::test]
async fn a_picture_counts_one_view_of_the_kinds_that_allow_it() {
    const PIXEL: &str = "GET /v1/ads/7/pixel.gif";
    let world = World::new();
    let counters = world.healthy(1).await;
    let total = async |id: &str| {
        let (kind, id) = (Kind::new("ads").expect("a kind"), ItemId::new(id).expect("an id"));
        counters.totals(&kind, &[id]).await.expect("totals")[0].views
    };
    let client = Client::with(&counters, pixels_of_ads()).await;
    // A page of another origin, without a token.
    let picture = client.send(PIXEL, &["origin: https://example.org"], "").await;
    assert_eq!((picture.status, picture.header("content-type")), (StatusCode::OK, Some("image/gif")));
    assert_eq!(picture.header("cache-control"), Some("no-store"));
    assert_eq!((picture.body.len(), &picture.body[..6]), (43, &b"GIF89a"[..]));
    assert_eq!(total("7").await, 1);
    assert_eq!(client.ask("HEAD /v1/ads/7/pixel.gif").await.status, StatusCode::OK);
    assert_eq!(total("7").await, 1, "a head is nobody's view");
    for _ in 0..2 {
        assert_eq!(client.ask("GET /v1/ads/7/pixel.gif?key=k").await.status, StatusCode::OK);
    }
    assert_eq!(total("7").await, 2, "a key counts once");
    for (line, kind, detail) in [
        ("GET /v1/news/7/pixel.gif", ProblemKind::NotFound, "pictures do not count views of news"),
        ("GET /v1/ads/top/pixel.gif", ProblemKind::InvalidRequest, "no item has it"),
        ("GET /v1/ads/7/pixel.gif?n=2", ProblemKind::InvalidRequest, "there is no query parameter"),
        ("POST /v1/ads/7/pixel.gif", ProblemKind::MethodNotAllowed, "POST"),
        (VIEWS, ProblemKind::Unauthorized, "Authorization"),
    ] {
        let found = client.ask(line).await.problem(kind);
        assert!(found.contains(detail), "{line}: {found}");
    }
    let without = Client::new(&counters).await.ask(PIXEL).await;
    assert_eq!(without.json()["outcome"], "not_applied", "{without:?}");
    without.problem(ProblemKind::NotFound);
    assert_eq!(total("7").await, 2);
}

#[tokio::test]
async fn the_rules_for_readers_hold_for_pictures() {
    const PIXEL: &str = "GET /v1/ads/7/pixel.gif";
    let world = World::new();
    let counters = world.healthy(1).await;
    let options = ServiceOptions {
        visitor_windows: one_view_in_a_window().visitor_windows,
        bots: BotPolicy::Refuse,
        client_limit: Some(ClientLimit { requests: 5, time: Duration::from_secs(60) }),
        ..pixels_of_ads()
    };
    let client = Client::with(&counters, options).await;
    for (agent, name) in [("Firefox", "a"), ("Firefox", "b"), ("Googlebot/2.1", "c"), ("Safari", "d")] {
        // A name that a reader gives itself does not count for a picture, which everybody may ask for.
        let headers = [format!("user-agent: {agent}"), format!("visitor: {name}")];
        assert_eq!(client.send(PIXEL, &[&headers[0], &headers[1]], "").await.status, StatusCode::OK);
    }
    let metrics = client.send("GET /metrics", &["authorization: Bearer a"], "").await;
    let metrics = String::from_utf8(metrics.body).expect("a text");
    for line in ["views_total 2", "{reason=\"repeated\"} 1", "{reason=\"bot\"} 1"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    client.ask(PIXEL).await;
    client.ask(PIXEL).await.problem(ProblemKind::TooManyRequests);
}

#[tokio::test]
async fn a_client_has_a_limit() {
    let world = World::new();
    let client_limit = Some(ClientLimit { requests: 2, time: Duration::from_secs(60) });
    let access = AccessOptions {
        tokens: vec![TokenHash::of("a"), TokenHash::of("b")],
        public_reads: true,
        ..Default::default()
    };
    let options = ServiceOptions { client_limit, access, ..ServiceOptions::default() };
    let mut client = Client::with(&world.healthy(1).await, options).await;
    let (of_a, of_b) = ("authorization: Bearer a", "authorization: Bearer b");
    for _ in 0..2 {
        assert!(client.send(VIEWS, &[of_a], "").await.status.is_success());
    }
    let refused = client.send(VIEWS, &[of_a], "").await;
    refused.problem(ProblemKind::TooManyRequests);
    assert_eq!((&refused.json()["outcome"], refused.header("retry-after")), (&json!("not_applied"), Some("30")));
    client.peer = "192.0.2.7".parse().expect("an address");
    client.send("GET /v1/ads/7", &[of_a], "").await.problem(ProblemKind::TooManyRequests);
    assert!(client.send(VIEWS, &[of_b], "").await.status.is_success(), "another token");
    for status in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(client.ask("GET /v1/ads/7").await.status, status, "an address without a token");
    }
    for line in ["GET /healthz", "GET /readyz", "GET /openapi.json"] {
        assert_eq!(client.ask(line).await.status, StatusCode::OK, "{line} has no limit");
    }
    world.clock.advance(Duration::from_secs(30));
    assert!(client.send(VIEWS, &[of_a], "").await.status.is_success());
    client.send(VIEWS, &[of_a], "").await.problem(ProblemKind::TooManyRequests);
    assert_eq!(client.send("GET /v1/ads/7", &[of_b], "").await.json()["total"], 4);
}

#[tokio::test]
async fn tokens_that_are_tried_are_limited_by_the_address() {
    let world = World::new();
    let client_limit = Some(ClientLimit { requests: 2, time: Duration::from_secs(60) });
    let access = AccessOptions { tokens: vec![TokenHash::of("a")], ..Default::default() };
    let options = ServiceOptions { client_limit, access, ..ServiceOptions::default() };
    let client = Client::with(&world.healthy(1).await, options).await;
    for (token, kind) in
        [("b", ProblemKind::Unauthorized), ("c", ProblemKind::Unauthorized), ("d", ProblemKind::TooManyRequests)]
    {
        client.send(VIEWS, &[&format!("authorization: Bearer {token}")], "").await.problem(kind);
    }
    let known = client.send(VIEWS, &["authorization: Bearer a"], "").await;
    assert_eq!(known.json(), counted(1), "a client with a token is another one");
}

#[tokio::test]
async fn of_requests_at_once_no_more_than_the_limit_get_through() {
    let world = World::new();
    let client_limit = Some(ClientLimit { requests: 5, time: Duration::from_secs(60) });
    let options = ServiceOptions { client_limit, ..ServiceOptions::default() };
    let client = std::sync::Arc::new(Client::with(&world.healthy(1).await, options).await);
    let requests: Vec<_> = (0..20)
        .map(|_| {
            let client = std::sync::Arc::clone(&client);
            tokio::spawn(async move { client.ask(VIEWS).await.status })
        })
        .collect();
    let mut passed = 0;
    for request in requests {
        passed += u64::from(request.await.expect("ended").is_success());
    }
    assert_eq!(passed, 5);
}
