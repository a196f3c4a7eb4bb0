//! The cluster time: a logical clock in MongoDB's form, seconds and a counter within the second.
//!
//! ```text
//! Timestamp(1763750000, 7)      the seventh moment of that second
//! ```
//!
//! A server shows it in its replies, and a change log gives each commit a moment of it. Both use one clock, so that a client that
//! names the moment of a reply gets the changes that were committed after that reply. Reading it is a single atomic load.

use std::sync::atomic::{AtomicU64, Ordering};

use bson::{DateTime, Timestamp};

/// The position of the seconds in a timestamp's 64 bits.
const SECOND_SHIFT: u32 = 32;

/// A logical clock, which advances with each commit and with the seconds of the clock.
#[derive(Debug)]
pub struct ClusterClock {
    now: AtomicU64,
    /// The moment before the first change that has a moment and is not visible yet; 0 if there is none.
    settled: AtomicU64,
}

impl ClusterClock {
    /// Creates a clock at the first moment of this second.
    pub fn new(now: DateTime) -> Self {
        ClusterClock { now: AtomicU64::new(first_of(now)), settled: AtomicU64::new(0) }
    }

    /// Returns the current moment.
    pub fn now(&self) -> Timestamp {
        of_bits(self.now.load(Ordering::Acquire))
    }

    /// Advances the clock by one, and returns the new moment, which no other call returns.
    pub fn advance(&self) -> Timestamp {
        of_bits(self.now.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Returns a moment of which all changes are visible, and all of earlier ones: changes that become visible later have later
    /// moments.
    pub fn settled(&self) -> Timestamp {
        // In this order: a change is held before the clock advances to its moment, and released when it is visible.
        let now = self.now.load(Ordering::Acquire);
        let settled = self.settled.load(Ordering::Acquire);
        of_bits(if settled == 0 { now } else { settled.min(now) })
    }

    /// Advances the clock for a change that is not visible yet. Changes become visible together, by [`ClusterClock::release`].
    pub fn advance_held(&self) -> Timestamp {
        let now = self.now.load(Ordering::Acquire);
        // It stays where it is while other changes are held.
        let _held = self.settled.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
        self.advance()
    }

    /// Says that all changes that have a moment are visible.
    pub fn release(&self) {
        self.settled.store(0, Ordering::Release);
    }

    /// Raises the clock to the clock's second, if it is lower.
    pub fn reach(&self, now: DateTime) {
        self.now.fetch_max(first_of(now), Ordering::AcqRel);
    }

    /// Raises the clock to a moment, if it is lower.
    pub fn pass(&self, moment: Timestamp) {
        self.now.fetch_max(bits(moment), Ordering::AcqRel);
    }
}

/// Returns the 64 bits of a timestamp, which are in the order of time.
pub fn bits(moment: Timestamp) -> u64 {
    u64::from(moment.time) << SECOND_SHIFT | u64::from(moment.increment)
}

/// Returns the timestamp of these bits.
pub fn of_bits(bits: u64) -> Timestamp {
    let [a, b, c, d, e, f, g, h] = bits.to_be_bytes();
    Timestamp { time: u32::from_be_bytes([a, b, c, d]), increment: u32::from_be_bytes([e, f, g, h]) }
}

/// Returns the first moment of the clock's second.
fn first_of(now: DateTime) -> u64 {
    let seconds = u64::try_from(now.timestamp_millis() / 1_000).unwrap_or(0);
    (seconds << SECOND_SHIFT) | 1
}
