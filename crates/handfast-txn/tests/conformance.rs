//! A database and an open transaction are stores: the contract's suite, over the in-memory and the embedded store.

#![allow(clippy::expect_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::conformance::{self, Report, Subject};
use handfast_store::{AtomicStore, MemoryStore, Sources};
use handfast_txn::{Database, PercolatorOptions, TransactionOptions};

async fn transaction_over(store: impl AtomicStore, options: TransactionOptions) -> Subject {
    let database = Database::local(store, Sources::seeded(2));
    let transaction = database.begin_with(options).await.expect("a transaction");
    Subject::new(Arc::new(transaction)).keeping(database)
}

/// What a transaction does otherwise than a store, and why.
const OTHERWISE: [(&str, &str); 1] = [(
    "explain_counts_what_it_returned",
    "it explains how the store would do it, without the transaction's own writes",
)];

/// What a transaction refuses is refused with 263; besides what is listed, nothing else may fail.
fn check(report: &Report, passed_min: usize) {
    let listed = |name: &str| OTHERWISE.iter().any(|(listed, _)| *listed == name);
    let refused = |why: &str| why.contains("OperationNotSupportedInTransaction(263)");
    let others: Vec<_> = report.failed.iter().filter(|(name, why)| !refused(why) && !listed(name)).collect();
    assert!(others.is_empty(), "{others:#?}\n{report}");
    assert!(report.passed.len() >= passed_min, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_memory_conforms() {
    let make = async || transaction_over(MemoryStore::new(Sources::seeded(1)), TransactionOptions::default()).await;
    check(&conformance::run(make).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serializable_transaction_over_memory_conforms() {
    let make =
        async || transaction_over(MemoryStore::new(Sources::seeded(1)), TransactionOptions::serializable()).await;
    check(&conformance::run(make).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_the_embedded_store_conforms() {
    let make = async || {
        let directory = tempfile::tempdir().expect("a directory");
        let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::default()).await.expect("open");
        transaction_over(store, TransactionOptions::default()).await.keeping(directory)
    };
    // Each case opens a directory; what does not depend on the store was seen above.
    let report = conformance::run_matching(make, |name| name.starts_with("find_") || name.starts_with("delete_")).await;
    check(&report, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_conforms() {
    let make = async || {
        let database = Database::local(MemoryStore::new(Sources::seeded(1)), Sources::seeded(2));
        Subject::new(Arc::new(database))
    };
    let report = conformance::run(make).await;
    assert!(report.is_clean(), "{report}");
}

/// The engine Percolator. Time goes by: a collection that is renamed leaves locks behind that have to expire.
fn percolator() -> Database {
    let sources = Sources::system().expect("sources");
    let lock_ttl = Duration::from_millis(300);
    let options = PercolatorOptions { lock_ttl, cleaning_interval: None, ..PercolatorOptions::default() };
    let store = Arc::new(MemoryStore::new(sources.clone()));
    Database::percolator(store, sources, options).expect("a database")
}

/// What Percolator refuses, by name: unique indexes, and what a query of versions cannot have.
fn check_percolator(report: &Report, passed_min: usize) {
    let refused =
        |why: &str| why.contains("has no unique indexes yet") || why.contains("whose documents have versions");
    let explained = |name: &str| OTHERWISE.iter().any(|(listed, _)| *listed == name);
    let others: Vec<_> = report.failed.iter().filter(|(name, why)| !refused(why) && !explained(name)).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert!(report.passed.len() >= passed_min, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_over_percolator_conforms() {
    let report = conformance::run(async || Subject::new(Arc::new(percolator()))).await;
    check_percolator(&report, 230);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_percolator_conforms() {
    let make = async || {
        let database = percolator();
        let transaction = database.begin().await.expect("a transaction");
        Subject::new(Arc::new(transaction)).keeping(database)
    };
    let mut report = conformance::run(make).await;
    report.failed.retain(|(_, why)| !why.contains("OperationNotSupportedInTransaction(263)"));
    check_percolator(&report, 200);
}
