//! Finds anomalies that need no order of transactions.

use std::collections::{BTreeMap, HashMap};

use super::indexed::{IndexedHistory, NONE, OperationKind, Transaction, TransactionOutcome, Written};
use crate::report::{AnomalyKind, Counts, Findings};

/// Finds all such anomalies, and counts unconfirmed appends and reads of old versions.
pub(super) fn find(history: &IndexedHistory, committed: &[bool], findings: &mut Findings, counts: &mut Counts) {
    values(history, findings, counts);
    reads(history, findings, counts);
    lost_updates(history, findings);
    half_commits(history, findings);
    if !history.is_lists() {
        lost_writes(history, committed, findings);
    }
}

/// Compares the writer and the reader of each value.
fn values(history: &IndexedHistory, findings: &mut Findings, counts: &mut Counts) {
    let mut values: Vec<(&(u32, u32), &Written)> = history.written.iter().collect();
    // The map's order is random, and reports have to be reproducible.
    values.sort_unstable_by_key(|(name, _)| **name);
    for (&(key, value), written) in values {
        let key_name = history.key_names.name(key);
        let value_name = history.value_names.name(value);
        let keys = || vec![key_name.clone()];
        if written.reader != NONE && written.writer == NONE {
            let text = || {
                let reader = history.describe(written.reader);
                format!("key {key_name} had the value {value_name}, which nobody wrote\n  {reader}")
            };
            findings.add(AnomalyKind::UnwrittenRead, vec![label(history, written.reader)], keys(), text);
            continue;
        }
        if written.writer == NONE {
            continue;
        }
        let writer = &history.transactions[written.writer as usize];
        if written.reader != NONE && writer.outcome.is_aborted() {
            let text = || {
                let (reader, writer) = (history.describe(written.reader), history.describe(written.writer));
                format!(
                    "key {key_name} had the value {value_name} of a transaction that failed\n  {reader}\n  {writer}"
                )
            };
            findings.add(AnomalyKind::AbortedRead, vec![label(history, written.reader), writer.label], keys(), text);
        }
        let is_append = history.is_lists() && written.reader == NONE;
        if is_append && writer.outcome == TransactionOutcome::Committed {
            let later = history.keys[key as usize].last_read.filter(|(invoked, _)| *invoked > writer.completed);
            if later.is_none() {
                counts.unconfirmed += 1;
                continue;
            }
            let text = || {
                let writer = history.describe(written.writer);
                format!(
                    "the append of {value_name} to key {key_name} was acknowledged, and no read shows it\n  {writer}"
                )
            };
            findings.add(AnomalyKind::LostAppend, vec![writer.label], keys(), text);
        }
    }
}

/// Checks the value that each read ends with.
fn reads(history: &IndexedHistory, findings: &mut Findings, counts: &mut Counts) {
    // The order of a list names the next writer; for a register it is a transaction that read the value and overwrote it.
    let overwriters = overwriters(history);
    for (number, reader) in (0u32..).zip(&history.transactions) {
        for operation in history.operations_of(number).iter().filter(|operation| operation.kind == OperationKind::Read)
        {
            let key = operation.key;
            let next = if history.is_lists() {
                let order = &history.keys[key as usize].order;
                order.get(operation.value as usize).and_then(|value| history.writer(key, *value))
            } else {
                overwriters.get(&(key, operation.value)).copied()
            };
            let is_old = |next: u32| next != number && history.transactions[next as usize].completed < reader.completed;
            if next.is_some_and(is_old) {
                counts.old_version_reads += 1;
            }
            let Some(value) = history.value_of_version(key, operation.value) else { continue };
            let Some(written) = history.written.get(&(key, value)) else { continue };
            if written.writer == NONE || written.writer == number {
                continue;
            }
            let writer_label = label(history, written.writer);
            let (key_name, value_name) = (history.key_names.name(key), history.value_names.name(value));
            let both = || format!("{}\n  {}", history.describe(number), history.describe(written.writer));
            if !written.is_last {
                let text = || {
                    format!(
                        "key {key_name} had the value {value_name}, which its own transaction went beyond\n  {}",
                        both()
                    )
                };
                findings.add(
                    AnomalyKind::IntermediateRead,
                    vec![reader.label, writer_label],
                    vec![key_name.clone()],
                    text,
                );
            }
            // A planned write has no amount yet.
            if written.amount.is_some() && operation.amount != written.amount {
                let text = || {
                    format!(
                        "the amount read with {value_name} of key {key_name} is another than was written\n  {}",
                        both()
                    )
                };
                findings.add(AnomalyKind::WrongAmount, vec![reader.label, writer_label], vec![key_name.clone()], text);
            }
        }
    }
}

/// Returns for each version of a key a transaction that read and overwrote it.
fn overwriters(history: &IndexedHistory) -> HashMap<(u32, u32), u32> {
    let mut overwriters = HashMap::new();
    for_each_update(history, |transaction, key, version| {
        overwriters.entry((key, version)).or_insert(transaction);
    });
    overwriters
}

/// Calls for each key that an acknowledged transaction read and then wrote, with the version that it read.
fn for_each_update(history: &IndexedHistory, mut call: impl FnMut(u32, u32, u32)) {
    for (number, transaction) in (0u32..).zip(&history.transactions) {
        if transaction.outcome != TransactionOutcome::Committed {
            continue;
        }
        let operations = history.operations_of(number);
        let writes = operations.iter().any(|operation| operation.kind != OperationKind::Read);
        if !writes {
            continue;
        }
        let mut seen: HashMap<u32, u32> = HashMap::new();
        for operation in operations {
            if operation.kind == OperationKind::Read {
                seen.insert(operation.key, operation.value);
            } else if let Some(version) = seen.remove(&operation.key) {
                call(number, operation.key, version);
            }
        }
    }
}

