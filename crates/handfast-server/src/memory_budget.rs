//! A bound on the bytes that large messages hold in memory, over all connections.
//!
//! Small messages need no reservation, because their number is bounded by that of the connections. A large one reserves its size before
//! it is read or built, and waits until so much is free. Requests, inflated requests and replies have a budget each, and are
//! reserved in this order, so that no two messages wait for each other.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Messages up to this size need no reservation.
pub(crate) const FREE_BYTES: usize = 64 * 1024;

/// A semaphore counts units of this many bytes.
const UNIT_BYTES: usize = 1024;

/// Bytes that may be in memory at once.
pub(crate) struct MemoryBudget {
    units: Arc<Semaphore>,
    units_max: u32,
}

/// Bytes that are reserved until this is dropped.
pub(crate) struct MemoryReservation {
    _permit: Option<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let units_max = u32::try_from(bytes_max / UNIT_BYTES).unwrap_or(u32::MAX).max(1);
        let count = usize::try_from(units_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        MemoryBudget { units: Arc::new(Semaphore::new(count)), units_max }
    }

    /// Waits until `bytes` bytes are free, and reserves them. A message that is larger than the whole budget takes all of it.
    pub(crate) async fn reserve(&self, bytes: usize) -> MemoryReservation {
        if bytes <= FREE_BYTES {
            return MemoryReservation { _permit: None };
        }
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.units_max);
        // The semaphore is never closed.
        let permit = Arc::clone(&self.units).acquire_many_owned(units).await.ok();
        MemoryReservation { _permit: permit }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FREE_BYTES, MemoryBudget};

    async fn waits(budget: &MemoryBudget, bytes: usize) -> bool {
        tokio::time::timeout(Duration::from_millis(1), budget.reserve(bytes)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_message_waits_until_enough_bytes_are_free() {
        let budget = MemoryBudget::new(1024 * 1024);
        let first = budget.reserve(800 * 1024).await;
        assert!(waits(&budget, 300 * 1024).await);
        assert!(!waits(&budget, 200 * 1024).await);
        assert!(!waits(&budget, FREE_BYTES).await);
        drop(first);
        assert!(!waits(&budget, 300 * 1024).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_larger_than_the_budget_gets_all_of_it() {
        let budget = MemoryBudget::new(1024 * 1024);
        let all = budget.reserve(48_000_000).await;
        assert!(waits(&budget, 100 * 1024).await);
        drop(all);
        assert!(!waits(&budget, 100 * 1024).await);
    }
}
