//! The scaled form: several processes over one Redis and one store, which is a `handfast serve`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use serde_json::{Value, json};

use super::redis_server::{RedisServer, free_port};
use super::{ask, request, run_with, serve_connection, stdout};
use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, connect, handfast, now, pause};

/// A Redis that loses nothing when it is killed.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const ITEMS: usize = 5;
/// The threads that send requests.
const CLIENTS: usize = 6;
/// The requests of each thread.
const REQUESTS: usize = 250;
const POLL: Duration = Duration::from_millis(20);
/// Everything is saved sooner, even on a busy machine.
const SAVED_MAX: Duration = Duration::from_secs(60);

/// A `handfast serve` as the store.
fn store(scratch: &Scratch) -> Result<(Serve, String)> {
    let store = Serve::start(&mut handfast(scratch, &[&FREE_PORT[..], &["--data", "store"]].concat()))?;
    let uri = format!("mongodb://{}", store.address()?);
    Ok((store, uri))
}

fn start(scratch: &Scratch, redis: &str, store: &str) -> Result<Serve> {
    let mut command = handfast(scratch, &["counters", "serve", "--listen", "127.0.0.1:0", "--flush-interval", "50ms"]);
    Serve::start(command.args(["--take-over-after", "1s", "--redis", redis, "--store", store]))
}

