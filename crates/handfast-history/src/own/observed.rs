//! What is kept of a history: transactions with numbers for keys, values and versions.

use std::collections::HashMap;
use std::ops::Range;

use super::names::Names;
use crate::event::{Bank, Header, Model, Name};
use crate::report::Counts;

/// No value, no position, no transaction.
pub(super) const NONE: u32 = u32::MAX;

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Committed,
    /// Refused: another was in the way.
    Failed,
    /// Rolled back by its client on purpose.
    GivenUp,
    Unknown,
}

impl Outcome {
    /// Whether it has certainly had no effect.
    pub(super) fn is_aborted(self) -> bool {
        matches!(self, Outcome::Failed | Outcome::GivenUp)
    }
}

#[derive(Debug)]
pub(super) struct Transaction {
    /// The number that the history gives it.
    pub(super) label: u64,
    pub(super) process: i64,
    /// Positions among the events; [`NONE`] if it never ended.
    pub(super) invoked: u32,
    pub(super) completed: u32,
    pub(super) outcome: Outcome,
    /// Its share of [`Observed::operations`].
    pub(super) operations: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Of what others wrote; one for each key. The value is a version: of a list the number of its elements, of a
    /// register the value.
    Read,
    Append,
    Write,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) what: What,
    pub(super) key: u32,
    pub(super) value: u32,
    /// Of a write: whether it is its transaction's last to the key.
    pub(super) is_last: bool,
    pub(super) amount: Option<i64>,
}

/// A value of a key: who wrote it, who saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) writer: u32,
    /// Where it is in the list, if a read that fits the others showed it.
    pub(super) position: u32,
    /// The first committed transaction that saw it.
    pub(super) reader: u32,
    pub(super) is_last: bool,
    pub(super) amount: Option<i64>,
}

/// A key.
#[derive(Debug, Default)]
pub(super) struct Key {
    /// The values of a list, in the order of the longest read.
    pub(super) order: Vec<u32>,
    /// When the last committed reader of it began, and what it saw.
    pub(super) last_read: Option<(u32, u32)>,
}

/// A history, taken in.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) model: Option<Model>,
    pub(super) bank: Option<Bank>,
    pub(super) key_names: Names,
    pub(super) value_names: Names,
    pub(super) keys: Vec<Key>,
    pub(super) transactions: Vec<Transaction>,
    pub(super) operations: Vec<Operation>,
    pub(super) written: HashMap<(u32, u32), Written>,
}

impl Default for Written {
    fn default() -> Self {
        Written { writer: NONE, position: NONE, reader: NONE, is_last: true, amount: None }
    }
}

impl Observed {
    pub(super) fn new(header: &Header) -> Self {
        Observed {
            model: header.model,
            bank: header.bank,
            key_names: Names::default(),
            value_names: Names::default(),
            keys: Vec::new(),
            transactions: Vec::new(),
            operations: Vec::new(),
            written: HashMap::new(),
        }
    }

    pub(super) fn key(&mut self, name: &Name) -> u32 {
        let key = self.key_names.number(name);
        self.keys.resize_with(self.key_names.len(), Key::default);
        key
    }

    pub(super) fn is_lists(&self) -> bool {
        self.model != Some(Model::RwRegister)
    }

    pub(super) fn operations_of(&self, transaction: u32) -> &[Operation] {
        &self.operations[self.transactions[transaction as usize].operations.clone()]
    }

    /// Whoever wrote a value, if anybody did.
    pub(super) fn writer(&self, key: u32, value: u32) -> Option<u32> {
        self.written.get(&(key, value)).map(|written| written.writer).filter(|writer| *writer != NONE)
    }

    /// The value that a version of a key ends with.
    pub(super) fn value_of_version(&self, key: u32, version: u32) -> Option<u32> {
        if self.is_lists() {
            let last = (version as usize).checked_sub(1)?;
            self.keys[key as usize].order.get(last).copied()
        } else {
            Some(version).filter(|value| *value != NONE)
        }
    }

