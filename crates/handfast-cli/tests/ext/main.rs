//! The real program against clients and servers that nobody here wrote.
//!
//! Each test starts `handfast serve` on a free loopback port with a directory of its own, runs a program of `tests/` or
//! `examples/` with `MONGODB_URI` naming it, and passes when the program exits with 0. A program that is not installed
//! (`scripts/install-test-tools` puts them into `target/test-tools`) is skipped aloud, and is a failure where `CI=true`.
//! Afterwards the server is stopped with SIGTERM and must have gone cleanly, and `handfast check` must find nothing.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests are tests too: they fail and report aloud"
)]

mod blackpipe;
mod change_streams;
mod cluster;
mod guides;
mod histories;
mod independent;
mod ledgers;
mod leftovers;
mod named;
mod nan_ids;
mod own_databases;
mod packaging;
mod patterns;
mod running;
mod scripted;
#[path = "../shared/server_process.rs"]
mod server_process;
mod stores;
mod support;
mod syncs;
mod workers;
mod workloads;

use support::{BOSS_PASSWORD, Certificate, Handfast, Tool, examples, run, run_with_own_servers};

/// pymongo through its own methods: results, bulk errors, cursors, sessions, compression, large documents.
#[test]
fn ext_pymongo() {
    let Some(python) = Tool::Python.find() else { return };
    run(&python, &["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/clients/python"]);
}

/// pymongo's own suite: no file of it may pass fewer tests than its table says. A standalone server is asked for less: no
/// change streams, no cluster times.
#[test]
fn ext_pymongo_suite_standalone() {
    run_pymongo_suite("standalone", Handfast::standalone);
}

/// Runs the same files against the default topology of the server.
#[test]
fn ext_pymongo_suite_replica_set() {
    run_pymongo_suite("replica-set", Handfast::for_tests);
}

/// Transactions, sessions, retryable writes and reads; afterwards nothing of them may be left.
#[test]
fn ext_pymongo_suite_transactions() {
    run_pymongo_suite("transactions", Handfast::for_tests);
}

/// Runs the same files against a server that reports to be a router: drivers pin transactions to it and send it recovery tokens.
#[test]
fn ext_pymongo_suite_mongos() {
    run_pymongo_suite("mongos", Handfast::router_for_tests);
}

/// Logins by SCRAM, and sessions that belong to users. The password of the one who asks has a character that SASLprep takes out.
#[test]
fn ext_pymongo_suite_auth() {
    run_pymongo_suite("auth", || Handfast::guarded(&["--test-commands".to_owned()]));
}

/// Documents, sessions and transactions once more, over a store that is another server: the engine for single documents under
/// the commands of a driver.
#[test]
fn ext_pymongo_suite_store() {
    let Some(python) = Tool::Python.find() else { return };
    let Some(_) = Tool::PymongoSuite.find() else { return };
    let behind = Handfast::start();
    let server = Handfast::before(&behind.uri(), &["--test-commands"]);
    server.run(&python, &["tests/pymongo-suite/run.py", "store"]);
    server.run(&python, &["tests/pymongo-suite/leftovers.py", "store"]);
    server.stop();
    behind.stop();
}

fn run_pymongo_suite(group: &str, start: fn() -> Handfast) {
    let Some(python) = Tool::Python.find() else { return };
    let Some(_) = Tool::PymongoSuite.find() else { return };
    let server = start();
    server.run(&python, &["tests/pymongo-suite/run.py", group]);
    server.run(&python, &["tests/pymongo-suite/leftovers.py", group]);
    server.stop();
}

/// The server is killed between two attempts of a retryable write and of a commit.
#[test]
fn ext_retries_after_a_kill() {
    let Some(python) = Tool::Python.find() else { return };
    run_with_own_servers(&python, &["tests/crash/retries.py", "--handfast", env!("CARGO_BIN_EXE_handfast")]);
}

/// The Node driver through its own methods.
#[test]
fn ext_node() {
    let Some(node) = Tool::Node.find() else { return };
    run(&node, &["--test", "tests/clients/node/"]);
}

/// Random filters, pipelines and updates: the server and an independent evaluator must agree.
#[test]
fn ext_mingo() {
    let Some(node) = Tool::Node.find() else { return };
    run(&node, &["tests/clients/node/mingo.mjs"]);
}

/// The Rust driver likewise.
#[test]
fn ext_rust_driver() {
    let Some(program) = Tool::RustDriver.find() else { return };
    run(&program, &[]);
}

/// The commands of job queues through the Go driver; those of the other drivers are among their own tests. Those of ledgers are in ledgers.rs.
#[test]
fn ext_go_jobs() {
    let Some(program) = Tool::GoClients.find() else { return };
    run(&program, &["jobs"]);
}

/// MongoDB's Database Tools: dumps and archives are restored as they were, exports are imported, and the statistics are shown.
#[test]
fn ext_database_tools() {
    let (Some(python), Some(tools)) = (Tool::Python.find(), Tool::DatabaseTools.find()) else { return };
    run(&python, &["tests/clients/database-tools/database_tools.py", &tools]);
}

/// mongosh: what its start asks, its helpers, its printing of results and errors.
#[test]
fn ext_mongosh() {
    let Some(node) = Tool::Node.find() else { return };
    let Some(mongosh) = Tool::Mongosh.find() else { return };
    for script in examples("tests/clients/mongosh", "js") {
        let server = Handfast::start();
        server.run(&node, &[&mongosh, "--quiet", "--norc", &server.uri(), "--file", &script]);
        server.stop();
    }
}

