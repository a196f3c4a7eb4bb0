//! Judged histories of `Database` on the embedded store with `Journaled` durability, while requests and answers are lost, requests
//! arrive late, and the process is killed repeatedly.
//!
//! A kill copies the directory between two requests while the store is open, and opens the copy as the next store: it has the bytes
//! that the operating system has, and nothing that is only in memory. Open transactions are lost.
//!
//! Clients that misinterpret lost answers, and a store that acknowledges before it syncs, are caught by name.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bson::rawdoc;
use handfast_embedded::{EmbeddedStore, Options};
use handfast_history::Expectation;
use handfast_sim::directory::copy;
use handfast_sim::{
    Cell, Client, ClientTransaction, DatabaseClient, Failure, Isolation, MinimumCounts, Order, RunOptions, Workload,
    WorkloadKind, run,
};
use handfast_store::decorator::{Fault, Faulty, Operation, Plan};
use handfast_store::{Durability, Namespace, Sources, StoreExt, Ticket, ticket};
use handfast_txn::Database;
use tempfile::TempDir;
use tokio::sync::RwLock;

/// The number of transactions that have to commit in a run.
const COMMITTED: u64 = 1_500;
const PROCESSES: u32 = 8;
/// The number of faults per thousand operations.
const FAULTS_PER_THOUSAND: u16 = 40;
/// The number of acknowledged commits after which the process is killed.
const COMMITS_PER_PROCESS: u64 = 250;
/// The number of runs of which one has to catch a mutant.
const RUNS_OF_A_MUTANT: u64 = 8;
/// The number of acknowledged commits after which late requests arrive.
const COMMITS_PER_DELIVERY: u64 = 2;

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// There is no fault.
    Sound,
    /// The client takes an unknown outcome for a failure.
    UnknownIsFailure,
    /// The client takes an unknown outcome for a success.
    UnknownIsSuccess,
    /// The store acknowledges before it syncs.
    Unsynced,
}

/// A machine whose processes open the store one after the other.
struct Machine {
    disk: TempDir,
    isolation: Isolation,
    mutant: Mutant,
    seed: u64,
    commits: AtomicU64,
    /// The number of lost commits of earlier processes.
    lost_commits: AtomicU64,
    process: RwLock<Process>,
}

/// A process with its copy of the store.
struct Process {
    number: u64,
    store: EmbeddedStore,
    faulty: Arc<Faulty<EmbeddedStore>>,
    database: Database,
    client: DatabaseClient,
}

impl Machine {
    async fn start(isolation: Isolation, mutant: Mutant, seed: u64) -> Arc<Machine> {
        let disk = tempfile::tempdir().unwrap();
        let process = RwLock::new(start_process(disk.path(), 0, isolation, mutant, seed).await.unwrap());
        let (commits, lost_commits) = Default::default();
        Arc::new(Machine { disk, isolation, mutant, seed, commits, lost_commits, process })
    }

    /// Kills the process and starts the next one on a copy of its directory.
    async fn kill(&self) {
        // With the lock, no request is running, so the copy is of one moment.
        let mut process = self.process.write().await;
        let next = process.number + 1;
        let [from, to] = [process.number, next].map(|number| process_directory(self.disk.path(), number));
        self.lost_commits.fetch_add(process.lost_commits(), Ordering::Relaxed);
        *process = loop {
            copy(&from, &to).unwrap();
            match start_process(self.disk.path(), next, self.isolation, self.mutant, self.seed).await {
                // The store still writes acknowledged data, so the files of the copy were of different moments.
                Err(handfast_embedded::Error::Damaged { .. }) if self.mutant == Mutant::Unsynced => {
                    std::fs::remove_dir_all(&to).unwrap();
                }
                started => break started.unwrap(),
            }
        };
    }

    async fn after_commit(&self) {
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        if commits.is_multiple_of(COMMITS_PER_DELIVERY) {
            let process = self.process.read().await;
            for _late in process.faulty.deliver_late().await {}
        }
        // The first process has no faults, so that the accounts can be opened, and is killed after that.
        if commits % COMMITS_PER_PROCESS == 1 {
            self.kill().await;
        }
    }
}

