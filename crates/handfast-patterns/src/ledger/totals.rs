//! The trial balance: over the whole ledger, the debits equal the credits.

use std::collections::BTreeMap;

use super::record::integer;
use super::{Entry, Ledger, requests};
use crate::Result;

/// The sums of all valid entries in an asset, in its smallest unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// The currency or other unit.
    pub asset: String,
    /// The sum of what was taken from accounts: 0 or negative.
    pub debits: i64,
    /// The sum of what was given to accounts.
    pub credits: i64,
    /// The sum that authorisations hold.
    pub held: i64,
}

impl Totals {
    /// Returns whether debits and credits are equal, which they need not be in a ledger of single entries.
    pub fn is_balanced(&self) -> bool {
        self.debits.checked_add(self.credits) == Some(0)
    }
}

impl Ledger {
    /// Returns the trial balance by asset. Each entry is counted completely or not at all, so it balances at any time,
    /// also while others post.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if a sum does not fit into 64 bits.
    pub async fn totals(&self) -> Result<Vec<Totals>> {
        let found = self.entries.aggregate(&requests::totals(self.fields())).await?;
        found
            .iter()
            .map(|group| {
                let number = |field: &str| integer(group, field).map(Option::unwrap_or_default);
                Ok(Totals {
                    asset: group.get_str("_id").unwrap_or_default().to_owned(),
                    debits: number("debits")?,
                    credits: number("credits")?,
                    held: number("held")?,
                })
            })
            .collect()
    }
}

/// Adds an entry to the sums by asset, if it counts.
pub(super) fn add(totals: &mut BTreeMap<String, Totals>, entry: &Entry) {
    for change in entry.changes.iter().filter(|_| entry.counts()) {
        let empty = || Totals { asset: change.asset.clone(), debits: 0, credits: 0, held: 0 };
        let totals = totals.entry(change.asset.clone()).or_insert_with(empty);
        totals.debits = totals.debits.saturating_add(change.value.min(0));
        totals.credits = totals.credits.saturating_add(change.value.max(0));
        totals.held = totals.held.saturating_add(change.hold);
    }
}
