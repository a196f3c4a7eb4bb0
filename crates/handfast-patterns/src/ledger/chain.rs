//! The report on an account's chain of places, which decides which of the written numbers is wrong.
//!
//! Each committed entry states its effect twice: by its value, and by the balance at its place, which the next balance
//! follows from. So one altered number contradicts several others. Let the offset of a balance be the written number
//! minus the sum of the entries up to there. It is 0 everywhere if nothing was altered. Otherwise:
//!
//! ```text
//! offsets       altered                                       the fewest numbers that explain it
//! 0 0 5 0 0     the balance at the third place                1 balance; or the values of 2 entries
//! 0 0 5 5 5     the value of the third entry                  1 value; or 3 balances
//! 0 0 0 0 5     the balance or the value at the last place    1 of either: it is unknown which
//! ```
//!
//! A wrong balance can be recomputed from the entries. An altered entry cannot, and the balances after it must stay,
//! as they alone still show what it was. If it is unknown which of the two is wrong, the entry counts as altered.
//!
//! Abandoned places are not alterations: the balances after a lost entry include it until a rebuild recomputes them,
//! from the first place to the last one. The abandoned place keeps the amount of the lost entry, which explains the
//! offset. If a rebuild was interrupted, or a committer continued from an old balance, some of the balances after the
//! place are recomputed and some are not.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::finding::{Amount, Finding};
use crate::Findings;

/// The state of the check of an account's written balances, from its first place on.
pub(super) struct Chain {
    /// The sums of abandoned amounts: before the first abandoned place, up to the first one, up to the second one, and
    /// so on.
    given_up: BTreeSet<Amount>,
    /// The sum of all abandoned amounts.
    all_given_up: Amount,
    /// The offset of the last written balance.
    offset: Amount,
    run: Run,
}

/// Written balances in a row that nothing explains.
#[derive(Default)]
struct Run {
    /// The findings if the balances are wrong: one for each of them.
    balances: Findings<Finding>,
    /// The findings if entries are wrong: one for each entry whose value would explain the balances.
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
    /// Records a finding beyond which nothing can be counted.
    pub(super) fn stop_at(&mut self, place: i64, finding: Finding) {
        self.findings.keep(finding);
        self.stop = Some(self.stop.map_or(place, |stop| stop.min(place)));
    }
}

impl Chain {
    pub(super) fn new() -> Self {
        let none = Amount::default();
        Chain { given_up: BTreeSet::from([none]), all_given_up: none, offset: none, run: Run::default() }
    }

    /// Records that the next place was abandoned, with this amount.
    pub(super) fn give_up(&mut self, amount: Amount) {
        self.all_given_up = self.all_given_up.plus(amount);
        self.given_up.insert(self.all_given_up);
    }

    /// Adds the balance that is written at a place. `balance` is the finding if the balance is wrong; `entry` makes
    /// the finding if the value of the entry is wrong, from the difference. A cache stands at a place without
    /// belonging to its entry.
    pub(super) fn written(
        &mut self,
        place: i64,
        offset: Amount,
        balance: Finding,
        entry: impl FnOnce(Amount) -> Option<Finding>,
        report: &mut ChainReport,
    ) {
        let change = offset.minus(self.offset);
        self.offset = offset;
        if self.is_explained(offset) {
            self.decide(true, report);
            if offset != Amount::default() {
                report.findings.keep(balance);
            }
            return;
        }
        if self.run.balances.count() == 0 {
            self.run.first = place;
        }
        if let Some(altered) = entry(change).filter(|_| change != Amount::default()) {
            self.run.entries.keep(altered);
        }
        self.run.balances.keep(balance);
    }

    /// Ends a run of balances, at the end of the account or at empty places.
    pub(super) fn end(&mut self, report: &mut ChainReport) {
        self.decide(false, report);
        *self = Chain::new();
    }

    /// Reports the explanation with the fewest alterations. `returns` says that everything adds up again after them,
    /// which takes one more altered entry.
    fn decide(&mut self, returns: bool, report: &mut ChainReport) {
        let Run { balances, entries, first } = std::mem::take(&mut self.run);
        // Without an entry that explains the offset, the balances are wrong.
        if entries.count() == 0 || balances.count() < entries.count() + u64::from(returns) {
            return report.findings.join(balances);
        }
        report.findings.join(entries);
        report.stop = Some(report.stop.map_or(first, |stop| stop.min(first)));
    }

    /// Returns whether an offset is 0, or the sum of the abandoned amounts at some places in a row.
    fn is_explained(&self, offset: Amount) -> bool {
        offset == Amount::default() || self.given_up.iter().any(|sum| self.given_up.contains(&sum.plus(offset)))
    }
}
