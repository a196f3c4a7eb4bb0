//! Judged histories of `Database`: every workload at both isolations, over the store in memory, the embedded one and Percolator.
//!
//! Over each store and at each isolation 20,000 transactions commit. `HANDFAST_SIM_ROUNDS=25` runs as many seeds;
//! `HANDFAST_SIM_SEED=n` begins with that seed. Over the store in memory a seed reproduces its history; over the embedded store it
//! does not, because that has a thread of its own.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_embedded::{EmbeddedStore, Options};
use handfast_history::Expectation;
use handfast_sim::{
    Client, DatabaseClient, Isolation, MinimumCounts, Order, RunOptions, RunReport, Workload, WorkloadKind, run,
};
use handfast_store::{
    AtomicStore, Count, DocumentStore, Durability, MemoryStore, Namespace, Sources, StoreExt, Ticket,
};
use handfast_txn::{Database, PercolatorOptions};

/// The number of transactions of each workload that have to commit, for each store and isolation.
const PLAN: [(WorkloadKind, u64); 5] = [
    (WorkloadKind::ListAppend, 5_000),
    (WorkloadKind::Register, 4_000),
    (WorkloadKind::Bank, 4_000),
    (WorkloadKind::WriteSkew, 4_000),
    (WorkloadKind::LongScan, 3_000),
];

const PROCESSES: u32 = 8;

#[tokio::test]
async fn snapshot_histories_over_the_store_in_memory_are_clean() {
    check_memory_store(Isolation::Snapshot).await;
}

#[tokio::test]
async fn serializable_histories_over_the_store_in_memory_are_clean() {
    check_memory_store(Isolation::Serializable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_histories_over_the_embedded_store_are_clean() {
    check_embedded_store(Isolation::Snapshot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serializable_histories_over_the_embedded_store_are_clean() {
    check_embedded_store(Isolation::Serializable).await;
}

#[tokio::test]
async fn snapshot_histories_over_single_documents_are_clean() {
    check_percolator(Isolation::Snapshot).await;
}

#[tokio::test]
async fn serializable_histories_over_single_documents_are_clean() {
    check_percolator(Isolation::Serializable).await;
}

#[tokio::test]
async fn a_seed_determines_the_history() {
    let once = |seed| async move {
        let sources = Sources::seeded(seed);
        let database = database(MemoryStore::new(sources.clone()), &sources);
        run_judged(&database, Isolation::Snapshot, WorkloadKind::ListAppend, 300, seed, Durability::Memory).await
    };
    let (one, same, other) = (once(5).await, once(5).await, once(6).await);
    assert!(one.events == same.events);
    assert!(one.events != other.events);
}

async fn check_memory_store(isolation: Isolation) {
    for seed in seeds() {
        for (kind, committed) in PLAN {
            let sources = Sources::seeded(seed);
            let store = Arc::new(MemoryStore::new(sources.clone()));
            let database = database(Arc::clone(&store), &sources);
            run_judged(&database, isolation, kind, committed, seed, Durability::Memory).await;
            assert_nothing_is_left(store).await;
        }
    }
}

/// Checks the engine Percolator over the store in memory, of which it uses only operations on one document. It runs a tenth of the
/// transactions, as a transaction that meets a lock waits for some milliseconds.
async fn check_percolator(isolation: Isolation) {
    for seed in seeds() {
        for (kind, committed) in PLAN {
            let committed = committed / 10;
            let sources = Sources::seeded(seed);
            let store = Arc::new(MemoryStore::new(sources.clone()));
            let options = PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() };
            let database = Database::percolator(store.clone(), sources, options).unwrap();
            run_judged(&database, isolation, kind, committed, seed, Durability::Memory).await;
            database.flush().await.unwrap();
            let locked =
                Count::new(Namespace::new("sim", "keys").unwrap(), rawdoc! { "_hf.lock": { "$exists": true } });
            assert_eq!(store.count(locked).await.unwrap(), 0);
        }
    }
}

async fn check_embedded_store(isolation: Isolation) {
    for seed in seeds() {
        for (kind, committed) in PLAN {
            let directory = tempfile::tempdir().unwrap();
            let sources = Sources::system().unwrap();
            let store = EmbeddedStore::open(directory.path(), sources.clone(), Options::small()).await.unwrap();
            let database = database(store.clone(), &sources);
            run_judged(&database, isolation, kind, committed, seed, Durability::Memory).await;
            assert_eq!(store.snapshots_in_use(), 0, "{isolation:?} {kind:?}");
            drop(database);
            assert_nothing_is_left(store.clone()).await;
            store.close().await.unwrap();
        }
    }
}

fn database(store: impl AtomicStore, sources: &Sources) -> Database {
    Database::local(store, sources.clone())
}

/// Runs a workload. Fails with all problems, and saves the history to a file.
async fn run_judged(
    database: &Database,
    isolation: Isolation,
    kind: WorkloadKind,
    committed: u64,
    seed: u64,
    durability: Durability,
) -> RunReport {
    let namespace = Namespace::new("sim", "keys").unwrap();
    let client: Arc<dyn Client> = Arc::new(DatabaseClient::new(database.clone(), namespace, isolation, durability));
    let options = RunOptions {
        seed,
        processes: PROCESSES,
        committed,
        expectation: Expectation { isolation, order: Order::RealTime },
        // On a busy machine, fewer reads meet a version that another transaction has replaced.
        minimum: MinimumCounts { committed, failed: committed / 50, old_version_reads: committed / 400 },
    };
    let outcome = run(Workload::new(kind), client, database.sources().clone(), options).await.unwrap();
    println!("{outcome}");
    let problems = outcome.problems();
    if !problems.is_empty() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{kind:?}-{isolation:?}-{seed}.jsonl"));
        outcome.save(&path).unwrap();
        panic!("{outcome}\n{}\nthe history is in {}", problems.join("\n"), path.display());
    }
    // No transaction is open, and the counts are right.
    let counts = database.counts();
    assert_eq!(counts.open(), 0, "{counts:?}");
    assert_eq!(counts.committed, outcome.verdict.report.counts.committed, "{counts:?}");
    outcome
}

/// Checks that there are only as many records of outcomes as transactions were open at once, and that they can be forgotten.
async fn assert_nothing_is_left(store: impl AtomicStore) {
    let database = Database::local(store, Sources::system().unwrap());
    let kept = database.count_matching(&Ticket::namespace().unwrap(), rawdoc! {}).await.unwrap();
    assert!((1..=u64::from(PROCESSES)).contains(&kept), "{kept} records of {PROCESSES} processes");
    // The newest record has to be older than the moment that is given.
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(database.forget_outcomes(Duration::ZERO).await.unwrap(), kept);
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().unwrap());
    let first = number("HANDFAST_SIM_SEED").unwrap_or(1);
    first..first + number("HANDFAST_SIM_ROUNDS").unwrap_or(1)
}
