//! `handfast bench transactions`: money moves between accounts, against what it would cost without transactions.
//!
//! ```text
//! subject      a transaction of two updates, journaled             through the library, through the server
//! baselines    the bare engine's batch of the same four writes (two documents, the outcome, the number of the batch);
//!              the same two updates as they are; SQLite, where the program was built with it
//! ```

mod server;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, ensure};
use bson::{RawDocumentBuf, rawdoc};
use handfast_embedded::EmbeddedStore;
use handfast_store::{Clock, DocumentStore, Namespace, StoreExt};
use handfast_txn::{Counts, Database};

use super::bare::{Bare, Put};
use super::measure::{Round, interleaved, round};
use super::report::Comparison;
use super::store::{self, RECORD_KEY_BYTES, bare_key, bare_value, scattered};

/// Tasks that move money at once; the last number of them is given.
const FEW_TASKS: [usize; 2] = [1, 8];
/// Accounts that all tasks use.
const HOT_ACCOUNTS: u64 = 10;
/// Connections to the server.
const CONNECTIONS: usize = 16;
/// The number of clients from which transfers are promised to be faster than SQLite's.
#[cfg(feature = "sqlite")]
const SQLITE_BEHIND_FROM: usize = 8;
/// Bytes of the record of an outcome, and of its key: a session's UUID and its field names, a number, a time, the result.
const OUTCOME_BYTES: usize = 180;
const OUTCOME_KEY_BYTES: usize = 64;
/// Bytes of the number of the last batch.
const NUMBER_BYTES: usize = 8;

/// The state that the cases share.
pub(super) struct Bench<'a> {
    pub(super) plan: store::Plan,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) embedded: EmbeddedStore,
    pub(super) database: Database,
    pub(super) namespace: Namespace,
    pub(super) bare: Arc<Bare>,
    pub(super) server: SocketAddr,
    /// The file of SQLite.
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "this program was built without SQLite"))]
    pub(super) sqlite: std::path::PathBuf,
    pub(super) progress: &'a (dyn Fn(&str) + Sync),
}

