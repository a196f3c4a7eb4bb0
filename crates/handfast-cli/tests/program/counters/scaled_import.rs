//! An import beside the instances of the scaled form: it is killed again and again, and each of its lines is in all totals once.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::doc;
use serde_json::{Value, json};

use super::clients::{Clients, read};
use super::redis_server::RedisServer;
use super::scaled::{DURABLE, ITEMS, POLL, start, store};
use super::{ask, run_with, stdout};
use crate::support::{Scratch, Serve, handfast, now, pause};

/// The number of killed imports after which the test fails, because the import makes no progress.
const KILLS_MAX: u32 = 150;
/// The lines of an import of all items, and its views of each.
const LINES: usize = 6_000;
const IMPORTED: u64 = 10 * (LINES / ITEMS) as u64;

pub(super) fn figures() -> String {
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
