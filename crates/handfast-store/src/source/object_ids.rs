//! ObjectIds by the BSON specification: 4 bytes of seconds, 5 random bytes of this process, a counter of 3.
//!
//! Seconds and counter are kept as one number that only grows: if the counter runs over within a second, or the clock
//! is set back, the seconds run ahead instead. So no id occurs twice, and ids of one process sort in the order of their
//! creation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::oid::ObjectId;

use super::{Clock, IdSource, Random};

const COUNTER_BITS: u32 = 24;
pub(super) const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;

/// A generator of ObjectIds.
pub struct ObjectIds {
    clock: Arc<dyn Clock>,
    process: [u8; 5],
    /// The seconds and the counter of the last id.
    pub(super) last: AtomicU64,
}

impl ObjectIds {
    /// Creates a generator with random process bytes and a random start of the counter.
    pub fn new(clock: Arc<dyn Clock>, random: &dyn Random) -> Self {
        let [a, b, c, d, e, ..] = random.next_u64().to_le_bytes();
        ObjectIds { clock, process: [a, b, c, d, e], last: AtomicU64::new(random.next_u64() & COUNTER_MASK) }
    }
}

impl IdSource for ObjectIds {
    fn object_id(&self) -> ObjectId {
        let now_seconds = u64::try_from(self.clock.now().timestamp_millis() / 1000).unwrap_or(0) & u64::from(u32::MAX);
        let next = |last: u64| {
            if now_seconds > last >> COUNTER_BITS {
                now_seconds << COUNTER_BITS | ((last + 1) & COUNTER_MASK)
            } else {
                last.wrapping_add(1)
            }
        };
        let last = match self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last))) {
            Ok(last) | Err(last) => last,
        };
        let [_, s0, s1, s2, s3, c0, c1, c2] = next(last).to_be_bytes();
        let [p0, p1, p2, p3, p4] = self.process;
        ObjectId::from_bytes([s0, s1, s2, s3, p0, p1, p2, p3, p4, c0, c1, c2])
    }
}
