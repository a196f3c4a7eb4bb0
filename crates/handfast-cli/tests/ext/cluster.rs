//! Transactions whose documents are on another server: the engine Percolator through the program, histories judged.
//!
//! The other server is one of our own, which is atomic one document at a time like any, and one that nobody here wrote.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use bson::rawdoc;
use handfast_mongodb::{ConnectOptions, connect};
use handfast_store::{DocumentStore, Namespace, Sources, StoreExt};
use serde_json::Value;

use crate::ferretdb::FerretDb;
use crate::support::{Handfast, Tool};
use crate::workloads;

/// `handfast bank` on a server, with these flags; its report.
fn bank(store: &str, name: &str, flags: &[&str]) -> Value {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bank-{name}"));
    let _absent = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_handfast"))
        .args(["bank", "--json", "--accounts", "10", "--workers", "4", "--history", "run.jsonl"])
        .args(flags)
        .env("HANDFAST_STORE", store)
        .current_dir(&directory)
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(0), "{name}: the history is in {}\n{output:?}", directory.display());
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    println!("{name}: {report}");
    assert_eq!((&report["money_in"], &report["history_clean"]), (&report["money_out"], &true.into()));
    assert_eq!((&report["records_left"], &report["locks_left"]), (&0.into(), &0.into()));
    std::fs::remove_dir_all(&directory).expect("a directory to remove");
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
    let flags = ["--transfers", "200", "--crash", "2", "--isolation", "serializable"];
    let report = bank(&server.uri(), "handfast-crash", &flags);
    assert_eq!(report["kills"], 2, "{report}");
    server.stop();
}

#[test]
fn ext_bank_over_ferretdb() {
    let Some(server) = FerretDb::start() else { return };
    let report = bank(&server.uri(), "ferretdb", &["--transfers", "120", "--sole-writer"]);
    assert!(report["old_version_reads"].as_u64() > Some(0), "{report}");
    let flags = ["--transfers", "40", "--lost-replies", "5", "--sole-writer"];
    let report = bank(&server.uri(), "ferretdb-lost", &flags);
    assert!(report["answers_lost"].as_u64() > Some(0), "{report}");
}

/// Without the word that nobody else writes there, nothing begins.
#[test]
fn ext_ferretdb_asks_for_a_sole_writer() {
    let Some(server) = FerretDb::start() else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_handfast"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", &server.uri()])
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no atomic updates"), "{said}");
    assert!(said.contains("--sole-writer"), "{said}");
}

/// The transactions of a driver, over a store that has none.
#[test]
fn ext_transactions_of_the_rust_driver_over_ferretdb() {
    let Some(program) = Tool::RustDriver.find() else { return };
    let Some(ferretdb) = FerretDb::start() else { return };
    let server = Handfast::before(&ferretdb.uri(), &["--sole-writer"]);
    assert!(
        server.log().contains(&format!("store mongodb://127.0.0.1:{} (FerretDB 1", ferretdb.port())),
        "{}",
        server.log()
    );
    transact(&server, &program, &["bank"], "FerretDB");
    server.stop();
    no_lock_is_left(&ferretdb.uri(), true);
}

#[test]
fn ext_transactions_of_the_rust_driver_over_handfast() {
    let Some(program) = Tool::RustDriver.find() else { return };
    let behind = Handfast::start();
    let server = Handfast::before(&behind.uri(), &[]);
    transact(&server, &program, &["bank", "list-append"], "handfast");
    server.stop();
    no_lock_is_left(&behind.uri(), false);
    behind.stop();
}

fn transact(server: &Handfast, program: &str, workloads: &[&str], behind: &str) {
    for kind in workloads {
        let judged = workloads::run(server, program, &["workload", kind], None);
        judged.must_be_sound(&format!("{kind} through the Rust driver over {behind}"));
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