    /// Which transactions have committed, by their number here: acknowledged, or unknown and seen.
    pub(super) fn committed(&self) -> Vec<bool> {
        let transactions = (0u32..).zip(&self.transactions);
        let is_committed = |(number, transaction): (u32, &Transaction)| match transaction.outcome {
            Outcome::Committed => true,
            Outcome::Failed | Outcome::GivenUp => false,
            Outcome::Unknown => self.operations_of(number).iter().any(|operation| {
                let written = self.written.get(&(operation.key, operation.value));
                operation.what != What::Read && written.is_some_and(|written| written.reader != NONE)
            }),
        };
        transactions.map(is_committed).collect()
    }

    pub(super) fn counts(&self, committed: &[bool]) -> Counts {
        let mut counts =
            Counts { transactions: self.transactions.len() as u64, keys: self.keys.len() as u64, ..Counts::default() };
        for (transaction, is_committed) in self.transactions.iter().zip(committed) {
            let counter = match (transaction.outcome, is_committed) {
                (Outcome::Committed, _) => &mut counts.committed,
                (Outcome::Failed, _) => &mut counts.failed,
                (Outcome::GivenUp, _) => &mut counts.given_up,
                (Outcome::Unknown, true) => &mut counts.unknown_seen,
                (Outcome::Unknown, false) => &mut counts.unknown_unseen,
            };
            *counter += 1;
            if *is_committed {
                let operations = &self.operations[transaction.operations.clone()];
                let reads = operations.iter().filter(|operation| operation.what == What::Read).count() as u64;
                counts.reads += reads;
                counts.writes += operations.len() as u64 - reads;
            }
        }
        counts
    }

    /// How people call a transaction.
    pub(super) fn title(&self, transaction: u32) -> String {
        format!("T{}", self.transactions[transaction as usize].label)
    }

    /// A transaction with all that it did.
    pub(super) fn describe(&self, transaction: u32) -> String {
        let Transaction { process, outcome, .. } = &self.transactions[transaction as usize];
        let ending = match outcome {
            Outcome::Committed => "",
            Outcome::Failed => ", failed",
            Outcome::GivenUp => ", given up",
            Outcome::Unknown => ", outcome unknown",
        };
        let operations: Vec<String> =
            self.operations_of(transaction).iter().map(|operation| self.describe_operation(operation)).collect();
        format!("{} (process {process}{ending}): {}", self.title(transaction), operations.join(", "))
    }

    fn describe_operation(&self, operation: &Operation) -> String {
        let key = self.key_names.name(operation.key);
        let amount = operation.amount.map(|amount| format!(" ({amount})")).unwrap_or_default();
        match operation.what {
            What::Append => format!("append {key} {}", self.value_names.name(operation.value)),
            What::Write => format!("write {key} {}{amount}", self.value_names.name(operation.value)),
            What::Read if self.is_lists() => {
                let order = &self.keys[operation.key as usize].order;
                let seen = &order[..order.len().min(operation.value as usize)];
                format!("read {key} {}", self.list(seen))
            }
            What::Read if operation.value == NONE => format!("read {key} nothing"),
            What::Read => format!("read {key} {}{amount}", self.value_names.name(operation.value)),
        }
    }

    /// A list for people: the end of it, if it is long.
    pub(super) fn list(&self, values: &[u32]) -> String {
        /// Elements that are shown: enough to see the end, where the interesting thing is.
        const SHOWN_MAX: usize = 12;
        let hidden = values.len().saturating_sub(SHOWN_MAX);
        let shown: Vec<String> =
            values[hidden..].iter().map(|value| self.value_names.name(*value).to_string()).collect();
        let dots = if hidden > 0 { ".. " } else { "" };
        format!("[{dots}{}]", shown.join(" "))
    }
}
