//! `handfast blackpipe proxy` with TLS, and `handfast blackpipe play`, with pymongo.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Certificate, Handfast, Tool, new_directory, root};

/// A running command of the black pipe, to which programs connect.
struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    uri: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
        command.args(["blackpipe"]).args(arguments).arg("--json");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let start: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let uri = start["uri"].as_str().expect("a connection string").to_owned();
        Running { child, stdout, uri }
    }

    /// Stops it. Returns its exit code, its last line, and what it said on standard error.
    fn stop(mut self) -> (Option<i32>, Value, String) {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        let (mut said, mut errors) = (String::new(), String::new());
        self.stdout.read_to_string(&mut said).expect("its last lines");
        self.child.stderr.take().expect("its errors").read_to_string(&mut errors).expect("its errors");
        let code = self.child.wait().expect("its exit code").code();
        let last = said.lines().last().and_then(|line| serde_json::from_str(line).ok());
        (code, last.unwrap_or_else(|| panic!("no last line: {said} {errors}")), errors)
    }
}

fn run(python: &str, uri: &str, arguments: &[&str]) -> Output {
    let program = Command::new(python).args(arguments).env("MONGODB_URI", uri).current_dir(root()).output();
    program.expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const PROGRAM: &str = "tests/clients/blackpipe/recorded.py";

/// Records the program in front of a server of its own. Returns what it printed.
fn record(python: &str, file: &Path) -> String {
    let server = Handfast::start();
    let file = file.to_string_lossy();
    let proxy = Running::start(&["proxy", "--upstream", &server.uri(), "--record", &file]);
    let output = run(python, &proxy.uri, &[PROGRAM, "sent"]);
    assert!(output.status.success(), "{output:?}");
    let (code, stopped, errors) = proxy.stop();
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{stopped}");
    server.stop();
    text(&output.stdout)
}

/// A program is recorded, and then answered without a server: it prints the same. A changed program is refused.
#[test]
fn ext_blackpipe_play() {
    let Some(python) = Tool::Python.find() else { return };
    let directory = new_directory();
    let file = directory.join("run.jsonl");
    let printed = record(&python, &file);
    let all = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    assert_eq!(printed.lines().collect::<Vec<_>>(), ["[1, 3, 5, 7, 9]", all, "10 2", "{'_id': 1}"]);
    let recording = file.to_string_lossy();

    let play = Running::start(&["play", &recording, "--ignore", "documents._id"]);
    let output = run(&python, &play.uri, &[PROGRAM, "sent"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), printed);
    let (code, stopped, errors) = play.stop();
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{stopped}");

    let play = Running::start(&["play", &recording, "--ignore", "documents._id"]);
    let output = run(&python, &play.uri, &[PROGRAM, "open"]);
    let refused = r#"filter.status is "open", and "sent" in the recording"#;
    assert!(!output.status.success() && text(&output.stderr).contains(refused), "{output:?}");
    let (code, stopped, errors) = play.stop();
    assert_eq!((code, &stopped["not_recorded"]), (Some(3), &Value::from(1)), "{stopped}");
    assert!(errors.contains(refused) && stopped["missing"][0].to_string().contains("find"), "{stopped} {errors}");

    // Without --ignore the _id that the driver makes is another one.
    let play = Running::start(&["play", &recording]);
    let output = run(&python, &play.uri, &[PROGRAM, "sent"]);
    assert!(text(&output.stderr).contains("documents.0._id is "), "{output:?}");
    assert_eq!(play.stop().0, Some(3));
    let _removed = std::fs::remove_dir_all(directory);
}

/// A program speaks TLS to the proxy, and the proxy to the server. The driver finds the set at the name by which it connected.
#[test]
fn ext_blackpipe_proxy_with_tls() {
    let Some(python) = Tool::Python.find() else { return };
    let certificate = Certificate::make();
    let server = Handfast::encrypted(&certificate);
    let (ca, flags) = (certificate.path(), certificate.flags());
    let upstream = format!("{}?tls=true&tlsCAFile={ca}", server.uri());
    let arguments: Vec<&str> =
        ["proxy", "--upstream", &upstream].into_iter().chain(flags.iter().map(String::as_str)).collect();
    let proxy = Running::start(&arguments);
    assert!(proxy.uri.ends_with("/?tls=true"), "{}", proxy.uri);
    let program = "
import os, sys
from pymongo import MongoClient
client = MongoClient(os.environ['MONGODB_URI'], serverSelectionTimeoutMS=60000)
client.shop.orders.insert_one({'_id': sys.argv[1]})
print(client.shop.orders.find_one({'_id': sys.argv[1]}), [host for host, _ in client.nodes])
";
    for host in ["localhost", "127.0.0.1"] {
        let uri = format!("{}&tlsCAFile={ca}", proxy.uri.replace("127.0.0.1", host));
        let output = run(&python, &uri, &["-c", program, host]);
        assert_eq!(text(&output.stdout), format!("{{'_id': '{host}'}} ['{host}']\n"), "{output:?}");
    }
    let (code, stopped, errors) = proxy.stop();
    assert_eq!((code, &stopped["operations"], errors.as_str()), (Some(0), &Value::from(4), ""));

    // An authority that did not sign the certificate of the server.
    let proxy = Running::start(&["proxy", "--upstream", &format!("{}?tls=true", server.uri())]);
    let (_, _, errors) = proxy.stop();
    assert!(errors.contains("cannot be reached yet") && errors.contains("certificate"), "{errors}");
    server.stop();
}
