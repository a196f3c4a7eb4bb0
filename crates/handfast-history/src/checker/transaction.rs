//! Adds an ended transaction to the history, and checks that its reads agree with each other and with its own writes.

use std::collections::{HashMap, HashSet};

use super::indexed::{IndexedHistory, NONE, Operation, OperationKind, Transaction, TransactionOutcome, Written};
use crate::event::{MicroOp, Name, ReadValue};
use crate::report::{AnomalyKind, Findings};
use crate::{Error, Result};

/// A transaction that has ended, without its operations.
#[derive(Debug)]
pub(super) struct EndedTransaction {
    pub(super) label: u64,
    pub(super) process: i64,
    pub(super) invoked: u32,
    pub(super) completed: Option<u32>,
    pub(super) outcome: TransactionOutcome,
}

/// The reads and writes of one key so far in a transaction.
#[derive(Default)]
struct KeyState<'a> {
    /// The first read that shows values of others.
    read: Option<&'a ReadValue>,
    /// The number of elements of the first read that are not its own appends.
    read_length: usize,
    own_writes: Vec<&'a Name>,
}

/// Adds a transaction to the history: its reads of values of others, and its writes.
pub(super) fn record(
    history: &mut IndexedHistory,
    findings: &mut Findings,
    transaction: &EndedTransaction,
    planned: &[MicroOp],
    operations: &[MicroOp],
) -> Result<()> {
    let number = u32::try_from(history.transactions.len()).map_err(|_| Error::malformed("too many transactions"))?;
    check_model(history, planned.iter().chain(operations))?;
    let first = history.operations.len();
    if transaction.outcome == TransactionOutcome::Committed {
        record_committed(history, findings, transaction, number, operations)?;
    } else {
        // Its reads are unknown, and its planned writes may be visible. An executed write replaces the planned one.
        let is_done =
            |plan: &MicroOp| operations.iter().any(|done| done.written().is_some_and(|it| plan.written() == Some(it)));
        for operation in operations.iter().chain(planned.iter().filter(|plan| !is_done(plan))) {
            record_write(history, number, operation)?;
        }
    }
    mark_last_writes(history, first);
    history.transactions.push(Transaction {
        label: transaction.label,
        process: transaction.process,
        invoked: transaction.invoked,
        completed: transaction.completed.unwrap_or(NONE),
        outcome: transaction.outcome,
        operations: first..history.operations.len(),
    });
    Ok(())
}

