//! Standard deviations in one pass (Welford): mean and squared distances are kept up to date with each number. Those of two
//! lists of numbers are merged by the formula of Chan, Golub and LeVeque (1979).

use super::window::Merge;
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

impl Merge for Deviation {
    fn merge(&mut self, later: &Self) {
        if self.count == 0 || later.count == 0 {
            if self.count == 0 {
                self.clone_from(later);
            }
            return;
        }
        let (here, there) = (self.count as f64, later.count as f64);
        let distance = later.mean - self.mean;
        self.count += later.count;
        self.mean += distance * there / (here + there);
        self.squares += later.squares + distance * distance * here * there / (here + there);
    }
}
