//! How a transaction is run.

use std::sync::Arc;
use std::time::Duration;

use handfast_store::{Durability, Error as StoreError};

use crate::TransactionId;

/// How long a transaction may be open: MongoDB's `transactionLifetimeLimitSeconds`. A snapshot that is held keeps old
/// versions from being freed.
pub const LIFETIME_MAX: Duration = Duration::from_secs(60);
/// Bytes that a transaction may have written, all together, with some hundred for each document beside its own: they are
/// in memory until it ends. 100,000 small ones fit, which is what one insert may hold.
pub const WRITE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes that all open transactions of a database may have written together: those of four of the largest.
pub const ALL_WRITE_BYTES_MAX: usize = 4 * WRITE_BYTES_MAX;
/// How long [`Database::transaction`](crate::Database::transaction) goes on to run a transaction again: that of the
/// drivers' `withTransaction`.
pub const RETRY_TIME_MAX: Duration = Duration::from_secs(120);

/// What a transaction may not see of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All reads are of one snapshot, and nobody else has changed what it writes. Two transactions may each change what
    /// the other one read (write skew).
    #[default]
    Snapshot,
    /// Also, nobody else has changed what it read, documents that were not there included: as if it ran alone. That is
    /// about documents: which collections and indexes there are is always read from the newest catalog.
    Serializable,
}

/// What hears of a retry.
type Hear = dyn Fn(&StoreError) + Send + Sync;

/// Hears that the closure form is about to run a transaction again, before it is begun again, and why the run before was
/// rolled back.
#[derive(Clone, Default)]
pub struct OnRetry(Option<Arc<Hear>>);

impl OnRetry {
    /// Has this called. The next run waits for it.
    pub fn new(hear: impl Fn(&StoreError) + Send + Sync + 'static) -> Self {
        OnRetry(Some(Arc::new(hear)))
    }

    pub(crate) fn call(&self, why: &StoreError) {
        if let Some(hear) = &self.0 {
            hear(why);
        }
    }
}

impl std::fmt::Debug for OnRetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "OnRetry(..)" } else { "OnRetry(nobody)" })
    }
}

/// How a transaction is run.
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// What it may not see of others.
    pub isolation: Isolation,
    /// When its commit is acknowledged.
    pub durability: Durability,
    /// How long it may be open.
    pub lifetime: Duration,
    /// Bytes of documents that it may have written.
    pub write_bytes_max: usize,
    /// Bytes beyond which it writes nothing more while all open transactions have written so many together.
    pub all_write_bytes_max: usize,
    /// How long the closure form goes on to run it again.
    pub retry_time: Duration,
    /// Hears of each time that the closure form runs it again.
    pub on_retry: OnRetry,
    /// Its name; a fresh one unless given.
    pub id: Option<TransactionId>,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions {
            isolation: Isolation::default(),
            durability: Durability::default(),
            lifetime: LIFETIME_MAX,
            write_bytes_max: WRITE_BYTES_MAX,
            all_write_bytes_max: ALL_WRITE_BYTES_MAX,
            retry_time: RETRY_TIME_MAX,
            on_retry: OnRetry::default(),
            id: None,
        }
    }
}

impl TransactionOptions {
    /// The default, but serializable.
    pub fn serializable() -> Self {
        TransactionOptions { isolation: Isolation::Serializable, ..TransactionOptions::default() }
    }
}
