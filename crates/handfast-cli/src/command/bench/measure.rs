//! Runs an operation from many tasks for a while, and measures how many were done and how long each took.
//!
//! Timings on a shared machine vary. Subject and baseline are therefore measured in turns within one run, and a figure is the median over
//! the rounds.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use handfast_store::Clock;
use hdrhistogram::Histogram;

/// Latencies beyond a minute are counted as a minute.
const LATENCY_MAX: Duration = Duration::from_secs(60);
/// Digits that a latency keeps.
const LATENCY_DIGITS: u8 = 3;

/// The measurements of one round.
pub(crate) struct Round {
    /// Operations done.
    pub(crate) operations: u64,
    /// The duration of the round.
    pub(crate) elapsed: Duration,
    /// The processor time of this program, client and server together.
    pub(crate) processor: Duration,
    /// The latency of each operation in nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

impl Round {
    /// Returns the operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }
}

/// All rounds of one case.
#[derive(Default)]
pub(crate) struct Series {
    rounds: Vec<Round>,
}

impl Series {
    pub(crate) fn push(&mut self, round: Round) {
        self.rounds.push(round);
    }

    /// Returns the median of the rounds' rates; 0 without a round.
    pub(crate) fn rate(&self) -> f64 {
        let mut rates: Vec<f64> = self.rounds.iter().map(Round::rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    }

    /// Returns the operations of all rounds.
    pub(crate) fn operations(&self) -> u64 {
        self.rounds.iter().map(|round| round.operations).sum()
    }

    /// Returns the duration of all rounds.
    pub(crate) fn elapsed(&self) -> Duration {
        self.rounds.iter().map(|round| round.elapsed).sum()
    }

    /// Returns the processor time of one operation over all rounds; zero without an operation.
    pub(crate) fn processor(&self) -> Duration {
        let operations = self.operations();
        let spent: Duration = self.rounds.iter().map(|round| round.processor).sum();
        spent.div_f64((operations as f64).max(1.0))
    }

    /// Returns the latency under which this share of all operations stayed.
    pub(crate) fn latency(&self, quantile: f64) -> Duration {
        let mut all: Option<Histogram<u64>> = None;
        for round in &self.rounds {
            match &mut all {
                None => all = Some(round.latency.clone()),
                Some(sum) => {
                    // The bounds are the same, so the addition cannot fail.
                    let _ = sum.add(&round.latency);
                }
            }
        }
        Duration::from_nanos(all.map_or(0, |histogram| histogram.value_at_quantile(quantile)))
    }
}

/// The rounds of a case and of its baseline.
#[derive(Default)]
pub(crate) struct InterleavedRounds {
    pub(crate) subject: Series,
    pub(crate) baseline: Series,
}

/// Measures the baseline and the subject in turns. Both get the number of the round.
pub(crate) async fn interleaved(
    rounds: usize,
    mut baseline: impl AsyncFnMut(u64) -> Result<Round>,
    mut subject: impl AsyncFnMut(u64) -> Result<Round>,
) -> Result<InterleavedRounds> {
    let mut measured = InterleavedRounds::default();
    for round in 0..rounds as u64 {
        measured.baseline.push(baseline(round).await?);
        measured.subject.push(subject(round).await?);
    }
    Ok(measured)
}

/// Runs `operation(task, step)` in a loop in each of `tasks` tasks, until `duration` is over.
pub(crate) async fn round<F, O>(clock: Arc<dyn Clock>, tasks: usize, duration: Duration, operation: F) -> Result<Round>
where
    F: Fn(usize, u64) -> O + Clone + Send + 'static,
    O: Future<Output = Result<()>> + Send,
{
    let start = clock.elapsed();
    let before = processor_time();
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let (clock, operation) = (Arc::clone(&clock), operation.clone());
        running.spawn(async move {
            let mut latency = new_histogram()?;
            let mut before = clock.elapsed();
            for step in 0.. {
                operation(task, step).await?;
                let after = clock.elapsed();
                latency.saturating_record(nanoseconds(after.saturating_sub(before)));
                if after.saturating_sub(start) >= duration {
                    break;
                }
                before = after;
            }
            anyhow::Ok(latency)
        });
    }
    let mut latency = new_histogram()?;
    while let Some(joined) = running.join_next().await {
        latency.add(&joined??)?;
    }
    let elapsed = clock.elapsed().saturating_sub(start);
    let processor = processor_time().saturating_sub(before);
    Ok(Round { operations: latency.len(), elapsed, processor, latency })
}

/// Returns the processor time that this process has used so far.
pub(super) fn processor_time() -> Duration {
    // It is never negative.
    rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

pub(super) fn new_histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(nanoseconds(LATENCY_MAX), LATENCY_DIGITS)?)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
