//! `handfast bench patterns`: the cost of the building blocks, in operations on the store and against the same writes without
//! them.
//!
//! ```text
//! job         enqueue, claim, complete      insert, two updates by _id
//! posting     a transfer between accounts   insert of an entry's document
//! increment   once, once in two steps       one update by _id
//! transfer    transaction, two-phase, ledger   two updates by _id, unprotected
//! ```
//!
//! All are on one embedded store, journaled, each in collections of its own. While entries are posted, the committer runs, too,
//! and its operations are counted with theirs.

mod methods;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::rawdoc;
use handfast_embedded::EmbeddedStore;
use handfast_patterns::ledger::Totals;
use handfast_patterns::{CancellationToken, RunnerOptions};
use handfast_store::decorator::Metered;
use handfast_store::{DocumentStore, Find, Insert, Sources, StoreExt};
use handfast_txn::Database;

use self::methods::{Method, Methods, Payees, namespace};
use super::measure::{Round, interleaved, round};
use super::report::Comparison;
use super::store::Plan;

/// Clients at once, up to what is asked for.
const CLIENTS: [usize; 3] = [1, 8, 32];
/// Documents that are made with one request.
const CHUNK: usize = 1000;
/// The time between two rounds of the committer.
const COMMIT_INTERVAL: Duration = Duration::from_millis(20);
/// Entries of a round of the committer.
const COMMIT_BATCH: u32 = 500;

/// The store that all share, with counts of its operations.
type Store = Metered<EmbeddedStore>;

/// The state that the cases share.
pub(super) struct Bench<'a> {
    plan: Plan,
    sources: Sources,
    store: Arc<Store>,
    methods: Methods,
    progress: &'a (dyn Fn(&str) + Sync),
}

impl<'a> Bench<'a> {
    /// Opens the patterns and fills the collections whose documents are changed.
    pub(super) async fn open(
        embedded: EmbeddedStore,
        plan: Plan,
        sources: Sources,
        progress: &'a (dyn Fn(&str) + Sync),
    ) -> Result<Self> {
        progress("filling collections");
        ensure!(plan.documents >= 2, "--documents must be at least 2: money moves between two");
        let documents = i64::try_from(plan.documents)?;
        for namespace in Methods::filled()? {
            for first in (0..documents).step_by(CHUNK) {
                let chunk = first..documents.min(first.saturating_add_unsigned(CHUNK as u64));
                let chunk = chunk.map(|id| plan.document(id)).collect();
                let inserted = embedded.insert(Insert::new(namespace.clone(), chunk)).await?;
                ensure!(inserted.errors.is_empty(), "{namespace} cannot be filled: {:?}", inserted.errors);
            }
        }
        let database = Database::local(embedded.clone(), sources.clone());
        let store = Arc::new(Metered::new(embedded, Arc::clone(&sources.clock)));
        let methods = Methods::open(&store, database, &sources).await?;
        Ok(Bench { plan, sources, store, methods, progress })
    }

    /// Runs all cases.
    pub(super) async fn run(&self) -> Result<Vec<Comparison>> {
        let Methods { job, job_writes, entry_write, once, two_step, increment, .. } = &self.methods;
        let Methods { ledger, transaction, two_phase, transfer_writes, .. } = &self.methods;
        let posting = |payees| Method::Posting(Arc::clone(ledger), payees);
        let cases = [
            (job.clone(), job_writes),
            (posting(Payees::Anybody), entry_write),
            (posting(Payees::HOT), entry_write),
            (posting(Payees::HOT_WITH_SEQUENCE), entry_write),
            (once.clone(), increment),
            (two_step.clone(), increment),
            (transaction.clone(), transfer_writes),
            (two_phase.clone(), transfer_writes),
            (posting(Payees::Anybody), transfer_writes),
            (two_phase.clone(), transaction),
            (posting(Payees::Anybody), transaction),
        ];
        let mut comparisons = Vec::new();
        for clients in CLIENTS.into_iter().filter(|clients| *clients <= self.plan.tasks) {
            for (subject, baseline) in &cases {
                (self.progress)(subject.name());
                comparisons.push(self.compare(clients, subject, baseline).await?);
            }
        }
        (self.progress)("the sum of all accounts");
        self.check_sums().await?;
        Ok(comparisons)
    }

    async fn compare(&self, clients: usize, subject: &Method, baseline: &Method) -> Result<Comparison> {
        let (mut operations, mut done) = (0, 0);
        let counted = async |_| {
            let before = self.operations();
            let measured = self.with_committer(clients, subject).await?;
            operations += self.operations() - before;
            done += measured.operations;
            Ok(measured)
        };
        let rounds = interleaved(self.plan.rounds, async |_| self.measured(clients, baseline).await, counted).await?;
        let name = format!("{}, {clients} clients", subject.name());
        let comparison = Comparison::new(&name, baseline.name(), &rounds, None);
        Ok(comparison.with_note(match subject {
            // Its operations reach the engine in batches, which the store does not count.
            Method::TransactionTransfer(..) => String::new(),
            _ => format!("{:.1} store operations", operations as f64 / done.max(1) as f64),
        }))
    }

    /// Runs a round while the committer runs, too; all entries are committed before the next round.
    async fn with_committer(&self, clients: usize, method: &Method) -> Result<Round> {
        let Method::Posting(ledger, _) = method else { return self.measured(clients, method).await };
        let options = RunnerOptions { interval: COMMIT_INTERVAL, batch: COMMIT_BATCH, ..RunnerOptions::default() };
        let committer = ledger.spawn_committer(options, &CancellationToken::new())?;
        let measured = self.measured(clients, method).await;
        committer.stop().await;
        while ledger.commit(COMMIT_BATCH).await?.done > 0 {}
        measured
    }

    async fn measured(&self, clients: usize, method: &Method) -> Result<Round> {
        let (method, documents) = (Arc::new(method.clone()), self.plan.documents);
        round(Arc::clone(&self.sources.clock), clients, self.plan.round_duration(), move |task, step| {
            let method = Arc::clone(&method);
            async move { method.step(task, step, documents).await }
        })
        .await
    }

    /// Returns how many operations were asked of the store.
    fn operations(&self) -> u64 {
        self.store.report().iter().map(|of| of.started).sum()
    }

    /// Fails if money was lost or made, which would make every figure worthless.
    async fn check_sums(&self) -> Result<()> {
        let mut sum = 0;
        for account in self.store.find_all(Find::new(namespace("accounts")?, rawdoc! {})).await? {
            sum += account.get("count")?.and_then(bson::RawBsonRef::as_f64).unwrap_or(f64::NAN) as i64;
        }
        ensure!(sum == 0, "the accounts hold {sum} instead of 0");
        let totals = self.methods.ledger.totals().await?;
        ensure!(totals.iter().all(Totals::is_balanced), "the ledger is not balanced: {totals:?}");
        Ok(())
    }
}