fn check_model<'a>(history: &mut IndexedHistory, operations: impl Iterator<Item = &'a MicroOp>) -> Result<()> {
    for operation in operations {
        match (history.model, operation.model()) {
            (None, Some(model)) => history.model = Some(model),
            (Some(all), Some(this)) if all != this => {
                let key = operation.key();
                return Err(Error::malformed(format!("key {key} is used as a list and as a register")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn record_committed(
    history: &mut IndexedHistory,
    findings: &mut Findings,
    transaction: &EndedTransaction,
    number: u32,
    operations: &[MicroOp],
) -> Result<()> {
    let mut all_known: HashMap<&Name, KeyState<'_>> = HashMap::new();
    let (mut money, mut accounts) = (0i64, 0u64);
    for operation in operations {
        let known = all_known.entry(operation.key()).or_default();
        match operation {
            MicroOp::Append { value, .. } | MicroOp::Write { value, .. } => {
                known.own_writes.push(value);
                record_write(history, number, operation)?;
            }
            MicroOp::Read { key, seen, amount } => {
                let is_first = known.read.is_none();
                if !known.agrees(seen) {
                    let text = || {
                        let own =
                            if known.own_writes.is_empty() { "earlier reads" } else { "earlier reads and writes" };
                        format!(
                            "T{} read key {key} as {}, which does not agree with its own {own}",
                            transaction.label,
                            show(seen)
                        )
                    };
                    findings.add(AnomalyKind::Internal, vec![transaction.label], vec![key.clone()], text);
                } else if is_first && known.read.is_some() {
                    let read = FirstRead { key, seen, length: known.read_length, amount: *amount };
                    record_read(history, findings, transaction, number, &read);
                    if let Some(amount) = amount {
                        (money, accounts) = (money.saturating_add(*amount), accounts + 1);
                    }
                }
            }
        }
    }
    match history.bank {
        Some(bank) if accounts == bank.accounts && money != bank.total => {
            let label = transaction.label;
            let text = || format!("T{label} read all {accounts} accounts, {money} together, where {} are", bank.total);
            findings.add(AnomalyKind::WrongTotal, vec![label], vec![], text);
        }
        _ => {}
    }
    Ok(())
}

impl<'a> KeyState<'a> {
    /// Returns whether a read agrees with the earlier reads and writes. Keeps the first read that shows values of others.
    fn agrees(&mut self, seen: &'a ReadValue) -> bool {
        match (seen, self.read, self.own_writes.last()) {
            (ReadValue::Value(value), _, Some(own)) => value == *own,
            // A read of nothing contradicts an own append.
            (ReadValue::Nothing, _, Some(_)) => false,
            (ReadValue::List(list), None, _) => {
                let own = self.own_writes.len();
                let Some(length) = list.len().checked_sub(own) else { return false };
                if list[length..].iter().ne(self.own_writes.iter().copied()) {
                    return false;
                }
                (self.read, self.read_length) = (Some(seen), length);
                true
            }
            (ReadValue::List(list), Some(read), _) => {
                let before = match read {
                    ReadValue::List(before) => &before[..self.read_length],
                    _ => &[],
                };
                list.iter().eq(before.iter().chain(self.own_writes.iter().copied()))
            }
            (_, Some(read), None) => read == seen || (is_empty(read) && is_empty(seen)),
            (_, None, None) => {
                self.read = Some(seen);
                true
            }
        }
    }
}

fn is_empty(seen: &ReadValue) -> bool {
    match seen {
        ReadValue::List(list) => list.is_empty(),
        ReadValue::Nothing => true,
        ReadValue::Value(_) => false,
    }
}

/// The first read of a key in a transaction.
struct FirstRead<'a> {
    key: &'a Name,
    seen: &'a ReadValue,
    /// The number of elements of a list that others appended; the rest are the transaction's own.
    length: usize,
    amount: Option<i64>,
}

fn record_read(
    history: &mut IndexedHistory,
    findings: &mut Findings,
    transaction: &EndedTransaction,
    number: u32,
    read: &FirstRead<'_>,
) {
    let key = history.key(read.key);
    let version = match read.seen {
        ReadValue::List(list) => record_list(history, findings, transaction, number, key, &list[..read.length]),
        ReadValue::Nothing if history.is_lists() => 0,
        ReadValue::Nothing => NONE,
        ReadValue::Value(value) => {
            let value = history.value_names.number(value);
            let written = history.written.entry((key, value)).or_default();
            if written.reader == NONE {
                written.reader = number;
            }
            value
        }
    };
    let last_read = &mut history.keys[key as usize].last_read;
    if last_read.is_none_or(|(invoked, _)| invoked < transaction.invoked) {
        *last_read = Some((transaction.invoked, version));
    }
    // An incompatible list has no version to compare with.
    if version != INCOMPATIBLE {
        history.operations.push(Operation {
            kind: OperationKind::Read,
            key,
            value: version,
            is_last: false,
            amount: read.amount,
        });
    }
}

/// Stands for a list of which no other read is a prefix, or the reverse. No list is that long.
const INCOMPATIBLE: u32 = NONE - 1;

/// Returns the version that a list shows, or [`INCOMPATIBLE`].
fn record_list(
    history: &mut IndexedHistory,
    findings: &mut Findings,
    transaction: &EndedTransaction,
    number: u32,
    key: u32,
    list: &[Name],
) -> u32 {
    let IndexedHistory { value_names, keys, written, key_names, .. } = history;
    let order = &mut keys[key as usize].order;
    let fits = order.iter().zip(list).all(|(value, name)| value_names.name(*value) == name);
    let first_new = if fits { order.len() } else { 0 };
    let mut doubled = None;
    for name in list.get(first_new..).unwrap_or_default() {
        let value = value_names.number(name);
        let written = written.entry((key, value)).or_default();
        if written.reader == NONE {
            written.reader = number;
        }
        if fits {
            if written.position == NONE {
                written.position = u32::try_from(order.len()).unwrap_or(NONE);
            } else {
                doubled = Some(name);
            }
            order.push(value);
        }
    }
    let key_name = key_names.name(key).clone();
    if let Some(value) = doubled {
        let text = || format!("T{} read key {key_name} with the value {value} in it twice", transaction.label);
        findings.add(AnomalyKind::DuplicateAppend, vec![transaction.label], vec![key_name.clone()], text);
    }
    if fits {
        return u32::try_from(list.len()).unwrap_or(INCOMPATIBLE);
    }
    let values: Vec<u32> = list.iter().map(|name| history.value_names.number(name)).collect();
    let order = &history.keys[key as usize].order;
    findings.add(AnomalyKind::IncompatibleOrder, vec![transaction.label], vec![key_name.clone()], || {
        let (this, other) = (history.list(&values), history.list(order));
        format!(
            "T{} read key {key_name} as {this}, others as {other}: neither is the beginning of the other",
            transaction.label
        )
    });
    INCOMPATIBLE
}

fn record_write(history: &mut IndexedHistory, number: u32, operation: &MicroOp) -> Result<()> {
    let (kind, key_name, value_name, amount) = match operation {
        MicroOp::Append { key, value } => (OperationKind::Append, key, value, None),
        MicroOp::Write { key, value, amount } => (OperationKind::Write, key, value, *amount),
        MicroOp::Read { .. } => return Ok(()),
    };
    let (key, value) = (history.key(key_name), history.value_names.number(value_name));
    let written = history.written.entry((key, value)).or_default();
    if written.writer != NONE {
        return Err(Error::malformed(format!("the value {value_name} is written to key {key_name} twice")));
    }
    *written = Written { writer: number, amount, ..*written };
    history.operations.push(Operation { kind, key, value, is_last: true, amount });
    Ok(())
}

/// Marks each write of the transaction that is the last one to its key.
fn mark_last_writes(history: &mut IndexedHistory, first: usize) {
    let IndexedHistory { operations, written, .. } = history;
    let mut later = HashSet::new();
    for operation in operations[first..].iter_mut().rev().filter(|operation| operation.kind != OperationKind::Read) {
        operation.is_last = later.insert(operation.key);
        if let Some(written) = written.get_mut(&(operation.key, operation.value)) {
            written.is_last = operation.is_last;
        }
    }
}

fn show(seen: &ReadValue) -> String {
    match seen {
        ReadValue::Nothing => "nothing".to_owned(),
        ReadValue::Value(value) => value.to_string(),
        ReadValue::List(list) => format!("[{}]", list.iter().map(Name::to_string).collect::<Vec<_>>().join(" ")),
    }
}
