//! Standard deviations in one pass (Welford): mean and squared distances are kept up to date with each number.

use crate::number::Number;

/// The running mean and the sum of squared distances from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deviation {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Deviation {
    pub(crate) fn add(&mut self, number: Number) {
        let value = number.to_f64();
        self.count += 1;
        let distance = value - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (value - self.mean);
    }

    /// Returns the deviation of a population, or of a sample (which needs two numbers).
    pub(crate) fn result(&self, sample: bool) -> Option<f64> {
        let divisor = if sample { self.count.checked_sub(1)? } else { self.count };
        if divisor == 0 {
            return None;
        }
        Some((self.squares / divisor as f64).sqrt())
    }
}
