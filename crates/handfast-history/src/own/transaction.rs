//! One transaction that has ended: does it agree with itself, and what is there to keep of it?

use std::collections::{HashMap, HashSet};

use super::observed::{NONE, Observed, Operation, Outcome, Transaction, What, Written};
use crate::event::{MicroOp, Name, Seen};
use crate::report::{Findings, Kind};
use crate::{Error, Result};

/// What is known of it besides its operations.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) label: u64,
    pub(super) process: i64,
    pub(super) invoked: u32,
    pub(super) completed: Option<u32>,
    pub(super) outcome: Outcome,
}

/// What a transaction knows of a key in its course.
#[derive(Default)]
struct Known<'a> {
    /// What it read, without its own writes.
    read: Option<&'a Seen>,
    /// The beginning of a list that it read only after it had appended to it.
    read_length: usize,
    own: Vec<&'a Name>,
}

/// Takes a transaction in: its reads of what others wrote, and its writes.
pub(super) fn take(
    observed: &mut Observed,
    findings: &mut Findings,
    begun: &Begun,
    planned: &[MicroOp],
    operations: &[MicroOp],
) -> Result<()> {
    let number = u32::try_from(observed.transactions.len()).map_err(|_| Error::malformed("too many transactions"))?;
    check_model(observed, planned.iter().chain(operations))?;
    let first = observed.operations.len();
    if begun.outcome == Outcome::Committed {
        take_committed(observed, findings, begun, number, operations)?;
    } else {
        // Nobody knows what it read; what it was to write may be seen. What it did says more than what it planned.
        let is_done =
            |plan: &MicroOp| operations.iter().any(|done| done.written().is_some_and(|it| plan.written() == Some(it)));
        for operation in operations.iter().chain(planned.iter().filter(|plan| !is_done(plan))) {
            take_write(observed, number, operation)?;
        }
    }
    mark_last_writes(observed, first);
    observed.transactions.push(Transaction {
        label: begun.label,
        process: begun.process,
        invoked: begun.invoked,
        completed: begun.completed.unwrap_or(NONE),
        outcome: begun.outcome,
        operations: first..observed.operations.len(),
    });
    Ok(())
}