/// Sends the requests of one client, each again with its key at one service after the other until it is answered.
fn send(addresses: &[String], client: usize, answers: &AtomicU64) {
    let mut at = client;
    let mut stream = None;
    for number in 0..REQUESTS {
        let line = format!("POST /v1/ads/{}/views", number % ITEMS);
        let key = format!("idempotency-key: {client}-{number}");
        loop {
            if stream.is_none() {
                stream = connect(&addresses[at % addresses.len()]).ok();
            }
            match stream.as_mut().and_then(|stream| request(stream, &line, &key)) {
                Some((200, _)) => break,
                // Redis is away.
                Some((503, body)) => assert!(body.contains("outcome"), "{body}"),
                Some(other) => panic!("{other:?}"),
                None => {
                    stream = None;
                    at += 1;
                }
            }
            pause(POLL);
        }
        answers.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn ext_redis_three_processes_count_each_view_once_while_one_and_redis_are_killed() -> Result<()> {
    let scratch = Scratch::new("counters-scaled")?;
    let Some(mut redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let (_store, uri) = store(&scratch)?;
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(start(&scratch, &redis.url(), &uri)?);
    }
    let first = processes.first().context("a process")?;
    let form = format!("queue in {}/0, store {uri} (", redis.url());
    ensure!(first.start.contains(&form), "{}, and not {form}", first.start);
    ensure!(first.start.contains("with transactions made by Handfast, days in UTC"), "{}", first.start);
    let addresses = processes.iter().map(Serve::address).collect::<Result<Vec<_>>>()?;
    let (answers, addresses) = (Arc::new(AtomicU64::new(0)), Arc::new(addresses));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (answers, addresses) = (Arc::clone(&answers), Arc::clone(&addresses));
            std::thread::spawn(move || send(&addresses, client, &answers))
        })
        .collect();
    let all = (CLIENTS * REQUESTS) as u64;
    let until = |count: u64| {
        while answers.load(Ordering::SeqCst) < count {
            pause(POLL);
        }
    };
    until(all / 4);
    let killed = processes.remove(1);
    killed.signal("KILL")?;
    assert_eq!(killed.wait()?.0, None, "killed");
    until(all / 2);
    redis.kill()?;
    pause(POLL);
    redis.restart()?;
    for client in clients {
        client.join().map_err(|_| anyhow::anyhow!("a client has failed"))?;
    }

    // Beside the services: the batch of the one that was killed is taken over.
    let servers = ["--redis", &redis.url(), "--store", &uri];
    let began = now();
    let saved = loop {
        let report: Value = serde_json::from_str(&stdout(&run_with(&scratch, &["verify", "--json"], &servers[2..])?)?)?;
        let views = report["views"].as_u64().context("views")?;
        ensure!(views <= all && began.elapsed() < SAVED_MAX, "{views} of {all} views were saved: {report}");
        if views == all {
            break report;
        }
        pause(POLL);
    };
    assert_eq!(saved, json!({ "items": ITEMS, "views": all, "waiting": null, "differences": [], "damaged": [] }));
    for service in &processes {
        for item in 0..ITEMS {
            let total = ask(service, &format!("GET /v1/ads/{item}"), "")?;
            assert_eq!(total, json!({ "kind": "ads", "id": item.to_string(), "total": all / 5, "partial": false }));
        }
    }
    let of_item = all / 5;
    let shown = stdout(&run_with(&scratch, &["show", "ads/0"], &servers)?)?;
    ensure!(shown.starts_with(&format!("ads/0 has {of_item} views\n")), "{shown}");
    let shown = stdout(&run_with(&scratch, &["show", "ads/0"], &servers[2..])?)?;
    ensure!(shown.starts_with(&format!("ads/0 has {of_item} views saved\n")), "{shown}");
    let top = stdout(&run_with(&scratch, &["top", "ads", "--limit", "1"], &servers[2..])?)?;
    ensure!(top.ends_with(&format!("  {of_item}\n")), "{top}");
    let rebuilt: Value =
        serde_json::from_str(&stdout(&run_with(&scratch, &["rebuild", "--dry-run", "--json"], &servers[2..])?)?)?;
    assert_eq!(rebuilt, json!({ "items": ITEMS, "dry_run": true, "changes": [], "damaged": [] }));
    let exported = stdout(&run_with(&scratch, &["export", "--format", "csv"], &servers)?)?;
    let views = exported.lines().skip(1).map(|line| line.rsplit(',').next().unwrap_or_default().parse::<u64>());
    assert_eq!(views.sum::<Result<u64, _>>()?, all, "{exported}");
    let trimmed: Value =
        serde_json::from_str(&stdout(&run_with(&scratch, &["trim", "--before", "2026-01-01", "--json"], &servers)?)?)?;
    assert_eq!(trimmed, json!({ "months": 0, "views": 0, "dry_run": false }));
    for mut service in processes {
        service.stop("TERM")?;
        assert_eq!(service.wait()?.0, Some(0));
    }
    let report = stdout(&run_with(&scratch, &["verify", "--json"], &servers)?)?;
    let expected = json!({ "items": ITEMS, "views": all, "waiting": 0, "differences": [], "damaged": [] });
    assert_eq!(serde_json::from_str::<Value>(&report)?, expected);
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
fn without_redis_the_service_starts_refuses_views_and_reads_totals() -> Result<()> {
    let scratch = Scratch::new("counters-no-redis")?;
    let (_store, uri) = store(&scratch)?;
    let url = format!("redis://:secret@127.0.0.1:{}", free_port()?);
    let service = start(&scratch, &url, &uri)?;
    ensure!(!service.start.contains("secret"), "{}", service.start);
    let mut stream = serve_connection(&service)?;
    let refused = request(&mut stream, "POST /v1/ads/7/views", "").context("no answer")?;
    ensure!(refused.0 == 503 && refused.1.contains("not_applied"), "{refused:?}");
    assert_eq!(request(&mut stream, "GET /readyz", "").context("no answer")?.0, 503);
    let read = ask(&service, "GET /v1/ads/7", "")?;
    assert_eq!(read, json!({ "kind": "ads", "id": "7", "total": 0, "partial": true }));
    service.signal("TERM")?;
    let (code, stderr) = service.wait()?;
    ensure!(code == Some(1) && stderr.contains("views are not counted until Redis is there"), "{code:?} {stderr}");
    ensure!(!stderr.contains("secret"), "{stderr}");
    Ok(())
}

#[test]
fn forms_that_cannot_be_are_named() -> Result<()> {
    let scratch = Scratch::new("counters-forms")?;
    let serve = |flags: &[&str]| {
        anyhow::Ok(handfast(&scratch, &["counters", "serve", "--listen", "127.0.0.1:0"]).args(flags).output()?)
    };
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
        let refused = run_with(&scratch, arguments, &["--store", &uri, "--redis", "redis://127.0.0.1:1"])?;
        assert_one_line(&refused, 2, "changes saved totals, and not those that instances have in Redis");
    }
    let missing = run_with(&scratch, &["verify"], &["--store", &uri])?;
    assert_one_line(&missing, 1, "--database: there is no database 'counters'");
    let no_file = serve(&["--store", &uri, "--redis", "rediss://:secret@h?tls_ca=missing.pem"])?;
    assert_one_line(&no_file, 2, "tls_ca of the URL of Redis: missing.pem");
    let event = doc! { "_id": { "kind": "ads", "first": 1_i64 }, "events": [{ "id": "7", "deleted": true }] };
    let inserted = store.command(doc! { "insert": "queue", "documents": [event], "$db": "counters" })?;
    ensure!(inserted.get_i32("n").ok() == Some(1), "{inserted}");
    let copied = serve(&["--store", &uri, "--redis", "redis://127.0.0.1:1"])?;
    assert_one_line(&copied, 1, "--database: counters has views in the queue of `counters serve --data`");
    Ok(())
}
