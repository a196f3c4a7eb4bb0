//! What a history consists of.
//!
//! One event when a transaction is begun, one when its client learns how it ended. The order of events is the order in
//! which one recorder saw them, which is what *before* means: a transaction that ended before another began, in the
//! history, did so in the world.
//!
//! Each line of a file is one event as JSON, in the words of Jepsen's histories, so that Elle and `adya` read them too:
//!
//! ```text
//! {"index":0,"type":"info","f":"history","process":"recorder","model":"list-append","isolation":"snapshot","order":"real-time"}
//! {"index":1,"type":"invoke","f":"txn","process":3,"txn":17,"value":[["r",1,null],["append",1,5]]}
//! {"index":2,"type":"ok","f":"txn","process":3,"txn":17,"value":[["r",1,[4]],["append",1,5]]}
//! ```
//!
//! | field | what it says |
//! | --- | --- |
//! | `type` | `invoke`; then `ok` (committed), `fail` (certainly without effect) or `info` (outcome unknown) |
//! | `process` | a number: the client; a process has one transaction at a time. Events of others are left out |
//! | `txn` | a number for the transaction; without it an end belongs to the last beginning of its process |
//! | `value` | the micro-operations: `["append",key,value]`, `["w",key,value]`, `["r",key,seen]`; with `invoke` what is planned, where `seen` is `null` |
//! | `amounts` | for the bank: an amount of money (or `null`) for each micro-operation |
//! | `time` | nanoseconds since the recorder began. For people |
//! | `error` | why it did not commit, for people; a `fail` without one was rolled back by its client on purpose |
//!
//! Keys and values are integers or strings. A value is written to a key once in the whole history: so whoever reads it
//! says whom it was from. A list that was never appended to reads as `[]` or `null`, a register never written as `null`.
//! A beginning without an end is a transaction whose outcome is unknown.
//!
//! The first line may be a header (`"f":"history"`) that says which model the history is of and what was promised. A
//! bank's header also says `total`, the money that is there, and `accounts`, how many keys hold it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A key or a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Name {
    /// An integer.
    Number(i64),
    /// A string.
    Text(Box<str>),
}

/// What the keys hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Lists that are appended to: each read shows the order of all writes before it.
    ListAppend,
    /// Values that are overwritten.
    RwRegister,
}

/// What a store promises of transactions at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Each transaction reads one snapshot; of two that write the same key, one fails.
    Snapshot,
    /// As if one after the other.
    Serializable,
}

/// What a store promises of transactions one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Nothing.
    None,
    /// A process sees what it did before.
    Session,
    /// Whoever begins after an acknowledgement sees what was acknowledged.
    RealTime,
}

/// What a history is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Of transactions at the same time.
    pub isolation: Isolation,
    /// Of transactions one after the other.
    pub order: Order,
}

impl Default for Expectation {
    fn default() -> Self {
        Expectation { isolation: Isolation::Snapshot, order: Order::RealTime }
    }
}

/// What the recorder says of the whole history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What the keys hold; told from the first write if it is not said.
    pub model: Option<Model>,
    /// What was promised.
    pub isolation: Option<Isolation>,
    /// What was promised.
    pub order: Option<Order>,
    /// A bank's money, and the number of accounts that hold it.
    pub bank: Option<Bank>,
}

/// What a bank has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// The sum of all amounts, at every moment.
    pub total: i64,
    /// How many keys hold them: a read of as many is a read of all.
    pub accounts: u64,
}

/// What an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The transaction begins.
    Invoke,
    /// It has committed.
    Ok,
    /// It has certainly had no effect.
    Fail,
    /// Nobody knows.
    Info,
}

/// One transaction's beginning or end.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Which.
    pub kind: EventKind,
    /// The client.
    pub process: i64,
    /// The transaction, if the recorder numbers them.
    pub transaction: Option<u64>,
    /// What it does, or did.
    pub operations: Vec<MicroOp>,
    /// Since the recorder began.
    pub nanoseconds: Option<i64>,
    /// Why it did not commit. Without it a [`Fail`](EventKind::Fail) was rolled back by its client on purpose.
    pub error: Option<String>,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum MicroOp {
    /// A value at the end of a list.
    Append {
        /// Of which key.
        key: Name,
        /// Which value.
        value: Name,
    },
    /// A register's new value.
    Write {
        /// Of which key.
        key: Name,
        /// Which value.
        value: Name,
        /// Money that comes with it.
        amount: Option<i64>,
    },
    /// A look at a key.
    Read {
        /// Which key.
        key: Name,
        /// What was there.
        seen: Seen,
        /// Money that came with it.
        amount: Option<i64>,
    },
}

/// What a read saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Seen {
    /// A list.
    List(Vec<Name>),
    /// A register's value.
    Value(Name),
    /// Nothing was there, or it is not known yet.
    Nothing,
}

impl MicroOp {
    /// The key that it is about.
    pub fn key(&self) -> &Name {
        match self {
            MicroOp::Append { key, .. } | MicroOp::Write { key, .. } | MicroOp::Read { key, .. } => key,
        }
    }

    /// The key and the value that it writes, if it does.
    pub fn written(&self) -> Option<(&Name, &Name)> {
        match self {
            MicroOp::Append { key, value } | MicroOp::Write { key, value, .. } => Some((key, value)),
            MicroOp::Read { .. } => None,
        }
    }

    /// Which model it belongs to, if it says.
    pub fn model(&self) -> Option<Model> {
        match self {
            MicroOp::Append { .. } | MicroOp::Read { seen: Seen::List(_), .. } => Some(Model::ListAppend),
            MicroOp::Write { .. } | MicroOp::Read { seen: Seen::Value(_), .. } => Some(Model::RwRegister),
            MicroOp::Read { seen: Seen::Nothing, .. } => None,
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
