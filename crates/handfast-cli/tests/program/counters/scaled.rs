//! The scaled form: several processes over one Redis and one store, which is a `handfast serve`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use serde_json::{Value, json};

use super::clients::{Clients, read};
use super::redis_server::RedisServer;
use super::{ask, request, run_with, serve_connection, stdout, stopped};
use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, handfast, now, output, pause, until};

/// A Redis that loses nothing when it is killed.
pub(super) const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
pub(super) const ITEMS: usize = 5;
/// The number of killed imports after which the test fails, because the import makes no progress.
const KILLS_MAX: u32 = 150;
const POLL: Duration = Duration::from_millis(20);
/// What a test waits for happens sooner, even on a busy machine: everything is saved, the list of instances is right.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A `handfast serve` as the store.
pub(super) fn store(scratch: &Scratch) -> Result<(Serve, String)> {
    let store = Serve::start(&mut handfast(scratch, &[&FREE_PORT[..], &["--data", "store"]].concat()))?;
    let uri = format!("mongodb://{}", store.address()?);
    Ok((store, uri))
}

pub(super) fn start(scratch: &Scratch, redis: &str, store: &str) -> Result<Serve> {
    start_with(scratch, "50ms", redis, store, &[])
}

/// Starts a service that saves views at this interval.
pub(super) fn start_with(scratch: &Scratch, interval: &str, redis: &str, store: &str, flags: &[&str]) -> Result<Serve> {
    Serve::start(command(scratch, interval, redis, store).args(flags))
}

pub(super) fn command(scratch: &Scratch, interval: &str, redis: &str, store: &str) -> Command {
    let mut command =
        handfast(scratch, &["counters", "serve", "--listen", "127.0.0.1:0", "--flush-interval", interval]);
    command.args(["--take-over-after", "1s", "--redis", redis, "--store", store]);
    command
}

/// Returns the addresses of the instances that an instance lists.
fn listed(service: &Serve) -> Result<Vec<String>> {
    let status = ask(service, "GET /status", "")?;
    let instances = status["instances"].as_array().context("instances")?;
    let own = instances.iter().find(|instance| instance["name"] == status["name"]).context("the one that answers")?;
    ensure!(own["addresses"] == json!([service.address()?]) && own["seen_seconds"] == 0.0, "{status}");
    let addresses = instances.iter().map(|instance| instance["addresses"][0].as_str().map(str::to_owned));
    addresses.collect::<Option<_>>().context("addresses")
}

/// Waits until each instance lists all of them, and no other.
fn until_listed(services: &[Serve]) -> Result<()> {
    let mut expected = services.iter().map(Serve::address).collect::<Result<Vec<_>>>()?;
    expected.sort();
    for service in services {
        let began = now();
        loop {
            let mut found = listed(service)?;
            found.sort();
            if found == expected {
                break;
            }
            ensure!(began.elapsed() < WAIT_MAX, "{found:?} are listed, and not {expected:?}");
            pause(POLL);
        }
    }
    Ok(())
}

#[test]
fn ext_redis_three_processes_count_each_view_once_while_one_and_redis_are_killed() -> Result<()> {
    count_while_some_are_killed("counters-scaled", &[], "with transactions made by Handfast", json!({}))
}

#[test]
fn ext_redis_three_processes_without_transactions_count_each_view_once_while_one_and_redis_are_killed() -> Result<()> {
    let how = "without transactions, each document by itself";
    count_while_some_are_killed("counters-single", &["--transactions", "none"], how, json!({ "in_progress": 0 }))
}

