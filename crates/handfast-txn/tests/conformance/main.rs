//! A database and an open transaction are stores: the contract's whole suite, over the store in memory, the embedded one
//! and the engine Percolator.
//!
//! Cases that do not pass are in lists, each by name, with its reason ([`exceptions`]). The lists are exact in both
//! directions: nothing else may fail or be skipped, and a case that begins to pass has to leave its list.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "helpers of tests are tests")]

mod exceptions;

use std::sync::Arc;
use std::time::Duration;

use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::conformance::{self, Subject};
use handfast_store::routed::{Part, Route, Routing};
use handfast_store::{AtomicStore, DocumentStore, MemoryStore, Routed, Sources};
use handfast_txn::{Database, PercolatorOptions, TransactionOptions};

use self::exceptions::{BATCHES, CATALOG, EXPLAIN, RENAMES, TICKETS, check};

fn memory() -> MemoryStore {
    MemoryStore::new(Sources::seeded(1))
}

/// Returns an embedded store, and its directory.
async fn embedded() -> (EmbeddedStore, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::small()).await.expect("open");
    (store, directory)
}

/// Returns a database with the engine Percolator.
fn percolator() -> Database {
    let sources = Sources::system().expect("sources");
    percolator_over(Arc::new(MemoryStore::new(sources.clone())), sources, None)
}

/// Returns a database with the engine Percolator. Its clock runs: a collection that is renamed leaves locks behind that
/// have to expire.
fn percolator_over(store: Arc<dyn DocumentStore>, sources: Sources, routing: Option<Routing>) -> Database {
    let lock_ttl = Duration::from_millis(300);
    let options = PercolatorOptions { lock_ttl, cleaning_interval: None, routing, ..PercolatorOptions::default() };
    Database::percolator(store, sources, options).expect("a database")
}

/// Routes that put the suite's other collections into the second of two stores.
const OTHERS_APART: [&str; 5] =
    ["*=main", "conformance.other=side", "conformance.target=side", "conformance.people=side", "zoo=side"];
/// Routes that put the suite's first collection into the second store: it cannot be renamed into the other store.
const FIRST_APART: [&str; 2] = ["*=main", "conformance.c=side"];

fn routed(routes: &[&str]) -> Database {
    let sources = Sources::system().expect("sources");
    let part = |name: &str| Part::new(name, Arc::new(MemoryStore::new(sources.clone())));
    let routes: Vec<Route> = routes.iter().map(|route| route.parse().expect("a route")).collect();
    let store = Routed::new(vec![part("main"), part("side")], &routes, sources.clone()).expect("a rule");
    let routing = store.routing().clone();
    percolator_over(Arc::new(store), sources, Some(routing))
}

fn local(store: impl AtomicStore) -> Database {
    Database::local(store, Sources::seeded(2))
}

/// Returns a subject of which each operation is a transaction of its own: it applies a ticket once, and reads one
/// snapshot.
fn database(database: Database) -> Subject {
    Subject::new(Arc::new(database)).with_tickets().with_snapshot_cursors()
}

/// Returns a subject of which each case is one transaction, which is never committed.
async fn transaction(database: Database, options: TransactionOptions) -> Subject {
    let transaction = database.begin_with(options).await.expect("a transaction");
    Subject::new(Arc::new(transaction)).with_snapshot_cursors().keeping(database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_over_memory_conforms() {
    let report = conformance::run(async || database(local(memory()))).await;
    check(&report, &[BATCHES]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_over_the_embedded_store_conforms() {
    let make = async || {
        let (store, directory) = embedded().await;
        database(local(store)).keeping(directory)
    };
    check(&conformance::run(make).await, &[BATCHES]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_over_percolator_conforms() {
    let report = conformance::run(async || database(percolator())).await;
    check(&report, &[BATCHES, EXPLAIN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_memory_conforms() {
    let make = async || transaction(local(memory()), TransactionOptions::default()).await;
    check(&conformance::run(make).await, &[BATCHES, TICKETS, CATALOG, EXPLAIN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serializable_transaction_over_memory_conforms() {
    let make = async || transaction(local(memory()), TransactionOptions::serializable()).await;
    check(&conformance::run(make).await, &[BATCHES, TICKETS, CATALOG, EXPLAIN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_the_embedded_store_conforms() {
    let make = async || {
        let (store, directory) = embedded().await;
        transaction(local(store), TransactionOptions::default()).await.keeping(directory)
    };
    check(&conformance::run(make).await, &[BATCHES, TICKETS, CATALOG, EXPLAIN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serializable_transaction_over_the_embedded_store_conforms() {
    let make = async || {
        let (store, directory) = embedded().await;
        transaction(local(store), TransactionOptions::serializable()).await.keeping(directory)
    };
    check(&conformance::run(make).await, &[BATCHES, TICKETS, CATALOG, EXPLAIN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_percolator_conforms() {
    let make = async || transaction(percolator(), TransactionOptions::default()).await;
    check(&conformance::run(make).await, &[BATCHES, TICKETS, CATALOG, EXPLAIN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_over_two_stores_conforms() {
    let report = conformance::run(async || database(routed(&OTHERS_APART))).await;
    check(&report, &[BATCHES, EXPLAIN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_first_collection_is_in_the_second_store_conforms() {
    let report = conformance::run(async || database(routed(&FIRST_APART))).await;
    check(&report, &[BATCHES, EXPLAIN, RENAMES]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_two_stores_conforms() {
    let make = async || transaction(routed(&OTHERS_APART), TransactionOptions::default()).await;
    check(&conformance::run(make).await, &[BATCHES, TICKETS, CATALOG, EXPLAIN]);
}
