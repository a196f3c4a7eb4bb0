//! A history in memory: transactions, with numbers for keys, values and versions.

use std::collections::HashMap;
use std::ops::Range;

use super::names::NameTable;
use crate::event::{Bank, Header, Model, Name};
use crate::report::Counts;

/// Stands for no value, no position and no transaction.
pub(super) const NONE: u32 = u32::MAX;

/// The outcome of a transaction, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionOutcome {
    Committed,
    /// The store reported an error without effect, such as a conflict.
    Failed,
    /// The client rolled it back on purpose.
    GivenUp,
    Unknown,
}

impl TransactionOutcome {
    /// Returns whether the transaction certainly had no effect.
    pub(super) fn is_aborted(self) -> bool {
        matches!(self, TransactionOutcome::Failed | TransactionOutcome::GivenUp)
    }
}

#[derive(Debug)]
pub(super) struct Transaction {
    /// Its number in the history.
    pub(super) label: u64,
    pub(super) process: i64,
    /// The positions of its events; `completed` is [`NONE`] if it has no end.
    pub(super) invoked: u32,
    pub(super) completed: u32,
    pub(super) outcome: TransactionOutcome,
    /// Its range of [`IndexedHistory::operations`].
    pub(super) operations: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    /// The first read of a key. Its value is a version: the number of elements of a list, the value of a register.
    Read,
    Append,
    Write,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) kind: OperationKind,
    pub(super) key: u32,
    pub(super) value: u32,
    /// Whether a write is its transaction's last one to the key.
    pub(super) is_last: bool,
    pub(super) amount: Option<i64>,
}

/// The writer and the first reader of a value of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) writer: u32,
    /// Its position in the list, if a read that agrees with the others showed it.
    pub(super) position: u32,
    /// The first committed transaction that read it.
    pub(super) reader: u32,
    pub(super) is_last: bool,
    pub(super) amount: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Key {
    /// The values of a list, in the order of the longest read.
    pub(super) order: Vec<u32>,
    /// The event at which its last committed reader began, and the version that it read.
    pub(super) last_read: Option<(u32, u32)>,
}

/// A history with its keys, values and transactions numbered.
#[derive(Debug)]
pub(super) struct IndexedHistory {
    pub(super) model: Option<Model>,
    pub(super) bank: Option<Bank>,
    pub(super) key_names: NameTable,
    pub(super) value_names: NameTable,
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

impl IndexedHistory {
    pub(super) fn new(header: &Header) -> Self {
        IndexedHistory {
            model: header.model,
            bank: header.bank,
            key_names: NameTable::default(),
            value_names: NameTable::default(),
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

    /// Returns the transaction that wrote a value.
    pub(super) fn writer(&self, key: u32, value: u32) -> Option<u32> {
        self.written.get(&(key, value)).map(|written| written.writer).filter(|writer| *writer != NONE)
    }

    /// Returns the last value in a version of a key.
    pub(super) fn value_of_version(&self, key: u32, version: u32) -> Option<u32> {
        if self.is_lists() {
            let last = (version as usize).checked_sub(1)?;
            self.keys[key as usize].order.get(last).copied()
        } else {
            Some(version).filter(|value| *value != NONE)
        }
    }

    /// Returns for each transaction whether it has committed: it was acknowledged, or its outcome is unknown and a read shows it.
    pub(super) fn committed(&self) -> Vec<bool> {
        let transactions = (0u32..).zip(&self.transactions);
        let is_committed = |(number, transaction): (u32, &Transaction)| match transaction.outcome {
            TransactionOutcome::Committed => true,
            TransactionOutcome::Failed | TransactionOutcome::GivenUp => false,
            TransactionOutcome::Unknown => self.operations_of(number).iter().any(|operation| {
                let written = self.written.get(&(operation.key, operation.value));
                operation.kind != OperationKind::Read && written.is_some_and(|written| written.reader != NONE)
            }),
        };
        transactions.map(is_committed).collect()
    }

    pub(super) fn counts(&self, committed: &[bool]) -> Counts {
        let mut counts =
            Counts { transactions: self.transactions.len() as u64, keys: self.keys.len() as u64, ..Counts::default() };
        for (transaction, is_committed) in self.transactions.iter().zip(committed) {
            let counter = match (transaction.outcome, is_committed) {
                (TransactionOutcome::Committed, _) => &mut counts.committed,
                (TransactionOutcome::Failed, _) => &mut counts.failed,
                (TransactionOutcome::GivenUp, _) => &mut counts.given_up,
                (TransactionOutcome::Unknown, true) => &mut counts.unknown_seen,
                (TransactionOutcome::Unknown, false) => &mut counts.unknown_unseen,
            };
            *counter += 1;
            if *is_committed {
                let operations = &self.operations[transaction.operations.clone()];
                let reads = operations.iter().filter(|operation| operation.kind == OperationKind::Read).count() as u64;
                counts.reads += reads;
                counts.writes += operations.len() as u64 - reads;
            }
        }
        counts
    }

    /// Returns the name of a transaction in reports.
    pub(super) fn title(&self, transaction: u32) -> String {
        format!("T{}", self.transactions[transaction as usize].label)
    }

    /// Describes a transaction and all its operations.
    pub(super) fn describe(&self, transaction: u32) -> String {
        let Transaction { process, outcome, .. } = &self.transactions[transaction as usize];
        let ending = match outcome {
            TransactionOutcome::Committed => "",
            TransactionOutcome::Failed => ", failed",
            TransactionOutcome::GivenUp => ", given up",
            TransactionOutcome::Unknown => ", outcome unknown",
        };
        let operations: Vec<String> =
            self.operations_of(transaction).iter().map(|operation| self.describe_operation(operation)).collect();
        format!("{} (process {process}{ending}): {}", self.title(transaction), operations.join(", "))
    }

    fn describe_operation(&self, operation: &Operation) -> String {
        let key = self.key_names.name(operation.key);
        let amount = operation.amount.map(|amount| format!(" ({amount})")).unwrap_or_default();
        match operation.kind {
            OperationKind::Append => format!("append {key} {}", self.value_names.name(operation.value)),
            OperationKind::Write => format!("write {key} {}{amount}", self.value_names.name(operation.value)),
            OperationKind::Read if self.is_lists() => {
                let order = &self.keys[operation.key as usize].order;
                let seen = &order[..order.len().min(operation.value as usize)];
                format!("read {key} {}", self.list(seen))
            }
            OperationKind::Read if operation.value == NONE => format!("read {key} nothing"),
            OperationKind::Read => format!("read {key} {}{amount}", self.value_names.name(operation.value)),
        }
    }

    /// Shows a list, or the end of a long one.
    pub(super) fn list(&self, values: &[u32]) -> String {
        /// The number of elements that are shown; lists differ at their end.
        const SHOWN_MAX: usize = 12;
        let hidden = values.len().saturating_sub(SHOWN_MAX);
        let shown: Vec<String> =
            values[hidden..].iter().map(|value| self.value_names.name(*value).to_string()).collect();
        let dots = if hidden > 0 { ".. " } else { "" };
        format!("[{dots}{}]", shown.join(" "))
    }
}
