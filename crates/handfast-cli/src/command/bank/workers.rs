//! The workers. Each makes transfers one after another, and regularly audits all accounts as they were before a transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use handfast_store::{SeededRandom, Sources};
use handfast_txn::TransactionOptions;
use tokio::task::JoinSet;

use super::accounts::{Accounts, Transferred};
use super::lost_answers::CommitOutcome;
use super::mechanism::{Mechanism, OutcomeCounter};
use super::record::Recorder;
use super::{MoneyTransfer, Run};

/// The largest amount of a transfer.
const AMOUNT_MAX: u64 = 10;
/// The number of transfers for each audit of a worker.
const AUDIT_EVERY: u64 = 50;
/// Processes of the history that one process of the program may use: its workers are numbered from the first one, and
/// their audits from half of them on.
pub(super) const PROCESSES: i64 = 10_000;

/// A function that is called after each transfer with its duration.
type OnTransfer = Arc<dyn Fn(Duration) + Send + Sync>;

/// The workers of this process.
pub(super) struct Workers {
    pub(super) run: Run,
    pub(super) accounts: Accounts,
    pub(super) mechanism: Mechanism,
    pub(super) recorder: Arc<Recorder>,
    pub(super) outcomes: Arc<OutcomeCounter>,
    pub(super) sources: Sources,
    /// The number of the first worker in the history.
    pub(super) first: i64,
}

impl Workers {
    /// Makes this number of transfers with all workers together, and calls `on_transfer` after each with the time since its first
    /// attempt. Returns how many have certainly committed.
    pub(super) async fn run(
        self,
        transfers: u64,
        on_transfer: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Result<u64> {
        let shared = Arc::new(self);
        let left = Arc::new(AtomicU64::new(transfers));
        let on_transfer: OnTransfer = Arc::new(on_transfer);
        let mut tasks = JoinSet::new();
        for worker in 0..shared.run.workers {
            tasks.spawn(shared.clone().work(worker, Arc::clone(&left), Arc::clone(&on_transfer)));
        }
        let mut committed = 0;
        while let Some(done) = tasks.join_next().await {
            committed += done??;
        }
        Ok(committed)
    }

    async fn work(self: Arc<Self>, worker: u32, left: Arc<AtomicU64>, on_transfer: OnTransfer) -> Result<u64> {
        let process = self.first + i64::from(worker);
        let seed = self.run.seed.wrapping_add(u64::from(worker)).wrapping_add((self.first as u64) << 20);
        let random = SeededRandom::new(seed);
        let mut committed = 0;
        while take_one(&left) {
            if committed % AUDIT_EVERY == AUDIT_EVERY / 2 {
                // Its own transfer commits after its snapshot: so there is always an old version to read.
                let transfer = self.timed_transfer(process, &random, &on_transfer, &mut committed);
                self.accounts.audit(&self.mechanism, &self.recorder, process + PROCESSES / 2, transfer).await?;
            } else {
                self.timed_transfer(process, &random, &on_transfer, &mut committed).await?;
            }
        }
        Ok(committed)
    }

    async fn timed_transfer(
        &self,
        process: i64,
        random: &SeededRandom,
        on_transfer: &OnTransfer,
        committed: &mut u64,
    ) -> Result<()> {
        let began = self.sources.clock.elapsed();
        *committed += u64::from(self.transfer(process, random).await?);
        on_transfer(self.sources.clock.elapsed().saturating_sub(began));
        Ok(())
    }

    /// Makes one transfer, in as many attempts as necessary. Returns false if its outcome stays unknown.
    async fn transfer(&self, process: i64, random: &SeededRandom) -> Result<bool> {
        let transfer = MoneyTransfer::random(random, self.run.accounts, AMOUNT_MAX);
        loop {
            let options = TransactionOptions { isolation: self.run.isolation, ..TransactionOptions::default() };
            let ended = self.accounts.transfer(&self.mechanism, options, &self.recorder, process, transfer).await?;
            let outcome = match ended {
                Transferred::Acknowledged => CommitOutcome::Committed,
                Transferred::Asked(outcome) => {
                    self.outcomes.count(outcome);
                    outcome
                }
            };
            match outcome {
                CommitOutcome::Committed => return Ok(true),
                CommitOutcome::RolledBack => {}
                // Another attempt might move the money twice.
                CommitOutcome::Unknown => return Ok(false),
            }
        }
    }
}

fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}