impl Process {
    fn lost_commits(&self) -> u64 {
        let faults = self.faulty.injected();
        faults.iter().filter(|fault| fault.operation == Operation::Commit).count() as u64
    }
}

async fn start_process(
    disk: &Path,
    number: u64,
    isolation: Isolation,
    mutant: Mutant,
    seed: u64,
) -> handfast_embedded::Result<Process> {
    let options = Options { acknowledge_after_sync: mutant != Mutant::Unsynced, ..Options::small() };
    let sources = Sources::system().unwrap();
    let store = EmbeddedStore::open(process_directory(disk, number), sources.clone(), options).await?;
    let faults = [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply, Fault::DeliverLate];
    let faults_per_thousand = if number == 0 { 0 } else { FAULTS_PER_THOUSAND };
    let plan = Plan::seeded(seed.wrapping_add(number << 32), faults_per_thousand, faults);
    let faulty = Arc::new(Faulty::new(Arc::new(store.clone()), plan));
    let database = Database::local(Arc::clone(&faulty), sources);
    let client = DatabaseClient::new(database.clone(), keys(), isolation, Durability::Journaled);
    Ok(Process { number, store, faulty, database, client })
}

/// A client that begins each transaction on the running process.
struct Reconnecting(Arc<Machine>);

struct OpenTransaction {
    machine: Arc<Machine>,
    /// The number of the process that began the transaction.
    process: u64,
    inner: Box<dyn ClientTransaction>,
}

#[async_trait]
impl Client for Reconnecting {
    async fn begin(&self) -> Result<Box<dyn ClientTransaction>, Failure> {
        let process = self.0.process.read().await;
        let inner = process.client.begin().await?;
        Ok(Box::new(OpenTransaction { machine: Arc::clone(&self.0), process: process.number, inner }))
    }
}

/// Runs a step of a transaction, unless the process that began it was killed.
macro_rules! in_same_process {
    ($transaction:ident, $step:expr) => {{
        let process = $transaction.machine.process.read().await;
        if process.number != $transaction.process {
            return Err(Failure::Conflict("the process was killed".to_owned()));
        }
        $step.await
    }};
}

#[async_trait]
impl ClientTransaction for OpenTransaction {
    async fn read(&mut self, key: i64) -> Result<Cell, Failure> {
        in_same_process!(self, self.inner.read(key))
    }

    async fn scan(&mut self, keys: Range<i64>) -> Result<Vec<(i64, Cell)>, Failure> {
        in_same_process!(self, self.inner.scan(keys))
    }

    async fn append(&mut self, key: i64, value: i64) -> Result<(), Failure> {
        in_same_process!(self, self.inner.append(key, value))
    }

    async fn write(&mut self, key: i64, value: i64, amount: Option<i64>) -> Result<(), Failure> {
        in_same_process!(self, self.inner.write(key, value, amount))
    }

    async fn commit(self: Box<Self>) -> Result<(), Failure> {
        let OpenTransaction { machine, .. } = &*self;
        let machine = Arc::clone(machine);
        let result = in_same_process!(self, self.inner.commit());
        machine.after_commit().await;
        match (result, machine.mutant) {
            (Err(Failure::Unknown(why)), Mutant::UnknownIsFailure) => Err(Failure::Conflict(why)),
            (Err(Failure::Unknown(_)), Mutant::UnknownIsSuccess) => Ok(()),
            (result, _) => result,
        }
    }

