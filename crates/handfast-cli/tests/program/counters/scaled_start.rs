//! The start of an instance of the scaled form: what it needs, what it refuses, and what it says.

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use serde_json::{Value, json};

use super::redis_server::RedisServer;
use super::scaled::{DURABLE, POLL, command, listed, start, start_with, store};
use super::{ask, request, run_with, serve_connection, stdout, stopped};
use crate::support::{Scratch, Serve, assert_one_line, handfast, output, pause, until};

/// A service that has started while Redis was away, and finds that another store has it: it has counted nothing, so nothing waits.
#[test]
fn ext_redis_a_service_that_is_refused_later_says_that_it_counts_nothing() -> Result<()> {
    let scratch = Scratch::new("counters-refused")?;
    let Some(mut redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let (_store, uri) = store(&scratch)?;
    let mut first = start(&scratch, &redis.url(), &uri)?;
    first.stop("TERM")?;
    assert_eq!(first.wait()?.0, Some(0));
    redis.kill()?;
    let mut service = Serve::spawn(command(&scratch, "50ms", &redis.url(), &uri).args(["--database", "others"]))?;
    ensure!(service.line()?.starts_with("waiting: "), "Redis is away");
    redis.restart()?;
    until("the refusal", || {
        let (_, status) = request(&mut serve_connection(&service)?, "GET /status", "").context("no answer")?;
        let parts = serde_json::from_str::<Value>(&status)?["parts"].as_array().cloned().context("parts")?;
        let refused =
            |part: &&Value| part["detail"].as_str().is_some_and(|what| what.contains("the queue of another store"));
        Ok(parts.iter().filter(refused).count() == 2)
    })?;
    service.signal("TERM")?;
    let (code, stderr) = service.wait()?;
    let expected = format!("no views are counted or saved: {}/0 has the queue of another store", redis.url());
    let lines: Vec<&str> = stderr.lines().filter(|line| line.contains(&expected)).collect();
    ensure!(code == Some(1) && lines.len() == 2, "the log and the last word: {code:?} {stderr}");
    ensure!(lines[0].contains(" WARN ") && lines[1].starts_with("handfast: "), "{stderr}");
    Ok(())
}

/// A second database of the store behind the same Redis, a Redis that lost everything, and another one while the service runs.
#[test]
fn ext_redis_one_redis_has_the_queue_of_one_store() -> Result<()> {
    let scratch = Scratch::new("counters-identity")?;
    let Some(redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let (_store, uri) = store(&scratch)?;
    let servers = [format!("{}/0", redis.url()), uri.clone()];
    let serve = |redis: &str, database: &str| {
        // Redis does not take the place of another one before three intervals are over: it waits until the service objects, which may be late.
        let mut command = command(&scratch, "1h", redis, &uri);
        output(command.args(["--database", database]))
    };
    let mut service = start(&scratch, &servers[0], &uri)?;
    ask(&service, "POST /v1/ads/1/views", "")?;

    let refused = serve(&servers[0], "others")?;
    assert_one_line(&refused, 1, &format!("--redis: {} has the queue of another store", servers[0]));
    let elsewhere = format!("{}/1", redis.url());
    let refused = serve(&elsewhere, "counters")?;
    let stderr = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        stderr.contains("handfast: --redis: instances that run have the queue of the database counters"),
        "{stderr}"
    );
    ensure!(refused.status.code() == Some(1), "{stderr}");
    let other = ["--redis", &elsewhere, "--store", &uri];
    for command in [&["verify"][..], &["rebuild"], &["show", "ads/1"]] {
        let refused = run_with(&scratch, command, &other)?;
        assert_one_line(&refused, 1, &format!("--redis: {elsewhere} does not have the queue of the database counters"));
    }
    service.stop("TERM")?;
    assert_eq!(service.wait()?.0, Some(0));
    let report = stdout(&run_with(&scratch, &["verify"], &["--redis", &servers[0], "--store", &uri])?)?;
    ensure!(report.starts_with("1 item with 1 view checked"), "{report}");
    Ok(())
}

#[test]
fn ext_redis_settings_that_lose_views_are_told_at_the_start() -> Result<()> {
    let scratch = Scratch::new("counters-warnings")?;
    let Some(redis) = RedisServer::start(&scratch, &["--appendonly", "no"])? else { return Ok(()) };
    let (_store, uri) = store(&scratch)?;
    let mut service = start(&scratch, &redis.url(), &uri)?;
    assert_eq!(ask(&service, "POST /v1/ads/7/views", "")?["total"], 1);
    service.stop("TERM")?;
    let (code, stderr) = service.wait()?;
    ensure!(code == Some(0) && stderr.contains("appendonly no") && stderr.contains("WARN"), "{code:?} {stderr}");
    Ok(())
}

#[test]
fn ext_redis_the_age_of_the_oldest_request_is_shown() -> Result<()> {
    let scratch = Scratch::new("counters-age")?;
    let Some(redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let (_store, uri) = store(&scratch)?;
    let service = start_with(&scratch, "1h", &redis.url(), &uri, &[])?;
    ask(&service, "POST /v1/ads/7/views", "")?;
    let age = || ask(&service, "GET /status", "")?["queues"][0]["oldest_seconds"].as_f64().context("an age");
    let first = age()?;
    pause(POLL);
    let second = age()?;
    ensure!(second >= first + POLL.as_secs_f64(), "{second} s after {first} s");
    let (_, metrics) = request(&mut serve_connection(&service)?, "GET /metrics", "").context("no answer")?;
    let name = r#"handfast_counters_queue_oldest_seconds{kind="ads"} "#;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)).context("no age")?;
    ensure!(value.parse::<f64>()? >= second, "{value} s after {second} s");
    stopped(service)
}

#[test]
fn without_redis_the_service_starts_refuses_views_and_reads_totals() -> Result<()> {
    let scratch = Scratch::new("counters-no-redis")?;
    let (_store, uri) = store(&scratch)?;
    // Port 1 has no Redis.
    let mut service = Serve::spawn(&mut command(&scratch, "10ms", "redis://:secret@127.0.0.1:1", &uri))?;
    ensure!(!service.start.contains("secret"), "{}", service.start);
    let waiting = service.line()?;
    let expected = "waiting: views are refused until this is over: the cache and the queue are unavailable: ";
    ensure!(waiting.starts_with(expected) && !waiting.contains("secret"), "{waiting}");
    let mut stream = serve_connection(&service)?;
    let refused = request(&mut stream, "POST /v1/ads/7/views", "").context("no answer")?;
    ensure!(refused.0 == 503 && refused.1.contains("not_applied"), "{refused:?}");
    assert_eq!(request(&mut stream, "GET /readyz", "").context("no answer")?.0, 503);
    let read = ask(&service, "GET /v1/ads/7", "")?;
    assert_eq!(read, json!({ "kind": "ads", "id": "7", "total": 0, "partial": true }));
    assert_eq!(listed(&service)?.len(), 1, "the one that answers");
    service.signal("TERM")?;
    let (code, stderr) = service.wait()?;
    ensure!(code == Some(1) && stderr.contains("views are not counted until Redis is there"), "{code:?} {stderr}");
    ensure!(!stderr.contains("secret"), "{stderr}");
    let failed = "the queue cannot be saved now, and views that are in it wait there: ";
    let lines = |level: &str| stderr.lines().filter(|line| line.contains(level) && line.contains(failed)).count();
    ensure!(lines(" WARN ") >= 1 && lines("handfast: ") == 1, "{stderr}");
    Ok(())
}

#[test]
fn ext_redis_a_service_is_ready_when_redis_is_there() -> Result<()> {
    let scratch = Scratch::new("counters-late-redis")?;
    let Some(mut redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let (_store, uri) = store(&scratch)?;
    redis.kill()?;
    let mut service = Serve::spawn(command(&scratch, "50ms", &redis.url(), &uri).arg("--json"))?;
    let waiting: Value = serde_json::from_str(&service.line()?)?;
    let reason = waiting["reason"].as_str().context("a reason")?;
    ensure!(waiting["event"] == "waiting" && reason.contains("the cache and the queue are unavailable"), "{waiting}");
    redis.restart()?;
    assert_eq!(service.line()?, r#"{"event":"ready"}"#);
    service.signal("TERM")?;
    assert_eq!(service.line()?, r#"{"event":"stopping"}"#);
    assert_eq!(service.line()?, r#"{"event":"stopped","saved":0}"#);
    assert_eq!(service.wait()?.0, Some(0));
    Ok(())
}

#[test]
fn forms_that_cannot_be_are_named() -> Result<()> {
    let scratch = Scratch::new("counters-forms")?;
    let serve =
        |flags: &[&str]| output(handfast(&scratch, &["counters", "serve", "--listen", "127.0.0.1:0"]).args(flags));
    let (store, uri) = store(&scratch)?;
    assert_one_line(&serve(&["--redis", "redis://h"])?, 2, "redis (from flag --redis): it needs `store`");
    let with_data = serve(&["--redis", "redis://h", "--data", "data"])?;
    assert_one_line(&with_data, 2, "a data directory has one process, which needs no Redis");
    assert_one_line(&serve(&["--store", &uri])?, 2, "store (from flag --store): it needs `redis`");
    for (url, expected) in [
        ("redis+sentinel://:secret@h", "must name the master behind the sentinels"),
        ("redis+cluster://:secret@h/3", "a cluster has number 0 alone"),
        ("rediss://:secret@h?tls_verify=no", "unknown parameter tls_verify"),
    ] {
        let other = serve(&["--store", &uri, "--redis", url])?;
        assert_one_line(&other, 2, expected);
        ensure!(!String::from_utf8_lossy(&other.stderr).contains("secret"), "{other:?}");
    }
    std::fs::write(scratch.path("totals.csv"), "kind,id,total\nads,7,1\n")?;
    for arguments in [&["import", "totals.csv"][..], &["rebuild"]] {
        let refused = run_with(&scratch, arguments, &["--store", &uri])?;
        let text = "changes saved totals, and instances have totals in Redis, too: add --redis URL";
        assert_one_line(&refused, 2, text);
    }
    let in_directory = serve(&["--data", "data", "--transactions", "none"])?;
    assert_one_line(&in_directory, 2, "--transactions: a data directory always has transactions");
    let missing = run_with(&scratch, &["verify"], &["--store", &uri])?;
    assert_one_line(&missing, 1, "--database: there is no database 'counters'");
    let away = run_with(&scratch, &["import", "totals.csv"], &["--store", &uri, "--redis", "redis://127.0.0.1:1"])?;
    let text = String::from_utf8_lossy(&away.stderr);
    ensure!(away.status.code() == Some(1) && text.contains("could not be saved; nothing was added: "), "{text}");
    let no_file = serve(&["--store", &uri, "--redis", "rediss://:secret@h?tls_ca=missing.pem"])?;
    assert_one_line(&no_file, 2, "tls_ca of the URL of Redis: missing.pem");
    let event = doc! { "_id": { "kind": "ads", "first": 1_i64 }, "events": [{ "id": "7", "deleted": true }] };
    let inserted = store.command(doc! { "insert": "queue", "documents": [event], "$db": "counters" })?;
    ensure!(inserted.get_i32("n").ok() == Some(1), "{inserted}");
    let copied = serve(&["--store", &uri, "--redis", "redis://127.0.0.1:1"])?;
    assert_one_line(&copied, 1, "--database: counters has views in the queue of `counters serve --data`");
    Ok(())
}
