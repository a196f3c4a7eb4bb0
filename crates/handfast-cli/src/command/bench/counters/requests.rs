//! The requests of the service that the counters follow (seed 3).

/// The reads a minute.
pub(super) const READS_PER_MINUTE: u64 = 300_000;
/// The views a minute.
pub(super) const WRITES_PER_MINUTE: u64 = 9_000;

/// Returns whether the request of a connection at this step is a view.
pub(super) fn is_view(connection: usize, step: u64) -> bool {
    (step + connection as u64).is_multiple_of((READS_PER_MINUTE + WRITES_PER_MINUTE) / WRITES_PER_MINUTE)
}
