//! The workers: each moves money again and again. Now and then it looks at all accounts, as they were before its transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use handfast_store::{Random, SeededRandom, Sources};
use handfast_txn::{Database, TransactionOptions};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use super::Run;
use super::accounts::{Accounts, Transferred};
use super::doubts::{Told, Witness};
use super::record::Recorder;

/// One audit in so many transfers of a worker.
const AUDIT_EVERY: u64 = 50;
/// Processes of the history that one process of the program may use: its workers are numbered from the first one, and
/// their audits from half of them on.
pub(super) const PROCESSES: i64 = 10_000;

/// Latencies in microseconds, up to a minute.
pub(super) type Latencies = Histogram<u64>;

/// What the workers of this process are to do.
pub(super) struct Workers {
    run: Run,
    accounts: Accounts,
    database: Database,
    recorder: Arc<Recorder>,
    witness: Arc<Witness>,
    sources: Sources,
    /// The number of the first one in the history.
    first: i64,
}

/// What they did.
pub(super) struct Done {
    pub(super) committed: u64,
    pub(super) latencies: Latencies,
}

impl Workers {
    pub(super) fn new(
        run: &Run,
        database: Database,
        recorder: Arc<Recorder>,
        witness: Arc<Witness>,
        sources: Sources,
        first: i64,
    ) -> Result<Self> {
        let accounts = Accounts::new(run.accounts)?;
        Ok(Workers { run: run.clone(), accounts, database, recorder, witness, sources, first })
    }

    /// Has so many transfers committed, all workers together.
    pub(super) async fn run(self, transfers: u64, committed: impl Fn(u64) + Send + Sync + 'static) -> Result<Done> {
        let shared = Arc::new(self);
        let left = Arc::new(AtomicU64::new(transfers));
        let committed: Arc<dyn Fn(u64) + Send + Sync> = Arc::new(committed);
        let mut tasks = JoinSet::new();
        for worker in 0..shared.run.workers {
            tasks.spawn(shared.clone().work(worker, Arc::clone(&left), Arc::clone(&committed)));
        }
        let mut all = Done::new()?;
        while let Some(done) = tasks.join_next().await {
            let done = done??;
            all.committed += done.committed;
            all.latencies.add(&done.latencies)?;
        }
        Ok(all)
    }

    async fn work(
        self: Arc<Self>,
        worker: u32,
        left: Arc<AtomicU64>,
        committed: Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<Done> {
        let process = self.first + i64::from(worker);
        let seed = self.run.seed.wrapping_add(u64::from(worker)).wrapping_add((self.first as u64) << 20);
        let random = SeededRandom::new(seed);
        let mut done = Done::new()?;
        while take_one(&left) {
            if done.committed % AUDIT_EVERY == AUDIT_EVERY / 2 {
                // Its own transfer goes by beneath its snapshot: so there always is an old version to be read.
                let transfer = self.timed_transfer(process, &random, &mut done);
                self.accounts.audit(&self.database, &self.recorder, process + PROCESSES / 2, transfer).await?;
            } else {
                self.timed_transfer(process, &random, &mut done).await?;
            }
            committed(1);
        }
        Ok(done)
    }

    async fn timed_transfer(&self, process: i64, random: &SeededRandom, done: &mut Done) -> Result<()> {
        let began = self.sources.clock.elapsed();
        self.transfer(process, random, done).await?;
        let took = self.sources.clock.elapsed().saturating_sub(began);
        done.latencies.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Moves money once, however often it takes.
    async fn transfer(&self, process: i64, random: &SeededRandom, done: &mut Done) -> Result<()> {
        let (from, to, amount) = self.choose(random);
        loop {
            let options = TransactionOptions { isolation: self.run.isolation, ..TransactionOptions::default() };
            let transfer = self.accounts.transfer(&self.database, options, &self.recorder, process, (from, to, amount));
            let told = match transfer.await? {
                Transferred::Told => Told::Committed,
                Transferred::Asked(told) => {
                    self.witness.note(told);
                    told
                }
            };
            match told {
                Told::Committed => {
                    done.committed += 1;
                    return Ok(());
                }
                Told::RolledBack => {}
                // To try again might move the money twice.
                Told::Unknown => return Ok(()),
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

impl Done {
    fn new() -> Result<Self> {
        Ok(Done { committed: 0, latencies: Histogram::new_with_bounds(1, 60_000_000, 3)? })
    }
}

fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}
