//! Transactions at the same time through drivers: `handfast check history` judges what their clients saw.
//!
//! `HANDFAST_SIM_SEED=n` repeats the plans of a seed; who comes first, the machine decides. A history that is not as it
//! should be stays in a file. Clients that lie show that the judges would notice.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::running::execute;
use crate::support::{Handfast, Tool, wait_until};

/// The number of committed transactions for which at least one must have failed, and one read must have found an old version:
/// fewer would mean that the transactions did not conflict.
const CONFLICTING_ONE_IN: u64 = 50;
/// Transactions that commit in a workload.
const COMMITTED: u64 = 500;
/// The number of histories that were begun.
static HISTORIES: AtomicU64 = AtomicU64::new(0);

/// The workloads of `handfast-sim` through the Rust driver.
#[test]
fn ext_workloads_of_the_rust_driver() {
    let Some(program) = Tool::RustDriver.find() else { return };
    let server = Handfast::start();
    for kind in ["list-append", "register", "bank", "write-skew", "long-scan"] {
        let verdict = run(&server, &program, &["workload", kind], None);
        verdict.must_be_sound(&format!("{kind} through the Rust driver"));
    }
    server.stop();
}

/// Lists that are appended to, through pymongo.
#[test]
fn ext_workload_of_pymongo() {
    let Some(python) = Tool::Python.find() else { return };
    let server = Handfast::start();
    let verdict = run(&server, &python, &["tests/clients/workload/list_append.py"], None);
    verdict.must_be_sound("list-append through pymongo");
    server.stop();
}