impl Bench<'_> {
    /// Loads the accounts and runs all cases.
    pub(super) async fn run(&self) -> Result<Vec<Comparison>> {
        ensure!(self.plan.documents > HOT_ACCOUNTS, "--documents must be above {HOT_ACCOUNTS}");
        (self.progress)("opening accounts");
        let shared: Arc<dyn DocumentStore> = Arc::new(self.embedded.clone());
        store::load(&self.plan, &shared, &self.bare, &self.namespace).await?;
        #[cfg(feature = "sqlite")]
        let peer = sqlite::Accounts::open(&self.sqlite, &self.plan)?;
        let mut comparisons = Vec::new();
        for tasks in FEW_TASKS.into_iter().filter(|tasks| *tasks < self.plan.tasks).chain([self.plan.tasks]) {
            (self.progress)("transfers");
            comparisons.push(self.against_engine(tasks).await?);
            #[cfg(feature = "sqlite")]
            comparisons.push(self.against_sqlite(tasks, &peer).await?);
        }
        (self.progress)("transfers between hot accounts");
        comparisons.push(self.hot_against_uniform().await?);
        (self.progress)("transfers through the server");
        comparisons.push(server::compare(self, CONNECTIONS).await?);
        Ok(comparisons)
    }

    async fn against_engine(&self, tasks: usize) -> Result<Comparison> {
        let (mut costs, mut counts) = (Costs::default(), self.database.counts());
        let transfers = async |_| {
            let before = self.embedded.costs();
            let measured = self.transfers(tasks, self.plan.documents).await?;
            let after = self.embedded.costs();
            costs.transfers += measured.operations;
            costs.operations += after.operations - before.operations;
            costs.syncs += after.syncs - before.syncs;
            Ok(measured)
        };
        let rounds = interleaved(self.plan.rounds, async |_| self.bare_batches(tasks).await, transfers).await?;
        counts = since(counts, self.database.counts());
        let promised = self.plan.promises.ratio(0.5).filter(|_| tasks == self.plan.tasks);
        let name = format!("transfer, {tasks} clients");
        Ok(Comparison::new(&name, "bare batch of four writes", &rounds, promised).with_note(format!(
            "{} batches and {:.3} syncs a transfer; {}",
            costs.operations as f64 / costs.transfers as f64,
            costs.syncs as f64 / costs.transfers as f64,
            aborts(counts)
        )))
    }

    #[cfg(feature = "sqlite")]
    async fn against_sqlite(&self, tasks: usize, peer: &sqlite::Accounts) -> Result<Comparison> {
        let baseline = async |_| peer.transfers(&self.clock, tasks, self.plan.round_duration()).await;
        let subject = async |_| self.transfers(tasks, self.plan.documents).await;
        let rounds = interleaved(self.plan.rounds, baseline, subject).await?;
        let promised = (tasks >= SQLITE_BEHIND_FROM).then_some(1.0);
        let name = format!("transfer, {tasks} clients");
        Ok(Comparison::new(&name, "SQLite, WAL, synchronous=FULL", &rounds, promised))
    }

    async fn hot_against_uniform(&self) -> Result<Comparison> {
        let mut conflicts = Counts::default();
        let uniform = async |_| self.transfers(self.plan.tasks, self.plan.documents).await;
        let between_hot = async |_| {
            let before = self.database.counts();
            let measured = self.transfers(self.plan.tasks, HOT_ACCOUNTS).await?;
            let hot = since(before, self.database.counts());
            conflicts.begun += hot.begun;
            conflicts.conflicts += hot.conflicts;
            Ok(measured)
        };
        let rounds = interleaved(self.plan.rounds, uniform, between_hot).await?;
        let name = format!("transfer, {HOT_ACCOUNTS} hot accounts, {} clients", self.plan.tasks);
        let promised = self.plan.promises.ratio(1.0 / 3.0);
        let comparison = Comparison::new(&name, "uniform transfers", &rounds, promised);
        Ok(comparison.with_note(aborts(conflicts)))
    }

    /// Measures transfers between the first `accounts` accounts.
    async fn transfers(&self, tasks: usize, accounts: u64) -> Result<Round> {
        let shared = Arc::new((self.database.clone(), self.namespace.clone()));
        self.round(tasks, move |task, step| {
            let shared = Arc::clone(&shared);
            async move {
                let (from, to) = pair(task, step, accounts)?;
                let (database, namespace) = &*shared;
                transfer(database, namespace, from, to).await
            }
        })
        .await
    }

    /// Measures the writes that the bare engine would make for a transfer, with shared syncs.
    async fn bare_batches(&self, tasks: usize) -> Result<Round> {
        let (bare, accounts) = (Arc::clone(&self.bare), self.plan.documents);
        let document = Arc::new(self.plan.document(1).into_bytes());
        self.round(tasks, move |task, step| {
            let (bare, document) = (Arc::clone(&bare), Arc::clone(&document));
            async move {
                let (from, to) = pair(task, step, accounts)?;
                let account = |id: i64| {
                    let key = bare_key(u64::try_from(id)?, RECORD_KEY_BYTES);
                    anyhow::Ok(Put::document(key, bare_value(&document)))
                };
                let outcome = Put::document(bare_key(task as u64, OUTCOME_KEY_BYTES), bare_value(&[0; OUTCOME_BYTES]));
                let number = Put::index(bare_key(0, NUMBER_BYTES), vec![0; NUMBER_BYTES]);
                bare.write(vec![account(from)?, account(to)?, outcome, number]).await
            }
        })
        .await
    }

    pub(super) async fn round<F, O>(&self, tasks: usize, operation: F) -> Result<Round>
    where
        F: Fn(usize, u64) -> O + Clone + Send + 'static,
        O: Future<Output = Result<()>> + Send,
    {
        round(Arc::clone(&self.clock), tasks, self.plan.round_duration(), operation).await
    }
}

/// The cost of transfers.
#[derive(Default)]
struct Costs {
    transfers: u64,
    operations: u64,
    syncs: u64,
}

/// Moves 1 from an account to another, again after a conflict.
async fn transfer(database: &Database, namespace: &Namespace, from: i64, to: i64) -> Result<()> {
    let moved = database.transaction(|tx| async move {
        tx.update_one(namespace, rawdoc! { "_id": from }, by(-1)).await?;
        tx.update_one(namespace, rawdoc! { "_id": to }, by(1)).await?;
        Ok::<_, handfast_txn::Error>(())
    });
    Ok(moved.await?)
}

/// Returns the update of an account.
pub(super) fn by(amount: i32) -> RawDocumentBuf {
    rawdoc! { "$inc": { "count": amount } }
}

/// Returns two different accounts.
pub(super) fn pair(task: usize, step: u64, accounts: u64) -> Result<(i64, i64)> {
    let from = scattered(task, step, accounts);
    let others = scattered(!task, step, accounts - 1);
    Ok((i64::try_from(from)?, i64::try_from((from + 1 + others) % accounts)?))
}

fn since(before: Counts, now: Counts) -> Counts {
    Counts { begun: now.begun - before.begun, conflicts: now.conflicts - before.conflicts, ..Counts::default() }
}

fn aborts(counts: Counts) -> String {
    let share = counts.conflicts as f64 / counts.begun.max(1) as f64;
    format!("{:.1} % of {} attempts lost against others", share * 100.0, counts.begun)
}