/// Logins and roles: every client with the right password, a wrong one, an unknown name, and none; over TCP as it is.
#[test]
fn ext_login() {
    log_in(Handfast::guarded(&[]));
}

/// Runs the clients over TLS, with a certificate made for the test.
#[test]
fn ext_login_over_tls() {
    let certificate = Certificate::make();
    log_in(Handfast::guarded(&certificate.flags()).with_ca(certificate.path()));
}

fn log_in(server: Handfast) {
    let (Some(node), Some(mongosh), Some(python)) = (Tool::Node.find(), Tool::Mongosh.find(), Tool::Python.find())
    else {
        return;
    };
    server.run(&python, &["tests/clients/login/login.py"]);
    server.run(&node, &["tests/clients/node/login.mjs"]);
    let mut arguments = vec![mongosh, "--quiet".to_owned(), "--norc".to_owned(), server.uri()];
    arguments.extend(["--username", "boss", "--password", BOSS_PASSWORD].map(str::to_owned));
    if let Some(ca) = server.ca() {
        arguments.extend(["--tls", "--tlsCAFile", ca].map(str::to_owned));
    }
    arguments.extend(["--file", "tests/clients/login/login.js"].map(str::to_owned));
    server.run(&node, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    if let Some(program) = Tool::RustDriver.find() {
        server.run(&program, &["login"]);
    }
    server.stop();
}

/// The statements of the documents that Handfast is made from, each file with what the document says comes back.
#[test]
fn ext_examples() {
    let (Some(node), Some(mongosh), Some(python)) = (Tool::Node.find(), Tool::Mongosh.find(), Tool::Python.find())
    else {
        return;
    };
    let server = Handfast::start();
    for script in examples("examples", "js") {
        server.run(&node, &[&mongosh, "--quiet", "--norc", &server.uri(), "--file", &script]);
    }
    for script in examples("examples", "py") {
        server.run(&python, &[&script]);
    }
    server.stop();
}

/// The pages of the view counters in a browser: what they show, that they ask nobody else, in the dark and in the light, on a telephone.
#[test]
fn ext_counters_pages() {
    let (Some(node), Some(chromium)) = (Tool::Node.find(), Tool::Chromium.find()) else { return };
    let Some(_) = Tool::WebPackages.find() else { return };
    let handfast = env!("CARGO_BIN_EXE_handfast");
    run_with_own_servers(&node, &["tests/clients/web/pages.mjs", "--handfast", handfast, "--chromium", &chromium]);
}

/// The dashboard in a browser: live numbers, a job that is retried by keyboard, a document that is edited, roles, no JavaScript, in the dark and in the light, on a telephone.
#[test]
fn ext_dashboard() {
    let (Some(node), Some(chromium)) = (Tool::Node.find(), Tool::Chromium.find()) else { return };
    let Some(_) = Tool::WebPackages.find() else { return };
    let handfast = env!("CARGO_BIN_EXE_handfast");
    run_with_own_servers(&node, &["tests/clients/web/dashboard.mjs", "--handfast", handfast, "--chromium", &chromium]);
}

/// The middleware that counts views, for Express and FastAPI: each page is counted, and none waits.
#[test]
fn ext_counters_examples() {
    let (Some(node), Some(python)) = (Tool::Node.find(), Tool::WebPython.find()) else { return };
    let Some(_) = Tool::WebPackages.find() else { return };
    let handfast = env!("CARGO_BIN_EXE_handfast");
    run_with_own_servers(&node, &["tests/clients/web/examples.mjs", "--handfast", handfast, "--python", &python]);
}

/// A client that somebody else's generator makes from the document of the running service: each operation, and what it makes of the answers.
#[test]
fn ext_counters_generated_client() {
    let (Some(node), Some(python)) = (Tool::Node.find(), Tool::WebPython.find()) else { return };
    let handfast = env!("CARGO_BIN_EXE_handfast");
    run_with_own_servers(&node, &["tests/clients/web/generated.mjs", "--handfast", handfast, "--python", &python]);
}

/// A client that somebody else's generator makes from the document of the HTTP API, and requests at random: no answer is missing in the document, and
/// nothing fails.
#[test]
fn ext_http_api_generated_client() {
    let Some(python) = Tool::WebPython.find() else { return };
    run_with_own_servers(&python, &["tests/clients/web/api.py", "--handfast", env!("CARGO_BIN_EXE_handfast")]);
}

/// Requests that the document of the HTTP API allows, and others: each answer is in the document, and none is a failure of the server.
#[test]
fn ext_http_api_schemathesis() {
    let Some(python) = Tool::WebPython.find() else { return };
    run_with_own_servers(&python, &["tests/clients/web/fuzz_api.py", "--handfast", env!("CARGO_BIN_EXE_handfast")]);
}

/// The packages for Python and npm: built, installed into fresh environments, and used with pymongo and Mongoose; nothing is left of a program that is killed.
#[test]
fn ext_packages() {
    let (Some(python), Some(node)) = (Tool::Python.find(), Tool::Node.find()) else { return };
    let Some(_) = Tool::Mongoose.find() else { return };
    let handfast = env!("CARGO_BIN_EXE_handfast");
    run_with_own_servers(&python, &["tests/clients/packages.py", "--handfast", handfast, "--node", &node]);
}

/// Sends the same commands to every server, and compares the answers with those that MongoDB documents.
#[test]
fn ext_differential() {
    let Some(python) = Tool::Python.find() else { return };
    let Some(_) = Tool::FerretDb.find() else { return };
    run_with_own_servers(&python, &["tests/differential/run.py", "--handfast", env!("CARGO_BIN_EXE_handfast")]);
}
