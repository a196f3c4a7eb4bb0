//! What is wrong whatever the order of transactions.

use std::collections::{BTreeMap, HashMap};

use super::observed::{NONE, Observed, Outcome, Transaction, What, Written};
use crate::report::{Counts, Findings, Kind};

/// Finds all of it, and counts what only a look at the whole history can count.
pub(super) fn find(observed: &Observed, committed: &[bool], findings: &mut Findings, counts: &mut Counts) {
    values(observed, findings, counts);
    reads(observed, findings, counts);
    lost_updates(observed, findings);
    half_commits(observed, findings);
    if !observed.is_lists() {
        lost_writes(observed, committed, findings);
    }
}

/// Looks at each value: who wrote it, who saw it.
fn values(observed: &Observed, findings: &mut Findings, counts: &mut Counts) {
    let mut values: Vec<(&(u32, u32), &Written)> = observed.written.iter().collect();
    // A map has no order, and reports are compared.
    values.sort_unstable_by_key(|(name, _)| **name);
    for (&(key, value), written) in values {
        let key_name = observed.key_names.name(key);
        let value_name = observed.value_names.name(value);
        let keys = || vec![key_name.clone()];
        if written.reader != NONE && written.writer == NONE {
            let text = || {
                let reader = observed.describe(written.reader);
                format!("key {key_name} had the value {value_name}, which nobody wrote\n  {reader}")
            };
            findings.add(Kind::UnwrittenRead, vec![label(observed, written.reader)], keys(), text);
            continue;
        }
        if written.writer == NONE {
            continue;
        }
        let writer = &observed.transactions[written.writer as usize];
        if written.reader != NONE && writer.outcome.is_aborted() {
            let text = || {
                let (reader, writer) = (observed.describe(written.reader), observed.describe(written.writer));
                format!(
                    "key {key_name} had the value {value_name} of a transaction that failed\n  {reader}\n  {writer}"
                )
            };
            findings.add(Kind::AbortedRead, vec![label(observed, written.reader), writer.label], keys(), text);
        }
        let is_append = observed.is_lists() && written.reader == NONE;
        if is_append && writer.outcome == Outcome::Committed {
            let later = observed.keys[key as usize].last_read.filter(|(invoked, _)| *invoked > writer.completed);
            if later.is_none() {
                counts.unconfirmed += 1;
                continue;
            }
            let text = || {
                let writer = observed.describe(written.writer);
                format!(
                    "the append of {value_name} to key {key_name} was acknowledged, and no read shows it\n  {writer}"
                )
            };
            findings.add(Kind::LostAppend, vec![writer.label], keys(), text);
        }
    }
}

/// Looks at each read: of what kind is the value that it ends with?
fn reads(observed: &Observed, findings: &mut Findings, counts: &mut Counts) {
    // Of a register: whoever read a value and overwrote it. Of lists the order says who came next.
    let overwriters = overwriters(observed);
    for (number, reader) in (0u32..).zip(&observed.transactions) {
        for operation in observed.operations_of(number).iter().filter(|operation| operation.what == What::Read) {
            let key = operation.key;
            let next = if observed.is_lists() {
                let order = &observed.keys[key as usize].order;
                order.get(operation.value as usize).and_then(|value| observed.writer(key, *value))
            } else {
                overwriters.get(&(key, operation.value)).copied()
            };
            let is_old =
                |next: u32| next != number && observed.transactions[next as usize].completed < reader.completed;
            if next.is_some_and(is_old) {
                counts.old_version_reads += 1;
            }
            let Some(value) = observed.value_of_version(key, operation.value) else { continue };
            let Some(written) = observed.written.get(&(key, value)) else { continue };
            if written.writer == NONE || written.writer == number {
                continue;
            }
            let writer_label = label(observed, written.writer);
            let (key_name, value_name) = (observed.key_names.name(key), observed.value_names.name(value));
            let both = || format!("{}\n  {}", observed.describe(number), observed.describe(written.writer));
            if !written.is_last {
                let text = || {
                    format!(
                        "key {key_name} had the value {value_name}, which its own transaction went beyond\n  {}",
                        both()
                    )
                };
                findings.add(Kind::IntermediateRead, vec![reader.label, writer_label], vec![key_name.clone()], text);
            }
            // Who only planned a write did not know the amount yet.
            if written.amount.is_some() && operation.amount != written.amount {
                let text = || {
                    format!(
                        "the amount read with {value_name} of key {key_name} is another than was written\n  {}",
                        both()
                    )
                };
                findings.add(Kind::WrongAmount, vec![reader.label, writer_label], vec![key_name.clone()], text);
            }
        }
    }
}

/// Of each version of a key that a transaction read and overwrote: a transaction that did.
fn overwriters(observed: &Observed) -> HashMap<(u32, u32), u32> {
    let mut overwriters = HashMap::new();
    for_each_update(observed, |transaction, key, version| {
        overwriters.entry((key, version)).or_insert(transaction);
    });
    overwriters
}

/// Calls for each key that an acknowledged transaction read and then wrote, with the version that it read.
fn for_each_update(observed: &Observed, mut call: impl FnMut(u32, u32, u32)) {
    for (number, transaction) in (0u32..).zip(&observed.transactions) {
        if transaction.outcome != Outcome::Committed {
            continue;
        }
        let operations = observed.operations_of(number);
        let writes = operations.iter().any(|operation| operation.what != What::Read);
        if !writes {
            continue;
        }
        let mut seen: HashMap<u32, u32> = HashMap::new();
        for operation in operations {
            if operation.what == What::Read {
                seen.insert(operation.key, operation.value);
            } else if let Some(version) = seen.remove(&operation.key) {
                call(number, operation.key, version);
            }
        }
    }
}

