//! Drops or renames a collection while transactions commit in it and in another one: no transaction is applied in part.
//!
//! Each transaction inserts a number into both collections. The first one has its primary and is removed twice meanwhile. Acknowledged
//! numbers are in the other collection, refused ones in none. A renamed collection keeps its documents, so each number is in both
//! collections or in none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, rawdoc};
use handfast_store::decorator::{Fault, Plan};
use handfast_store::{DocumentStore, Find, MemoryStore, Namespace, RenameCollection, Sources, StoreExt};
use handfast_txn::{Database, Error, Percolator};

use crate::scenario::options;
use crate::scheduler::{Disturbance, Gate, Scheduler};
use crate::seeds;

/// The number of clients, on two processes in turn.
const CLIENTS: i32 = 3;
/// The number of transactions of each client.
const NUMBERS: i32 = 4;
/// The number of times that the collection is removed.
const REMOVALS: usize = 2;

/// The default number of seeds of each disturbance, which take about ten seconds.
const SCHEDULES: u64 = 40;

/// The result of a commit, as the client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitResult {
    Committed,
    Refused,
    Unknown,
}

fn named(collection: &str) -> Namespace {
    Namespace::new("sim", collection).unwrap()
}

fn moved(time: usize) -> Namespace {
    named(&format!("moved{time}"))
}

async fn put(database: &Database, number: i32) -> CommitResult {
    let put = async {
        let tx = database.begin().await?;
        for namespace in [named("going"), named("kept")] {
            tx.insert_one(&namespace, rawdoc! { "_id": number }).await?;
        }
        tx.commit().await
    };
    match put.await {
        Ok(_) => CommitResult::Committed,
        Err(Error::CommitUnknown { .. }) => CommitResult::Unknown,
        Err(Error::Conflict(_) | Error::Store(_)) => CommitResult::Refused,
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn numbers(database: &Database, namespaces: &[Namespace]) -> BTreeSet<i32> {
    let mut numbers = BTreeSet::new();
    for namespace in namespaces {
        let found = database.find_all(Find::new(namespace.clone(), rawdoc! {})).await.unwrap();
        numbers.extend(found.iter().map(|document| document.get_i32("_id").unwrap()));
    }
    numbers
}

/// Runs the schedule of a seed. Returns the results of the clients, and the problems.
async fn run_schedule(seed: u64, disturbance: Disturbance, is_renamed: bool) -> (Vec<CommitResult>, Vec<String>) {
    let (sources, clock) = Sources::manual(seed);
    clock.set(DateTime::from_millis(0));
    let store: Arc<dyn DocumentStore> = Arc::new(MemoryStore::new(sources.clone()));
    let gates: Vec<_> =
        (0..4).map(|_| Arc::new(Gate::new(Arc::clone(&store), Plan::always(Fault::FreezeBefore)))).collect();
    let open = |gate: &Arc<Gate>| {
        Database::percolator(Arc::clone(gate) as Arc<dyn DocumentStore>, sources.clone(), options()).unwrap()
    };
    let mut running = Vec::new();
    for client in 0..CLIENTS {
        let database = open(&gates[client as usize % 2]);
        running.push(tokio::spawn(async move {
            let mut results = Vec::new();
            for number in client * NUMBERS..(client + 1) * NUMBERS {
                results.push((number, put(&database, number).await));
                pause().await;
            }
            results
        }));
    }
    let database = open(&gates[2]);
    let going = tokio::spawn(async move {
        for time in 0..REMOVALS {
            pause().await;
            // A failed removal was not applied, or is applied later.
            let _ = match is_renamed {
                true => {
                    let request = RenameCollection { from: named("going"), to: moved(time), drop_target: false };
                    database.rename_collection(request).await
                }
                false => database.drop_collection(&named("going")).await.map(drop),
            };
        }
    });
    let engine = Percolator::new(Arc::clone(&gates[3]) as Arc<dyn DocumentStore>, sources.clone(), options()).unwrap();
    let cleaning = tokio::spawn(async move {
        loop {
            let _ = engine.clean().await;
            pause().await;
        }
    });

    let mut scheduler = Scheduler::new(gates, vec![Arc::clone(&clock)], seed, disturbance);
    let is_done = || going.is_finished() && running.iter().all(tokio::task::JoinHandle::is_finished);
    scheduler.run(is_done, async || {}).await;
    cleaning.abort();
    let mut results = Vec::new();
    for client in running {
        results.extend(client.await.unwrap());
    }
    // Late requests arrive; then all locks expire.
    for gate in &scheduler.gates {
        gate.restart();
        gate.deliver_late().await;
    }
    let cleaner = Percolator::new(Arc::clone(&store), sources.clone(), options()).unwrap();
    for _ in 0..2 {
        clock.advance(Duration::from_secs(1_300));
        cleaner.clean().await.unwrap();
    }
    let reader = Database::percolator(store, sources, options()).unwrap();
    let kept = numbers(&reader, &[named("kept")]).await;
    let names: Vec<_> = (0..REMOVALS).map(moved).chain([named("going")]).collect();
    let going = numbers(&reader, &names).await;
    let mut problems = Vec::new();
    for (number, results) in &results {
        let (is_kept, is_there) = (kept.contains(number), going.contains(number));
        let is_right = match results {
            CommitResult::Committed => is_kept && (is_there || !is_renamed),
            CommitResult::Refused => !is_kept && !is_there,
            CommitResult::Unknown if is_renamed => is_kept == is_there,
            CommitResult::Unknown => is_kept || !is_there,
        };
        if !is_right {
            problems.push(format!("{number}: {results:?}, kept {is_kept}, where it goes {is_there}"));
        }
    }
    (results.into_iter().map(|(_, results)| results).collect(), problems)
}

async fn check_collection_removals(disturbance: Disturbance) {
    let (mut committed, mut refused, mut unknown) = (0, 0, 0);
    for seed in seeds(SCHEDULES) {
        let (results, problems) = run_schedule(seed, disturbance, seed % 2 == 0).await;
        assert!(problems.is_empty(), "{disturbance:?} seed {seed}:\n{}", problems.join("\n"));
        let count = |of| results.iter().filter(|results| **results == of).count() as u64;
        committed += count(CommitResult::Committed);
        refused += count(CommitResult::Refused);
        unknown += count(CommitResult::Unknown);
    }
    let schedules = seeds(SCHEDULES).count() as u64;
    println!("{disturbance:?}: {schedules} schedules; {committed} committed, {refused} refused, {unknown} unknown");
    if schedules > 1 {
        assert!(committed > schedules && refused > schedules, "{committed} committed, {refused} refused");
    }
}

#[tokio::test(start_paused = true)]
async fn no_transaction_is_applied_in_part_while_locks_expire() {
    check_collection_removals(Disturbance::ExpiringLocks).await;
}

#[tokio::test(start_paused = true)]
async fn no_transaction_is_applied_in_part_with_lost_late_and_repeated_requests() {
    check_collection_removals(Disturbance::LostRequests).await;
}

#[tokio::test(start_paused = true)]
async fn no_transaction_is_applied_in_part_with_crashes() {
    check_collection_removals(Disturbance::Crashes).await;
}