/// Counts with three processes that have these flags. `fields` are those that a check reports in addition.
fn count_while_some_are_killed(name: &str, flags: &[&str], how: &str, fields: Value) -> Result<()> {
    let scratch = Scratch::new(name)?;
    let Some(mut redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let (_store, uri) = store(&scratch)?;
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(start_with(&scratch, "50ms", &redis.url(), &uri, flags)?);
    }
    let first = processes.first().context("a process")?;
    let form = format!("queue in {}/0, store {uri} (", redis.url());
    ensure!(first.start.contains(&form), "{}, and not {form}", first.start);
    ensure!(first.start.contains(&format!("{how}, days in UTC")), "{}", first.start);
    let with_fields = |mut report: Value| {
        if let (Some(report), Some(fields)) = (report.as_object_mut(), fields.as_object()) {
            report.extend(fields.clone());
        }
        report
    };
    let addresses = processes.iter().map(Serve::address).collect::<Result<Vec<_>>>()?;
    until_listed(&processes)?;
    let clients = Clients::start(addresses);
    let all = Clients::REQUESTS;
    clients.until(all / 4)?;
    let killed = processes.remove(1);
    killed.signal("KILL")?;
    assert_eq!(killed.wait()?.0, None, "killed");
    // Nobody says that it is dead.
    processes.push(start(&scratch, &redis.url(), &uri)?);
    clients.until(all / 2)?;
    redis.kill()?;
    pause(POLL);
    redis.restart()?;
    clients.finish()?;

    until_listed(&processes)?;
    // Beside the services: the batch of the one that was killed is taken over.
    let servers = ["--redis", &redis.url(), "--store", &uri];
    let began = now();
    let saved = loop {
        let report: Value = serde_json::from_str(&stdout(&run_with(&scratch, &["verify", "--json"], &servers[2..])?)?)?;
        let views = report["views"].as_u64().context("views")?;
        ensure!(views <= all && began.elapsed() < WAIT_MAX, "{views} of {all} views were saved: {report}");
        if views == all && report["in_progress"].as_u64().unwrap_or(0) == 0 {
            break report;
        }
        pause(POLL);
    };
    let expected = json!({ "items": ITEMS, "views": all, "waiting": null, "differences": [], "damaged": [] });
    assert_eq!(saved, with_fields(expected));
    let transactions = if flags.is_empty() { "handfast" } else { "none" };
    for service in &processes {
        assert_eq!(ask(service, "GET /status", "")?["transactions"], transactions);
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
    while let Some(mut service) = processes.pop() {
        service.stop("TERM")?;
        assert_eq!(service.wait()?.0, Some(0));
        if let Some(other) = processes.first() {
            assert_eq!(listed(other)?.len(), processes.len(), "an instance that stops withdraws");
        }
    }
    let report = stdout(&run_with(&scratch, &["verify", "--json"], &servers)?)?;
    let expected = json!({ "items": ITEMS, "views": all, "waiting": 0, "differences": [], "damaged": [] });
    assert_eq!(serde_json::from_str::<Value>(&report)?, with_fields(expected));
    // The data say how they are saved.
    let other = if flags.is_empty() { "none" } else { "handfast" };
    let refused = run_with(&scratch, &["verify", "--transactions", other], &servers)?;
    assert_one_line(
        &refused,
        1,
        &format!("saved with transactions `{transactions}`: they cannot be saved with `{other}`"),
    );
    if !flags.is_empty() {
        std::fs::write(scratch.path("figures.csv"), figures())?;
        let refused = run_with(&scratch, &["import", "figures.csv"], &servers)?;
        assert_one_line(&refused, 1, "export them, import both files into a directory (--data)");
    }
    Ok(())
}

/// The lines of an import of all items, and its views of each.
const LINES: usize = 6_000;
const IMPORTED: u64 = 10 * (LINES / ITEMS) as u64;

fn figures() -> String {
    let line = |number: usize| match number % 2 {
        0 => format!("ads,{},10,,\n", number % ITEMS),
        _ => format!("ads,{},,2026-02-{:02},10\n", number % ITEMS, number % 28 + 1),
    };
    let lines: String = (0..LINES).map(line).collect();
    format!("kind,id,total,day,views\n{lines}")
}

#[test]
fn ext_redis_an_import_that_is_killed_beside_three_processes_is_in_all_totals_once() -> Result<()> {
    let scratch = Scratch::new("counters-scaled-import")?;
    let Some(redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let (store, uri) = store(&scratch)?;
    std::fs::write(scratch.path("figures.csv"), figures())?;
    let processes = (0..3).map(|_| start(&scratch, &redis.url(), &uri)).collect::<Result<Vec<_>>>()?;
    let addresses = processes.iter().map(Serve::address).collect::<Result<Vec<_>>>()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (reads, address) = (Arc::clone(&stop), addresses[0].clone());
    let clients = Clients::start(addresses);
    let reader = std::thread::spawn(move || read(&address, &reads));
    clients.until(100)?;
    let servers = ["--redis", &redis.url(), "--store", &uri];
    let import = ["import", "figures.csv", "--json"];
    let step = Duration::from_millis(150);
    let (mut kills, mut lifetime) = (0, step);
    let report: Value = loop {
        ensure!(kills < KILLS_MAX, "{kills} kills, and no end: what was added is not known again");
        let mut command = handfast(&scratch, &["counters"]);
        command.args(import).args(servers).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let began = now();
        while child.try_wait()?.is_none() && began.elapsed() < lifetime {
            pause(POLL);
        }
        if child.try_wait()?.is_some() {
            break serde_json::from_str(&stdout(&child.wait_with_output()?)?)?;
        }
        child.kill()?;
        child.wait()?;
        kills += 1;
        lifetime += step + lifetime / 20;
    };
    ensure!(kills > 0 && report["lines"].as_u64().zip(report["before"].as_u64()).is_some(), "{kills} {report}");
    clients.finish()?;
    stop.store(true, Ordering::SeqCst);
    let reads = reader.join().map_err(|_| anyhow::anyhow!("a total went back"))?;
    ensure!(reads > 0, "nothing was read");
    let of_item = Clients::REQUESTS / ITEMS as u64 + IMPORTED;
    let ensure_totals = |of_item: u64| {
        for service in &processes {
            for item in 0..ITEMS {
                let total = ask(service, &format!("GET /v1/ads/{item}"), "")?;
                assert_eq!(total, json!({ "kind": "ads", "id": item.to_string(), "total": of_item, "partial": false }));
            }
        }
        anyhow::Ok(())
    };
    ensure_totals(of_item)?;
    let again = stdout(&run_with(&scratch, &["import", "figures.csv"], &servers)?)?;
    ensure!(again.starts_with("nothing was added: the import sha256:"), "{again}");
    ensure_totals(of_item)?;

    // A total that something else has changed, and that an instance has in its cache.
    let more = doc! { "q": { "_id": { "kind": "ads", "id": "1" } }, "u": { "$inc": { "total": 7_i64 } } };
    let changed = store.command(doc! { "update": "totals", "updates": [more], "$db": "counters" })?;
    ensure!(changed.get_i32("n").ok() == Some(1), "{changed}");
    let rebuilt: Value = serde_json::from_str(&stdout(&run_with(&scratch, &["rebuild", "--json"], &servers)?)?)?;
    ensure!(rebuilt["changes"].as_array().is_some_and(|changes| changes.len() == 1), "{rebuilt}");
    ensure_totals(of_item)?;
    for mut service in processes {
        service.stop("TERM")?;
        assert_eq!(service.wait()?.0, Some(0));
    }
    let report: Value = serde_json::from_str(&stdout(&run_with(&scratch, &["verify", "--json"], &servers)?)?)?;
    let views = of_item * ITEMS as u64;
    let expected = json!({ "items": ITEMS, "views": views, "waiting": 0, "differences": [], "damaged": [] });
    assert_eq!(report, expected);
    Ok(())
}

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
