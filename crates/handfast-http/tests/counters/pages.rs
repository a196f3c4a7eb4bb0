//! The pages as files, and the state that one of them shows. A browser runs them in `ext_counters_pages`.

use std::time::Duration;

use axum::http::StatusCode;
use handfast_counters::{Figure, ImportName, ImportSaved, InstanceReport, Item, Owner};
use handfast_http::ProblemKind;
use handfast_store::decorator::{Address, Fault, Operation, Plan};
use serde_json::json;

use crate::world::{Client, World};

#[tokio::test]
async fn pages_are_files_that_ask_no_other_server() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    for (path, media_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/docs", "text/html; charset=utf-8"),
        ("/assets/page.css", "text/css; charset=utf-8"),
        ("/assets/page.js", "text/javascript; charset=utf-8"),
        ("/assets/docs.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = client.ask(&format!("GET {path}")).await;
        assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, Some(media_type)), "{path}");
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        let text = String::from_utf8(answer.body).expect("a text");
        let named = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!named.contains("://") && !named.contains("innerHTML") && !named.contains("style="), "{path}");
    }
    client.ask("GET /assets/index.html").await.problem(ProblemKind::NotFound);
}

#[tokio::test]
async fn the_state_is_that_of_the_instance_and_of_a_kind() {
    let world = World::new();
    let counters = world.healthy(1).await;
    let client = Client::new(&counters).await;
    let state = client.ask("GET /status").await.json();
    assert_eq!((&state["ready"], &state["parts"], &state["queues"]), (&json!(true), &json!([]), &json!([])));
    client.ask("POST /v1/ads/7/views").await;
    client.ask("POST /v1/ads/8/views").await;
    client.ask("POST /v1/news/1/views").await;
    world.clock.advance(Duration::from_secs(3));
    let state = client.ask("GET /status?kind=ads").await.json();
    let queue =
        |kind: &str, requests: u64| json!({ "kind": kind, "requests": requests, "batches": 0, "oldest_seconds": 3.0 });
    assert_eq!(state["queues"], json!([queue("ads", 2), queue("news", 1)]));
    assert_eq!(json!([state["views"], state["saved"], state["uptime_seconds"]]), json!([3, 0, 3.0]));
    let setting = json!([state["buffer"], state["transactions"], state["time_zone"]]);
    assert_eq!(setting, json!(["embedded", "handfast", "Europe/Berlin"]));
    let mut own = json!({ "addresses": [], "seen_seconds": 0.0 });
    for figure in ["name", "version", "uptime_seconds", "views", "saved"] {
        own[figure] = state[figure].clone();
    }
    assert_eq!(state["instances"], json!([own]));
    assert_eq!(json!([state["kind"]["views"], state["kind"]["items"]]), json!([0, 0]));
    counters.flush().await.expect("saved");
    // The sums are shown again for a while.
    assert_eq!(client.ask("GET /status?kind=ads").await.json()["kind"]["views"], 0);
    world.clock.advance(Duration::from_secs(10));
    let state = client.ask("GET /status?kind=ads").await.json();
    assert_eq!(json!([state["kind"]["views"], state["kind"]["items"], state["saved"]]), json!([2, 2, 3]));
    let days = state["kind"]["days"].as_array().expect("days");
    assert_eq!((days.len(), &days[29]), (30, &json!({ "day": "2026-11-30", "views": 2 })));
    assert_eq!(client.ask("GET /status?kind=none").await.json()["kind"], json!(null));
    client.ask("GET /status?kind=None").await.problem(ProblemKind::InvalidRequest);
}

#[tokio::test]
async fn the_instances_are_those_that_have_announced_themselves_and_the_one_that_answers() {
    let world = World::new();
    let counters = world.healthy(1).await;
    let client = Client::new(&counters).await;
    let name = Owner::new(counters.sources());
    let report = InstanceReport {
        name: name.clone(),
        version: "0.0.9".to_owned(),
        addresses: vec!["[::1]:8081".parse().expect("an address")],
        uptime: Duration::from_millis(1_500),
        views: 12,
        saved: 7,
    };
    // An own announcement is older than what it knows of itself.
    let own = InstanceReport { name: counters.owner().clone(), ..report.clone() };
    for report in [report, own] {
        counters.buffer().announce(report, Duration::from_secs(10)).await.expect("announced");
    }
    client.ask("POST /v1/ads/7/views").await;
    world.clock.advance(Duration::from_secs(4));
    let state = client.ask("GET /status").await.json();
    let instances = state["instances"].as_array().expect("instances");
    assert_eq!(instances.len(), 2);
    assert_eq!(json!([instances[0]["name"], instances[0]["views"]]), json!([counters.owner().as_str(), 1]));
    assert_eq!(state["name"], instances[0]["name"]);
    assert_eq!(
        instances[1],
        json!({
            "name": name.as_str(), "version": "0.0.9", "addresses": ["[::1]:8081"], "uptime_seconds": 1.5, "views": 12, "saved": 7,
            "seen_seconds": 4.0
        })
    );
    world.clock.advance(Duration::from_secs(6));
    let instances = client.ask("GET /status").await.json()["instances"].clone();
    assert_eq!(instances.as_array().map(Vec::len), Some(1), "the other one is silent: {instances}");
}