/// Transactions that read the same version of a key and wrote it: all but one went by what was no longer so.
fn lost_updates(observed: &Observed, findings: &mut Findings) {
    let mut updates: Vec<(u32, u32, u32)> = Vec::new();
    for_each_update(observed, |transaction, key, version| updates.push((key, version, transaction)));
    updates.sort_unstable();
    for group in updates.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        let [(key, ..), _, ..] = group else { continue };
        let key_name = observed.key_names.name(*key);
        let labels = group.iter().map(|(_, _, transaction)| label(observed, *transaction)).collect();
        findings.add(Kind::LostUpdate, labels, vec![key_name.clone()], || {
            let all: Vec<String> =
                group.iter().map(|(_, _, transaction)| format!("\n  {}", observed.describe(*transaction))).collect();
            let count = group.len();
            format!("{count} transactions read the same version of key {key_name} and wrote it{}", all.concat())
        });
    }
}

/// Transactions of unknown outcome that were seen, and of which a key that was read later knows nothing.
///
/// A register's value may have been written over since, by somebody who did not look. It was not if the last read shows
/// what was there before the transaction began, or nothing.
fn half_commits(observed: &Observed, findings: &mut Findings) {
    // When it was known that they have committed.
    let mut seen_at: BTreeMap<u32, u32> = BTreeMap::new();
    for written in observed.written.values().filter(|written| written.writer != NONE && written.reader != NONE) {
        if observed.transactions[written.writer as usize].outcome == Outcome::Unknown {
            let end = observed.transactions[written.reader as usize].completed;
            seen_at.entry(written.writer).and_modify(|at| *at = end.min(*at)).or_insert(end);
        }
    }
    for (number, seen_at) in seen_at {
        let transaction = &observed.transactions[number as usize];
        for write in observed.operations_of(number).iter().filter(|write| write.what != What::Read && write.is_last) {
            let is_seen = observed.written.get(&(write.key, write.value)).is_none_or(|written| written.reader != NONE);
            let later = observed.keys[write.key as usize].last_read.filter(|(invoked, _)| *invoked > seen_at);
            let Some((_, last)) = later.filter(|_| !is_seen) else { continue };
            let is_older = |writer: u32| observed.transactions[writer as usize].completed < transaction.invoked;
            if observed.is_lists() || last == NONE || observed.writer(write.key, last).is_some_and(is_older) {
                let (key, value) = (observed.key_names.name(write.key), observed.value_names.name(write.value));
                findings.add(Kind::HalfCommit, vec![transaction.label], vec![key.clone()], || {
                    let writer = observed.describe(number);
                    format!("a write was seen, and that of {value} to key {key} is gone\n  {writer}")
                });
            }
        }
    }
}

/// Acknowledged writes of a register that build, one upon the other, on what the last read shows: they are gone.
fn lost_writes(observed: &Observed, committed: &[bool], findings: &mut Findings) {
    let mut built_on: HashMap<(u32, u32), u32> = HashMap::new();
    for_each_write(observed, committed, |_, key, value, read| {
        if let Some(read) = read {
            built_on.insert((key, value), read);
        }
    });
    // Whether a value is built on what the last read of its key shows.
    let mut known: HashMap<(u32, u32), bool> = HashMap::new();
    for_each_write(observed, committed, |transaction, key, value, _| {
        let Transaction { outcome, completed, label, .. } = observed.transactions[transaction as usize];
        let Some((invoked, last)) = observed.keys[key as usize].last_read else { return };
        if outcome != Outcome::Committed || invoked < completed || value == last {
            return;
        }
        let mut path = Vec::new();
        let mut at = value;
        let is_lost = loop {
            if let Some(is_lost) = known.get(&(key, at)) {
                break *is_lost;
            }
            path.push(at);
            // Until the walk is over: a circle is nobody's beginning.
            known.insert((key, at), false);
            match built_on.get(&(key, at)) {
                Some(before) if *before == last => break true,
                Some(before) if *before != NONE => at = *before,
                _ => break last == NONE,
            }
        };
        known.extend(path.into_iter().map(|value| ((key, value), is_lost)));
        if is_lost {
            let (key_name, value_name) = (observed.key_names.name(key), observed.value_names.name(value));
            findings.add(Kind::LostWrite, vec![label], vec![key_name.clone()], || {
                let writer = observed.describe(transaction);
                format!("the write of {value_name} to key {key_name} was acknowledged, and the last read knows nothing of it\n  {writer}")
            });
        }
    });
}

/// Calls for each last write of a committed transaction to a key, with what the transaction had read of the key.
pub(super) fn for_each_write(
    observed: &Observed,
    committed: &[bool],
    mut call: impl FnMut(u32, u32, u32, Option<u32>),
) {
    for (number, _) in (0u32..).zip(committed).filter(|(_, is_committed)| **is_committed) {
        let operations = observed.operations_of(number);
        for write in operations.iter().filter(|operation| operation.what != What::Read && operation.is_last) {
            let mut reads = operations.iter().filter(|operation| operation.what == What::Read);
            let read = reads.find(|read| read.key == write.key).map(|read| read.value);
            call(number, write.key, write.value, read);
        }
    }
}

fn label(observed: &Observed, transaction: u32) -> u64 {
    observed.transactions[transaction as usize].label
}
