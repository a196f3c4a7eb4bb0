//! `/metrics`, parsed and compared with what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use handfast_counters::Kind;
use handfast_http::counters::{BotPolicy, ServiceOptions};
use handfast_store::decorator::{Address, Fault, Operation, Plan};

use crate::world::{Client, World};

/// The samples of a text by their names with labels, as they are written.
struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Parses a text in the exposition format 0.0.4, and fails on what is none.
    fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'));
        let (mut types, mut helps, mut samples) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').expect("a name and a text");
                assert!(!text.is_empty() && helps.insert(name.to_owned()), "{line}");
            } else if let Some(described) = line.strip_prefix("# TYPE ") {
                let (name, kind) = described.split_once(' ').expect("a name and a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind) && helps.contains(name), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                types.insert(name.to_owned(), kind.to_owned());
            } else {
                let (sample, value) = line.rsplit_once(' ').expect("a sample and a value");
                let name = sample.split('{').next().expect("a name");
                let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                let of_histogram = of_histogram.filter(|name| types.get(*name).is_some_and(|kind| kind == "histogram"));
                assert!(types.contains_key(of_histogram.unwrap_or(name)), "{line}: its type comes first");
                let value = value.parse().unwrap_or_else(|_| panic!("{line}: no number"));
                assert!(samples.insert(sample.to_owned(), value).is_none(), "{line} is there twice");
            }
        }
        Metrics(samples)
    }

    async fn of(client: &Client) -> Self {
        let answer = client.ask("GET /metrics").await;
        assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        Metrics::read(std::str::from_utf8(&answer.body).expect("a text"))
    }

    /// Returns the value of a sample; `{}` after the name stands for no labels.
    fn get(&self, sample: &str) -> f64 {
        let name = format!("handfast_counters_{sample}");
        *self.0.get(&name).unwrap_or_else(|| panic!("{name} is not in {:#?}", self.0.keys()))
    }

    fn check(&self, expected: &[(&str, f64)]) {
        for (sample, value) in expected {
            assert_eq!(self.get(sample), *value, "{sample}");
        }
    }
}

#[tokio::test]
async fn metrics_are_what_was_done() {
    let world = World::new();
    let counters = world.healthy(1).await;
    let ads = Kind::new("ads").expect("a kind");
    let options = ServiceOptions {
        visitor_windows: [(ads, Duration::from_secs(60))].into_iter().collect(),
        bots: BotPolicy::Refuse,
        ..ServiceOptions::default()
    };
    let client = Client::with(&counters, options).await;
    Metrics::of(&client).await.check(&[("views_total", 0.0), ("views_saved_total", 0.0)]);
    let json = "content-type: application/json";
    client.send("POST /v1/news/1/views", &[json], r#"{"n": 5}"#).await;
    client.send("POST /v1/news/2/views", &[json], r#"{"n": 0}"#).await;
    for _ in 0..3 {
        client.send("POST /v1/ads/7/views", &["visitor: a"], "").await;
    }
    client.send("POST /v1/news/1/views", &[json, "user-agent: Googlebot/2.1"], r#"{"n": 5}"#).await;
    client.ask("GET /v1/ads/7").await;
    client.ask("GET /nowhere").await;
    world.clock.advance(Duration::from_secs(7));
    let waiting = Metrics::of(&client).await;
    waiting.check(&[
        ("views_total", 6.0),
        (r#"views_left_out_total{reason="repeated"}"#, 2.0),
        (r#"views_left_out_total{reason="bot"}"#, 5.0),
        (r#"requests_total{route="countViews",status="2xx"}"#, 5.0),
        (r#"requests_total{route="countViews",status="4xx"}"#, 1.0),
        (r#"requests_total{route="countViews",status="5xx"}"#, 0.0),
        (r#"requests_total{route="getTotal",status="2xx"}"#, 1.0),
        (r#"requests_total{route="getMetrics",status="2xx"}"#, 1.0),
        (r#"requests_total{route="none",status="4xx"}"#, 1.0),
        (r#"problems_total{route="countViews",problem="invalid-request"}"#, 1.0),
        (r#"problems_total{route="none",problem="not-found"}"#, 1.0),
        (r#"request_seconds_bucket{route="countViews",le="0.005"}"#, 6.0),
        (r#"request_seconds_bucket{route="countViews",le="+Inf"}"#, 6.0),
        (r#"request_seconds_count{route="countViews"}"#, 6.0),
        (r#"request_seconds_sum{route="countViews"}"#, 0.0),
        (r#"queue_requests{kind="ads"}"#, 1.0),
        (r#"queue_requests{kind="news"}"#, 1.0),
        (r#"queue_batches{kind="news"}"#, 0.0),
        (r#"queue_oldest_seconds{kind="news"}"#, 7.0),
        ("views_saved_total", 0.0),
        ("batches_saved_total", 0.0),
        (r#"storage_info{transactions="handfast"}"#, 1.0),
        (r#"part_ready{part="queue"}"#, 1.0),
        (r#"part_ready{part="store"}"#, 1.0),
        (r#"part_ready{part="saving"}"#, 1.0),
    ]);
    assert!(!waiting.0.contains_key("handfast_counters_last_save_timestamp_seconds"), "there was no pass");
    counters.flush().await.expect("saved");
    let noon = 1_796_040_000.0; // date -u -d '2026-11-30 12:00:00' +%s
    Metrics::of(&client).await.check(&[
        ("views_saved_total", 6.0),
        ("batches_saved_total", 2.0),
        (r#"queue_requests{kind="news"}"#, 0.0),
        (r#"queue_oldest_seconds{kind="news"}"#, 0.0),
        ("last_save_timestamp_seconds", noon + 7.0),
    ]);
}

#[tokio::test]
async fn metrics_show_the_parts_that_do_not_work() {
    let world = World::new();
    let totals = world.faulty(Plan::at_request(Address::first(Operation::Find).of("totals"), Fault::CrashBefore));
    let counters = world.start(1, world.store.clone(), totals.clone()).await;
    let client = Client::new(&counters).await;
    client.ask("POST /v1/ads/7/views").await;
    client.ask("GET /v1/ads/8").await;
    counters.flush().await.expect_err("the store is away");
    world.clock.advance(Duration::from_secs(60));
    Metrics::of(&client).await.check(&[
        (r#"part_ready{part="queue"}"#, 1.0),
        (r#"part_ready{part="store"}"#, 0.0),
        (r#"part_ready{part="saving"}"#, 0.0),
        (r#"problems_total{route="getTotal",problem="unavailable"}"#, 1.0),
        (r#"requests_total{route="getTotal",status="5xx"}"#, 1.0),
        // A pass has claimed it.
        (r#"queue_batches{kind="ads"}"#, 1.0),
        (r#"queue_oldest_seconds{kind="ads"}"#, 60.0),
        ("views_total", 1.0),
    ]);
    totals.restart();
    counters.flush().await.expect("saved");
    Metrics::of(&client).await.check(&[(r#"part_ready{part="saving"}"#, 1.0), ("views_saved_total", 1.0)]);
}

#[test]
#[should_panic(expected = "its type comes first")]
fn a_text_that_is_not_of_the_format_is_found() {
    Metrics::read("handfast_counters_views_total 1\n");
}
