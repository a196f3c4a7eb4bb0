//! Options of a transaction.

use std::sync::Arc;
use std::time::Duration;

use handfast_store::{Durability, Error as StoreError};

use crate::TransactionId;

/// The longest time that a transaction may be open: MongoDB's `transactionLifetimeLimitSeconds`. A snapshot keeps old versions in the store.
pub const LIFETIME_MAX: Duration = Duration::from_secs(60);
/// The most bytes that a transaction may write, including some hundred of overhead for each document. They are in memory until it ends.
/// 100,000 small documents fit, as many as one insert may hold.
pub const WRITE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// The most bytes that all open transactions of a database may write together: those of four of the largest.
pub const ALL_WRITE_BYTES_MAX: usize = 4 * WRITE_BYTES_MAX;
/// The longest time that [`Database::transaction`](crate::Database::transaction) runs a transaction again, as the drivers'
/// `withTransaction` does.
pub const RETRY_TIME_MAX: Duration = Duration::from_secs(120);

/// The isolation of a transaction from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All reads are of one snapshot, and no other transaction has changed the documents that it writes since. Two transactions may each change
    /// what the other one read (write skew).
    #[default]
    Snapshot,
    /// Also, no other transaction has changed what it read, including the absence of documents. Collections and indexes are always read from the
    /// newest catalog.
    Serializable,
}

/// A callback for retries.
type Hear = dyn Fn(&StoreError) + Send + Sync;

/// A callback that the closure form calls before it begins a transaction again, with the error that rolled the run before back.
#[derive(Clone, Default)]
pub struct OnRetry(Option<Arc<Hear>>);

impl OnRetry {
    /// Returns a callback. The next run begins after it returns.
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
        f.write_str(if self.0.is_some() { "OnRetry(..)" } else { "OnRetry(None)" })
    }
}

/// Options of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// Its isolation from other transactions.
    pub isolation: Isolation,
    /// The durability at which its commit is acknowledged.
    pub durability: Durability,
    /// The longest time that it may be open.
    pub lifetime: Duration,
    /// The most bytes that it may write.
    pub write_bytes_max: usize,
    /// The most bytes that all open transactions may write together: beyond, a write of this one conflicts.
    pub all_write_bytes_max: usize,
    /// The longest time that the closure form runs it again.
    pub retry_time: Duration,
    /// Called each time that the closure form runs it again.
    pub on_retry: OnRetry,
    /// Its name; a new one unless given.
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
    /// Returns the default options with serializable isolation.
    pub fn serializable() -> Self {
        TransactionOptions { isolation: Isolation::Serializable, ..TransactionOptions::default() }
    }
}
