//! `handfast bench transfers`: money moves between documents of a store that is atomic one document at a time.
//!
//! ```text
//! unprotected         two updates                                      a crash in between loses money
//! two-phase commit    a document of its own, each step one update      is finished after a crash; others see half of it
//! transaction         locks, a commit point, versions (Percolator)     all or nothing, also for readers
//! ```
//!
//! By default the store is in memory and every operation takes a while, as over a network: what is measured is then the
//! protocol. What one operation takes is measured in the same run, so a latency is also a number of round trips. With `--store`
//! a server is the store, and only the round trips are counted in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use handfast_patterns::two_phase::{Transfer, TwoPhase, TwoPhaseOptions, TwoPhaseOutcome};
use handfast_store::decorator::Metered;
use handfast_store::{DocumentStore, Find, Insert, Namespace, Sources, StoreExt};
use handfast_txn::{Database, PercolatorOptions};

use super::measure::{Round, interleaved, round};
use super::report::Comparison;
use super::store::Plan;
use super::transactions::{by, pair};

/// Tasks that move money at once, up to what is asked for.
const TASKS: [usize; 3] = [1, 8, 32];
/// The database of the accounts.
const DATABASE: &str = "handfast_bench";
/// Accounts that all tasks use.
const HOT_ACCOUNTS: u64 = 10;
/// Accounts that are made with one request.
const CHUNK: usize = 1000;
/// Round trips that a transfer may take: start, both documents (two, as the contract asks for the first page by itself),
/// both locks, the commit timestamp, the commit point. These are six, and there is no seventh: half of one is for what the processor
/// does in between.
const ROUND_TRIPS_MAX: f64 = 6.5;

/// The store that all share, with counts of its operations.
type Store = Arc<Metered<Arc<dyn DocumentStore>>>;

#[derive(Clone)]
enum Method {
    /// An update, to measure a round trip.
    OneUpdate(Store),
    Unprotected(Store),
    TwoPhase(Arc<TwoPhase>),
    Transaction(Database),
}

/// The state that the cases share.
pub(super) struct Bench<'a> {
    plan: Plan,
    sources: Sources,
    /// The store of transfers without transactions.
    store: Store,
    database: Database,
    /// The store of the database, which also counts what the database does in the background.
    of_database: Store,
    two_phase: Arc<TwoPhase>,
    accounts: Arc<Namespace>,
    /// Numbers of two-phase transactions, which are never used again.
    last_id: Arc<AtomicU64>,
    progress: &'a (dyn Fn(&str) + Sync),
}

impl<'a> Bench<'a> {
    /// Drops the collection `handfast_bench.accounts`, and creates the accounts in it.
    pub(super) async fn open(
        store: Arc<dyn DocumentStore>,
        plan: Plan,
        sources: Sources,
        progress: &'a (dyn Fn(&str) + Sync),
    ) -> Result<Self> {
        ensure!(plan.documents > HOT_ACCOUNTS, "--documents must be above {HOT_ACCOUNTS}");
        progress("opening accounts");
        let accounts = Namespace::new(DATABASE, "accounts")?;
        let transactions = Namespace::new(DATABASE, "transactions")?;
        for namespace in [&accounts, &transactions] {
            store.drop_collection(namespace).await?;
        }
        let documents = i64::try_from(plan.documents)?;
        for first in (0..documents).step_by(CHUNK) {
            let chunk = first..documents.min(first.saturating_add_unsigned(CHUNK as u64));
            let inserted =
                store.insert(Insert::new(accounts.clone(), chunk.map(|id| plan.document(id)).collect())).await?;
            ensure!(inserted.errors.is_empty(), "the accounts cannot be opened: {:?}", inserted.errors);
        }
        let metered = || Arc::new(Metered::new(Arc::clone(&store), Arc::clone(&sources.clock)));
        let (of_database, store): (Store, Store) = (metered(), metered());
        let mut options = TwoPhaseOptions::new("bench", accounts.clone());
        (options.accounts.balance, options.accounts.overdraft) = ("count".to_owned(), true);
        let two_phase = TwoPhase::open_with(store.clone(), transactions, sources.clone(), options).await?;
        let database = Database::percolator(of_database.clone(), sources.clone(), PercolatorOptions::default())?;
        let (two_phase, accounts) = (Arc::new(two_phase), Arc::new(accounts));
        Ok(Bench {
            plan,
            sources,
            store,
            database,
            of_database,
            two_phase,
            accounts,
            last_id: Arc::default(),
            progress,
        })
    }

    /// Measures a transfer in round trips: against one update, by a single client without conflicts.
    pub(super) async fn round_trips(&self) -> Result<Comparison> {
        (self.progress)("transfers in round trips");
        let transaction = Method::Transaction(self.database.clone());
        let one_update = Method::OneUpdate(Arc::clone(&self.store));
        let promised = Some(1.0 / ROUND_TRIPS_MAX);
        let mut measured = self.compare(1, self.plan.documents, &transaction, &one_update, promised).await?;
        let trips = measured.p50_us / measured.baseline_p50_us.max(f64::MIN_POSITIVE);
        measured.note = format!("{trips:.1} round trips, {}", measured.note);
        Ok(measured)
    }