    async fn abort(self: Box<Self>) -> Result<(), Failure> {
        in_same_process!(self, self.inner.abort())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_histories_with_faults_and_kills_are_clean() {
    check_all_workloads(Isolation::Snapshot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serializable_histories_with_faults_and_kills_are_clean() {
    check_all_workloads(Isolation::Serializable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_clients_and_stores_are_caught() {
    let caught = [
        (Mutant::UnknownIsFailure, WorkloadKind::ListAppend, "G1a"),
        (Mutant::UnknownIsSuccess, WorkloadKind::ListAppend, "lost-append"),
        (Mutant::Unsynced, WorkloadKind::ListAppend, "lost-append"),
        (Mutant::Unsynced, WorkloadKind::Register, "lost-update"),
    ];
    for (mutant, kind, name) in caught {
        let first = first_seed();
        let mut found = Vec::new();
        // The scheduler decides whether the one commit that shows the defect meets the fault: a run may miss it.
        for seed in first..first + RUNS_OF_A_MUTANT {
            let (_machine, outcome) = run_judged(mutant, kind, Isolation::Snapshot, seed).await;
            let kinds = outcome.verdict.report.kinds();
            println!("{mutant:?} by {outcome}: {kinds:?}");
            found.extend(kinds);
            if found.contains(&name) {
                break;
            }
        }
        assert!(found.contains(&name), "{mutant:?}: no {name} among {found:?}");
    }
}

async fn check_all_workloads(isolation: Isolation) {
    let all = [
        WorkloadKind::ListAppend,
        WorkloadKind::Register,
        WorkloadKind::Bank,
        WorkloadKind::WriteSkew,
        WorkloadKind::LongScan,
    ];
    for kind in all {
        let (machine, outcome) = run_judged(Mutant::Sound, kind, isolation, first_seed()).await;
        let process = machine.process.read().await;
        let lost = machine.lost_commits.load(Ordering::Relaxed) + process.lost_commits();
        println!("{outcome}, {} kills, {lost} commits met a fault", process.number);
        let problems = outcome.problems();
        if !problems.is_empty() {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faults-{kind:?}-{isolation:?}.jsonl"));
            outcome.save(&path).unwrap();
            panic!("{outcome}\n{}\nthe history is in {}", problems.join("\n"), path.display());
        }
        assert!(process.number >= COMMITTED / COMMITS_PER_PROCESS && lost >= 5, "there were too few faults: {outcome}");
        assert_nothing_is_left(&process).await;
    }
}

/// Checks that no transaction is open, that no snapshot is in use, and that the records of outcomes can be forgotten.
async fn assert_nothing_is_left(process: &Process) {
    assert_eq!(process.database.counts().open(), 0, "{:?}", process.database.counts());
    assert_eq!(process.store.snapshots_in_use(), 0);
    // All records, also those of this process, have to be older than the moment that is given.
    tokio::time::sleep(Duration::from_millis(2)).await;
    Database::local(process.store.clone(), Sources::system().unwrap()).forget_outcomes(Duration::ZERO).await.unwrap();
    let of_sessions = rawdoc! { "_id": { "$ne": ticket::forgotten_id() } };
    assert_eq!(process.store.count_matching(&Ticket::namespace().unwrap(), of_sessions).await.unwrap(), 0);
}

fn first_seed() -> u64 {
    std::env::var("HANDFAST_SIM_SEED").map_or(1, |seed| seed.parse().unwrap())
}

async fn run_judged(
    mutant: Mutant,
    kind: WorkloadKind,
    isolation: Isolation,
    seed: u64,
) -> (Arc<Machine>, handfast_sim::RunReport) {
    let machine = Machine::start(isolation, mutant, seed).await;
    let options = RunOptions {
        seed,
        processes: PROCESSES,
        committed: COMMITTED,
        expectation: Expectation { isolation, order: Order::RealTime },
        minimum: MinimumCounts { committed: COMMITTED, failed: COMMITTED / 50, old_version_reads: COMMITTED / 300 },
    };
    let client = Arc::new(Reconnecting(Arc::clone(&machine)));
    let outcome = run(Workload::new(kind), client, Sources::system().unwrap(), options).await.unwrap();
    (machine, outcome)
}

fn keys() -> Namespace {
    Namespace::new("sim", "keys").unwrap()
}

fn process_directory(disk: &Path, process: u64) -> std::path::PathBuf {
    disk.join(format!("process-{process}"))
}