fn check_model<'a>(observed: &mut Observed, operations: impl Iterator<Item = &'a MicroOp>) -> Result<()> {
    for operation in operations {
        match (observed.model, operation.model()) {
            (None, Some(model)) => observed.model = Some(model),
            (Some(all), Some(this)) if all != this => {
                let key = operation.key();
                return Err(Error::malformed(format!("key {key} is used as a list and as a register")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn take_committed(
    observed: &mut Observed,
    findings: &mut Findings,
    begun: &Begun,
    number: u32,
    operations: &[MicroOp],
) -> Result<()> {
    let mut all_known: HashMap<&Name, Known<'_>> = HashMap::new();
    let (mut money, mut accounts) = (0i64, 0u64);
    for operation in operations {
        let known = all_known.entry(operation.key()).or_default();
        match operation {
            MicroOp::Append { value, .. } | MicroOp::Write { value, .. } => {
                known.own.push(value);
                take_write(observed, number, operation)?;
            }
            MicroOp::Read { key, seen, amount } => {
                let is_first = known.read.is_none();
                if !known.agrees(seen) {
                    let text = || {
                        let own = if known.own.is_empty() { "earlier reads" } else { "earlier reads and writes" };
                        format!(
                            "T{} read key {key} as {}, which does not agree with its own {own}",
                            begun.label,
                            show(seen)
                        )
                    };
                    findings.add(Kind::Internal, vec![begun.label], vec![key.clone()], text);
                } else if is_first && known.read.is_some() {
                    take_read(observed, findings, begun, number, (key, seen, known.read_length, *amount));
                    if let Some(amount) = amount {
                        (money, accounts) = (money.saturating_add(*amount), accounts + 1);
                    }
                }
            }
        }
    }
    match observed.bank {
        Some(bank) if accounts == bank.accounts && money != bank.total => {
            let label = begun.label;
            let text = || format!("T{label} read all {accounts} accounts, {money} together, where {} are", bank.total);
            findings.add(Kind::WrongTotal, vec![label], vec![], text);
        }
        _ => {}
    }
    Ok(())
}

impl<'a> Known<'a> {
    /// Whether a read fits what the transaction knows. The first one that shows others' writes is remembered.
    fn agrees(&mut self, seen: &'a Seen) -> bool {
        match (seen, self.read, self.own.last()) {
            (Seen::Value(value), _, Some(own)) => value == *own,
            // An appended list, which a read without a model may show as nothing.
            (Seen::Nothing, _, Some(_)) => false,
            (Seen::List(list), None, _) => {
                let own = self.own.len();
                let Some(length) = list.len().checked_sub(own) else { return false };
                if list[length..].iter().ne(self.own.iter().copied()) {
                    return false;
                }
                (self.read, self.read_length) = (Some(seen), length);
                true
            }
            (Seen::List(list), Some(read), _) => {
                let before = match read {
                    Seen::List(before) => &before[..self.read_length],
                    _ => &[],
                };
                list.iter().eq(before.iter().chain(self.own.iter().copied()))
            }
            (_, Some(read), None) => read == seen || (is_empty(read) && is_empty(seen)),
            (_, None, None) => {
                self.read = Some(seen);
                true
            }
        }
    }
}

fn is_empty(seen: &Seen) -> bool {
    match seen {
        Seen::List(list) => list.is_empty(),
        Seen::Nothing => true,
        Seen::Value(_) => false,
    }
}

/// Takes in the first read of a key: of a list its first `length` elements, the rest is the transaction's own.
fn take_read(
    observed: &mut Observed,
    findings: &mut Findings,
    begun: &Begun,
    number: u32,
    (key_name, seen, length, amount): (&Name, &Seen, usize, Option<i64>),
) {
    let key = observed.key(key_name);
    let version = match seen {
        Seen::List(list) => take_list(observed, findings, begun, number, (key, &list[..length])),
        Seen::Nothing if observed.is_lists() => 0,
        Seen::Nothing => NONE,
        Seen::Value(value) => {
            let value = observed.value_names.number(value);
            let written = observed.written.entry((key, value)).or_default();
            if written.reader == NONE {
                written.reader = number;
            }
            value
        }
    };
    let last_read = &mut observed.keys[key as usize].last_read;
    if last_read.is_none_or(|(invoked, _)| invoked < begun.invoked) {
        *last_read = Some((begun.invoked, version));
    }
    // Of a list that fits no other nothing more can be said: it would be the beginning of the wrong one.
    if version != UNFIT {
        observed.operations.push(Operation { what: What::Read, key, value: version, is_last: false, amount });
    }
}

/// Of a list that is not the beginning of what others saw, nor they of it. Lists end before they are that long.
const UNFIT: u32 = NONE - 1;

/// The version that a list is, or [`UNFIT`].
fn take_list(
    observed: &mut Observed,
    findings: &mut Findings,
    begun: &Begun,
    number: u32,
    (key, list): (u32, &[Name]),
) -> u32 {
    let Observed { value_names, keys, written, key_names, .. } = observed;
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
        let text = || format!("T{} read key {key_name} with the value {value} in it twice", begun.label);
        findings.add(Kind::DuplicateAppend, vec![begun.label], vec![key_name.clone()], text);
    }
    if fits {
        return u32::try_from(list.len()).unwrap_or(UNFIT);
    }
    let values: Vec<u32> = list.iter().map(|name| observed.value_names.number(name)).collect();
    let order = &observed.keys[key as usize].order;
    findings.add(Kind::IncompatibleOrder, vec![begun.label], vec![key_name.clone()], || {
        let (this, other) = (observed.list(&values), observed.list(order));
        format!(
            "T{} read key {key_name} as {this}, others as {other}: neither is the beginning of the other",
            begun.label
        )
    });
    UNFIT
}

fn take_write(observed: &mut Observed, number: u32, operation: &MicroOp) -> Result<()> {
    let (what, key_name, value_name, amount) = match operation {
        MicroOp::Append { key, value } => (What::Append, key, value, None),
        MicroOp::Write { key, value, amount } => (What::Write, key, value, *amount),
        MicroOp::Read { .. } => return Ok(()),
    };
    let (key, value) = (observed.key(key_name), observed.value_names.number(value_name));
    let written = observed.written.entry((key, value)).or_default();
    if written.writer != NONE {
        return Err(Error::malformed(format!("the value {value_name} is written to key {key_name} twice")));
    }
    *written = Written { writer: number, amount, ..*written };
    observed.operations.push(Operation { what, key, value, is_last: true, amount });
    Ok(())
}

/// Says of each write of the transaction whether it is the last to its key.
fn mark_last_writes(observed: &mut Observed, first: usize) {
    let Observed { operations, written, .. } = observed;
    let mut later = HashSet::new();
    for operation in operations[first..].iter_mut().rev().filter(|operation| operation.what != What::Read) {
        operation.is_last = later.insert(operation.key);
        if let Some(written) = written.get_mut(&(operation.key, operation.value)) {
            written.is_last = operation.is_last;
        }
    }
}

fn show(seen: &Seen) -> String {
    match seen {
        Seen::Nothing => "nothing".to_owned(),
        Seen::Value(value) => value.to_string(),
        Seen::List(list) => format!("[{}]", list.iter().map(Name::to_string).collect::<Vec<_>>().join(" ")),
    }
}
