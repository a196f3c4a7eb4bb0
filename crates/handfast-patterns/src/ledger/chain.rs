//! The report on an account's chain of places: which of the written numbers is the wrong one.
//!
//! Each committed entry says twice what it did: by its value, and by the balance at its place, which the balance behind it follows
//! from. So one altered number contradicts several others. Let the offset of a balance be what is written less what the entries up
//! to there add up to. It is 0 everywhere, and otherwise:
//!
//! ```text
//! offsets       altered                                       the fewest numbers that explain it
//! 0 0 5 0 0     the balance at the third place                1 balance; or the values of 2 entries
//! 0 0 5 5 5     the value of the third entry                  1 value; or 3 balances
//! 0 0 0 0 5     the balance or the value at the last place    1 of either: it is unknown which
//! ```
//!
//! A balance that is wrong is counted again from the entries. An entry that is altered cannot be, and neither can what stands behind it: the
//! balances there are all that is left of what it had said. Where it is unknown, the entry counts as altered.
//!
//! Entries that were given up are no alteration: the balances behind them were counted with them until a rebuild has counted those
//! again, from the first place to the last one. The place that is given up keeps the amount, which explains the offset. Some
//! of the balances behind are counted again and some are not if the rebuild was interrupted, or a committer went on from an old one.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::finding::Finding;
use crate::Findings;

/// A balance, and what of it is held; or by how much both change.
pub(super) type Amount = (i64, i64);

/// The state of the check of an account's written balances, from its first place on.
pub(super) struct Chain {
    /// What was given up before the first place, up to the first such place, up to the second one, and so on.
    given_up: BTreeSet<Amount>,
    /// The last of them.
    all_given_up: Amount,
    /// The offset of the last written balance.
    offset: Amount,
    run: Run,
}

/// Written balances in a row that nothing explains.
#[derive(Default)]
struct Run {
    /// One for each of them: what is wrong if the balances are.
    balances: Findings<Finding>,
    /// One for each entry whose value would explain them: what is wrong if the entries are.
    entries: Findings<Finding>,
    /// The place of the first one.
    first: i64,
}

/// The findings so far.
#[derive(Default)]
pub(super) struct ChainReport {
    pub(super) findings: Findings<Finding>,
    /// The first place that nothing can be counted beyond.
    pub(super) stop: Option<i64>,
}

impl ChainReport {
    /// Nothing can be counted beyond this place because of the finding.
    pub(super) fn stop_at(&mut self, place: i64, finding: Finding) {
        self.findings.keep(finding);
        self.stop = Some(self.stop.map_or(place, |stop| stop.min(place)));
    }
}

impl Chain {
    pub(super) fn new() -> Self {
        let none = (0, 0);
        Chain { given_up: BTreeSet::from([none]), all_given_up: none, offset: none, run: Run::default() }
    }

    /// The place that comes next was given up, with this amount.
    pub(super) fn give_up(&mut self, amount: Amount) {
        self.all_given_up = plus(self.all_given_up, amount);
        self.given_up.insert(self.all_given_up);
    }

    /// The balance that is written at a place. `balance` says what is wrong if it is the balance, `entry` (given by how much) if it is
    /// the value of an entry; a cache stands on a place without being one of its entry.
    pub(super) fn written(
        &mut self,
        place: i64,
        offset: Amount,
        balance: Finding,
        entry: impl FnOnce(Amount) -> Option<Finding>,
        report: &mut ChainReport,
    ) {
        let change = (offset.0.wrapping_sub(self.offset.0), offset.1.wrapping_sub(self.offset.1));
        self.offset = offset;
        if self.is_explained(offset) {
            self.decide(true, report);
            if offset != (0, 0) {
                report.findings.keep(balance);
            }
            return;
        }
        if self.run.balances.count() == 0 {
            self.run.first = place;
        }
        if let Some(altered) = entry(change).filter(|_| change != (0, 0)) {
            self.run.entries.keep(altered);
        }
        self.run.balances.keep(balance);
    }

    /// Nothing more follows from what is before: the account is at its end, or places are empty.
    pub(super) fn end(&mut self, report: &mut ChainReport) {
        self.decide(false, report);
        *self = Chain::new();
    }

    /// The fewest alterations that explain what is written are those that were made. `returns`: after them everything adds up again, which
    /// takes one more altered entry.
    fn decide(&mut self, returns: bool, report: &mut ChainReport) {
        let Run { balances, entries, first } = std::mem::take(&mut self.run);
        // Where no entry would explain it, it is the balances.
        if entries.count() == 0 || balances.count() < entries.count() + u64::from(returns) {
            return report.findings.join(balances);
        }
        report.findings.join(entries);
        report.stop = Some(report.stop.map_or(first, |stop| stop.min(first)));
    }

    /// Returns whether an offset is nothing, or what was given up at some places in a row.
    fn is_explained(&self, offset: Amount) -> bool {
        offset == (0, 0) || self.given_up.iter().any(|sum| self.given_up.contains(&plus(*sum, offset)))
    }
}

fn plus((balance, held): Amount, (more, more_held): Amount) -> Amount {
    (balance.wrapping_add(more), held.wrapping_add(more_held))
}
