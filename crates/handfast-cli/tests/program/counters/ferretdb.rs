//! The store is a FerretDB 1, which nobody here wrote: it has no transactions, no sparse indexes, and no atomic updates, so one process writes to it at a
//! time. The service and an import are killed again and again, and all views are there, each once.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::redis_server::{RedisServer, free_port};
use super::scaled::DURABLE;
use super::{request, run_with, serve_connection, stdout};
use crate::server_process::ServerProcess;
use crate::support::{Scratch, Serve, assert_one_line, handfast, now, pause, skipped, until};

/// How often the service is killed.
const KILLS: u64 = 3;
/// The requests between two kills.
const REQUESTS: u64 = 30;
const ITEMS: u64 = 3;
/// The services that save what the killed ones had, after which the test fails.
const SAVING_SERVICES_MAX: u32 = 20;
/// The killed imports after which the test fails, because the import makes no progress.
const IMPORT_KILLS_MAX: u32 = 60;

/// Starts a FerretDB; `None`, having said so, if the program is not installed.
fn start(scratch: &Scratch) -> Result<Option<ServerProcess>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools");
    let tools = std::env::var_os("HANDFAST_TEST_TOOLS").map_or(root, PathBuf::from);
    let program = tools.join("ferretdb");
    if !program.exists() {
        skipped(&format!("{} is not installed: run scripts/install-test-tools", program.display()))?;
        return Ok(None);
    }
    let directory = scratch.path("ferretdb");
    std::fs::create_dir_all(&directory)?;
    let mut server = ServerProcess::ferretdb(program, &directory, free_port())?;
    until("FerretDB", || Ok(server.takes_connections()?))?;
    Ok(Some(server))
}

/// Sends the requests of a round, and those of the rounds before once more; returns once `answers` were counted.
fn send(service: &Serve, round: u64, answers: u64) -> Result<()> {
    let mut stream = serve_connection(service)?;
    for number in (0..(round + 1) * REQUESTS).rev().take(usize::try_from(answers)?) {
        let (line, key) = (format!("POST /v1/ads/{}/views", number % ITEMS), format!("idempotency-key: {number}"));
        until("an answer", || match request(&mut stream, &line, &key).context("no answer")? {
            (200, _) => Ok(true),
            (503, _) => Ok(false),
            other => anyhow::bail!("{other:?}"),
        })?;
    }
    Ok(())
}

/// Kills an import again and again, the first one at once and each a little later, until one ends; returns its report.
fn import(scratch: &Scratch, servers: &[&str]) -> Result<Value> {
    let (mut kills, mut lifetime) = (0, std::time::Duration::ZERO);
    loop {
        let mut command = handfast(scratch, &["counters", "import", "figures.csv", "--json"]);
        let mut child = command.args(servers).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let began = now();
        while child.try_wait()?.is_none() && began.elapsed() < lifetime {
            pause(std::time::Duration::from_millis(20));
        }
        if child.try_wait()?.is_some() {
            ensure!(kills > 0, "no import was killed");
            return Ok(serde_json::from_str(&stdout(&child.wait_with_output()?)?)?);
        }
        child.kill()?;
        child.wait()?;
        kills += 1;
        ensure!(kills < IMPORT_KILLS_MAX, "{kills} kills, and no end");
        lifetime = (lifetime * 5 / 4).max(std::time::Duration::from_millis(100));
    }
}

fn count_and_import(name: &str, transactions: &str, how: &str) -> Result<()> {
    let scratch = Scratch::new(name)?;
    let Some(redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(()) };
    let Some(ferretdb) = start(&scratch)? else { return Ok(()) };
    let (url, uri) = (redis.url(), ferretdb.uri());
    let servers = ["--redis", &url, "--store", &uri, "--sole-writer", "--log-level", "error"];
    let serve = || {
        let flags =
            ["counters", "serve", "--listen", "127.0.0.1:0", "--flush-interval", "20ms", "--take-over-after", "1s"];
        let service = Serve::start(handfast(&scratch, &flags).args(["--transactions", transactions]).args(servers))?;
        ensure!(service.start.contains("(FerretDB 1") && service.start.contains(how), "{}", service.start);
        anyhow::Ok(service)
    };
    for round in 0..KILLS {
        let service = serve()?;
        // Some of them are being saved.
        send(&service, round, REQUESTS + round)?;
        service.signal("KILL")?;
        assert_eq!(service.wait()?.0, None, "killed");
    }
    let all = KILLS * REQUESTS;
    let mut service = serve()?;
    send(&service, KILLS - 1, all)?;
    service.stop("TERM")?;
    assert_eq!(service.wait()?.0, Some(0));
    let verify = || -> Result<Value> {
        Ok(serde_json::from_str(&stdout(&run_with(&scratch, &["verify", "--json"], &servers)?)?)?)
    };
    // What the killed ones had is saved by the next, after a second.
    let mut report = verify()?;
    for _ in 0..SAVING_SERVICES_MAX {
        if report["views"] == all {
            break;
        }
        let mut service = serve()?;
        pause(std::time::Duration::from_secs(2));
        service.stop("TERM")?;
        assert_eq!(service.wait()?.0, Some(0));
        report = verify()?;
        ensure!(report["views"].as_u64().is_some_and(|views| views <= all), "{report}");
    }
    let is_right = |report: &Value, views: u64| {
        let none = json!([]);
        report["views"] == views && report["waiting"] == 0 && report["differences"] == none && report["damaged"] == none
    };
    ensure!(is_right(&report, all), "{report}");

    std::fs::write(
        scratch.path("figures.csv"),
        "kind,id,total,day,views\nads,0,100,,\nads,1,,2026-02-03,10\nads,9,,2026-03-01,1\n",
    )?;
    if transactions == "none" {
        let refused = run_with(&scratch, &["import", "figures.csv"], &servers)?;
        assert_one_line(&refused, 1, "export them, import both files into a directory (--data)");
        return Ok(());
    }
    let report = import(&scratch, &servers)?;
    let lines = ["lines", "before"].map(|count| report[count].as_u64().unwrap_or(0)).iter().sum::<u64>();
    ensure!(lines == 3, "{report}");
    let report = verify()?;
    ensure!(is_right(&report, all + 111), "{report}");
    let shown = stdout(&run_with(&scratch, &["show", "ads/0"], &servers)?)?;
    ensure!(
        shown.starts_with(&format!("ads/0 has {} views, 100 of them without a day\n", all / ITEMS + 100)),
        "{shown}"
    );
    Ok(())
}

#[test]
fn ext_redis_views_are_counted_once_before_ferretdb() -> Result<()> {
    count_and_import("counters-ferretdb", "handfast", "with transactions made by Handfast")
}

#[test]
fn ext_redis_views_are_counted_once_before_ferretdb_without_transactions() -> Result<()> {
    count_and_import("counters-ferretdb-single", "none", "without transactions, each document by itself")
}
