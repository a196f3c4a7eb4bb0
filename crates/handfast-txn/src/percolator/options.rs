//! How the engine behaves.

use std::time::Duration;

use handfast_store::routed::Routing;

/// How long a lock is respected without a sign of life from its transaction.
pub const LOCK_TTL: Duration = Duration::from_secs(5);
/// How long history is kept, and what became of transactions.
pub const RETENTION: Duration = Duration::from_secs(600);
/// How long history is kept for the old snapshots of a process without a sign of life from it.
pub const LEASE_TTL: Duration = Duration::from_secs(60);
/// How long the outcomes of transactions that have a name are kept.
pub const OUTCOME_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// How often what is left behind is looked for.
pub const CLEANING_INTERVAL: Duration = Duration::from_secs(30);

/// Requests of an engine for data that are under way at the same time: fewer than a store has connections.
pub const REQUESTS_MAX: usize = 64;

/// What a query without an order remembers of the documents that it has shown, in bytes: some 200,000 `_id`s.
pub const SEEN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How the engine behaves. All processes that share a store have the same.
#[derive(Clone, Debug)]
pub struct PercolatorOptions {
    /// How long a lock is respected without a sign of life from its transaction. A third of it is how often a commit that
    /// takes long gives one.
    pub lock_ttl: Duration,
    /// How long history is kept for everybody, and rollback records and tombstones. A transaction does not commit later than half of
    /// this after its start, by the timestamps of both; a request that was sent arrives within this, or never. A process that reads a
    /// snapshot for longer than half of this takes a lease.
    pub retention: Duration,
    /// How long such a lease is respected without a sign of life from its process, who gives one three times as often.
    pub lease_ttl: Duration,
    /// How long outcomes of transactions with a name and results of requests with tickets are kept, at least `retention`:
    /// longer than anybody sends a request again, or asks. After that nobody can tell what became of a transaction.
    pub outcome_retention: Duration,
    /// What a query without an order remembers of the documents that it has shown, to show each once, in bytes. One that shows
    /// more goes on by `_id`, which costs it a second look at what it has read so far, and one more find for each page.
    pub seen_bytes_max: usize,
    /// How many requests for data are under way at the same time: fewer than the store has connections, as signs of life and
    /// requests for timestamps are not among them, and must not wait for one.
    pub requests_max: usize,
    /// How often a process looks for what dead ones left behind; none for never.
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
