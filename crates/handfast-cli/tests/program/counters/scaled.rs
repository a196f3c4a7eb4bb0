//! The scaled form: several processes over one Redis and one store, which is a `handfast serve`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::clients::Clients;
use super::redis_server::RedisServer;
use super::scaled_import::figures;
use super::{ask, run_with, stdout};
use crate::support::{FREE_PORT, Scratch, Serve, assert_one_line, handfast, now, pause};

/// A Redis that loses nothing when it is killed.
pub(super) const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
pub(super) const ITEMS: usize = 5;
pub(super) const POLL: Duration = Duration::from_millis(20);
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
pub(super) fn listed(service: &Serve) -> Result<Vec<String>> {
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
