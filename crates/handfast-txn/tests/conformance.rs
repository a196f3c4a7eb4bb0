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

/// What goes beyond documents, and what an index says of them, a transaction refuses with 263: in these cases.
const REFUSED: [&str; 33] = [
    "aggregate_merge_on_a_field_needs_a_unique_index",
    "aggregate_merge_updates_and_inserts",
    "aggregate_merge_when_matched_keeps_existing",
    "aggregate_merge_when_matched_runs_a_pipeline",
    "aggregate_merge_when_not_matched_discards",
    "aggregate_out_keeps_the_targets_indexes",
    "aggregate_out_replaces_a_collection",
    "aggregate_out_to_its_own_source",
    "collection_change_of_a_missing_one_is_refused",
    "collection_drop_says_whether_there_was_one",
    "collection_drop_takes_its_documents_and_indexes",
    "collection_of_the_same_name_gets_another_uuid",
    "concurrent_drop_beside_writes_leaves_a_sound_store",
    "concurrent_drops_say_yes_once",
    "concurrent_rename_beside_writes_loses_nothing",
    "database_drop_takes_all_its_collections",
    "database_list_has_those_with_collections",
    "find_returns_index_keys",
    "find_shows_record_ids_that_differ",
    "index_change_of_an_unknown_one_is_refused",
    "index_drop_in_a_missing_collection_is_refused",
    "index_drop_of_all_keeps_id",
    "index_drop_of_an_unknown_one_is_refused",
    "index_drop_of_id_is_refused",
    "index_is_dropped_by_name_and_by_key",
    "index_lifetime_is_changed",
    "rename_may_drop_its_target",
    "rename_moves_documents_and_indexes",
    "rename_of_a_missing_collection_is_refused",
    "rename_onto_an_existing_collection_is_refused",
    "rename_to_another_database",
    "rename_to_itself_is_refused",
    "unique_index_is_free_after_it_is_dropped",
];

/// What a transaction refuses is refused with 263, in the cases listed; nothing else may fail.
fn check(report: &Report, passed_min: usize) {
    let listed = |name: &str| OTHERWISE.iter().any(|(listed, _)| *listed == name);
    let refused =
        |name: &str, why: &str| REFUSED.contains(&name) && why.contains("OperationNotSupportedInTransaction(263)");
    let others: Vec<_> = report.failed.iter().filter(|(name, why)| !refused(name, why) && !listed(name)).collect();
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

/// Percolator does otherwise what a transaction does.
fn check_percolator(report: &Report, passed_min: usize) {
    let explained = |name: &str| OTHERWISE.iter().any(|(listed, _)| *listed == name);
    let others: Vec<_> = report.failed.iter().filter(|(name, _)| !explained(name)).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert!(report.passed.len() >= passed_min, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_over_percolator_conforms() {
    let make = async || Subject::new(Arc::new(percolator())).with_tickets().with_snapshot_cursors();
    let report = conformance::run(make).await;
    check_percolator(&report, 297);
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
