//! The kinds of findings of a verification.

use std::fmt;

use bson::Bson;

use super::EntryChange;
use super::account::Cache;

/// A balance with the part of it that is held, or the differences of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    /// The balance, in the smallest unit of the asset.
    pub balance: i64,
    /// The held amount.
    pub held: i64,
}

impl Amount {
    pub(super) fn of(change: &EntryChange) -> Self {
        Amount { balance: change.value, held: change.hold }
    }

    pub(super) fn plus(self, other: Amount) -> Self {
        Amount { balance: self.balance.wrapping_add(other.balance), held: self.held.wrapping_add(other.held) }
    }

    pub(super) fn minus(self, other: Amount) -> Self {
        Amount { balance: self.balance.wrapping_sub(other.balance), held: self.held.wrapping_sub(other.held) }
    }
}

impl From<Cache> for Amount {
    fn from(cache: Cache) -> Self {
        Amount { balance: cache.balance, held: cache.held }
    }
}

/// Places of an account that have no entry although they had one: entries are lost.
/// Posters take places one after the other, and nothing is committed after a place that is still empty. So an empty
/// place is lost if an entry after it is committed, if the account's document has a balance at it or after it, or, in
/// an account without a sequence, if there is any entry after it. A place of an abandoned entry is not empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// The account.
    pub account: Bson,
    /// The first of the places.
    pub first: i64,
    /// The last of the places.
    pub last: i64,
    /// The differences of the balance and of the held amount that the lost entries made, if the final balances around
    /// them show these.
    pub change: Option<Amount>,
}

/// An inconsistency other than a [`Gap`].
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// An entry is not committed although the next one is.
    Order {
        /// The account.
        account: Bson,
        /// The place of the uncommitted entry.
        seq_id: i64,
        /// The uncommitted entry.
        entry: Bson,
    },
    /// The balance that is written at a place is not the sum of the entries up to there.
    Balance {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The entry.
        entry: Bson,
        /// The written balance and held amount; `None` if a committed entry has none.
        cached: Option<Amount>,
        /// The recomputed balance and held amount.
        recomputed: Amount,
    },
    /// The cache in an account's document is not the sum of the entries up to its place.
    Cache {
        /// The account.
        account: Bson,
        /// The stored balance.
        cached: Cache,
        /// The expected balance; `None` if the entry at its place is not committed.
        recomputed: Option<Cache>,
    },
    /// A change has another asset than its account.
    Asset {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The asset of the change.
        asset: String,
    },
    /// The value of a committed entry contradicts the final balances around it. One of the two was altered. It is
    /// reported as the entry if the balances agree with each other, or if it is unknown which of the two is wrong.
    Altered {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The entry.
        entry: Bson,
        /// The differences of the balance and of the held amount by the entry.
        value: Amount,
        /// These differences by the balances around it.
        written: Amount,
    },
    /// The changes of an entry do not add up to 0.
    Unbalanced {
        /// An account of the entry.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The entry.
        entry: Bson,
        /// The asset.
        asset: String,
        /// The sum in this asset.
        sum: i64,
    },
    /// Two entries have the same place of an account.
    SamePlace {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The entry that was found second.
        entry: Bson,
    },
    /// An account has entries and no document, so that its limits are unknown.
    NoAccount {
        /// The account.
        account: Bson,
    },
    /// An entry took an account below its minimum, and the account is still below it.
    BelowMinimum {
        /// The account.
        account: Bson,
        /// The place of the entry.
        seq_id: i64,
        /// The entry.
        entry: Bson,
        /// The amount that is available now.
        available: i64,
        /// The amount that must stay available.
        minimum: i64,
    },
    /// An entry reverses or resolves one that does not exist.
    NoSuchEntry {
        /// The entry.
        entry: Bson,
        /// The `_id` of the missing entry.
        linked: Bson,
    },
    /// There is no unique index on accounts and places, so that two entries may take the same place.
    NoIndex {
        /// The collection of the entries.
        collection: String,
    },
    /// No settings are recorded, so that it is unknown whether the entries are read by the right field names.
    NoSettings {
        /// The collection of the entries.
        collection: String,
    },
    /// A document that cannot be read as an entry or an account.
    Unreadable {
        /// The account that cannot be counted because of it; `None` for an entry that was read on its own.
        account: Option<Bson>,
        /// Describes the error.
        what: String,
    },
}

