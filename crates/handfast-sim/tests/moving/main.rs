//! Judged histories of `Database` with documents that are deleted, inserted again and exchanged, and queried by fields that others
//! change; on both engines, at both isolations, with and without changes of the catalog in the background.
//!
//! `HANDFAST_SIM_ROUNDS=25` runs as many seeds; `HANDFAST_SIM_SEED=n` begins with that seed.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

mod mutants;
mod single_documents;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use handfast_embedded::{EmbeddedStore, Options};
use handfast_history::Expectation;
use handfast_sim::moving::background::BackgroundChanges;
use handfast_sim::{Isolation, MinimumCounts, MovingClient, Order, RunOptions, Tally, Workload, WorkloadKind, run};
use handfast_store::{Durability, MemoryStore, Namespace, SeededRandom, Sources};
use handfast_txn::{Database, TransactionOptions};
use tempfile::TempDir;

/// The number of transactions of each workload at each isolation that have to commit.
const COMMITTED: u64 = 120;
const KINDS: [WorkloadKind; 5] = [
    WorkloadKind::Repeated,
    WorkloadKind::ListAppend,
    WorkloadKind::Register,
    WorkloadKind::Bank,
    WorkloadKind::WriteSkew,
];
const PROCESSES: u32 = 6;

/// The processes that share a store: those of clients, and the one that changes the catalog.
struct Databases {
    /// The number of transactions that have to commit.
    committed: u64,
    clients: Vec<Database>,
    background: Database,
    /// The directory of the databases, which is deleted when this is dropped.
    _kept: Option<TempDir>,
}

fn over_memory(seed: u64) -> Databases {
    let sources = Sources::seeded(seed);
    let database = Database::local(MemoryStore::new(sources.clone()), sources);
    Databases { committed: COMMITTED, clients: vec![database.clone()], background: database, _kept: None }
}

async fn over_embedded(seed: u64) -> Databases {
    let directory = tempfile::tempdir().unwrap();
    let sources = Sources::seeded(seed);
    let store = EmbeddedStore::open(directory.path(), sources.clone(), Options::small()).await.unwrap();
    let database = Database::local(store, sources);
    Databases { committed: COMMITTED, clients: vec![database.clone()], background: database, _kept: Some(directory) }
}

/// Whether the catalog changes in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Catalog {
    Fixed,
    Changing,
}

async fn check_all(under: &str, catalog: Catalog, open: impl AsyncFn(u64) -> Databases) {
    let mut problems = Vec::new();
    for seed in seeds() {
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let (mut tally, mut committed) = (Tally::default(), 0);
            for kind in KINDS {
                let databases = open(seed).await;
                committed = databases.committed;
                match run_judged(databases, under, catalog, isolation, kind, seed).await {
                    Ok(done) => tally = tally.plus(done),
                    Err(wrong) => {
                        problems.push(format!("{under} {catalog:?} {kind:?} {isolation:?} seed {seed}: {wrong}"));
                    }
                }
            }
            println!("{under} {catalog:?} {isolation:?} seed {seed}: {tally:?}");
            problems.extend(tally.shortfalls(minimum_tally(catalog, committed)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Returns the least counts of all workloads together.
fn minimum_tally(catalog: Catalog, committed: u64) -> Tally {
    let once = committed / 10;
    let changed = match catalog {
        Catalog::Fixed => 0,
        Catalog::Changing => once / 2,
    };
    Tally {
        deletions: once,
        reinsertions: once,
        exchanges: once,
        predicate_reads: 10 * once,
        predicate_writes: once,
        failed_reads: once,
        collections_changed: changed,
        indexes_changed: changed,
    }
}

async fn run_judged(
    databases: Databases,
    under: &str,
    catalog: Catalog,
    isolation: Isolation,
    kind: WorkloadKind,
    seed: u64,
) -> Result<Tally, String> {
    let committed = databases.committed;
    let random = |of: u64| Arc::new(SeededRandom::new(seed.wrapping_mul(1_000_003) ^ of));
    let names: &[&str] = match catalog {
        Catalog::Fixed => &["keys"],
        Catalog::Changing => &["keys", "house", "yard"],
    };
    let collections = names.iter().map(|name| Namespace::new("sim", name).unwrap()).collect();
    let options = TransactionOptions {
        isolation: match isolation {
            Isolation::Snapshot => handfast_txn::Isolation::Snapshot,
            Isolation::Serializable => handfast_txn::Isolation::Serializable,
        },
        durability: Durability::Memory,
        ..TransactionOptions::default()
    };
    let client = MovingClient::new(databases.clients.clone(), collections, options, random(1));
    let stop = Arc::new(AtomicBool::new(false));
    let background = BackgroundChanges::new(client.clone(), databases.background.clone(), random(2 + 16 * kind as u64));
    let background = tokio::spawn(background.run(Arc::clone(&stop)));
    let run_options = RunOptions {
        seed,
        processes: PROCESSES,
        committed,
        expectation: Expectation { isolation, order: Order::RealTime },
        minimum: MinimumCounts {
            committed,
            failed: committed / 50,
            old_version_reads: u64::from(isolation == Isolation::Snapshot),
        },
    };
    let sources = databases.background.sources().clone();
    let outcome = run(Workload::new(kind), Arc::new(client.clone()), sources, run_options).await;
    stop.store(true, Ordering::Relaxed);
    let done = background.await.unwrap().map_err(|failure| format!("background: {failure}"))?;
    let outcome = outcome.map_err(|error| error.to_string())?;
    println!("{under} {catalog:?} {outcome}");
    let problems = outcome.problems();
    if !problems.is_empty() {
        let name = format!("{under}-{catalog:?}-{kind:?}-{isolation:?}-{seed}.jsonl");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        outcome.save(&path).unwrap();
        return Err(format!("{outcome}\n{}\nthe history is in {}", problems.join("\n"), path.display()));
    }
    for database in &databases.clients {
        assert_eq!(database.counts().open(), 0, "{:?}", database.counts());
    }
    Ok(client.tally().plus(done))
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().unwrap());
    let first = number("HANDFAST_SIM_SEED").unwrap_or(1);
    first..first + number("HANDFAST_SIM_ROUNDS").unwrap_or(1)
}

#[tokio::test(start_paused = true)]
async fn histories_over_the_store_in_memory_are_clean() {
    check_all("memory", Catalog::Fixed, async |seed| over_memory(seed)).await;
}

#[tokio::test(start_paused = true)]
async fn histories_over_the_store_in_memory_are_clean_while_the_catalog_changes() {
    check_all("memory", Catalog::Changing, async |seed| over_memory(seed)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_over_the_embedded_store_are_clean() {
    check_all("embedded", Catalog::Fixed, over_embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_over_the_embedded_store_are_clean_while_the_catalog_changes() {
    check_all("embedded", Catalog::Changing, over_embedded).await;
}
