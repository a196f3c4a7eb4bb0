//! A scenario: two processes with clients and one that cleans, on a shared store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bson::{DateTime, Document, rawdoc};
use handfast_history::Expectation;
use handfast_sim::{
    Client, ClientTransaction, DatabaseClient, Failure, Isolation, MinimumCounts, Order, RunOptions, Workload,
    WorkloadKind, run,
};
use handfast_store::decorator::{Fault, Plan};
use handfast_store::{
    Clock, DocumentStore, Durability, Find, ManualClock, MemoryStore, Namespace, Random, SeededRandom, Sources,
    StoreExt,
};
use handfast_txn::{Database, Percolator, PercolatorOptions};

use crate::mutants::{self, Mutant, Process};
use crate::scheduler::{Disturbance, Gate, Scheduler, WRONG_BY_SECONDS};

const CLIENTS: u32 = 3;
/// The number of passes of the cleaner after which nothing is left.
const PASSES: usize = 4;
/// The number of attempts to begin a transaction with wrong clocks, for which processes may be refused.
const BEGINS_WRONG_CLOCKS: u32 = 100;
/// The number of processes: those of clients and the cleaner.
const PROCESSES: usize = 3;

/// The parameters of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) kind: WorkloadKind,
    pub(crate) disturbance: Disturbance,
    /// The numbers of documents, and of transactions that have to commit.
    pub(crate) documents: i64,
    pub(crate) committed: u64,
}

impl Scenario {
    /// Returns a scenario of a few transactions on two documents.
    pub(crate) fn small(kind: WorkloadKind, disturbance: Disturbance) -> Scenario {
        Scenario { kind, disturbance, documents: 2, committed: 4 }
    }

    /// Returns a scenario of more transactions on more documents, for rare interleavings.
    pub(crate) fn long(disturbance: Disturbance) -> Scenario {
        Scenario { kind: WorkloadKind::ListAppend, disturbance, documents: 3, committed: 16 }
    }
}

/// The result of a schedule.
pub(crate) struct ScheduleResult {
    pub(crate) problems: Vec<String>,
    /// The kinds of the problems.
    pub(crate) kinds: Vec<String>,
    pub(crate) requests: u64,
    pub(crate) faults: u64,
    pub(crate) clock_faults: u64,
    pub(crate) committed: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    pub(crate) trace: String,
}

fn accounts() -> Namespace {
    Namespace::new("sim", "keys").unwrap()
}

pub(crate) fn options() -> PercolatorOptions {
    PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() }
}

/// A client that begins transactions on several databases in turn.
struct RoundRobinClient {
    clients: Vec<DatabaseClient>,
    next: AtomicUsize,
    /// The number of attempts to begin a transaction.
    begins: u32,
}

