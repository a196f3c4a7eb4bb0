//! Parts that are stopped: they take connections and requests, and answer nothing. Reads are answered all the same, from the other part or with an error.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::redis_server::RedisServer;
use super::scaled::{DURABLE, command, start_with, store};
use super::{Answer, ask, exchange, request, run_with, serve_connection, stdout};
use crate::support::{Scratch, Serve, until};

/// The views that are sent at once. If each waited for two seconds, one after the other, most would wait for more than 30.
const VIEWS: usize = 60;
/// The reads that need the store, if the item is not in the cache.
const READS: [&str; 6] = [
    "GET /v1/ads/7",
    "GET /v1/ads?ids=7,8",
    "GET /v1/ads/7/badge.svg",
    "GET /v1/ads/7/daily",
    "GET /v1/ads/top",
    "GET /v1/ads/top?day=2026-11-30",
];

/// Sends all reads at once, and fails unless each is answered with the error of the store.
fn store_is_missed(service: &Serve) -> Result<()> {
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let reads = READS.map(|read| scope.spawn(move || is_refused(service, read).with_context(|| read.to_owned())));
        reads.into_iter().map(|read| read.join().unwrap()).collect()
    });
    results.into_iter().collect()
}

/// The error of a request that took all of its time, 30 seconds, names no part.
fn is_refused(service: &Serve, read: &str) -> Result<()> {
    let (head, body) = exchange(&mut serve_connection(service)?, read, "", "").context("no answer")?;
    let problem: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
    ensure!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nretry-after: "), "{head} {body}");
    ensure!(problem["type"] == "urn:handfast:problem:unavailable", "{body}");
    ensure!(problem["detail"] == "the store is unavailable", "{body}");
    Ok(())
}

/// Waits until the store has all views of an item.
fn until_saved(scratch: &Scratch, servers: &[&str], views: u64) -> Result<()> {
    until("the views", || {
        let report: Value = serde_json::from_str(&stdout(&run_with(scratch, &["verify", "--json"], servers)?)?)?;
        Ok(report["views"] == views)
    })
}

fn of_item(views: u64, is_partial: bool) -> Value {
    json!({ "kind": "ads", "id": "7", "total": views, "partial": is_partial })
}

/// What is answered while the store is stopped, and then while Redis is.
fn read_while_parts_are_stopped(name: &str, flags: &[&str]) -> Result<()> {
    let scratch = Scratch::new(name)?;
    let Some(mut redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let (store, uri) = store(&scratch)?;
    let mut service = start_with(&scratch, "50ms", &redis.url(), &uri, flags)?;
    let view = "POST /v1/ads/7/views";
    until("a view", || Ok(ask(&service, view, "idempotency-key: 1").is_ok_and(|counted| counted["total"] == 1)))?;
    until_saved(&scratch, &["--store", &uri], 1)?;

    store.signal("STOP")?;
    // On a busy machine, Redis or the store may take longer than a request waits for it.
    let read = |total: Value| ask(&service, "GET /v1/ads/7", "").is_ok_and(|read| read == total);
    until("the total of the cache", || Ok(read(of_item(1, false))))?;
    redis.lose_everything()?;
    store_is_missed(&service)?;
    let is_partial = |counted: Value| counted["total"] == 1 && counted["partial"] == true;
    until("a view", || Ok(ask(&service, view, "idempotency-key: 2").is_ok_and(is_partial)))?;
    store.signal("CONT")?;
    until_saved(&scratch, &["--store", &uri], 2)?;
    until("the whole total", || Ok(read(of_item(2, false))))?;

    redis.signal("STOP")?;
    until("the total of the store", || Ok(read(of_item(2, true))))?;
    let list = json!([{ "id": "7", "views": 2 }]);
    until("the list", || Ok(ask(&service, "GET /v1/ads/top", "").is_ok_and(|read| read["items"] == list)))?;
    until("the days", || Ok(ask(&service, "GET /v1/ads/7/daily", "").is_ok_and(|read| read["views"] == 2)))?;
    let mut stream = serve_connection(&service)?;
    let (status, body) = request(&mut stream, view, "idempotency-key: 3").context("no answer")?;
    ensure!(status == 503 && body.contains("\"outcome\":"), "{status} {body}");
    store.signal("STOP")?;
    store_is_missed(&service)?;
    redis.signal("CONT")?;
    store.signal("CONT")?;
    until("a view", || Ok(ask(&service, view, "idempotency-key: 3").is_ok()))?;
    until_saved(&scratch, &["--store", &uri], 3)?;
    until("the whole total", || Ok(read(of_item(3, false))))?;
    service.stop("TERM")?;
    assert_eq!(service.wait()?.0, Some(0));
    Ok(())
}

/// Redis is stopped when the service starts, so each view needs an answer of Redis first: all of them wait for the same one.
#[test]
fn ext_redis_views_are_refused_at_the_same_time_while_redis_is_stopped() -> Result<()> {
    let scratch = Scratch::new("counters-stopped-start")?;
    let Some(redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let (_store, uri) = store(&scratch)?;
    redis.signal("STOP")?;
    let mut service = Serve::spawn(&mut command(&scratch, "50ms", &redis.url(), &uri))?;
    ensure!(service.line()?.starts_with("waiting: "), "Redis is stopped");
    let answers: Vec<Option<Answer>> = std::thread::scope(|scope| {
        let views = (0..VIEWS).map(|item| {
            let mut stream = serve_connection(&service).unwrap();
            scope.spawn(move || request(&mut stream, &format!("POST /v1/ads/{item}/views"), ""))
        });
        let views: Vec<_> = views.collect();
        views.into_iter().map(|view| view.join().unwrap()).collect()
    });
    for answer in answers {
        let (status, body) = answer.context("no answer")?;
        // After 30 seconds, the outcome would be unknown.
        ensure!(
            status == 503 && body.contains("problem:unavailable") && body.contains("not_applied"),
            "{status} {body}"
        );
    }
    redis.signal("CONT")?;
    assert_eq!(service.line()?, "ready");
    assert_eq!(ask(&service, "POST /v1/ads/7/views", "")?["total"], 1);
    service.stop("TERM")?;
    assert_eq!(service.wait()?.0, Some(0));
    Ok(())
}

#[test]
fn ext_redis_reads_are_answered_while_the_store_or_redis_is_stopped() -> Result<()> {
    read_while_parts_are_stopped("counters-stopped", &[])
}

#[test]
fn ext_redis_reads_without_transactions_are_answered_while_the_store_or_redis_is_stopped() -> Result<()> {
    read_while_parts_are_stopped("counters-stopped-single", &["--transactions", "none"])
}
