//! The progress bar of a run: transfers, their rate, and their durations.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;

/// Latencies in microseconds, up to a minute.
pub(super) type Latencies = Histogram<u64>;

/// The number of transfers between two updates of the text: a quantile is a walk through a thousand numbers.
const TEXT_EVERY: u64 = 32;

pub(super) struct Progress {
    bar: ProgressBar,
    latencies: Mutex<Latencies>,
    done: AtomicU64,
    kills: AtomicU32,
}

impl Progress {
    pub(super) fn new(bar: ProgressBar) -> Result<Self> {
        let latencies = Mutex::new(Histogram::new_with_bounds(1, 60_000_000, 3)?);
        Ok(Progress { bar, latencies, done: AtomicU64::new(0), kills: AtomicU32::new(0) })
    }

    /// Counts a transfer, which took so long from its first attempt on.
    pub(super) fn transferred(&self, took: Duration) {
        let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        latencies.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.bar.inc(1);
        if self.done.fetch_add(1, Ordering::Relaxed).is_multiple_of(TEXT_EVERY) {
            self.bar.set_message(text(&latencies, self.kills.load(Ordering::Relaxed)));
        }
    }

    pub(super) fn killed(&self) {
        self.kills.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the bar, and returns the durations of all transfers.
    pub(super) fn finish(&self) -> Latencies {
        self.bar.finish_and_clear();
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn text(latencies: &Latencies, kills: u32) -> String {
    let millis = |quantile| Duration::from_micros(latencies.value_at_quantile(quantile)).as_secs_f64() * 1000.0;
    let kills = if kills > 0 { format!(", {kills} kills") } else { String::new() };
    format!("p50 {:.1} ms, p99 {:.1} ms{kills}", millis(0.5), millis(0.99))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use indicatif::ProgressBar;

    use super::{Progress, text};

    #[test]
    fn the_text_tells_how_long_transfers_take() {
        let progress = Progress::new(ProgressBar::hidden()).unwrap();
        for millis in 1..=100 {
            progress.transferred(Duration::from_millis(millis));
        }
        let latencies = progress.finish();
        assert_eq!(latencies.len(), 100);
        assert_eq!(text(&latencies, 0), "p50 50.0 ms, p99 99.0 ms");
        assert_eq!(text(&latencies, 3), "p50 50.0 ms, p99 99.0 ms, 3 kills");
        assert_eq!(progress.bar.position(), 100);
        // The bar's message was made at the 97th transfer.
        assert_eq!(progress.bar.message(), "p50 49.0 ms, p99 97.0 ms");
    }
}
