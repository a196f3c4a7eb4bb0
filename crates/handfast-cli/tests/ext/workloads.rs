//! Transactions at the same time through drivers: what their clients saw is judged by `handfast check history`.
//!
//! `HANDFAST_SIM_SEED=n` repeats the plans of a seed; who comes first, the machine decides. A history that is not as it
//! should be stays in a file. Clients that lie show that the judges would notice.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Handfast, Tool};

/// Of so many committed transactions one is to have failed, and one read to be of an old version, at least: or nothing
/// was in anybody's way.
const CONFLICTING_ONE_IN: u64 = 50;

/// The workloads of `handfast-sim` through the Rust driver.
#[test]
fn ext_workloads_of_the_rust_driver() {
    let Some(program) = Tool::RustDriver.find() else { return };
    let server = Handfast::start();
    for kind in ["list-append", "register", "bank", "write-skew", "long-scan"] {
        let judged = run(&server, &program, &["workload", kind], None);
        judged.must_be_sound(&format!("{kind} through the Rust driver"));
    }
    server.stop();
}

/// Lists that are appended to, through pymongo.
#[test]
fn ext_workload_of_pymongo() {
    let Some(python) = Tool::Python.find() else { return };
    let server = Handfast::start();
    let judged = run(&server, &python, &["tests/clients/workload/list_append.py"], None);
    judged.must_be_sound("list-append through pymongo");
    server.stop();
}

/// Clients that do not do what they say: each is caught, by name.
#[test]
fn ext_workloads_of_liars() {
    let (Some(program), Some(python)) = (Tool::RustDriver.find(), Tool::Python.find()) else { return };
    let server = Handfast::start();
    let caught = [
        (&program, ["workload", "list-append"].as_slice(), "lost-append", "lost-append"),
        (&program, &["workload", "list-append"], "no-transaction", "G1a"),
        (&program, &["workload", "bank"], "no-transaction", "wrong-total"),
        (&python, &["tests/clients/workload/list_append.py"], "lost-append", "lost-append"),
    ];
    for (program, what, lie, name) in caught {
        let judged = run(&server, program, what, Some(lie));
        let kinds = judged.kinds();
        assert!(kinds.iter().any(|kind| kind == name), "{what:?} {lie}: no {name} among {kinds:?}");
        judged.forget();
    }
    server.stop();
}

/// A history, judged.
struct Judged {
    path: PathBuf,
    exit: Option<i32>,
    report: Value,
}

/// Runs a client until so many transactions have committed, and has judged what it saw.
fn run(server: &Handfast, program: &str, what: &[&str], lie: Option<&str>) -> Judged {
    const COMMITTED: &str = "500";
    let seed = std::env::var("HANDFAST_SIM_SEED").unwrap_or_else(|_| "1".to_owned());
    let name = format!("ext-{}-{}-{seed}.jsonl", what.join("-").replace('/', "-"), lie.unwrap_or("sound"));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let file = path.to_string_lossy();
    let arguments: Vec<&str> = what.iter().copied().chain([seed.as_str(), COMMITTED, &file]).chain(lie).collect();
    server.run(program, &arguments);
    let judged = Command::new(env!("CARGO_BIN_EXE_handfast"))
        .args(["check", "history", "--json"])
        .arg(&path)
        .output()
        .expect("the judges run");
    let report = serde_json::from_slice(&judged.stdout).unwrap_or_else(|error| panic!("{error}: {judged:?}"));
    Judged { path, exit: judged.status.code(), report }
}

impl Judged {
    fn count(&self, field: &str) -> u64 {
        self.report[field].as_u64().expect("a count in the report")
    }

    fn kinds(&self) -> Vec<String> {
        let anomalies = self.report["anomalies"].as_array().expect("a list of anomalies");
        anomalies.iter().filter_map(|anomaly| anomaly["kind"].as_str().map(str::to_owned)).collect()
    }

    /// Nothing is wrong, and enough has happened.
    fn must_be_sound(self, what: &str) {
        let (committed, failed) = (self.count("committed"), self.count("failed"));
        let (reads, old) = (self.count("reads"), self.count("old_version_reads"));
        println!("{what}: {committed} committed, {failed} failed, {reads} reads, {old} of them of old versions");
        let path = self.path.display();
        assert_eq!(self.exit, Some(0), "{what}: the history is in {path}\n{:#}", self.report);
        assert!(committed >= 500, "{what}: {committed} committed; the history is in {path}");
        assert!(failed >= committed / CONFLICTING_ONE_IN, "{what}: {failed} failed; the history is in {path}");
        assert!(old >= committed / CONFLICTING_ONE_IN, "{what}: {old} old versions read; the history is in {path}");
        self.forget();
    }

    fn forget(self) {
        std::fs::remove_file(self.path).expect("a history to remove");
    }
}
