//! What a store has to be able to do to be put to the test.
//!
//! Keys are numbers. What a key holds is a list that is appended to, or a register that is overwritten, as the workload
//! has it. How that is kept is the client's affair (a document with an array, a document with a value).

use std::ops::Range;

use async_trait::async_trait;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// It is not there.
    Nothing,
    /// A list.
    List(Vec<i64>),
    /// A register's value, and the money that is with it.
    Value {
        /// Different from all others.
        value: i64,
        /// For the bank.
        amount: Option<i64>,
    },
}

/// Why a transaction did not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It has certainly had no effect, because of another transaction or of a store out of reach. It may be tried again.
    #[error("conflict: {0}")]
    Conflict(String),
    /// Nobody knows whether it has committed.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// Something that no workload asks for. The run ends.
    #[error("unexpected: {0}")]
    Unexpected(String),
}

/// A store with transactions. Any number of processes use it at once.
#[async_trait]
pub trait Client: Send + Sync + 'static {
    /// Begins a transaction.
    async fn begin(&self) -> Result<Box<dyn Transaction>, Failure>;
}

/// An open transaction. Dropped, it is rolled back.
#[async_trait]
pub trait Transaction: Send {
    /// Reads a key.
    async fn read(&mut self, key: i64) -> Result<Cell, Failure>;

    /// Reads all keys of a range that are there, in their order.
    async fn scan(&mut self, keys: Range<i64>) -> Result<Vec<(i64, Cell)>, Failure>;

    /// Appends to a list; to an empty one if the key is not there.
    async fn append(&mut self, key: i64, value: i64) -> Result<(), Failure>;

    /// Overwrites a register, whether or not it is there.
    async fn write(&mut self, key: i64, value: i64, amount: Option<i64>) -> Result<(), Failure>;

    /// Commits.
    async fn commit(self: Box<Self>) -> Result<(), Failure>;

    /// Rolls back.
    async fn abort(self: Box<Self>) -> Result<(), Failure>;
}
