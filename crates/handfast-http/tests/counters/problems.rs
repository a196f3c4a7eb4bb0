//! Each problem: of requests that are wrong, and of parts that fail.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Request;
use bson::rawdoc;
use handfast_counters::COUNTED_TOTAL_MAX;
use handfast_http::ProblemKind;
use handfast_http::counters::{BODY_BYTES_MAX, ServiceOptions};
use handfast_store::decorator::{Address, Fault, Operation, Plan};
use handfast_store::{Namespace, StoreExt as _};
use serde_json::json;

use crate::world::{Client, QUEUE_EVENTS, World};

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    let long = "x".repeat(129);
    let ids = vec!["7"; 1_001].join(",");
    let rows = [
        // Paths.
        ("POST /v1/Ads/7/views", "", "", r#"kind "Ads" must be"#),
        ("POST /v1/ads/a%2Fb/views", "", "", r#"id "a/b" must be"#),
        ("POST /v1/ads/top/views", "", "", r#"the id "top" is a word of the path"#),
        ("GET /v1/ads/%ff", "", "", "the path cannot be read"),
        ("GET /v1/ads/top/daily", "", "", r#"the id "top" is a word of the path"#),
        (&format!("GET /v1/ads/{long}"), "", "", "must be 1 to 128 letters"),
        // Bodies.
        ("POST /v1/ads/7/views", "", r#"{"n": 0}"#, "the number of views must be 1 to 1000000, and is 0"),
        ("POST /v1/ads/7/views", "", r#"{"n": 1000001}"#, "and is 1000001"),
        ("POST /v1/ads/7/views", "", r#"{"n": 18446744073709551615}"#, "must be 1 to 1000000"),
        ("POST /v1/ads/7/views", "", r#"{"n": -1}"#, "the field n must be a positive integer, and is -1"),
        ("POST /v1/ads/7/views", "", r#"{"n": 1.5}"#, "the field n must be a positive integer, and is 1.5"),
        ("POST /v1/ads/7/views", "", r#"{"n": "1"}"#, "the body is invalid"),
        ("POST /v1/ads/7/views", "", r#"{"m": 1}"#, "unknown field `m`"),
        (
            "POST /v1/ads/7/views",
            "",
            r#"{"n": 1, "n": 2}"#,
            r#"the body is invalid: the name "n" is there twice in one object"#,
        ),
        ("POST /v1/ads/7/views", "", "{", "the body is invalid"),
        ("POST /v1/ads/7/views", "", "[5]", "the body must be a JSON object"),
        ("POST /v1/ads/7/views", "", r#"{"n": null}"#, "the body is invalid: invalid type: null"),
        ("POST /v1/ads/7/views", "", r#"{"visitor": ""}"#, "visitor must have 1 to 256 bytes, and has 0"),
        ("POST /v1/ads/7/views", &format!("visitor: {}", "x".repeat(257)), "", "visitor must have 1 to 256 bytes"),
        ("POST /v1/ads/7/views", "visitor: a", r#"{"visitor": "a"}"#, "are both there: send one of them"),
        ("POST /v1/ads/7/views", "", r#"{"user_agent": ""}"#, "user_agent must have 1 to 1024 bytes, and has 0"),
        // Keys.
        ("POST /v1/ads/7/views", "idempotency-key: ", "", "an idempotency key must be"),
        ("POST /v1/ads/7/views", "idempotency-key: a b", "", "an idempotency key must be"),
        ("POST /v1/ads/7/views", &format!("idempotency-key: {long}"), "", "an idempotency key must be"),
        // Queries.
        ("POST /v1/ads/7/views?n=2", "", "", r#"there is no query parameter "n": the path has none"#),
        ("GET /v1/ads", "", "", "the query parameter ids is missing"),
        ("GET /v1/ads?ids=", "", "", "the query parameter ids is missing"),
        ("GET /v1/ads?ids=a,,b", "", "", r#"id "" must be"#),
        ("GET /v1/ads?ids=a,top", "", "", r#"the id "top""#),
        ("GET /v1/ads?id=a", "", "", r#"there is no query parameter "id": the path has ids"#),
        ("GET /v1/ads?ids=a&ids=b", "", "", "the query parameter ids is there more than once"),
        (&format!("GET /v1/ads?ids={ids}"), "", "", "1001 ids are more than 1000"),
        ("GET /v1/ads/top?n=0", "", "", "the number of items must be 1 to 1000, and is 0"),
        ("GET /v1/ads/top?n=1001", "", "", "and is 1001"),
        ("GET /v1/ads/top?n=-1", "", "", r#"the query parameter n must be a positive integer, and is "-1""#),
        ("GET /v1/ads/top?day=yesterday", "", "", r#"must be a day as 2026-11-30, and is "yesterday""#),
        ("GET /v1/ads/top?limit=1", "", "", r#"there is no query parameter "limit": the path has n, day"#),
        ("GET /v1/ads/7/daily?from=2026-02-30", "", "", "the query parameter from must be a day"),
        ("GET /v1/ads/7/daily?to=2026-11-30T10:00", "", "", "the query parameter to must be a day"),
        ("GET /v1/ads/7/daily?from=2026-12-01&to=2026-11-30", "", "", "the range of days ends before it begins"),
        ("GET /v1/ads/7/daily?from=1900-01-01&to=2026-11-30", "", "", "are more than 7320"),
        ("GET /v1/ads/7/daily?to=0000-01-01", "", "", "the 30 days up to 0000-01-01 begin before 0000-01-01"),
        ("GET /v1/ads/7/daily?to=-001-01-01", "", "", "the query parameter to must be a day"),
        ("GET /v1/ads/7/badge.svg?label=", "", "", "label must be 1 to 32 characters, and has none"),
        (&format!("GET /v1/ads/7/badge.svg?label={}", "x".repeat(33)), "", "", "1 to 32 characters, and has 33"),
        ("GET /v1/ads/7/badge.svg?label=a%0Ab", "", "", r#"label must have no control characters, and has '\n'"#),
        ("GET /v1/ads/7?ids=7", "", "", r#"there is no query parameter "ids""#),
        ("DELETE /v1/ads/7?day=2026-11-30", "", "", r#"there is no query parameter "day""#),
        ("GET /healthz?x=1", "", "", r#"there is no query parameter "x""#),
    ];
    for (line, header, body, expected) in rows {
        let mut headers = vec!["content-type: application/json"];
        headers.extend([header].into_iter().filter(|header| !header.is_empty()));
        let answer = client.send(line, &headers, body).await;
        let detail = answer.problem(ProblemKind::InvalidRequest);
        assert!(detail.contains(expected), "{line}: {detail}");
        let is_write = line.starts_with("POST") || line.starts_with("DELETE");
        assert_eq!(answer.json()["outcome"], if is_write { json!("not_applied") } else { json!(null) }, "{line}");
    }
    let twice = ["idempotency-key: a", "idempotency-key: b"];
    let answer = client.send("POST /v1/ads/7/views", &twice, "").await;
    assert_eq!(answer.problem(ProblemKind::InvalidRequest), "the header idempotency-key is there more than once");
    assert_eq!(client.ask("GET /v1/ads/7").await.json()["total"], 0, "nothing was counted");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    let outcome = |writes: bool| if writes { json!("not_applied") } else { json!(null) };
    for (line, writes) in [
        ("GET /assets/page.png", false),
        ("GET /assets", false),
        ("GET /v2/ads/7", false),
        ("GET /v1/ads/7/", false),
        ("GET /v1/ads/7/views/1", false),
        ("PUT /v1", true),
        ("POST /v1/ads/7/views/", true),
        ("DELETE /v2/ads/7", true),
    ] {
        let answer = client.ask(line).await;
        answer.problem(ProblemKind::NotFound);
        assert_eq!(answer.json()["outcome"], outcome(writes), "{line}");
    }
    for (line, allow, writes) in [
        ("PUT /v1/ads/7", "GET,HEAD,DELETE", true),
        ("DELETE /v1/ads/top", "GET,HEAD", true),
        ("GET /v1/ads/7/views", "POST", false),
        ("OPTIONS /v1/ads/7/views", "POST", false),
        ("POST /healthz", "GET,HEAD", true),
        ("VIEW /healthz", "GET,HEAD", true),
    ] {
        let answer = client.ask(line).await;
        answer.problem(ProblemKind::MethodNotAllowed);
        assert_eq!(answer.header("allow"), Some(allow), "{line}");
        assert_eq!(answer.json()["outcome"], outcome(writes), "{line}");
    }
}

#[tokio::test]
async fn bodies_of_another_kind_and_size_are_refused() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    for header in ["content-type: text/plain", "content-type: application/jsonl", "accept: application/json"] {
        let answer = client.send("POST /v1/ads/7/views", &[header], "{}").await;
        answer.problem(ProblemKind::UnsupportedMediaType);
    }
    let json = ["content-type: application/json"];
    let largest = format!("{{}}{}", " ".repeat(BODY_BYTES_MAX - 2));
    assert!(client.send("POST /v1/ads/7/views", &json, &largest).await.status.is_success());
    let answer = client.send("POST /v1/ads/7/views", &json, &format!("{largest} ")).await;
    assert_eq!(answer.problem(ProblemKind::BodyTooLarge), "the body has more than 4096 bytes, its limit");
}

/// A body that never arrives, of the number of bytes that the head has announced.
struct Silence(u64);

impl hyper::body::Body for Silence {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_not_waited_for() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    for (bytes, problem) in [(4_096, ProblemKind::BodyTimeout), (4_097, ProblemKind::BodyTooLarge)] {
        let request = Request::post("/v1/ads/7/views").body(Body::new(Silence(bytes))).expect("a request");
        let answer = client.request(request).await;
        answer.problem(problem);
        assert_eq!(answer.header("connection"), Some("close"), "the body is not read");
    }
}

#[tokio::test]
async fn a_full_queue_refuses_writes_until_it_is_saved() {
    let world = World::new();
    let counters = world.healthy(1).await;
    let client = Client::new(&counters).await;
    for _ in 0..QUEUE_EVENTS {
        assert!(client.ask("POST /v1/ads/7/views").await.status.is_success());
    }
    for line in ["POST /v1/ads/7/views", "DELETE /v1/ads/7"] {
        let answer = client.ask(line).await;
        let detail = answer.problem(ProblemKind::QueueFull);
        assert_eq!(detail, "the queue is full, as it holds 50 requests at most: try again when some are saved");
        assert_eq!(answer.json()["outcome"], "not_applied");
        assert_eq!(answer.header("retry-after"), Some("2"));
    }
    assert_eq!(client.ask("GET /v1/ads/7").await.json()["total"], 50);
    let unready = client.ask("GET /readyz").await;
    unready.problem(ProblemKind::NotReady);
    assert_eq!(unready.json()["parts"], json!([{ "part": "queue", "detail": "the queue is full" }]));
    counters.flush().await.expect("saved");
    assert_eq!(client.ask("GET /readyz").await.json(), json!({ "ready": true, "parts": [] }));
    assert_eq!(client.ask("POST /v1/ads/7/views").await.json()["total"], 51);
}

#[tokio::test]
async fn a_write_in_doubt_says_so_and_is_counted_once_when_it_is_sent_again() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        let world = World::new();
        let queue = world.faulty(Plan::at_request(Address::first(Operation::Insert).of("queue"), fault));
        let counters = world.start(1, queue.clone(), world.store.clone()).await;
        let client = Client::new(&counters).await;
        let (line, key) = ("POST /v1/ads/7/views", ["idempotency-key: a"]);
        let answer = client.send(line, &key, "").await;
        let detail = answer.problem(ProblemKind::OutcomeUnknown);
        assert!(detail.contains("send it again with the same Idempotency-Key"), "{detail}");
        assert_eq!((&answer.json()["outcome"], answer.header("retry-after")), (&json!("unknown"), Some("2")));
        // The queue is away: what is not in doubt is refused.
        let answer = client.ask(line).await;
        answer.problem(ProblemKind::Unavailable);
        assert_eq!(answer.json()["outcome"], "not_applied");
        let answer = client.ask("GET /readyz").await;
        answer.problem(ProblemKind::NotReady);
        let queue_part = json!([{ "part": "queue", "detail": "the cache and the queue are unavailable" }]);
        assert_eq!(answer.json()["parts"], queue_part);
        queue.restart();
        for _ in 0..2 {
            assert_eq!(client.send(line, &key, "").await.json()["total"], 1, "{fault:?}");
        }
        counters.flush().await.expect("saved");
        assert_eq!(client.ask("GET /v1/ads/7").await.json()["total"], 1, "{fault:?}");
        assert_eq!(client.ask("GET /readyz").await.json()["ready"], true);
    }
}

#[tokio::test]
async fn a_deletion_in_doubt_says_so() {
    let key = ["idempotency-key: a"];
    for (headers, advice) in [
        (&key[..0], "without an Idempotency-Key a second request deletes what was counted until then"),
        (&key, "send it again with the same Idempotency-Key"),
    ] {
        let world = World::new();
        let queue =
            world.faulty(Plan::at_request(Address::first(Operation::Insert).of("queue").after(1), Fault::CrashBefore));
        let client = Client::new(&world.start(1, queue.clone(), world.store.clone()).await).await;
        client.ask("POST /v1/ads/7/views").await;
        let detail = client.send("DELETE /v1/ads/7", headers, "").await.problem(ProblemKind::OutcomeUnknown);
        assert!(detail.contains(advice), "{detail}");
        queue.restart();
        for views in 1..=2 {
            assert!(client.send("DELETE /v1/ads/7", &key, "").await.status.is_success());
            assert_eq!(client.ask("POST /v1/ads/7/views").await.json()["total"], views, "deleted once");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_takes_too_long_is_in_doubt_and_a_read_is_not() {
    let world = World::new();
    let frozen = |operation, collection| {
        world.faulty(Plan::at_request(Address::first(operation).of(collection), Fault::FreezeBefore))
    };
    let options = ServiceOptions { request_time_max: Duration::from_secs(5), ..ServiceOptions::default() };
    let queue = frozen(Operation::Insert, "queue");
    let client = Client::with(&world.start(1, queue.clone(), world.store.clone()).await, options.clone()).await;
    let answer = client.ask("POST /v1/ads/7/views").await;
    assert_eq!(answer.problem(ProblemKind::OutcomeUnknown), "there was no answer within 5 seconds");
    let totals = frozen(Operation::Find, "totals");
    let client = Client::with(&world.start(2, world.store.clone(), totals.clone()).await, options).await;
    let answer = client.ask("GET /v1/ads/8").await;
    assert_eq!(answer.problem(ProblemKind::Unavailable), "the store is unavailable", "it is not waited for so long");
    assert_eq!(answer.json()["outcome"], json!(null));
    queue.release();
    totals.release();
}

/// A list may take long. A store that answers nothing else meanwhile is none that takes long.
#[tokio::test(start_paused = true)]
async fn a_list_is_waited_for_while_the_store_answers_other_questions() {
    let find = |collection| Address::first(Operation::Find).of(collection);
    for (line, list, question) in [
        ("GET /v1/ads/top", find("totals"), find("totals").after(1)),
        ("GET /v1/ads/top?day=2026-11-30", Address::first(Operation::Aggregate), find("totals")),
        ("GET /v1/ads/7/daily", find("days"), find("totals")),
    ] {
        let world = World::new();
        let slow = world.faulty(Plan::at_request(list.clone(), Fault::FreezeBefore));
        let client = Client::new(&world.start(1, world.store.clone(), slow.clone()).await).await;
        let later = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            slow.release();
        };
        let (answer, ()) = tokio::join!(client.ask(line), later);
        assert!(answer.status.is_success(), "{line}: {answer:?}");
        let dead = world.faulty(Plan::at_requests([list, question].map(|address| (address, Fault::FreezeBefore))));
        let client = Client::new(&world.start(2, world.store.clone(), dead.clone()).await).await;
        assert_eq!(client.ask(line).await.problem(ProblemKind::Unavailable), "the store is unavailable", "{line}");
        assert_eq!(dead.frozen(), 0, "the requests are given up");
    }
}

#[tokio::test(start_paused = true)]
async fn parts_that_do_not_answer_are_named_in_time() {
    let world = World::new();
    let frozen = |collection, more| {
        let request = Address::first(Operation::Find).of(collection).after(more);
        world.faulty(Plan::at_request(request, Fault::FreezeBefore))
    };
    // The start has read the queue.
    let parts = || (frozen("queue", 1), frozen("totals", 0));
    let (queue, totals) = parts();
    let options = ServiceOptions { request_time_max: Duration::from_secs(1), ..ServiceOptions::default() };
    let client = Client::with(&world.start(1, queue, totals).await, options).await;
    client.ask("GET /readyz").await.problem(ProblemKind::Unavailable);
    let (queue, totals) = parts();
    let client = Client::new(&world.start(2, queue.clone(), totals.clone()).await).await;
    let answer = tokio::time::timeout(Duration::from_secs(3), client.ask("GET /readyz")).await.expect("in time");
    answer.problem(ProblemKind::NotReady);
    assert_eq!((queue.frozen(), totals.frozen()), (0, 0), "the requests are given up");
    let part = |part: &str, what: &str| json!({ "part": part, "detail": what });
    let expected =
        [part("queue", "the cache and the queue are unavailable"), part("store", "the store is unavailable")];
    assert_eq!(answer.json()["parts"], json!(expected));
    assert_eq!(client.ask("GET /readyz").await.json(), json!({ "ready": true, "parts": [] }));
}

#[tokio::test]
async fn a_store_that_is_away_leaves_partial_totals() {
    let world = World::new();
    let totals = world.faulty(Plan::at_request(Address::first(Operation::Find).of("totals"), Fault::CrashBefore));
    let counters = world.start(1, world.store.clone(), totals.clone()).await;
    let client = Client::new(&counters).await;
    assert_eq!(client.ask("POST /v1/ads/7/views").await.json()["partial"], true);
    assert_eq!(client.ask("GET /v1/ads/7").await.json()["partial"], true);
    let badge = client.ask("GET /v1/ads/7/badge.svg").await;
    assert!(String::from_utf8_lossy(&badge.body).contains("views: 1+"), "{badge:?}");
    for line in [
        "GET /v1/ads/8",
        "GET /v1/ads?ids=7,8",
        "GET /v1/ads/7/daily",
        "GET /v1/ads/top",
        "GET /v1/ads/top?day=2026-11-30",
        "GET /v1/ads/8/badge.svg",
    ] {
        let answer = client.ask(line).await;
        assert_eq!(answer.problem(ProblemKind::Unavailable), "the store is unavailable", "{line}");
        assert_eq!(answer.header("retry-after"), Some("2"));
    }
    counters.flush().await.expect_err("the store is away");
    let unavailable = |part: &str| json!({ "part": part, "detail": "the store is unavailable" });
    let expected = json!({ "ready": true, "parts": [unavailable("store"), unavailable("saving")] });
    assert_eq!(client.ask("GET /readyz").await.json(), expected, "views are taken");
    totals.restart();
    counters.flush().await.expect("saved");
    let expected = json!({ "kind": "ads", "id": "7", "total": 1, "partial": false });
    assert_eq!(client.ask("GET /v1/ads/7").await.json(), expected);
    assert_eq!(client.ask("GET /readyz").await.json(), json!({ "ready": true, "parts": [] }));
}

#[tokio::test]
async fn views_above_the_largest_total_are_refused() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    let totals = Namespace::new("counters", "totals").expect("a namespace");
    let total = i64::try_from(COUNTED_TOTAL_MAX - 3).expect("a number of the store");
    let document = rawdoc! { "_id": { "kind": "ads", "id": "7" }, "total": total, "base": total };
    Arc::clone(&world.store).insert_one(&totals, document).await.expect("inserted");
    let count = async |views: u32| {
        let body = format!(r#"{{"n": {views}}}"#);
        client.send("POST /v1/ads/7/views", &["content-type: application/json", "idempotency-key: k"], &body).await
    };
    let answer = count(4).await;
    let detail = answer.problem(ProblemKind::TotalTooLarge);
    assert_eq!(detail, "the item has 4503599627370493 views, and no more are counted than 4503599627370496 in all");
    assert_eq!(answer.json()["outcome"], "not_applied");
    for _ in 0..2 {
        assert_eq!(count(3).await.json()["total"], COUNTED_TOTAL_MAX, "its key is as good as new");
    }
    client.ask("POST /v1/ads/7/views").await.problem(ProblemKind::TotalTooLarge);
    client.ask("DELETE /v1/ads/7").await;
    assert_eq!(client.ask("POST /v1/ads/7/views").await.json()["total"], 1);
}

#[tokio::test]
async fn damaged_data_is_a_problem_of_the_service() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    let totals = Namespace::new("counters", "totals").expect("a namespace");
    let damaged = rawdoc! { "_id": { "kind": "ads", "id": "7" }, "total": "many" };
    Arc::clone(&world.store).insert_one(&totals, damaged).await.expect("inserted");
    for line in ["GET /v1/ads/7", "POST /v1/ads/7/views"] {
        let detail = client.ask(line).await.problem(ProblemKind::DamagedData);
        assert!(detail.contains("handfast counters verify"), "{detail}");
    }
}
