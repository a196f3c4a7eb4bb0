//! Viewers of the events of a server whose replies grow.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bson::doc;
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::super::tests::{FakeServer, failed};
use super::super::{ApiOptions, router};
use super::VIEWERS_MAX;
use super::figures::Figures;
use handfast_store::Sources;

fn status(writes: i64, buckets: &[(i64, i64)]) -> bson::Document {
    let buckets: Vec<_> = buckets.iter().map(|(micros, count)| doc! { "micros": *micros, "count": *count }).collect();
    doc! {
        "ok": 1.0, "connections": { "current": 3_i64 },
        "opLatencies": { "writes": { "ops": writes, "histogram": buckets } },
        "metrics": { "commands": { "<UNKNOWN>": 0_i64, "insert": { "total": writes, "failed": 1_i64 } } },
    }
}

#[test]
fn rates_and_percentiles_are_those_between_two_readings() {
    let mut figures = Figures::default();
    let first = figures.read(&status(10, &[(1_024, 10)]), Duration::from_secs(1));
    assert_eq!((&first["connections"], first.get("writes")), (&3.into(), None), "nothing to compare with");
    let second = figures.read(&status(210, &[(1_024, 108), (4_096, 101), (65_536, 1)]), Duration::from_secs(3));
    assert_eq!(
        (&second["writes"], &second["commands"], &second["failed"]),
        (&100.0.into(), &100.0.into(), &0.0.into())
    );
    let millis = |name: &str| second["writeMillis"][name].as_f64().unwrap();
    // 98 between 1.024 and 1.28 ms, 101 between 4.096 and 5.12 ms, and one between 65.5 and 82 ms.
    assert!((4.09..4.13).contains(&millis("p50")), "{second}");
    assert!((4.9..5.12).contains(&millis("p95")), "{second}");
    assert!((5.0..5.13).contains(&millis("p99")), "{second}");
    let third = figures.read(&status(210, &[(1_024, 108), (4_096, 101), (65_536, 1)]), Duration::from_secs(4));
    assert!(third["writeMillis"].is_null() && third["writes"] == 0.0, "{third}");
}

fn server() -> FakeServer {
    FakeServer::answering((0..100_000).map(|number| status(number, &[])))
}

fn request() -> Request<Body> {
    Request::get("/v1/events").body(Body::empty()).unwrap()
}

/// Returns the next part of the stream of a viewer.
async fn next(body: &mut Body) -> String {
    let frame = tokio::time::timeout(Duration::from_secs(60), body.frame()).await.expect("in time");
    String::from_utf8(frame.expect("a frame").unwrap().into_data().unwrap().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn viewers_share_one_reader_and_a_slow_one_delays_nobody() {
    let server = server();
    #[expect(clippy::disallowed_methods, reason = "the clock of the runtime, whose time the test moves")]
    let start = tokio::time::Instant::now();
    let sources = Sources { clock: Arc::new(TokioClock(start)), ..Sources::seeded(1) };
    let stop = CancellationToken::new();
    let router = router(Arc::new(server.clone()), &sources, ApiOptions::default(), stop.clone());
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let response = router.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        bodies.push(response.into_body());
    }
    let slow = bodies.pop().unwrap();
    for second in 0..10 {
        for body in &mut bodies {
            let text = next(body).await;
            assert!(text.starts_with("event: server\ndata: {") && text.ends_with("}\n\n"), "{second}: {text}");
        }
    }
    // One reading a second for all, and one of each viewer before it sees those of others.
    let read = server.received().len();
    assert!((10..=11 + 3).contains(&read), "{read} readings for 3 viewers in 10 seconds");
    // A new viewer gets what was read before.
    let mut late = router.clone().oneshot(request()).await.unwrap().into_body();
    assert!(next(&mut late).await.matches("event: server").count() >= 10);
    // Viewers that are gone leave nothing: nobody reads any more.
    drop((bodies, slow, late));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let read = server.received().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.received().len(), read);
    // A server that stops ends the streams.
    let mut body = router.clone().oneshot(request()).await.unwrap().into_body();
    next(&mut body).await;
    stop.cancel();
    while let Some(frame) = body.frame().await {
        frame.unwrap();
    }
}

/// The time of the paused runtime.
#[derive(Debug)]
struct TokioClock(tokio::time::Instant);

impl handfast_store::Clock for TokioClock {
    fn now(&self) -> bson::DateTime {
        bson::DateTime::from_millis(0)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[tokio::test]
async fn a_viewer_needs_the_role_of_the_command_and_the_viewers_are_limited() {
    let refused = FakeServer::answering([failed(13, "none")]);
    let response = refused.router().oneshot(request()).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let router = server().router();
    let mut bodies = Vec::new();
    for _ in 0..VIEWERS_MAX {
        let response = router.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        bodies.push(response.into_body());
    }
    let response = router.clone().oneshot(request()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let half = Request::get("/v1/events?queue=q").body(Body::empty()).unwrap();
    assert_eq!(router.oneshot(half).await.unwrap().status(), StatusCode::BAD_REQUEST);
}
