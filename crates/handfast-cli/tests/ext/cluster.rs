//! Transactions whose documents are on another server: the engine Percolator through the program, histories judged.
//!
//! The other server is one of our own, which is atomic one document at a time like any, and one that nobody here wrote.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_mongodb::{ConnectOptions, connect};
use handfast_store::{DocumentStore, Namespace, Sources, StoreExt};
use handfast_txn::{Database, Percolator, PercolatorOptions};
use serde_json::Value;

use crate::independent::IndependentServer;
use crate::own_databases::{OwnDatabases, in_own_databases};
use crate::running::output;
use crate::support::{Handfast, Tool};
use crate::workloads;

/// `handfast bank` on a server, with these flags; its report.
fn run_bank(store: &str, name: &str, flags: &[&str]) -> Value {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bank-{name}"));
    let _absent = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a directory");
    let mut bank = Command::new(env!("CARGO_BIN_EXE_handfast"));
    bank.args(["bank", "--json", "--accounts", "10", "--workers", "4", "--history", "run.jsonl"]).args(flags);
    let output = output(bank.env("HANDFAST_STORE", store).current_dir(&directory));
    assert_eq!(output.status.code(), Some(0), "{name}: the history is in {}\n{output:?}", directory.display());
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    println!("{name}: {report}");
    assert_eq!((&report["money_in"], &report["history_clean"]), (&report["money_out"], &true.into()));
    std::fs::remove_dir_all(&directory).expect("a directory to remove");
    report
}

/// Runs the bank with transactions of the library.
fn bank(store: &str, name: &str, flags: &[&str]) -> Value {
    let report = run_bank(store, name, flags);
    assert_eq!(report["locks_left"], 0, "{report}");
    // Each transfer was named, so its outcome is kept for its time; nothing is kept of those that met a conflict. One that
    // was asked for is answered by a record, and what was under way at a kill may have committed untold.
    let count = |name: &str| report[name].as_u64().expect("a count in the report");
    let doubtful = count("asked_rolled_back") + count("unknown") + count("under_way_at_kills");
    let due = count("transfers")..=count("transfers") + doubtful;
    assert!(due.contains(&count("records_left")), "{name}: {due:?} outcomes were due\n{report}");
    report
}

#[test]
fn ext_bank_over_handfast() {
    let server = Handfast::start();
    let report = bank(&server.uri(), "handfast", &["--transfers", "300"]);
    assert!(report["old_version_reads"].as_u64() > Some(0), "{report}");
    let report = bank(&server.uri(), "handfast-lost", &["--transfers", "200", "--lost-replies", "5"]);
    assert!(report["answers_lost"].as_u64() > Some(20), "{report}");
    assert_eq!(report["unknown"], 0, "{report}");
    let flags = ["--transfers", "200", "--crash", "2", "--processes", "2", "--isolation", "serializable"];
    let report = bank(&server.uri(), "handfast-crash", &flags);
    assert_eq!(report["kills"], 2, "{report}");
    server.stop();
}

/// The bank by the transactions that a server has itself; one of these has its documents on another server.
#[test]
fn ext_bank_server_side() {
    let server = Handfast::start();
    let before = Handfast::before(&server.uri(), &[]);
    for (name, uri) in [("server-side", server.uri()), ("server-side-before", before.uri())] {
        let flags = ["--mechanism", "server-side", "--transfers", "100", "--lost-replies", "20", "--crash", "1"];
        let report = run_bank(&uri, name, &flags);
        assert_eq!((&report["kills"], &report["locks_left"], &report["unknown"]), (&1.into(), &0.into(), &0.into()));
        assert!(report["found_committed"].as_u64() > Some(5), "{report}");
    }
    before.stop();
    server.stop();
}

#[test]
fn ext_bank_over_ferretdb() {
    let Some(server) = IndependentServer::ferretdb() else { return };
    let report = bank(&server.uri(), "ferretdb", &["--transfers", "120", "--sole-writer"]);
    assert!(report["old_version_reads"].as_u64() > Some(0), "{report}");
    let flags =
        ["--transfers", "40", "--lost-replies", "5", "--sole-writer", "--crash", "1", "--isolation", "serializable"];
    let report = bank(&server.uri(), "ferretdb-lost", &flags);
    assert!(report["answers_lost"].as_u64() > Some(0), "{report}");
    assert_eq!(report["kills"], 1, "{report}");
}

