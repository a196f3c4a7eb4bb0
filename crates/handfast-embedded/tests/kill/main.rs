//! Kills a process while it writes: all acknowledged writes must be there after the next opening.
//!
//! The test starts itself as a child, which opens the store and changes it from several tasks: documents are inserted, updated
//! and deleted, one by one and many at once, while an index and a collection are created and dropped. The child prints each
//! step before it begins and after it is acknowledged. The parent reads the lines, kills the child at a random moment, checks
//! the directory, opens it, and compares: acknowledged steps are there, of an unacknowledged step each document is in the old or
//! the new state, and each index leads to each document once. Both check the contract of the store. `HANDFAST_KILLS` is the
//! number of kills (default 3, 200 in continuous integration).
//!
//! Each task also has a counter, incremented by writes with tickets: after a request the counter must equal the request's
//! number. The parent repeats the last request: the counter must be exact, and the answer must be the first one.
//!
//! A store that acknowledges before it syncs shows that the test can fail: it must lose a write.
//!
//! A kill leaves all bytes that the operating system has, synced or not, and the syncs of four writing tasks also cover a fifth one.
//! `src/testing/power_loss.rs` tests a loss of power after each single request, those on the catalog included.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

mod ledger;
mod load;
mod step;

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use handfast_embedded::{EmbeddedStore, Options, Repair, check};
use handfast_store::decorator::Checked;
use handfast_store::{Random, SeededRandom, Sources};

use crate::ledger::Ledger;
use crate::load::CheckedStore;

const CHILD_DIRECTORY: &str = "HANDFAST_KILL_TEST_DIRECTORY";
const CHILD_RUN: &str = "HANDFAST_KILL_TEST_RUN";
const CHILD_BROKEN: &str = "HANDFAST_KILL_TEST_BROKEN";
/// The number of kills of one directory. A check of all data follows each, which takes longer as the data grows.
const KILLS_OF_A_LIFE: u64 = 10;
/// The maximal number of steps that a child takes before it is killed.
const STEPS_MAX: u64 = 1000;

fn kills() -> u64 {
    std::env::var("HANDFAST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3)
}

fn options() -> Options {
    // Small buffers, so that kills also hit writes of data files.
    Options { memory_sync_interval: std::time::Duration::from_secs(3600), ..Options::small() }
}

/// The child process. As a test of its own it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    let (Ok(directory), Ok(run)) = (std::env::var(CHILD_DIRECTORY), std::env::var(CHILD_RUN)) else {
        return;
    };
    let broken = std::env::var(CHILD_BROKEN).is_ok();
    let options = Options { acknowledge_after_sync: !broken, ..options() };
    let store = EmbeddedStore::open(directory, Sources::system().unwrap(), options).await.unwrap();
    load::run(checked(store), run.parse().unwrap()).await;
}

fn start(directory: &Path, run: u64, broken: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(CHILD_DIRECTORY, directory).env(CHILD_RUN, run.to_string()).stdout(Stdio::piped());
    if broken {
        command.env(CHILD_BROKEN, "1");
    }
    command.spawn().unwrap()
}

/// Runs a child and kills it after a step of one of these tasks. Returns the number of its steps.
async fn run_and_kill(ledger: &mut Ledger, child: Child, kill_after: u64, tasks: RangeInclusive<u64>) -> u64 {
    let mut known = std::mem::take(ledger);
    let watched = tokio::task::spawn_blocking(move || {
        let steps = known.watch(child, kill_after, tasks);
        (known, steps)
    });
    let steps;
    (*ledger, steps) = watched.await.unwrap();
    steps
}

async fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(directory, Sources::seeded(1), options()).await.unwrap()
}

fn checked(store: EmbeddedStore) -> CheckedStore {
    Arc::new(Checked::new(store, Sources::seeded(1)))
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_survives_a_kill() {
    let mut directory = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    let mut steps = 0;
    let random = SeededRandom::new(kills());
    for kill in 0..kills() {
        if kill % KILLS_OF_A_LIFE == 0 {
            directory = tempfile::tempdir().unwrap();
            ledger = Ledger::default();
        }
        let kill_after = random.next_u64() % STEPS_MAX;
        // Every other kill comes just after a collection or an index was created or dropped, which is rarer.
        let tasks = if kill % 2 == 0 { 0..=load::DEFINER } else { load::DEFINER..=load::DEFINER };
        let done = run_and_kill(&mut ledger, start(directory.path(), kill, false), kill_after, tasks).await;
        assert!(done > 0, "kill {kill}: the child did nothing");
        let report = check(directory.path(), Sources::seeded(1), options(), Repair::No, |_| {}).await.unwrap();
        assert!(report.is_clean(), "kill {kill} after {kill_after}: {:?}", report.findings);
        let store = open(directory.path()).await;
        let checked = checked(store.clone());
        let differences = ledger.differences(&checked).await;
        assert!(differences.is_empty(), "kill {kill} after {kill_after}: {differences:#?}");
        ledger.send_again(&checked).await;
        drop(checked);
        store.close().await.unwrap();
        steps += done;
    }
    println!("{} kills, {steps} steps acknowledged, none lost or half done", kills());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_acknowledges_before_the_sync_loses_writes() {
    for run in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::default();
        run_and_kill(&mut ledger, start(directory.path(), run, true), 300, 0..=load::DEFINER).await;
        let store = open(directory.path()).await;
        if !ledger.differences(&checked(store.clone())).await.is_empty() {
            return;
        }
        store.close().await.unwrap();
    }
    panic!("ten kills of a store that does not sync, and nothing was lost: this test cannot fail");
}