impl Finding {
    /// Returns the kind in one or two words, such as "balance" or "no account".
    pub fn kind(&self) -> &'static str {
        match self {
            Finding::Order { .. } => "order",
            Finding::Balance { .. } => "balance",
            Finding::Cache { .. } => "cache",
            Finding::Asset { .. } => "asset",
            Finding::Altered { .. } => "altered",
            Finding::Unbalanced { .. } => "unbalanced",
            Finding::SamePlace { .. } => "same place",
            Finding::NoAccount { .. } => "no account",
            Finding::BelowMinimum { .. } => "below minimum",
            Finding::NoSuchEntry { .. } => "no such entry",
            Finding::NoIndex { .. } => "no index",
            Finding::NoSettings { .. } => "no settings",
            Finding::Unreadable { .. } => "unreadable",
        }
    }

    /// Returns the account of the finding.
    pub fn account(&self) -> Option<&Bson> {
        match self {
            Finding::Order { account, .. }
            | Finding::Balance { account, .. }
            | Finding::Cache { account, .. }
            | Finding::Asset { account, .. }
            | Finding::Altered { account, .. }
            | Finding::Unbalanced { account, .. }
            | Finding::SamePlace { account, .. }
            | Finding::NoAccount { account }
            | Finding::BelowMinimum { account, .. } => Some(account),
            Finding::Unreadable { account, .. } => account.as_ref(),
            Finding::NoSuchEntry { .. } | Finding::NoIndex { .. } | Finding::NoSettings { .. } => None,
        }
    }

    /// Returns whether [`Ledger::rebuild`](super::Ledger::rebuild) repairs it, unless it stops before: it is a number
    /// that follows from the entries.
    pub fn can_be_rebuilt(&self) -> bool {
        matches!(self, Finding::Balance { .. } | Finding::Cache { recomputed: Some(_), .. })
    }

    /// Returns whether a [`Ledger::rebuild`](super::Ledger::rebuild) of the account stops there, as nothing can be
    /// counted beyond it.
    pub fn stops_a_rebuild(&self) -> bool {
        match self {
            Finding::Order { .. }
            | Finding::Asset { .. }
            | Finding::Altered { .. }
            | Finding::Unbalanced { .. }
            | Finding::SamePlace { .. }
            | Finding::NoAccount { .. }
            | Finding::Unreadable { .. }
            | Finding::Cache { recomputed: None, .. } => true,
            Finding::Balance { .. }
            | Finding::Cache { recomputed: Some(_), .. }
            | Finding::BelowMinimum { .. }
            | Finding::NoSuchEntry { .. }
            | Finding::NoIndex { .. }
            | Finding::NoSettings { .. } => false,
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gap { account, first, last, change } = self;
        if first == last {
            write!(f, "account {account}: place {first} has no entry: an entry is lost")?;
        } else {
            write!(f, "account {account}: places {first} to {last} have no entry: entries are lost")?;
        }
        match change {
            Some(Amount { balance, held: 0 }) => write!(f, " that changed the balance by {balance}"),
            Some(Amount { balance, held }) => {
                write!(f, " that changed the balance by {balance} and what is held by {held}")
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Order { account, seq_id, entry } => {
                write!(
                    f,
                    "account {account}: entry {entry} at place {seq_id} is not committed, and those behind it are"
                )
            }
            Finding::Balance { account, seq_id, entry, cached: None, recomputed } => {
                let text = "is committed without a balance, which is";
                write!(f, "account {account}: entry {entry} at place {seq_id} {text} {}", recomputed.balance)
            }
            Finding::Balance { account, seq_id, entry, cached: Some(cached), recomputed } => {
                let Amount { balance, held } = cached;
                let is = format!("{} with {} held", recomputed.balance, recomputed.held);
                write!(
                    f,
                    "account {account}: entry {entry} at place {seq_id} says {balance} with {held} held, it is {is}"
                )
            }
            Finding::Cache { account, cached: Cache { balance, seq_id, .. }, recomputed } => {
                write!(f, "account {account}: its document says {balance} at place {seq_id}, ")?;
                match recomputed {
                    Some(is) => write!(f, "it is {} with {} held", is.balance, is.held),
                    None => f.write_str("which is not committed"),
                }
            }
            Finding::Asset { account, seq_id, asset } => {
                write!(f, "account {account}: the change at place {seq_id} is in {asset:?}")
            }
            Finding::Altered { account, seq_id, entry, value, written } => {
                let changed = |Amount { balance, held }: &Amount| match held {
                    0 => balance.to_string(),
                    held => format!("{balance} with {held} held"),
                };
                write!(
                    f,
                    "account {account}: entry {entry} at place {seq_id} changes it by {}, by {} according to the final balances: it was altered",
                    changed(value),
                    changed(written)
                )
            }
            Finding::Unbalanced { account, seq_id, entry, asset, sum } => {
                write!(
                    f,
                    "account {account}: entry {entry} at place {seq_id}: its changes in {asset:?} add up to {sum}"
                )
            }
            Finding::SamePlace { account, seq_id, entry } => {
                write!(f, "account {account}: entry {entry} is at place {seq_id}, which another entry has, too")
            }
            Finding::NoAccount { account } => {
                write!(f, "account {account}: it has entries and no document, which said what its limits were")
            }
            Finding::BelowMinimum { account, seq_id, entry, available, minimum } => {
                let now = format!("{available} is available, and {minimum} must be");
                write!(f, "account {account}: entry {entry} at place {seq_id} took it below its minimum: {now}")
            }
            Finding::NoSuchEntry { entry, linked } => {
                write!(f, "entry {entry}: it takes back or resolves entry {linked}, which is not there")
            }
            Finding::NoIndex { collection } => {
                write!(f, "{collection} has no unique index on accounts and places: nothing keeps two entries apart")
            }
            Finding::NoSettings { collection } => {
                write!(f, "nothing is recorded of the settings of {collection}: it was read by names that may be wrong")
            }
            Finding::Unreadable { account: None, what } => f.write_str(what),
            Finding::Unreadable { account: Some(account), what } => {
                write!(f, "account {account}: cannot be counted: {what}")
            }
        }
    }
}
