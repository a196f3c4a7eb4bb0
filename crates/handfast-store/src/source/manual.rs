//! Sources that a test controls.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bson::DateTime;
use bson::oid::ObjectId;

use super::{Clock, IdSource, Random};

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    now_millis: AtomicI64,
    elapsed_nanos: AtomicU64,
}

impl ManualClock {
    /// 2020-01-01T00:00:00Z: some day that is neither 1970 nor today.
    pub const START: DateTime = DateTime::from_millis(1_577_836_800_000);

    /// Creates a clock that shows `now`, with no time elapsed.
    pub fn new(now: DateTime) -> Self {
        ManualClock { now_millis: AtomicI64::new(now.timestamp_millis()), elapsed_nanos: AtomicU64::new(0) }
    }

    /// Advances both the elapsed time and the time of day.
    pub fn advance(&self, by: Duration) {
        self.now_millis.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
        self.elapsed_nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets the time of day, forward or back, without changing the elapsed time, as an administrator or NTP does.
    pub fn set(&self, now: DateTime) {
        self.now_millis.store(now.timestamp_millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime {
        DateTime::from_millis(self.now_millis.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_nanos.load(Ordering::SeqCst))
    }
}

/// The generator xoshiro256++ (Blackman and Vigna, 2019), which returns the same numbers for the same seed. It is not for
/// secrets: its output can be predicted from earlier output.
#[derive(Debug)]
pub struct SeededRandom {
    state: Mutex<[u64; 4]>,
}

impl SeededRandom {
    /// Creates a generator from a seed. SplitMix64 spreads the seed over the state, as the generator's authors advise.
    pub fn new(seed: u64) -> Self {
        let mut seed = seed;
        SeededRandom::from_state([(); 4].map(|()| split_mix(&mut seed)))
    }

    /// Creates a generator from a whole state. A state of zeros, which would never change, is replaced.
    pub(super) fn from_state(state: [u64; 4]) -> Self {
        if state == [0; 4] { SeededRandom::new(0) } else { SeededRandom { state: Mutex::new(state) } }
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let [s0, s1, s2, s3] = *state;
        let result = s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0);
        let (t2, t3) = (s2 ^ s0, s3 ^ s1);
        *state = [s0 ^ t3, s1 ^ t2, t2 ^ (s1 << 17), t3.rotate_left(45)];
        result
    }
}

/// Takes a step of SplitMix64 (Steele, Lea and Flood, 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The ids 1, 2, 3, .. as ObjectIds: easy to read in an expected output.
#[derive(Debug, Default)]
pub struct CountingIds {
    last: AtomicU64,
}

impl CountingIds {
    /// Creates a source whose first id is `000000000000000000000001`.
    pub fn new() -> Self {
        CountingIds::default()
    }
}

impl IdSource for CountingIds {
    fn object_id(&self) -> ObjectId {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&number.to_be_bytes());
        ObjectId::from_bytes(bytes)
    }
}