/// Lists that are appended to, through pymongo, while the server is killed and started again.
#[test]
fn ext_workload_with_a_server_that_is_killed() {
    /// Lines that the history grows by until the next kill. A transaction takes two, and five hundred are committed.
    const LINES: usize = 250;
    const KILLS: usize = 3;
    const LINES_SECONDS_MAX: u64 = 120;
    let lines = |history: &[u8]| history.iter().filter(|byte| **byte == b'\n').count();
    let Some(python) = Tool::Python.find() else { return };
    let mut server = Handfast::start();
    let (path, arguments) = plan(&["tests/clients/workload/list_append.py"], COMMITTED, None, "killed");
    let mut client = server.command(&python, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let client = std::thread::spawn(move || execute(&mut client));
    for kill in 1..=KILLS {
        let is_due = || std::fs::read(&path).is_ok_and(|history| lines(&history) >= kill * LINES);
        let waited = wait_until(LINES_SECONDS_MAX, || client.is_finished() || is_due());
        assert!(waited && !client.is_finished(), "the client was done, or stuck, before kill {kill}");
        server.kill_and_restart();
    }
    client.join().expect("the client is content");
    judge(path, COMMITTED).must_be_sound("list-append through pymongo, the server killed three times");
    server.stop();
}

/// Lists that are appended to, through pymongo, while sessions are killed as they commit, and cursors as they are read. The
/// client fails where too few kills hit.
#[test]
fn ext_workload_with_sessions_that_are_killed() {
    let Some(python) = Tool::Python.find() else { return };
    let server = Handfast::for_tests();
    let verdict = run(&server, &python, &["tests/clients/workload/list_append.py"], Some("kills"));
    verdict.must_be_sound("list-append through pymongo, sessions and cursors killed");
    server.stop();
}

/// Clients that do not do what they say: each is caught, by name. Two of them see what they would see of a server that forgets
/// a session that is killed during its commit, and of one that ends a cursor that is killed.
#[test]
fn ext_workloads_of_liars() {
    let (Some(program), Some(python)) = (Tool::RustDriver.find(), Tool::Python.find()) else { return };
    let server = Handfast::for_tests();
    let caught = [
        (&program, ["workload", "list-append"].as_slice(), "lost-append", "lost-append"),
        (&program, &["workload", "list-append"], "no-transaction", "G1a"),
        (&program, &["workload", "bank"], "no-transaction", "wrong-total"),
        (&python, &["tests/clients/workload/list_append.py"], "lost-append", "lost-append"),
        (&python, &["tests/clients/workload/list_append.py"], "forgotten-commit", "G1a"),
        (&python, &["tests/clients/workload/list_append.py"], "short-scan", "G-single"),
    ];
    for (program, what, lie, name) in caught {
        let verdict = run(&server, program, what, Some(lie));
        let kinds = verdict.kinds();
        assert!(kinds.iter().any(|kind| kind == name), "{what:?} {lie}: no {name} among {kinds:?}");
        verdict.forget();
    }
    server.stop();
}

/// A history, and what the judges say about it.
pub(crate) struct Judged {
    path: PathBuf,
    /// Transactions that were to commit.
    wanted: u64,
    exit: Option<i32>,
    report: Value,
}

/// Runs a client until enough transactions have committed, and lets the judges check what it saw.
fn run(server: &Handfast, program: &str, what: &[&str], lie: Option<&str>) -> Judged {
    run_some(server, program, what, COMMITTED, lie)
}

/// Runs a client until `committed` transactions have committed, and checks the history that it recorded.
pub(crate) fn run_some(server: &Handfast, program: &str, what: &[&str], committed: u64, lie: Option<&str>) -> Judged {
    let (path, arguments) = plan(what, committed, lie, lie.unwrap_or("sound"));
    server.run(program, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    judge(path, committed)
}

/// Returns the plan of a client: the file of its history, and its instructions.
fn plan(what: &[&str], committed: u64, lie: Option<&str>, name: &str) -> (PathBuf, Vec<String>) {
    let committed = committed.to_string();
    let seed = std::env::var("HANDFAST_SIM_SEED").unwrap_or_else(|_| "1".to_owned());
    // Two tests may run the same workload at a time.
    let number = HISTORIES.fetch_add(1, Ordering::Relaxed);
    let file = format!("ext-{}-{name}-{seed}-{number}.jsonl", what.join("-").replace('/', "-"));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    // That of an earlier run.
    let _absent = std::fs::remove_file(&path);
    let history = path.to_string_lossy().into_owned();
    let arguments = what.iter().copied().chain([seed.as_str(), &committed, &history]).chain(lie);
    let arguments = arguments.map(str::to_owned).collect();
    (path, arguments)
}

fn judge(path: PathBuf, wanted: u64) -> Judged {
    let verdict = Command::new(env!("CARGO_BIN_EXE_handfast"))
        .args(["check", "history", "--json"])
        .arg(&path)
        .output()
        .expect("the judges run");
    let report = serde_json::from_slice(&verdict.stdout).unwrap_or_else(|error| panic!("{error}: {verdict:?}"));
    Judged { path, wanted, exit: verdict.status.code(), report }
}

impl Judged {
    fn count(&self, field: &str) -> u64 {
        self.report[field].as_u64().expect("a count in the report")
    }

    fn kinds(&self) -> Vec<String> {
        let anomalies = self.report["anomalies"].as_array().expect("a list of anomalies");
        anomalies.iter().filter_map(|anomaly| anomaly["kind"].as_str().map(str::to_owned)).collect()
    }

    /// Checks that the history has no anomaly and enough transactions.
    pub(crate) fn must_be_sound(self, what: &str) {
        let (committed, failed) = (self.count("committed"), self.count("failed"));
        let (reads, old) = (self.count("reads"), self.count("old_version_reads"));
        println!("{what}: {committed} committed, {failed} failed, {reads} reads, {old} of them of old versions");
        let path = self.path.display();
        assert_eq!(self.exit, Some(0), "{what}: the history is in {path}\n{:#}", self.report);
        assert!(committed >= self.wanted, "{what}: {committed} committed; the history is in {path}");
        assert!(failed >= committed / CONFLICTING_ONE_IN, "{what}: {failed} failed; the history is in {path}");
        assert!(old >= committed / CONFLICTING_ONE_IN, "{what}: {old} old versions read; the history is in {path}");
        self.forget();
    }

    fn forget(self) {
        std::fs::remove_file(self.path).expect("a history to remove");
    }
}
