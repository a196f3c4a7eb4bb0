//! Background work in rounds, which are repeated until a token is cancelled.
//!
//! ```text
//! wait (interval, give or take the jitter) ── round: at most a batch of items ──┬── more than a batch: next round at once
//!   ^                                                                           │
//!   └───────────────────────────────────────────────────────────────────────────┘ otherwise, and after a failure
//! ```
//!
//! A round is never cut off: after a cancellation the round that is under way still ends. Any number of processes may
//! run the same rounds at once; the jitter keeps those that were started together from working at the same moment.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use handfast_store::Sources;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{Error, Result, metrics};

/// Options for the time between rounds and their size.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// The time from the end of a round to the beginning of the next one.
    pub interval: Duration,
    /// The largest part of the interval, from 0 to 1, by which it is made shorter or longer at random: 0.2 is a fifth.
    pub jitter: f64,
    /// The largest number of items in one round, which bounds its duration and memory.
    pub batch: u32,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        RunnerOptions { interval: Duration::from_secs(60), jitter: 0.2, batch: 100 }
    }
}

/// The counts of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The items that the round completed.
    pub done: u64,
    /// The items that failed. Each failure was logged, and a later round tries the item again.
    pub failed: u64,
    /// Whether the batch was full, so that more items may be waiting.
    pub more: bool,
}

/// The counts of a runner since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunnerCounts {
    /// All rounds, including those that failed.
    pub rounds: u64,
    /// The rounds that could not be carried out.
    pub rounds_failed: u64,
    /// The items that were completed.
    pub done: u64,
    /// The failures of single items.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Counters {
    rounds: AtomicU64,
    rounds_failed: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
}

/// Background work that was started. Dropping it cancels the work.
#[derive(Debug)]
pub struct Runner {
    cancel: CancellationToken,
    counters: Arc<Counters>,
    task: Option<JoinHandle<()>>,
}

impl Runner {
    /// Runs `round` in the background until `cancel` is cancelled, or the runner stopped or dropped. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a jitter outside of 0 to 1, a batch of 0, or an interval of 0.
    pub fn spawn<F>(
        name: &'static str,
        sources: &Sources,
        options: RunnerOptions,
        cancel: &CancellationToken,
        round: impl Fn(u32) -> F + Send + 'static,
    ) -> Result<Self>
    where
        F: Future<Output = Result<Round>> + Send + 'static,
    {
        if !(0.0..=1.0).contains(&options.jitter) || options.batch == 0 || options.interval.is_zero() {
            return Err(Error::invalid("a runner needs a jitter from 0 to 1, a batch of at least 1, and an interval"));
        }
        let (cancel, counters) = (cancel.child_token(), Arc::new(Counters::default()));
        let work = run(name, sources.clone(), options, cancel.clone(), Arc::clone(&counters), round);
        let task = tokio::spawn(work.instrument(tracing::info_span!("runner", name)));
        Ok(Runner { cancel, counters, task: Some(task) })
    }

    /// Runs `look` in the background, which only reads: it completes no items, and so no second round follows at once.
    pub(crate) fn spawn_look<T, F>(
        name: &'static str,
        sources: &Sources,
        options: RunnerOptions,
        cancel: &CancellationToken,
        look: impl Fn() -> F + Send + 'static,
    ) -> Result<Self>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        Runner::spawn(name, sources, options, cancel, move |_| {
            let looked = look();
            async move { looked.await.map(|_| Round::default()) }
        })
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> RunnerCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { rounds, rounds_failed, done, failed } = &*self.counters;
        RunnerCounts {
            rounds: read(rounds),
            rounds_failed: read(rounds_failed),
            done: read(done),
            failed: read(failed),
        }
    }

    /// Cancels the work, and waits for the end of the round that is under way.
    ///
    /// # Cancellation
    /// The work is cancelled all the same.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::warn!(%error, "background work ended with a panic");
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

async fn run<F: Future<Output = Result<Round>> + Send>(
    name: &'static str,
    sources: Sources,
    options: RunnerOptions,
    cancel: CancellationToken,
    counters: Arc<Counters>,
    round: impl Fn(u32) -> F + Send,
) {
    loop {
        let wait = jittered(options.interval, options.jitter, sources.random.next_u64());
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        while !cancel.is_cancelled() {
            let begun = sources.clock.elapsed();
            let result = round(options.batch).await;
            metrics::round(name, sources.clock.elapsed().saturating_sub(begun), result.as_ref().ok().copied());
            if !count(name, &counters, result) {
                break;
            }
        }
    }
}

/// Counts a round; returns whether the next one is to follow at once.
fn count(name: &'static str, counters: &Counters, result: Result<Round>) -> bool {
    counters.rounds.fetch_add(1, Ordering::Relaxed);
    match result {
        Ok(round) => {
            counters.done.fetch_add(round.done, Ordering::Relaxed);
            counters.failed.fetch_add(round.failed, Ordering::Relaxed);
            // If every item of a round failed, the next round would meet the same items.
            round.more && round.done > 0
        }
        Err(error) => {
            counters.rounds_failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(runner = name, %error, "a round of background work failed, it is tried again later");
            false
        }
    }
}

/// Returns the duration, made shorter or longer by at most this part of it.
pub(crate) fn jittered(duration: Duration, jitter: f64, random: u64) -> Duration {
    // A double holds 53 bits exactly.
    let zero_to_one = (random >> 11) as f64 / (1_u64 << 53) as f64;
    duration.mul_f64(1.0 + jitter * (2.0 * zero_to_one - 1.0))
}
