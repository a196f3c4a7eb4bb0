//! The distribution of durations, counted by atomics: `serverStatus` has it for reads, writes and syncs, and the dashboard makes percentiles of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The powers of two that have buckets of their own; longer durations are in the last bucket.
const POWERS: u32 = 34;
/// The buckets of a power of two, so that a bucket is at most a quarter wider than its bound.
const BUCKETS_OF_POWER: u64 = 4;
/// The number of buckets: one for each of 0 to 3 microseconds, and then 4 for each power of two.
const BUCKETS: usize = (BUCKETS_OF_POWER + POWERS as u64 * BUCKETS_OF_POWER) as usize;

/// The distribution of durations.
#[derive(Debug)]
pub struct Durations {
    count: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Durations {
    fn default() -> Self {
        Durations {
            count: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl Durations {
    /// Adds a duration.
    pub fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        if let Some(bucket) = self.buckets.get(bucket_of(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the sum of the durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Returns the least duration of each bucket that is not empty, in microseconds, and the number of durations in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self
            .buckets
            .iter()
            .enumerate()
            .map(|(place, count)| (least_of(place as u64), count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0)
    }
}

/// Returns the place of the bucket of a duration in microseconds.
fn bucket_of(micros: u64) -> usize {
    if micros < BUCKETS_OF_POWER {
        return usize::try_from(micros).unwrap_or_default();
    }
    // The two bits after the first one select the bucket of the power.
    let shift = micros.ilog2() - BUCKETS_OF_POWER.ilog2();
    let place = u64::from(shift) * BUCKETS_OF_POWER + (micros >> shift);
    usize::try_from(place).map_or(BUCKETS - 1, |place| place.min(BUCKETS - 1))
}

/// Returns the least duration of the bucket at a place, in microseconds.
fn least_of(place: u64) -> u64 {
    if place < BUCKETS_OF_POWER {
        return place;
    }
    let shift = place / BUCKETS_OF_POWER - 1;
    (BUCKETS_OF_POWER + place % BUCKETS_OF_POWER) << shift
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, bucket_of, least_of};

    #[test]
    fn the_buckets_of_durations_have_no_gap_and_no_overlap() {
        for place in 0..BUCKETS {
            let least = least_of(place as u64);
            assert_eq!(bucket_of(least), place, "the least duration");
            if place > 0 {
                assert_eq!(bucket_of(least - 1), place - 1, "the duration before it");
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1, "the longest duration");
    }
}
