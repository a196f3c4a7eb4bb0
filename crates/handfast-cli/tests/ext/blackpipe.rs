//! `handfast blackpipe explore` with pymongo: the programs of docs/blackpipe.md as a reader pastes them, and programs with other mistakes.

mod drivers;
mod mistakes;
mod programs;
mod proxied;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use serde_json::Value;

use crate::running::{execute, output};
use crate::support::{Handfast, START_SECONDS_MAX, STOP_SECONDS_MAX, Tool, new_directory, root, turn, wait_until};

/// The programs of the guide, in a directory of their own.
struct Guide {
    python: String,
    directory: PathBuf,
}

impl Guide {
    /// Writes the programs of the guide into files; each begins with a comment with the name of its file.
    fn find() -> Option<Self> {
        let python = Tool::Python.find()?;
        let directory = new_directory();
        let guide = std::fs::read_to_string(root().join("docs/blackpipe.md")).expect("the guide");
        for block in ["```python\n# ", "```js\n// "].iter().flat_map(|begin| guide.split(begin).skip(1)) {
            let (name, rest) = block.split_once('\n').expect("the name of a program");
            let (program, _) = rest.split_once("```").expect("the end of a program");
            std::fs::write(directory.join(name), program).expect("a file for a program");
        }
        Some(Guide { python, directory })
    }

    /// Explores a program with setup and check of the guide.
    fn explore(&self, program: &Path, flags: &[&str]) -> (Option<i32>, Value) {
        self.explore_checked_by(program, &[&["--check", &self.command("check.py")], flags].concat())
    }

    /// Returns the shell command that runs a program of the guide.
    fn command(&self, name: &str) -> String {
        format!("'{}' '{}'", self.python, self.path(name).display())
    }

