//! The amount that was available in an account at each of its entries, and the entry that took it below the minimum.

use bson::Bson;

use super::account::Account;
use super::balance::Line;
use super::finding::Finding;
use super::record::MINIMUM;
use super::{EntryState, Link};
use crate::value::same_id;

/// The amounts that posters have read of an account with a minimum. For them, an entry that was canceled later counted
/// if it had brought something, up to the place that the cancel took.
pub(super) struct Minimum {
    account: Bson,
    /// `None` if there is no minimum, or if it cannot be checked any more.
    minimum: Option<i64>,
    available: i64,
    /// The entry of the last line, its place, and the amount by which the account can spend more after it.
    entry: Option<(Bson, i64, i64)>,
    /// The amounts of entries that are canceled by now.
    canceled: Vec<(Bson, i64)>,
    below: Option<(Bson, i64)>,
}

impl Minimum {
    pub(super) fn new(account: &Account) -> Self {
        let (account, minimum) = (account.id.clone(), account.minimum);
        Minimum { account, minimum, available: 0, entry: None, canceled: Vec::new(), below: None }
    }

    /// Records that entries are lost, so that the available amount after them is unknown.
    pub(super) fn lost(&mut self) {
        self.minimum = None;
    }

    pub(super) fn line(&mut self, line: &Line) {
        if self.minimum.is_none() {
            return;
        }
        // An abandoned gain may leave an account below its minimum for good, which must be reported.
        let is_given_up = line.status.state == EntryState::Abandoned;
        let gained = if is_given_up { 0 } else { line.change.value.saturating_sub(line.change.hold) };
        let counts = line.status.state.counts();
        let mut change = if counts || gained > 0 { gained } else { 0 };
        if line.status.state == EntryState::Canceled && gained > 0 {
            self.canceled.push((line.entry.clone(), gained));
        }
        if let Some(Link::Cancels(canceled)) = &line.link {
            self.canceled.retain(|(id, gained)| {
                let is_it = same_id(id, canceled);
                change = change.saturating_sub(if is_it { *gained } else { 0 });
                !is_it
            });
        }
        // All changes of an entry take effect at once.
        if !self.entry.as_ref().is_some_and(|(entry, ..)| same_id(entry, &line.entry)) {
            self.check_entry();
            self.entry = Some((line.entry.clone(), line.change.seq_id, 0));
        }
        if let Some((_, _, sum)) = &mut self.entry {
            *sum = sum.saturating_add(change);
        }
        self.available = self.available.saturating_add(change);
        // The minimum holds from here on.
        if line.change.kind == MINIMUM && line.change.value == 0 {
            (self.entry, self.below) = (None, None);
        }
    }

    fn check_entry(&mut self) {
        let Some((entry, seq_id, change)) = self.entry.take() else { return };
        if change < 0 && self.minimum.is_some_and(|minimum| self.available < minimum) {
            self.below = Some((entry, seq_id));
        }
    }

    /// Returns the place and the finding of the entry that took the account below its minimum, if it still is below. A higher minimum may
    /// have been set later.
    pub(super) fn finish(mut self) -> Option<(i64, Finding)> {
        self.check_entry();
        let (minimum, available) = (self.minimum?, self.available);
        let (entry, seq_id) = self.below.filter(|_| available < minimum)?;
        Some((seq_id, Finding::BelowMinimum { account: self.account, seq_id, entry, available, minimum }))
    }
}
