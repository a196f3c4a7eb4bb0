//! The workers: each moves money again and again. Now and then it looks at all accounts, as they were before its transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use handfast_store::{Random, SeededRandom, Sources};
use handfast_txn::TransactionOptions;
use tokio::task::JoinSet;

use super::Run;
use super::accounts::{Accounts, Transferred};
use super::doubts::{Told, Witness};
use super::mechanism::Mechanism;
use super::record::Recorder;

/// One audit in so many transfers of a worker.
const AUDIT_EVERY: u64 = 50;
/// Processes of the history that one process of the program may use: its workers are numbered from the first one, and
/// their audits from half of them on.
pub(super) const PROCESSES: i64 = 10_000;

/// What hears of each transfer, and how long it took.
type Tell = Arc<dyn Fn(Duration) + Send + Sync>;

/// What the workers of this process are to do.
pub(super) struct Workers {
    run: Run,
    accounts: Accounts,
    mechanism: Mechanism,
    recorder: Arc<Recorder>,
    witness: Arc<Witness>,
    sources: Sources,
    /// The number of the first one in the history.
    first: i64,
}

impl Workers {
    pub(super) fn new(
        run: &Run,
        accounts: Accounts,
        mechanism: Mechanism,
        recorder: Arc<Recorder>,
        witness: Arc<Witness>,
        sources: Sources,
        first: i64,
    ) -> Result<Self> {
        Ok(Workers { run: run.clone(), accounts, mechanism, recorder, witness, sources, first })
    }

    /// Makes so many transfers, all workers together; each is told of with the time from its first attempt on. Returns how
    /// many have committed for certain.
    pub(super) async fn run(self, transfers: u64, tell: impl Fn(Duration) + Send + Sync + 'static) -> Result<u64> {
        let shared = Arc::new(self);
        let left = Arc::new(AtomicU64::new(transfers));
        let tell: Tell = Arc::new(tell);
        let mut tasks = JoinSet::new();
        for worker in 0..shared.run.workers {
            tasks.spawn(shared.clone().work(worker, Arc::clone(&left), Arc::clone(&tell)));
        }
        let mut committed = 0;
        while let Some(done) = tasks.join_next().await {
            committed += done??;
        }
        Ok(committed)
    }

    async fn work(self: Arc<Self>, worker: u32, left: Arc<AtomicU64>, tell: Tell) -> Result<u64> {
        let process = self.first + i64::from(worker);
        let seed = self.run.seed.wrapping_add(u64::from(worker)).wrapping_add((self.first as u64) << 20);
        let random = SeededRandom::new(seed);
        let mut committed = 0;
        while take_one(&left) {
            if committed % AUDIT_EVERY == AUDIT_EVERY / 2 {
                // Its own transfer goes by beneath its snapshot: so there always is an old version to be read.
                let transfer = self.timed_transfer(process, &random, &tell, &mut committed);
                self.accounts.audit(&self.mechanism, &self.recorder, process + PROCESSES / 2, transfer).await?;
            } else {
                self.timed_transfer(process, &random, &tell, &mut committed).await?;
            }
        }
        Ok(committed)
    }

    async fn timed_transfer(
        &self,
        process: i64,
        random: &SeededRandom,
        tell: &Tell,
        committed: &mut u64,
    ) -> Result<()> {
        let began = self.sources.clock.elapsed();
        *committed += u64::from(self.transfer(process, random).await?);
        tell(self.sources.clock.elapsed().saturating_sub(began));
        Ok(())
    }

    /// Moves money once, however often it takes. False if nobody knows whether it did.
    async fn transfer(&self, process: i64, random: &SeededRandom) -> Result<bool> {
        let (from, to, amount) = self.choose(random);
        loop {
            let options = TransactionOptions { isolation: self.run.isolation, ..TransactionOptions::default() };
            let transfer =
                self.accounts.transfer(&self.mechanism, options, &self.recorder, process, (from, to, amount));
            let told = match transfer.await? {
                Transferred::Told => Told::Committed,
                Transferred::Asked(told) => {
                    self.witness.note(told);
                    told
                }
            };
            match told {
                Told::Committed => return Ok(true),
                Told::RolledBack => {}
                // To try again might move the money twice.
                Told::Unknown => return Ok(false),
            }
        }
    }

    fn choose(&self, random: &SeededRandom) -> (u32, u32, i64) {
        let count = u64::from(self.run.accounts);
        let from = random.next_u64() % count;
        let to = (from + 1 + random.next_u64() % (count - 1)) % count;
        let amount = 1 + (random.next_u64() % 10) as i64;
        (from as u32, to as u32, amount)
    }
}

fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}