/// Finds transactions that read the same version of a key and wrote the key: all but one relied on an outdated read.
fn lost_updates(history: &IndexedHistory, findings: &mut Findings) {
    let mut updates: Vec<(u32, u32, u32)> = Vec::new();
    for_each_update(history, |transaction, key, version| updates.push((key, version, transaction)));
    updates.sort_unstable();
    for group in updates.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        let [(key, ..), _, ..] = group else { continue };
        let key_name = history.key_names.name(*key);
        let labels = group.iter().map(|(_, _, transaction)| label(history, *transaction)).collect();
        findings.add(AnomalyKind::LostUpdate, labels, vec![key_name.clone()], || {
            let all: Vec<String> =
                group.iter().map(|(_, _, transaction)| format!("\n  {}", history.describe(*transaction))).collect();
            let count = group.len();
            format!("{count} transactions read the same version of key {key_name} and wrote it{}", all.concat())
        });
    }
}

/// Finds transactions of unknown outcome with one write that a read shows, and another that a later read lacks.
///
/// A blind write may have overwritten a register since. That is ruled out if the last read shows nothing, or a value from
/// before the transaction began.
fn half_commits(history: &IndexedHistory, findings: &mut Findings) {
    // The event at which a reader proves that the transaction has committed.
    let mut seen_at: BTreeMap<u32, u32> = BTreeMap::new();
    for written in history.written.values().filter(|written| written.writer != NONE && written.reader != NONE) {
        if history.transactions[written.writer as usize].outcome == TransactionOutcome::Unknown {
            let end = history.transactions[written.reader as usize].completed;
            seen_at.entry(written.writer).and_modify(|at| *at = end.min(*at)).or_insert(end);
        }
    }
    for (number, seen_at) in seen_at {
        let transaction = &history.transactions[number as usize];
        for write in
            history.operations_of(number).iter().filter(|write| write.kind != OperationKind::Read && write.is_last)
        {
            let is_seen = history.written.get(&(write.key, write.value)).is_none_or(|written| written.reader != NONE);
            let later = history.keys[write.key as usize].last_read.filter(|(invoked, _)| *invoked > seen_at);
            let Some((_, last)) = later.filter(|_| !is_seen) else { continue };
            let is_older = |writer: u32| history.transactions[writer as usize].completed < transaction.invoked;
            if history.is_lists() || last == NONE || history.writer(write.key, last).is_some_and(is_older) {
                let (key, value) = (history.key_names.name(write.key), history.value_names.name(write.value));
                findings.add(AnomalyKind::HalfCommit, vec![transaction.label], vec![key.clone()], || {
                    let writer = history.describe(number);
                    format!("a write was seen, and that of {value} to key {key} is gone\n  {writer}")
                });
            }
        }
    }
}

/// Finds acknowledged writes of a register that are based, directly or through others, on the value that the last read shows.
fn lost_writes(history: &IndexedHistory, committed: &[bool], findings: &mut Findings) {
    let mut built_on: HashMap<(u32, u32), u32> = HashMap::new();
    for_each_write(history, committed, |_, key, value, read| {
        if let Some(read) = read {
            built_on.insert((key, value), read);
        }
    });
    // Whether a value is based on the one that the last read of its key shows.
    let mut known: HashMap<(u32, u32), bool> = HashMap::new();
    for_each_write(history, committed, |transaction, key, value, _| {
        let Transaction { outcome, completed, label, .. } = history.transactions[transaction as usize];
        let Some((invoked, last)) = history.keys[key as usize].last_read else { return };
        if outcome != TransactionOutcome::Committed || invoked < completed || value == last {
            return;
        }
        let mut path = Vec::new();
        let mut at = value;
        let is_lost = loop {
            if let Some(is_lost) = known.get(&(key, at)) {
                break *is_lost;
            }
            path.push(at);
            // Ends the walk on a cycle.
            known.insert((key, at), false);
            match built_on.get(&(key, at)) {
                Some(before) if *before == last => break true,
                Some(before) if *before != NONE => at = *before,
                _ => break last == NONE,
            }
        };
        known.extend(path.into_iter().map(|value| ((key, value), is_lost)));
        if is_lost {
            let (key_name, value_name) = (history.key_names.name(key), history.value_names.name(value));
            findings.add(AnomalyKind::LostWrite, vec![label], vec![key_name.clone()], || {
                let writer = history.describe(transaction);
                format!("the write of {value_name} to key {key_name} was acknowledged, and the last read knows nothing of it\n  {writer}")
            });
        }
    });
}

/// Calls for each last write of a committed transaction to a key, with what the transaction had read of the key.
pub(super) fn for_each_write(
    history: &IndexedHistory,
    committed: &[bool],
    mut call: impl FnMut(u32, u32, u32, Option<u32>),
) {
    for (number, _) in (0u32..).zip(committed).filter(|(_, is_committed)| **is_committed) {
        let operations = history.operations_of(number);
        for write in operations.iter().filter(|operation| operation.kind != OperationKind::Read && operation.is_last) {
            let mut reads = operations.iter().filter(|operation| operation.kind == OperationKind::Read);
            let read = reads.find(|read| read.key == write.key).map(|read| read.value);
            call(number, write.key, write.value, read);
        }
    }
}

fn label(history: &IndexedHistory, transaction: u32) -> u64 {
    history.transactions[transaction as usize].label
}
