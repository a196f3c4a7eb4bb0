//! A long run of three services over one Redis and one store, each of which is killed, or stops for a while: each request is counted exactly once.
//!
//! ```text
//! service 1  ───────────────────────────────────────────────────────────────────────────── stop ..... continue ──
//! service 2  ── kill, another one ─────────────────────────────────────────────────────────────────────────────── as the others
//! Redis      ───────────────────────── kill, start ─────────────────────────── kill, start ──────────────────────
//! store      ─── stop .... continue ───────────────── kill ...... start ───── stop .. continue ──────────────────
//! clients    each sends a request with its key again until it is answered; a reader asks one service after the other
//! ```
//!
//! `HANDFAST_VIEWS` is the number of views, at least 200,000: a million if it is not set, in 20,000 requests.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::long_run_clients::{ITEMS, Run, VIEWS_MEAN};
use super::redis_server::{RedisServer, free_port};
use super::scaled::{DURABLE, start};
use super::{ask, run_with, stdout};
use crate::support::{Scratch, Serve, handfast, pause, until};

const SERVICES: usize = 3;
/// The requests that are answered while the store is away.
const OUTAGE_REQUESTS: u64 = 200;
/// The parts of the requests: one before each disturbance, and clients may be one ahead.
const PARTS: u64 = 20;
/// A time after which other services take the batches of one that has stopped, as `--take-over-after` says.
const FREEZE: Duration = Duration::from_millis(1_500);

fn store_at(scratch: &Scratch, address: &str) -> Result<Serve> {
    Serve::start(&mut handfast(scratch, &["serve", "--data", "store", "--listen", address]))
}

/// The processes of the run.
struct Site {
    scratch: Scratch,
    redis: RedisServer,
    store: Serve,
    services: Vec<Serve>,
    run: Arc<Run>,
}

impl Site {
    fn start(run: Run) -> Result<Option<Self>> {
        let scratch = Scratch::new("counters-long")?;
        let Some(redis) = RedisServer::start(&scratch, &DURABLE)? else { return Ok(None) };
        let store = store_at(&scratch, &format!("127.0.0.1:{}", free_port()))?;
        let mut site = Site { scratch, redis, store, services: Vec::new(), run: Arc::new(run) };
        for at in 0..SERVICES {
            let service = site.service()?;
            site.run.set_address(at, service.address()?);
            site.services.push(service);
        }
        Ok(Some(site))
    }

    fn service(&self) -> Result<Serve> {
        start(&self.scratch, &self.redis.url(), &format!("mongodb://{}", self.store.address()?))
    }

    /// Waits until the clients have got so many more answers. They go on behind that.
    fn progress(&self, requests: u64) -> Result<()> {
        let goal = self.run.answers() + requests;
        self.run.release(goal + self.run.requests() / PARTS);
        until(&format!("{goal} answers"), || Ok(self.run.answers() >= goal || self.run.is_over()))
    }

    /// Waits until the reader has begun to read all totals, and each was whole.
    fn reads(&self) -> Result<()> {
        // One round may have begun before.
        let goal = self.run.whole_rounds() + 2;
        until("whole totals", || Ok(self.run.whole_rounds() >= goal || self.run.is_over()))
    }

    fn restart_redis(&mut self) -> Result<()> {
        self.redis.kill()?;
        self.redis.restart()
    }

    /// Kills and stops the parts, with requests between. Views are counted while the store is away, and totals come from the cache.
    fn disturb(&mut self) -> Result<()> {
        let between = self.run.requests() / PARTS;
        self.progress(between)?;
        self.services[1].signal("KILL")?;
        let other = self.service()?;
        self.run.set_address(1, other.address()?);
        ensure!(std::mem::replace(&mut self.services[1], other).wait()?.0.is_none(), "killed");
        self.progress(between)?;
        // Each item is in the cache.
        self.reads()?;
        self.store.signal("STOP")?;
        self.progress(OUTAGE_REQUESTS)?;
        self.reads()?;
        self.store.signal("CONT")?;
        self.progress(between)?;
        self.restart_redis()?;
        self.progress(between)?;
        // Redis has started again: a total is partial until it was compared with the store.
        self.reads()?;
        let address = self.store.address()?;
        self.store.signal("KILL")?;
        self.progress(OUTAGE_REQUESTS)?;
        self.reads()?;
        self.store = store_at(&self.scratch, &address)?;
        self.progress(between)?;
        self.store.signal("STOP")?;
        self.restart_redis()?;
        self.store.signal("CONT")?;
        self.progress(between)?;
        self.services[0].signal("STOP")?;
        self.progress(OUTAGE_REQUESTS)?;
        pause(FREEZE);
        self.services[0].signal("CONT")?;
        ensure!(!self.run.is_over(), "the requests had ended before the last disturbance");
        self.run.release(self.run.requests());
        Ok(())
    }

    /// Checks what is in the cache, and what is saved: all of it, once.
    fn check(mut self) -> Result<()> {
        let views: u64 = self.run.expected().iter().sum();
        let place = ["--redis", &self.redis.url(), "--store", &format!("mongodb://{}", self.store.address()?)];
        let verify = |place: &[&str]| -> Result<Value> {
            Ok(serde_json::from_str(&stdout(&run_with(&self.scratch, &["verify", "--json"], place)?)?)?)
        };
        let ids: Vec<String> = (0..ITEMS).map(|item| item.to_string()).collect();
        let line = format!("GET /v1/ads?ids={}", ids.join(","));
        let expected: Vec<Value> = self
            .run
            .expected()
            .iter()
            .zip(&ids)
            .map(|(total, id)| json!({ "id": id, "total": total, "partial": false }))
            .collect();
        until("everything to be saved", || {
            let saved = verify(&place[2..])?["views"].as_u64().context("views")?;
            ensure!(saved <= views, "{saved} of {views} views were saved");
            Ok(saved == views)
        })?;
        // Redis has started again: they may have been partial until now.
        for service in &self.services {
            assert_eq!(ask(service, &line, "")?["totals"], json!(expected));
        }
        for service in &mut self.services {
            service.stop("TERM")?;
        }
        // Totals are the sums of their days.
        let whole = json!({ "items": ITEMS, "views": views, "waiting": 0, "differences": [], "damaged": [] });
        assert_eq!(verify(&place)?, whole);
        Ok(())
    }
}

#[test]
fn ext_redis_a_long_run_of_real_processes_counts_each_view_once() -> Result<()> {
    let views = std::env::var("HANDFAST_VIEWS").ok().and_then(|views| views.parse().ok()).unwrap_or(1_000_000);
    let Some(mut site) = Site::start(Run::new(SERVICES, views / VIEWS_MEAN))? else { return Ok(()) };
    let run = Arc::clone(&site.run);
    let clients = run.start();
    let disturbed = site.disturb();
    clients.finish(disturbed)?;
    site.check()
}