/// FerretDB has no sparse indexes, so the engine's own are plain ones there; users are not shown them.
#[test]
fn ext_own_indexes_over_ferretdb() {
    let Some(server) = IndependentServer::ferretdb() else { return };
    in_own_databases(&server.uri(), async |OwnDatabases { store: own, sources, .. }: OwnDatabases| {
        let pages = Namespace::new("d", "pages").expect("a name");
        let store = Arc::new(own.clone());
        let database = Database::percolator(store, sources.clone(), PercolatorOptions::default()).expect("a database");
        for id in 0..20 {
            database.insert_one(&pages, rawdoc! { "_id": id, "n": id }).await.expect("inserted");
        }
        let shown = database.list_indexes(&pages).await.expect("listed");
        database.flush().await.expect("flushed");
        let stored = own.list_indexes(&pages).await.expect("listed");
        let named = |name: &str| stored.iter().find(|info| info.spec.name == name);
        assert_eq!(shown.iter().map(|info| &*info.spec.name).collect::<Vec<_>>(), ["_id_"]);
        for name in ["_hf.lock.s_1", "_hf.c_1", "_hf.d_1"] {
            assert_eq!(named(name).map(|info| info.spec.sparse), Some(false), "{name} in {stored:?}");
        }
        // What is found by them is found: what is newer than a snapshot, and what may be forgotten.
        let reader = database.begin().await.expect("begun");
        assert_eq!(reader.count_matching(&pages, rawdoc! {}).await.expect("counted"), 20);
        for id in 0..20 {
            let change = rawdoc! { "$inc": { "n": 100 } };
            database.update_one(&pages, rawdoc! { "_id": id }, change).await.expect("updated");
        }
        let old = rawdoc! { "n": { "$lt": 100 } };
        assert_eq!(reader.count_matching(&pages, old.clone()).await.expect("counted"), 20);
        assert_eq!(database.count_matching(&pages, old).await.expect("counted"), 0);
        drop(reader);
        database.flush().await.expect("flushed");
        let kept = Duration::from_millis(500);
        let options = PercolatorOptions { retention: kept, cleaning_interval: None, ..PercolatorOptions::default() };
        let operator = Percolator::new(Arc::new(own), sources, options).expect("an operator");
        // The first pass notes a timestamp, of which the second one knows that it is old enough.
        assert_eq!(operator.clean().await.expect("cleaned").collected, 0);
        tokio::time::sleep(kept * 2).await;
        assert_eq!(operator.clean().await.expect("cleaned").collected, 20);
    });
}

/// A server without atomic updates is refused unless --sole-writer is given.
#[test]
fn ext_ferretdb_asks_for_a_sole_writer() {
    let Some(server) = IndependentServer::ferretdb() else { return };
    let mut serve = Command::new(env!("CARGO_BIN_EXE_handfast"));
    let output = output(serve.args(["serve", "--listen", "127.0.0.1:0", "--store", &server.uri()]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no atomic updates"), "{said}");
    assert!(said.contains("--sole-writer"), "{said}");
}

/// The transactions of a driver, over a store that has none.
#[test]
fn ext_transactions_of_the_rust_driver_over_ferretdb() {
    let Some(program) = Tool::RustDriver.find() else { return };
    let Some(ferretdb) = IndependentServer::ferretdb() else { return };
    let server = Handfast::before(&ferretdb.uri(), &["--sole-writer"]);
    assert!(
        server.log().contains(&format!("store mongodb://127.0.0.1:{} (FerretDB 1", ferretdb.port())),
        "{}",
        server.log()
    );
    // FerretDB reads whole collections, so twice as many take it four times as long.
    transact(&server, &program, &[("bank", 100), ("list-append", 30)], "FerretDB");
    server.stop();
    no_lock_is_left(&ferretdb.uri(), true);
}

#[test]
fn ext_transactions_of_the_rust_driver_over_handfast() {
    let Some(program) = Tool::RustDriver.find() else { return };
    let behind = Handfast::start();
    let server = Handfast::before(&behind.uri(), &[]);
    transact(&server, &program, &[("bank", 500), ("list-append", 500)], "handfast");
    server.stop();
    no_lock_is_left(&behind.uri(), false);
    behind.stop();
}

fn transact(server: &Handfast, program: &str, workloads: &[(&str, u64)], behind: &str) {
    for (kind, committed) in workloads {
        let verdict = workloads::run_some(server, program, &["workload", kind], *committed, None);
        verdict.must_be_sound(&format!("{kind} through the Rust driver over {behind}"));
    }
}

/// After a stop nothing of a transaction is left in any document.
fn no_lock_is_left(uri: &str, sole_writer: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = ConnectOptions { sole_writer, ..ConnectOptions::default() };
        let sources = Sources::system().expect("randomness");
        let store: Arc<dyn DocumentStore> = connect(uri, sources, options).await.expect("a connection").store;
        let mut looked_at = 0;
        for database in store.list_databases().await.expect("databases") {
            for collection in store.list_collections(&database).await.expect("collections") {
                let namespace = Namespace::new(database.as_str(), collection.name).expect("a name");
                let locked = rawdoc! { "_hf.lock": { "$exists": true } };
                assert_eq!(store.count_matching(&namespace, locked).await.expect("a count"), 0, "{namespace}");
                looked_at += 1;
            }
        }
        assert!(looked_at > 0, "no collection was looked at");
    });
}
