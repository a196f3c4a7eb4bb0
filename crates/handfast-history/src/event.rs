//! The events of a history.
//!
//! A transaction has one event when it begins and one when its client learns how it ended. One recorder puts all events in
//! order: a transaction whose end precedes another's beginning in the history also ended before it in real time.
//!
//! Each line of a file is one event as JSON, in the format of Jepsen's histories, so that Elle and `adya` read them too:
//!
//! ```text
//! {"index":0,"type":"info","f":"history","process":"recorder","model":"list-append","isolation":"snapshot","order":"real-time"}
//! {"index":1,"type":"invoke","f":"txn","process":3,"txn":17,"value":[["r",1,null],["append",1,5]]}
//! {"index":2,"type":"ok","f":"txn","process":3,"txn":17,"value":[["r",1,[4]],["append",1,5]]}
//! ```
//!
//! | field | meaning |
//! | --- | --- |
//! | `type` | `invoke`; then `ok` (committed), `fail` (certainly without effect) or `info` (outcome unknown) |
//! | `process` | the number of the client; a process has one transaction at a time. Events without such a number are skipped |
//! | `txn` | the number of the transaction; without it an end belongs to the last beginning of its process |
//! | `value` | the micro-operations: `["append",key,value]`, `["w",key,value]`, `["r",key,seen]`; an `invoke` has the planned ones, where `seen` is `null` |
//! | `amounts` | in a bank workload: an amount of money (or `null`) for each micro-operation |
//! | `time` | nanoseconds since the recorder began, for information only |
//! | `error` | the reason why the transaction did not commit, for information; the client of a `fail` without one rolled back on purpose |
//!
//! Keys and values are integers or strings. A value is written to a key once in the whole history, so a read identifies
//! the transaction that wrote it. A list that was never appended to reads as `[]` or `null`, a register never written as
//! `null`. The outcome of a transaction without an end is unknown.
//!
//! The first line may be a header (`"f":"history"`) that names the model of the history and the promised isolation. A
//! bank's header also has `total`, the sum of all amounts, and `accounts`, the number of keys that hold them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A key or a value: an integer or a string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Name {
    /// An integer.
    Number(i64),
    /// A string.
    Text(Box<str>),
}

/// The type of the values that the keys hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Lists that are appended to: a read shows all earlier writes in order.
    ListAppend,
    /// Values that are overwritten.
    RwRegister,
}

/// The isolation of concurrent transactions that a store promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Each transaction reads one snapshot; of two that write the same key, one fails.
    Snapshot,
    /// The result is the same as if the transactions had run one after the other.
    Serializable,
}

/// The order that a store promises for transactions that do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The store promises no order.
    None,
    /// A process sees the effects of its own earlier transactions.
    Session,
    /// A transaction that begins after a commit was acknowledged sees that commit.
    RealTime,
}

/// The promise that a history is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The isolation of concurrent transactions.
    pub isolation: Isolation,
    /// The order of transactions that do not overlap.
    pub order: Order,
}

impl Default for Expectation {
    fn default() -> Self {
        Expectation { isolation: Isolation::Snapshot, order: Order::RealTime }
    }
}

/// The properties of a whole history, as its first line states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The type of the values; without it the first write determines it.
    pub model: Option<Model>,
    /// The promised isolation.
    pub isolation: Option<Isolation>,
    /// The promised order.
    pub order: Option<Order>,
    /// The invariant of a bank workload.
    pub bank: Option<Bank>,
}

/// The invariant of a bank workload: transfers do not change the sum of all accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// The sum of all amounts, at every moment.
    pub total: i64,
    /// The number of accounts; a transaction that reads that many keys reads them all.
    pub accounts: u64,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The transaction begins.
    Invoke,
    /// The transaction has committed.
    Ok,
    /// The transaction certainly had no effect.
    Fail,
    /// The outcome is unknown.
    Info,
}

/// The beginning or the end of one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its kind.
    pub kind: EventKind,
    /// The number of the client.
    pub process: i64,
    /// The number of the transaction, if the recorder numbers them.
    pub transaction: Option<u64>,
    /// The micro-operations: the planned ones of a beginning, the executed ones of an end.
    pub operations: Vec<MicroOp>,
    /// The time since the recorder began.
    pub nanoseconds: Option<i64>,
    /// The reason why the transaction did not commit. The client of a [`Fail`](EventKind::Fail) without one rolled back on purpose.
    pub error: Option<String>,
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum MicroOp {
    /// Appends a value to a list.
    Append {
        /// The key.
        key: Name,
        /// The value.
        value: Name,
    },
    /// Overwrites a register.
    Write {
        /// The key.
        key: Name,
        /// The value.
        value: Name,
        /// The amount of money that is written with the value.
        amount: Option<i64>,
    },
    /// Reads a key.
    Read {
        /// The key.
        key: Name,
        /// The value that the read returned.
        seen: ReadValue,
        /// The amount of money that was read with the value.
        amount: Option<i64>,
    },
}

/// The value that a read returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReadValue {
    /// The elements of a list.
    List(Vec<Name>),
    /// The value of a register.
    Value(Name),
    /// The key does not exist, or the read is only planned.
    Nothing,
}

impl MicroOp {
    /// Returns the key that the micro-operation reads or writes.
    pub fn key(&self) -> &Name {
        match self {
            MicroOp::Append { key, .. } | MicroOp::Write { key, .. } | MicroOp::Read { key, .. } => key,
        }
    }

    /// Returns the key and the value of a write.
    pub fn written(&self) -> Option<(&Name, &Name)> {
        match self {
            MicroOp::Append { key, value } | MicroOp::Write { key, value, .. } => Some((key, value)),
            MicroOp::Read { .. } => None,
        }
    }

    /// Returns the model that the micro-operation implies. A read of nothing implies none.
    pub fn model(&self) -> Option<Model> {
        match self {
            MicroOp::Append { .. } | MicroOp::Read { seen: ReadValue::List(_), .. } => Some(Model::ListAppend),
            MicroOp::Write { .. } | MicroOp::Read { seen: ReadValue::Value(_), .. } => Some(Model::RwRegister),
            MicroOp::Read { seen: ReadValue::Nothing, .. } => None,
        }
    }
}

impl From<i64> for Name {
    fn from(number: i64) -> Self {
        Name::Number(number)
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name::Text(text.into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Number(number) => number.fmt(f),
            Name::Text(text) => text.fmt(f),
        }
    }
}