#[async_trait]
impl Client for RoundRobinClient {
    async fn begin(&self) -> Result<Box<dyn ClientTransaction>, Failure> {
        let mut failure = None;
        for _ in 0..self.begins {
            let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.clients.len();
            match self.clients[turn].begin().await {
                Err(Failure::Conflict(why)) => failure = Some(Failure::Conflict(why)),
                begun => return begun,
            }
            // Waits before the next attempt, as the process may be down or have a wrong clock.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err(failure.unwrap_or_else(|| Failure::Conflict("nobody was asked".to_owned())))
    }
}

/// Runs the schedule of a seed, with the engine or one of its mutants.
pub(crate) async fn run_schedule(seed: u64, scenario: Scenario, mutant: Option<Mutant>) -> ScheduleResult {
    let Scenario { kind, disturbance, documents, committed } = scenario;
    let (sources, clock) = Sources::manual(seed);
    clock.set(if disturbance == Disturbance::WrongClocks { ManualClock::START } else { DateTime::from_millis(0) });
    let (own_sources, clocks) = match disturbance {
        Disturbance::WrongClocks => with_own_clocks(seed, &clock),
        _ => (vec![sources.clone(); PROCESSES], vec![Arc::clone(&clock)]),
    };
    let store: Arc<dyn DocumentStore> = Arc::new(MemoryStore::new(sources.clone()));
    let gate = |process| -> Arc<Gate> {
        let store = mutants::broken_store(Arc::clone(&store), mutant, process, &sources);
        Arc::new(Gate::new(store, Plan::always(Fault::FreezeBefore)))
    };
    let gates = vec![gate(Process::Client), gate(Process::Client), gate(Process::Cleaner)];

    let open = |(gate, sources): (&Arc<Gate>, &Sources)| {
        let database = Database::percolator(Arc::clone(gate) as Arc<dyn DocumentStore>, sources.clone(), options());
        DatabaseClient::new(database.unwrap(), accounts(), Isolation::Snapshot, Durability::Memory)
    };
    let begins = if disturbance == Disturbance::WrongClocks { BEGINS_WRONG_CLOCKS } else { 1 };
    let clients = RoundRobinClient {
        clients: gates[..2].iter().zip(&own_sources).map(open).collect(),
        next: AtomicUsize::new(0),
        begins,
    };
    let run_options = RunOptions {
        seed,
        processes: CLIENTS,
        committed,
        expectation: Expectation { isolation: Isolation::Snapshot, order: Order::RealTime },
        minimum: MinimumCounts::default(),
    };
    let workload = Workload { kind, keys: documents, writes_per_key: i64::MAX };
    let running = tokio::spawn(run(workload, Arc::new(clients), sources.clone(), run_options));

    let engine =
        Percolator::new(Arc::clone(&gates[2]) as Arc<dyn DocumentStore>, own_sources[2].clone(), options()).unwrap();
    let cleaning = tokio::spawn(async move {
        loop {
            // A failed pass is repeated.
            let _ = engine.clean().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });

    let mut scheduler = Scheduler::new(gates, clocks, seed, disturbance);
    scheduler.run(|| running.is_finished(), async || mutants::after_restart(&*store, mutant).await).await;
    cleaning.abort();
    let outcome = running.await.unwrap();

    let (mut problems, mut kinds) = (Vec::new(), Vec::new());
    let (mut committed, mut failed, mut unknown) = (0, 0, 0);
    match outcome {
        Ok(outcome) => {
            let report = &outcome.verdict.report;
            problems.extend(report.anomalies.iter().map(ToString::to_string));
            problems.extend(outcome.verdict.disagreement());
            kinds.extend(report.kinds().into_iter().map(str::to_owned));
            (committed, failed) = (report.counts.committed, report.counts.failed);
            unknown = report.counts.unknown_seen + report.counts.unknown_unseen;
        }
        Err(error) => {
            problems.push(error.to_string());
            kinds.push("unexpected".to_owned());
        }
    }
    if disturbance == Disturbance::None && has_rollback_record(&*store).await {
        problems.push("a transaction was given up that was alive".to_owned());
        kinds.push("given-up-alive".to_owned());
    }
    for (problem, kind) in leftovers(&store, &sources, &clock).await {
        problems.push(problem);
        kinds.push(kind.to_owned());
    }
    let Scheduler { requests, faults, clock_faults, trace, .. } = scheduler;
    ScheduleResult { problems, kinds, requests, faults, clock_faults, committed, failed, unknown, trace }
}

/// Returns sources for each process, whose clock may be wrong from the start, and all clocks, that of the store last.
fn with_own_clocks(seed: u64, store: &Arc<ManualClock>) -> (Vec<Sources>, Vec<Arc<ManualClock>>) {
    let random = SeededRandom::new(!seed);
    let mut clocks = Vec::new();
    let mut all = Vec::new();
    for process in 0..PROCESSES as u64 {
        let (sources, clock) = Sources::manual(seed.wrapping_mul(1_000_003).wrapping_add(process + 1));
        let wrong = WRONG_BY_SECONDS[(random.next_u64() % WRONG_BY_SECONDS.len() as u64) as usize];
        clock.set(DateTime::from_millis(store.now().timestamp_millis() + wrong * 1_000));
        all.push(sources);
        clocks.push(clock);
    }
    clocks.push(Arc::clone(store));
    (all, clocks)
}

async fn rows(store: &dyn DocumentStore) -> Vec<Document> {
    let found = store.find_all(Find::new(accounts(), rawdoc! {})).await.unwrap();
    found.iter().map(|row| Document::try_from(&**row).unwrap()).collect()
}

/// Returns whether a process rolled a transaction back as expired, although no time has passed.
async fn has_rollback_record(store: &dyn DocumentStore) -> bool {
    rows(store).await.iter().any(|row| row.get_document("_hf").is_ok_and(|hidden| hidden.contains_key("rb")))
}

/// Returns locks and records that a much later process finds although they should be gone.
async fn leftovers(
    store: &Arc<dyn DocumentStore>,
    sources: &Sources,
    clock: &ManualClock,
) -> Vec<(String, &'static str)> {
    let cleaner = Percolator::new(Arc::clone(store), sources.clone(), options()).unwrap();
    for _ in 0..PASSES {
        clock.advance(Duration::from_secs(1_300));
        if let Err(error) = cleaner.clean().await {
            return vec![(format!("cleaning: {error}"), "cleaning")];
        }
    }
    let is_left = |row: &Document| {
        let hidden = row.get_document("_hf").unwrap();
        ["lock", "old", "rb", "del", "d"].iter().any(|name| hidden.contains_key(name))
    };
    let left = rows(&**store).await.into_iter().filter(is_left);
    left.map(|row| (format!("left behind: {row}"), "left-behind")).collect()
}
