//! The interface of a store under test.
//!
//! Keys are numbers. A key holds a list that is appended to, or a register that is overwritten, depending on the workload.
//! The client decides how it stores them (a document with an array, a document with a value).

use std::ops::Range;

use async_trait::async_trait;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The key does not exist.
    Nothing,
    /// The elements of a list.
    List(Vec<i64>),
    /// The value of a register.
    Value {
        /// A number that is written only once in a run.
        value: i64,
        /// The balance of an account, in a bank workload.
        amount: Option<i64>,
    },
}

/// The reason why a transaction failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The transaction certainly had no effect: it conflicted, or the store was unreachable. It may be repeated.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The outcome is unknown.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The store reported an error that no workload provokes. The run ends.
    #[error("unexpected: {0}")]
    Unexpected(String),
}

/// A store with transactions, used by any number of processes at once.
#[async_trait]
pub trait Client: Send + Sync + 'static {
    /// Begins a transaction.
    async fn begin(&self) -> Result<Box<dyn ClientTransaction>, Failure>;
}

/// An open transaction. Dropping it rolls it back.
#[async_trait]
pub trait ClientTransaction: Send {
    /// Reads a key.
    async fn read(&mut self, key: i64) -> Result<Cell, Failure>;

    /// Reads all existing keys of a range, in order.
    async fn scan(&mut self, keys: Range<i64>) -> Result<Vec<(i64, Cell)>, Failure>;

    /// Appends to a list; creates the key if it does not exist.
    async fn append(&mut self, key: i64, value: i64) -> Result<(), Failure>;

    /// Overwrites a register; creates the key if it does not exist.
    async fn write(&mut self, key: i64, value: i64, amount: Option<i64>) -> Result<(), Failure>;

    /// Commits.
    async fn commit(self: Box<Self>) -> Result<(), Failure>;

    /// Rolls back.
    async fn abort(self: Box<Self>) -> Result<(), Failure>;
}