    /// Explores a program with the setup of the guide, and with checks that are among the flags.
    fn explore_checked_by(&self, program: &Path, flags: &[&str]) -> (Option<i32>, Value) {
        let mut explore = Command::new(env!("CARGO_BIN_EXE_handfast"));
        explore.args(["blackpipe", "explore", "--json", "--setup", &self.command("setup.py")]).args(flags);
        report(&output(explore.args(["--", &self.python]).arg(program)))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Guide {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

/// A program that does not go on once the test has failed.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Returns the search path of programs, with the one that is tested before all others.
fn path_with_program() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_handfast")).parent().expect("the directory of the program");
    format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default())
}

fn report(output: &Output) -> (Option<i32>, Value) {
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

/// Returns the pairs of a report, each with its result: `update:1/lose-reply finding`.
fn results(report: &Value) -> Vec<String> {
    let pairs = report["pairs"].as_array().expect("the pairs");
    let text = |pair: &Value, field: &str| pair[field].as_str().expect("a text").to_owned();
    let line = |pair| format!("{}/{} {}", text(pair, "operation"), text(pair, "fault"), text(pair, "result"));
    pairs.iter().map(line).collect()
}

/// The increment of the guide is applied twice after a lost reply, also in the replay, and once in the mended program.
#[test]
fn ext_blackpipe_guide() {
    let _turn = turn();
    let Some(guide) = Guide::find() else { return };
    let (code, found) = guide.explore(&guide.path("app.py"), &[]);
    assert_eq!(results(&found), ["update:1/lose-request right", "update:1/lose-reply finding"], "{found:#}");
    assert_eq!((code, &found["findings"]), (Some(3), &Value::from(1)));
    let said = found["pairs"][1]["check_output"].as_str().expect("what the check says");
    assert_eq!(said, "each balance must be 10: {'ann': 20, 'bob': 20}");

    let replay = found["pairs"][1]["replay"].as_str().expect("a command line");
    let replay = replay.replacen("explore", "explore --json", 1);
    let (code, found) = report(&output(Command::new("sh").args(["-c", &replay]).env("PATH", path_with_program())));
    assert_eq!((code, results(&found)), (Some(3), vec!["update:1/lose-reply finding".to_owned()]), "{found:#}");

    let (code, found) = guide.explore(&guide.path("mended.py"), &[]);
    let expected = ["update:1/lose-request right", "update:1/lose-reply right"];
    assert_eq!((code, results(&found)), (Some(0), expected.map(str::to_owned).to_vec()), "{found:#}");
}

/// The data are checked without a program: by the sum of the run without faults, also in a replay, and the report is a test suite.
#[test]
fn ext_blackpipe_checks_of_data() {
    let _turn = turn();
    let Some(guide) = Guide::find() else { return };
    let junit = guide.path("report.xml");
    let flags = ["--sum", "accounts.balance", "--unique", "accounts._id", "--junit", &junit.display().to_string()];
    let (code, found) = guide.explore_checked_by(&guide.path("app.py"), &flags);
    assert_eq!(results(&found), ["update:1/lose-request right", "update:1/lose-reply finding"], "{found:#}");
    let wrong = serde_json::json!(["the sum of accounts.balance is 40, not 20"]);
    assert_eq!((code, &found["pairs"][1]["violations"]), (Some(3), &wrong), "{found:#}");
    let xml = std::fs::read_to_string(junit).expect("the report");
    assert!(xml.contains(r#"tests="2" failures="1""#), "{xml}");
    assert!(
        xml.contains(r#"<failure message="the sum of accounts.balance is 40, not 20">handfast blackpipe"#),
        "{xml}"
    );

    let replay = ["--sum", "accounts.balance", "--replay", "update:1/lose-reply"];
    let (code, found) = guide.explore_checked_by(&guide.path("app.py"), &replay);
    assert_eq!((code, &found["pairs"][0]["violations"]), (Some(3), &wrong), "{found:#}");
    let (code, found) = guide.explore_checked_by(&guide.path("mended.py"), &["--sum", "accounts.balance=20"]);
    assert_eq!((code, results(&found).len()), (Some(0), 2), "{found:#}");
}

/// The driver repeats a write itself, which is applied once; with two lost replies the program repeats it as well.
#[test]
fn ext_blackpipe_driver_retries() {
    let _turn = turn();
    let Some(guide) = Guide::find() else { return };
    let program = root().join("tests/clients/blackpipe/update_one.py");
    let (code, found) = guide.explore(&program, &[]);
    assert_eq!((code, results(&found).len()), (Some(0), 4), "{found:#}");
    let (code, found) = guide.explore(&program, &["--times", "2", "--jobs", "1"]);
    let expected = [
        "update:1/lose-request right",
        "update:1/lose-reply finding",
        "update:2/lose-request right",
        "update:2/lose-reply finding",
    ];
    assert_eq!((code, results(&found)), (Some(3), expected.map(str::to_owned).to_vec()), "{found:#}");
}

/// Every fault ends as the data show: what the driver repeats is applied once, and a duplicate of an increment without a number twice.
#[test]
fn ext_blackpipe_faults() {
    let _turn = turn();
    let Some(guide) = Guide::find() else { return };
    let only = ["--only", "cut,delay,error,duplicate"];
    let (code, found) = guide.explore(&guide.path("app.py"), &only);
    let expected =
        ["update:1/cut finding", "update:1/delay right", "update:1/error right", "update:1/duplicate finding"];
    assert_eq!((code, results(&found)), (Some(3), expected.map(str::to_owned).to_vec()), "{found:#}");
    let (code, found) = guide.explore(&guide.path("mended.py"), &only);
    assert_eq!((code, results(&found).len()), (Some(0), 4), "{found:#}");

    let program = root().join("tests/clients/blackpipe/with_time_out.py");
    let (code, found) = guide.explore(&program, &["--only", "update:2,all"]);
    let right = |fault| format!("update:2/{fault} right");
    let faults = ["lose-request", "lose-reply", "cut", "delay", "error", "duplicate", "half-open", "reorder"];
    assert_eq!((code, results(&found)), (Some(0), faults.map(right).to_vec()), "{found:#}");
    // An error that no driver repeats reaches the program.
    let refused = ["--replay", "update:1/error", "--error-code", "8000", "--error-label", ""];
    let (code, found) = guide.explore(&program, &refused);
    assert_eq!((code, results(&found)), (Some(3), vec!["update:1/error finding".to_owned()]), "{found:#}");
}

/// A driver in front of a member of a replica set stays behind the proxy, and repeats what the rules make fail.
#[test]
fn ext_blackpipe_proxy() {
    let Some(guide) = Guide::find() else { return };
    let server = Handfast::start();
    let (rules, log) = (guide.path("rules.toml"), guide.path("log.jsonl"));
    std::fs::write(&rules, "[[rule]]\nfault = 'error'\ncommand = 'update'\n\ntimes = 1\n").expect("a rules file");
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_handfast"));
    proxy.args(["blackpipe", "proxy", "--json", "--upstream", &server.uri(), "--rules"]).arg(rules);
    let said = guide.path("said.jsonl");
    proxy.arg("--log").arg(&log).stdout(File::create(&said).expect("a file for its output"));
    let mut proxy = KilledOnDrop(proxy.spawn().expect("the program starts"));
    let line = || Some(std::fs::read_to_string(&said).ok()?.split_once('\n')?.0.to_owned());
    assert!(wait_until(START_SECONDS_MAX, || line().is_some()), "the proxy does not say where it listens");
    let start: Value = serde_json::from_str(&line().expect("a line")).expect("JSON");
    let uri = start["uri"].as_str().expect("a connection string");
    for (program, uri) in [("setup.py", server.uri()), ("app.py", uri.to_owned()), ("check.py", server.uri())] {
        execute(Command::new(&guide.python).arg(guide.path(program)).env("MONGODB_URI", &uri));
    }
    let killed = Command::new("kill").args(["-TERM", &proxy.0.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let mut status = None;
    let has_ended = wait_until(STOP_SECONDS_MAX, || {
        status = proxy.0.try_wait().expect("a child to wait for");
        status.is_some()
    });
    assert!(has_ended && status.is_some_and(|status| status.success()), "the proxy does not stop: {status:?}");
    let log = std::fs::read_to_string(log).expect("the log");
    let decisions: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let expected = [("update:1", "error"), ("update:2", "forward")];
    let found: Vec<_> = decisions.iter().map(|line| (line["operation"].as_str(), line["decision"].as_str())).collect();
    assert_eq!(found, expected.map(|(operation, decision)| (Some(operation), Some(decision))), "{log}");
    server.stop();
}

/// The test with a fixture passes with the mended program, and fails with the other one.
#[test]
fn ext_blackpipe_pytest() {
    let Some(guide) = Guide::find() else { return };
    let (server, path) = (Handfast::start(), path_with_program());
    let run = || {
        let mut pytest = Command::new(&guide.python);
        pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_payment.py"]).current_dir(&guide.directory);
        output(pytest.env("PATH", &path).env("MONGODB_URI", server.uri()))
    };
    let passed = run();
    assert!(passed.status.success(), "{passed:?}");
    std::fs::copy(guide.path("app.py"), guide.path("mended.py")).expect("the program with the mistake");
    let failed = run();
    assert!(String::from_utf8_lossy(&failed.stdout).contains("assert [20, 20] == [10, 10]"), "{failed:?}");
    server.stop();
}

/// The test of Node's own runner passes with the function of the guide, and fails if that does not look for its payment.
#[test]
fn ext_blackpipe_node_test() {
    let Some((guide, node)) = Guide::find().zip(Tool::Node.find()) else { return };
    let packages = root().join("tests/clients/node/node_modules").canonicalize().expect("the packages");
    std::os::unix::fs::symlink(packages, guide.path("node_modules")).expect("a link to the packages");
    let (server, path) = (Handfast::start(), path_with_program());
    let run = || {
        let mut test = Command::new(&node);
        test.args(["--test", "payment.test.mjs"]).current_dir(&guide.directory);
        output(test.env("PATH", &path).env("MONGODB_URI", server.uri()))
    };
    let passed = run();
    assert!(passed.status.success(), "{passed:?}");
    let right = std::fs::read_to_string(guide.path("pay.mjs")).expect("the function");
    let wrong = right.replace("{ payments: { $ne: PAYMENT } }", "{}");
    assert_ne!(right, wrong);
    std::fs::write(guide.path("pay.mjs"), wrong).expect("the function with the mistake");
    let failed = run();
    let said = String::from_utf8_lossy(&failed.stdout);
    assert!(!failed.status.success() && said.contains("the balances are 20 and 20"), "{failed:?}");
    server.stop();
}

/// A program that does not end is killed, and is a finding although the data is right.
#[test]
fn ext_blackpipe_hang() {
    let _turn = turn();
    let Some(guide) = Guide::find() else { return };
    let program = root().join("tests/clients/blackpipe/hang.py");
    // Generous for the start of Python on a busy machine: each of the two runs takes all of it.
    let (code, found) = guide.explore(&program, &["--timeout", "30s"]);
    assert_eq!((code, &found["findings"]), (Some(3), &Value::from(2)), "{found:#}");
    let reply_lost = &found["pairs"][1];
    assert_eq!(reply_lost["program"]["timed_out"], true, "{found:#}");
    assert_eq!(reply_lost["check"]["exit_code"], 0, "{found:#}");
}

/// A setup that fails in one run is the failure of that run, and the others are reported. A write without acknowledgement has no reply to lose.
#[test]
fn ext_blackpipe_failed_run() {
    let _turn = turn();
    let Some(guide) = Guide::find() else { return };
    let (runs, junit) = (guide.path("runs"), guide.path("report.xml"));
    let fails_second = format!(
        "echo >> '{0}'; test $(wc -l < '{0}') != 2 || {{ echo no space; exit 5; }}; {1}",
        runs.display(),
        guide.command("setup.py")
    );
    let mut explore = Command::new(env!("CARGO_BIN_EXE_handfast"));
    explore.args(["blackpipe", "explore", "--json", "--jobs", "1", "--setup", &fails_second, "--check"]);
    explore.arg(guide.command("check.py")).arg("--junit").arg(&junit);
    let (code, found) = report(&output(explore.args(["--", &guide.python]).arg(guide.path("app.py"))));
    assert_eq!(results(&found), ["update:1/lose-request failed", "update:1/lose-reply finding"], "{found:#}");
    assert_eq!((code, &found["pairs"][0]["reason"]), (Some(3), &Value::from("--setup fails (exit 5: no space)")));
    let xml = std::fs::read_to_string(junit).expect("the report");
    assert!(xml.contains(r#"tests="2" failures="1" errors="1""#), "{xml}");

    let program = guide.path("unacknowledged.py");
    std::fs::write(&program, UNACKNOWLEDGED).expect("a program");
    let (code, found) =
        guide.explore_checked_by(&program, &["--unique", "accounts._id", "--replay", "insert:1/lose-reply"]);
    let reason = found["pairs"][0]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("the write is unacknowledged (w: 0) and has no reply"), "{found:#}");
    assert_eq!((code, &found["not_reached"]), (Some(3), &Value::from(1)), "{found:#}");
}

const UNACKNOWLEDGED: &str = "
import os
from pymongo import MongoClient
client = MongoClient(os.environ['MONGODB_URI'], w=0)
client.bank.accounts.insert_one({'_id': 'eve'})
client.close()
";

/// An operation that does not occur was not tested.
#[test]
fn ext_blackpipe_not_reached() {
    let _turn = turn();
    let Some(guide) = Guide::find() else { return };
    let (code, found) = guide.explore(&guide.path("app.py"), &["--replay", "update:9/lose-reply"]);
    assert_eq!((code, &found["not_reached"]), (Some(3), &Value::from(1)), "{found:#}");
}