#[tokio::test]
async fn imported_kinds_are_in_the_state() {
    let world = World::new();
    let counters = world.healthy(1).await;
    let mut import = counters.storage().begin_import(ImportName::new("may").expect("a name")).await.expect("an import");
    import.read("films,7,5");
    import.add(Figure { item: Item::new("films", "7").expect("an item"), day: None, views: 5 });
    assert_eq!(counters.save_import(&mut import).await.expect("saved"), ImportSaved::Added);
    let client = Client::new(&counters).await;
    client.ask("POST /v1/ads/7/views").await;
    client.ask("POST /v1/news/7/views").await;
    let state = client.ask("GET /status?kind=films").await.json();
    let queues = state["queues"].as_array().expect("queues");
    assert_eq!(queues.iter().map(|queue| &queue["kind"]).collect::<Vec<_>>(), ["ads", "films", "news"]);
    assert_eq!(queues[1], json!({ "kind": "films", "requests": 0, "batches": 0, "oldest_seconds": null }));
    assert_eq!(json!([state["kind"]["kind"], state["kind"]["views"]]), json!(["films", 5]));
}

#[tokio::test]
async fn the_state_is_told_while_the_store_is_away() {
    let world = World::new();
    let totals = world.faulty(Plan::at_request(Address::first(Operation::Find).of("totals"), Fault::CrashBefore));
    let client = Client::new(&world.start(1, world.store.clone(), totals.clone()).await).await;
    client.ask("POST /v1/ads/7/views").await;
    let state = client.ask("GET /status?kind=ads").await.json();
    assert_eq!(json!([state["ready"], state["views"], state["kind"]]), json!([true, 1, null]));
    assert_eq!(state["parts"], json!([{ "part": "store", "detail": "the store is unavailable" }]));
    totals.restart();
}

#[tokio::test(start_paused = true)]
async fn sums_that_take_longer_than_a_request_are_shown_when_they_are_there() {
    let world = World::new();
    let totals = world.faulty(Plan::at_request(Address::first(Operation::Aggregate), Fault::FreezeBefore));
    let counters = world.start(1, world.store.clone(), totals.clone()).await;
    let client = Client::new(&counters).await;
    client.ask("POST /v1/ads/7/views").await;
    client.ask("POST /v1/news/1/views").await;
    counters.flush().await.expect("saved");
    let views = async |kind: &str| {
        let answer = client.ask(&format!("GET /status?kind={kind}")).await;
        assert_eq!(answer.status, StatusCode::OK);
        answer.json()["kind"]["views"].clone()
    };
    for _ in 0..3 {
        assert_eq!(views("ads").await, json!(null), "the request does not wait for them");
        // The second reading would not be frozen.
        assert_eq!(totals.frozen(), 1);
        world.clock.advance(Duration::from_secs(20));
    }
    assert_eq!(views("news").await, 1, "another kind does not wait");
    totals.release();
    assert_eq!(views("ads").await, 1);
    client.ask("POST /v1/ads/7/views").await;
    counters.flush().await.expect("saved");
    world.clock.advance(Duration::from_secs(599));
    assert_eq!(views("ads").await, 1, "a reading of a minute is followed by ten without any");
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(views("ads").await, 2);
}

#[tokio::test]
async fn sums_that_could_not_be_read_are_not_read_at_once_again() {
    let world = World::new();
    let totals = world.faulty(Plan::at_request(Address::first(Operation::Aggregate), Fault::Refuse));
    let counters = world.start(1, world.store.clone(), totals).await;
    let client = Client::new(&counters).await;
    client.ask("POST /v1/ads/7/views").await;
    counters.flush().await.expect("saved");
    let kind = async || client.ask("GET /status?kind=ads").await.json()["kind"].clone();
    assert_eq!((kind().await, kind().await), (json!(null), json!(null)));
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(kind().await["views"], 1);
}

#[tokio::test]
async fn a_reader_makes_no_kind() {
    let world = World::new();
    let client = Client::new(&world.healthy(1).await).await;
    client.ask("POST /v1/ads/7/views").await;
    for path in ["/v1/none/7", "/v1/none?ids=1,2", "/v1/none/top", "/v1/none/7/daily", "/v1/none/7/badge.svg"] {
        assert_eq!(client.ask(&format!("GET {path}")).await.status, StatusCode::OK, "{path}");
    }
    let queues = client.ask("GET /status").await.json()["queues"].clone();
    let kinds: Vec<_> = queues.as_array().expect("queues").iter().map(|queue| queue["kind"].clone()).collect();
    assert_eq!(kinds, ["ads"]);
}
