//! Two processes of the engine for single documents over one SecantusDB, whose updates of one document are atomic and which nobody here
//! wrote. Requests and answers get lost; what clients saw is judged.
//!
//! Documents are inserted, changed, exchanged, deleted and inserted again, and asked for by what others change, while collections are made,
//! renamed and dropped (`handfast_sim::moving`). A run in which too little of that happened fails.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use handfast_history::Expectation;
use handfast_mongodb::{ConnectOptions, connect};
use handfast_sim::moving::background::BackgroundChanges;
use handfast_sim::{Isolation, MinimumCounts, MovingClient, Order, RunOptions, Tally, Workload, WorkloadKind, run};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, Durability, Namespace, SeededRandom, Sources};
use handfast_txn::{Database, PercolatorOptions, TransactionOptions};

use crate::independent::IndependentServer;

/// Transactions that commit in a workload. That takes a quarter of a minute on two cores.
const COMMITTED: u64 = 80;
/// Clients, which use both processes by turns.
const CLIENTS: u32 = 4;
/// Faults in a thousand operations.
const FAULTS_PER_THOUSAND: u16 = 4;
/// The lifetime of a lock: short, because each lost request may leave a lock that others wait for.
const LOCK_TTL: Duration = Duration::from_secs(1);
const SEED: u64 = 1;

#[test]
fn ext_histories_over_secantusdb_are_sound() {
    let Some(server) = IndependentServer::secantusdb() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (mut tally, mut old_version_reads) = (Tally::default(), 0);
    for kind in [WorkloadKind::ListAppend, WorkloadKind::Repeated, WorkloadKind::Bank] {
        let (done, old) = runtime.block_on(sound_history(&server.uri(), kind));
        (tally, old_version_reads) = (tally.plus(done), old_version_reads + old);
    }
    println!("{tally:?}, {old_version_reads} reads of old versions");
    assert!(old_version_reads > 0, "nobody read an old version");
    let once = COMMITTED / 10;
    let minimum = Tally {
        deletions: once,
        reinsertions: once,
        exchanges: once,
        predicate_reads: 10 * once,
        predicate_writes: once,
        failed_reads: 1,
        collections_changed: 1,
        ..Tally::default()
    };
    assert_eq!(tally.shortfalls(minimum), Vec::<String>::new());
}

/// Runs a workload, which must be sound, and returns what it did, and how many reads were of old versions. That is a matter of chance in
/// a single one: an account is read a moment after the transaction began.
async fn sound_history(uri: &str, kind: WorkloadKind) -> (Tally, u64) {
    let sources = Sources::system().expect("randomness");
    let (mut networks, mut clients) = (Vec::new(), Vec::new());
    for number in 1..=2 {
        let network = Arc::new(Faulty::new(connected(uri, &sources).await, plan(number)));
        clients.push(process(network.clone(), &sources));
        networks.push(network);
    }
    let background = process(connected(uri, &sources).await, &sources);

    let random = |of: u64| Arc::new(SeededRandom::new(SEED.wrapping_mul(1_000_003) ^ of));
    let keys = ["keys", "house", "yard"].map(|name| Namespace::new(format!("{kind:?}"), name).expect("a name"));
    let options = TransactionOptions { durability: Durability::Journaled, ..TransactionOptions::default() };
    let client = MovingClient::new(clients, keys.to_vec(), options, random(1));
    let stop = Arc::new(AtomicBool::new(false));
    let background = tokio::spawn(BackgroundChanges::new(client.clone(), background, random(2)).run(Arc::clone(&stop)));
    let minimum = MinimumCounts { committed: COMMITTED, failed: 1, old_version_reads: 0 };
    let expectation = Expectation { isolation: Isolation::Snapshot, order: Order::RealTime };
    let options = RunOptions { seed: SEED, processes: CLIENTS, committed: COMMITTED, expectation, minimum };
    let outcome = run(Workload::new(kind), Arc::new(client.clone()), sources, options).await;
    stop.store(true, Ordering::Relaxed);
    let done = background.await.expect("no panic in the background").expect("background changes");

    let outcome = outcome.expect("a run");
    let faults: Vec<usize> = networks.iter().map(|network| network.injected().len()).collect();
    println!("{outcome}, {faults:?} faults");
    if !outcome.problems().is_empty() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ext-secantusdb-{kind:?}-{SEED}.jsonl"));
        outcome.save(&path).expect("a file for the history");
        panic!("{outcome}\n{}\nthe history is in {}", outcome.problems().join("\n"), path.display());
    }
    assert!(faults.iter().all(|faults| *faults > 0), "too little went wrong: {faults:?} faults");
    (client.tally().plus(done), outcome.verdict.report.counts.old_version_reads)
}

/// A connection of its own. A server whose updates are not atomic is refused.
async fn connected(uri: &str, sources: &Sources) -> Arc<dyn DocumentStore> {
    connect(uri, sources.clone(), ConnectOptions::default()).await.expect("a server with atomic updates").store
}

/// The requests and answers of a process that get lost.
fn plan(process: u64) -> Plan {
    let faults = [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply];
    Plan::seeded(SEED.wrapping_add(process << 32), FAULTS_PER_THOUSAND, faults)
}

fn process(store: Arc<dyn DocumentStore>, sources: &Sources) -> Database {
    let options = PercolatorOptions { lock_ttl: LOCK_TTL, ..PercolatorOptions::default() };
    Database::percolator(store, sources.clone(), options).expect("a database")
}
