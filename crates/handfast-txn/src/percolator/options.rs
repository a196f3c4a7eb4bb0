//! Options of the engine.

use std::time::Duration;

use handfast_store::routed::Routing;

/// The time for which a lock is respected without a heartbeat of its transaction.
pub const LOCK_TTL: Duration = Duration::from_secs(5);
/// The time for which history and decisions are kept.
pub const RETENTION: Duration = Duration::from_secs(600);
/// The time for which history is kept for old snapshots of a process without a heartbeat.
pub const LEASE_TTL: Duration = Duration::from_secs(60);
/// The time for which outcomes of named transactions are kept.
pub const OUTCOME_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// The interval between two passes of the cleaner.
pub const CLEANING_INTERVAL: Duration = Duration::from_secs(30);

/// The most data requests of an engine that are under way at the same time: fewer than a store has connections.
pub const REQUESTS_MAX: usize = 64;

/// The most bytes of `_id`s that a query without a sort remembers: some 200,000.
pub const SEEN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Options of the engine. All processes that share a store use the same.
#[derive(Clone, Debug)]
pub struct PercolatorOptions {
    /// The time for which a lock is respected without a heartbeat of its transaction. A long commit sends one every third of this.
    pub lock_ttl: Duration,
    /// The time for which history, rollback records and tombstones are kept. A commit timestamp is at most half of this after the start; a request that was
    /// sent arrives within this, or never. A process with a snapshot older than half of this takes a lease.
    pub retention: Duration,
    /// The time for which such a lease is respected without a heartbeat of its process, which sends one every third of this.
    pub lease_ttl: Duration,
    /// The time for which outcomes of named transactions and results of requests with tickets are kept, at least `retention`: longer than any client
    /// repeats a request or asks for an outcome. After that the outcome is unknown.
    pub outcome_retention: Duration,
    /// The most bytes of `_id`s that a query without a sort remembers, to return each document once. A larger query goes on by `_id`: it reads its
    /// first documents again, and sends one more find for each page.
    pub seen_bytes_max: usize,
    /// The most data requests that are under way at the same time: fewer than the store has connections, since heartbeats and requests for
    /// timestamps come on top and must not wait.
    pub requests_max: usize,
    /// The interval between two passes of the cleaner; `None` for no cleaner.
    pub cleaning_interval: Option<Duration>,
    /// The rule of a routed store. The engine renames a collection without moving its documents, so it must know which names
    /// belong to the same part.
    pub routing: Option<Routing>,
}

impl Default for PercolatorOptions {
    fn default() -> Self {
        let cleaning_interval = Some(CLEANING_INTERVAL);
        PercolatorOptions {
            lock_ttl: LOCK_TTL,
            retention: RETENTION,
            lease_ttl: LEASE_TTL,
            outcome_retention: OUTCOME_RETENTION,
            seen_bytes_max: SEEN_BYTES_MAX,
            requests_max: REQUESTS_MAX,
            cleaning_interval,
            routing: None,
        }
    }
}
