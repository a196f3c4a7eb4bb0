//! The requests of the service that the counters follow (seed 3), and the items that they name.

use super::super::store::scattered;

/// The reads a minute.
pub(super) const READS_PER_MINUTE: u64 = 300_000;
/// The views a minute.
pub(super) const WRITES_PER_MINUTE: u64 = 9_000;

/// Returns whether the request of a connection at this step is a view.
pub(super) fn is_view(connection: usize, step: u64) -> bool {
    (step + connection as u64).is_multiple_of((READS_PER_MINUTE + WRITES_PER_MINUTE) / WRITES_PER_MINUTE)
}

/// The exponent of Zipf's law for the views of items, as in YCSB's default workloads (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", section 5.2).
const ZIPF_EXPONENT: f64 = 0.99;

/// Items of which few are popular: the second most popular one gets half of the views of the first, the third a third (Zipf's law).
pub(super) struct PopularItems {
    /// For each rank, the share of the views that go to it and to the ranks before it.
    shares: Vec<f64>,
}

impl PopularItems {
    pub(super) fn new(items: u64) -> Self {
        let weights: Vec<f64> = (1..=items).map(|rank| (rank as f64).powf(-ZIPF_EXPONENT)).collect();
        let total: f64 = weights.iter().sum();
        let shares = weights.iter().scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        });
        PopularItems { shares: shares.collect() }
    }

    /// Returns the item that a task views at this step.
    pub(super) fn item(&self, task: usize, step: u64) -> u64 {
        /// The number of different shares that can be drawn.
        const DRAWN: u64 = 1 << 40;
        let drawn = scattered(task, step, DRAWN) as f64 / DRAWN as f64;
        /// A prime: items of neighbouring ranks are not neighbours in the store.
        const STRIDE: u64 = 7919;
        let rank = self.shares.partition_point(|share| *share < drawn) as u64;
        rank * STRIDE % self.shares.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::PopularItems;

    #[test]
    fn the_most_popular_items_get_most_views() {
        let popular = PopularItems::new(1000);
        let mut views = vec![0_u64; 1000];
        for step in 0..10_000 {
            for task in 0..10 {
                views[popular.item(task, step) as usize] += 1;
            }
        }
        views.sort_unstable_by(|one, other| other.cmp(one));
        // The shares of 1, 1/2 and 1/3 of 1 + 1/2 + .. + 1/1000, with the exponent 0.99.
        for (got, expected) in views.into_iter().zip([13_000, 6_500, 4_400]) {
            assert!(got.abs_diff(expected) < expected / 10, "{got} views, {expected} are expected");
        }
    }
}