    /// Compares the three methods, from few clients to many, between all accounts and between few.
    pub(super) async fn side_by_side(&self) -> Result<Vec<Comparison>> {
        let transaction = Method::Transaction(self.database.clone());
        let two_phase = Method::TwoPhase(Arc::clone(&self.two_phase));
        let unprotected = Method::Unprotected(Arc::clone(&self.store));
        let mut comparisons = Vec::new();
        for tasks in TASKS.into_iter().filter(|tasks| *tasks <= self.plan.tasks) {
            for accounts in [self.plan.documents, HOT_ACCOUNTS] {
                (self.progress)("transfers");
                comparisons.push(self.compare(tasks, accounts, &transaction, &unprotected, None).await?);
                comparisons.push(self.compare(tasks, accounts, &two_phase, &unprotected, None).await?);
                comparisons.push(self.compare(tasks, accounts, &transaction, &two_phase, None).await?);
            }
        }
        (self.progress)("the sum of all accounts");
        self.database.flush().await?;
        self.check_sum().await?;
        Ok(comparisons)
    }

    /// Drops the database of the benchmark.
    pub(super) async fn remove(self) -> Result<()> {
        self.database.flush().await?;
        self.store.drop_database(DATABASE).await?;
        Ok(())
    }

    async fn compare(
        &self,
        tasks: usize,
        accounts: u64,
        subject: &Method,
        baseline: &Method,
        promised: Option<f64>,
    ) -> Result<Comparison> {
        let (mut operations, mut transfers) = (0, 0);
        let measure = async |method| {
            let measured = self.measured(tasks, accounts, method).await?;
            self.database.flush().await?;
            anyhow::Ok(measured)
        };
        let counted = async |_| {
            let before = self.operations(subject);
            let measured = measure(subject).await?;
            operations += self.operations(subject) - before;
            transfers += measured.operations;
            Ok(measured)
        };
        let rounds = interleaved(self.plan.rounds, async |_| measure(baseline).await, counted).await?;
        let hot = if accounts == HOT_ACCOUNTS { ", 10 hot accounts" } else { "" };
        let name = format!("transfer, {}, {tasks} clients{hot}", subject.name());
        let comparison = Comparison::new(&name, baseline.name(), &rounds, promised);
        Ok(comparison.with_note(format!("{:.1} store operations", operations as f64 / transfers.max(1) as f64)))
    }

    /// Returns how many operations transfers of this method have asked of the store.
    fn operations(&self, method: &Method) -> u64 {
        let store = if matches!(method, Method::Transaction(_)) { &self.of_database } else { &self.store };
        store.report().iter().map(|of| of.started).sum()
    }

    async fn measured(&self, tasks: usize, accounts: u64, method: &Method) -> Result<Round> {
        let shared = Arc::new((method.clone(), Arc::clone(&self.accounts), Arc::clone(&self.last_id)));
        round(Arc::clone(&self.sources.clock), tasks, self.plan.round_duration(), move |task, step| {
            let shared = Arc::clone(&shared);
            async move {
                let (from, to) = pair(task, step, accounts)?;
                let (method, accounts, last_id) = &*shared;
                method.transfer(accounts, from, to, last_id).await
            }
        })
        .await
    }

    /// Fails if money was lost or made, which would make every figure worthless.
    async fn check_sum(&self) -> Result<()> {
        let accounts = self.database.find_all(Find::new((*self.accounts).clone(), rawdoc! {})).await?;
        let mut sum = 0;
        for account in &accounts {
            sum += account.get("count")?.and_then(bson::RawBsonRef::as_f64).unwrap_or(f64::NAN) as i64;
        }
        ensure!(accounts.len() as u64 == self.plan.documents && sum == 0, "the accounts hold {sum} instead of 0");
        Ok(())
    }
}

impl Method {
    fn name(&self) -> &'static str {
        match self {
            Method::OneUpdate(_) => "one update",
            Method::Unprotected(_) => "two updates",
            Method::TwoPhase(_) => "two-phase commit",
            Method::Transaction(_) => "transaction",
        }
    }

    async fn transfer(&self, accounts: &Namespace, from: i64, to: i64, last_id: &AtomicU64) -> Result<()> {
        match self {
            Method::OneUpdate(store) => {
                store.update_one(accounts, rawdoc! { "_id": from }, by(0)).await?;
            }
            Method::Unprotected(store) => {
                store.update_one(accounts, rawdoc! { "_id": from }, by(-1)).await?;
                store.update_one(accounts, rawdoc! { "_id": to }, by(1)).await?;
            }
            Method::TwoPhase(two_phase) => {
                let id = i64::try_from(last_id.fetch_add(1, Ordering::Relaxed))?;
                two_phase.begin(id, Transfer::new(from, to, 1)).await?;
                let outcome = two_phase.run(id).await?;
                ensure!(outcome == TwoPhaseOutcome::Done, "a transfer ended with {outcome:?}");
            }
            Method::Transaction(database) => database.transaction(|tx| moved(tx, accounts, from, to)).await?,
        }
        Ok(())
    }
}

/// Reads both accounts with one request and changes both.
async fn moved(tx: handfast_txn::Transaction, accounts: &Namespace, from: i64, to: i64) -> handfast_txn::Result<()> {
    let both: RawArrayBuf = [from, to].into_iter().collect();
    tx.find_all(Find::new(accounts.clone(), rawdoc! { "_id": { "$in": both } })).await?;
    for (id, amount) in [(from, -1), (to, 1)] {
        let filter: RawDocumentBuf = rawdoc! { "_id": id };
        tx.update_one(accounts, filter, by(amount)).await?;
    }
    Ok(())
}
