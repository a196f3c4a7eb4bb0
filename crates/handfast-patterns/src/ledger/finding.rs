//! Findings of a verification, by name.

use std::fmt;

use bson::Bson;

use super::account::Cache;

/// Places of an account that have no entry although they had one: entries are lost.
///
/// Posters take places one after the other, and nothing is committed behind a place that is still empty. So an empty place
/// is lost if an entry behind it is committed, if the account's document stands on it or behind it, or, in an account
/// without a sequence, if any entry is behind it. A place of an abandoned entry is not empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// The account.
    pub account: Bson,
    /// The first of the places.
    pub first: i64,
    /// The last of the places.
    pub last: i64,
    /// By how much the lost entries had changed the balance, and what is held, if the final balances around them say so.
    pub change: Option<(i64, i64)>,
}

/// Something other than a [`Gap`] that is not as it must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// An entry is not committed although the next one behind it is.
    Order {
        /// The account.
        account: Bson,
        /// The place of the one that is not.
        seq_id: i64,
        /// The one that is not.
        entry: Bson,
    },
    /// The balance that is written at a place is not what the entries up to there add up to.
    Balance {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The entry.
        entry: Bson,
        /// Balance and what is held, as written; none if a committed entry has none.
        cached: Option<(i64, i64)>,
        /// Balance and what is held, recomputed.
        recomputed: (i64, i64),
    },
    /// The cache in an account's document is not what the entries up to its place add up to.
    Cache {
        /// The account.
        account: Bson,
        /// The stored balance.
        cached: Cache,
        /// The expected balance; `None` if the entry at its place is not committed.
        recomputed: Option<Cache>,
    },
    /// A change is in another asset than its account.
    Asset {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The asset of the change.
        asset: String,
    },
    /// The value of a committed entry is not what the final balances around it say. Either was altered; as more of them agree with
    /// each other, or where that is unknown, it counts as the entry.
    Altered {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The entry.
        entry: Bson,
        /// By how much it changes the balance, and what is held.
        value: (i64, i64),
        /// By how much it did according to the balances.
        written: (i64, i64),
    },
    /// The changes of an entry do not add up to zero.
    Unbalanced {
        /// An account of the entry.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The entry.
        entry: Bson,
        /// In this asset.
        asset: String,
        /// But to this.
        sum: i64,
    },
    /// Two entries have the same place of an account.
    SamePlace {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The second one that was found there.
        entry: Bson,
    },
    /// An account has entries and no document, which said what its limits were.
    NoAccount {
        /// The account.
        account: Bson,
    },
    /// An entry took an account below its minimum, and it still is.
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
    /// An entry takes back or resolves one that is not there.
    NoSuchEntry {
        /// The entry.
        entry: Bson,
        /// The one that it names.
        linked: Bson,
    },
    /// There is no unique index on accounts and places: nothing keeps two entries from taking the same place.
    NoIndex {
        /// The `_id`s of the entries.
        collection: String,
    },
    /// No settings are recorded: it is unknown whether the entries are read by the names that they were written by.
    NoSettings {
        /// The `_id`s of the entries.
        collection: String,
    },
    /// A document that is none of an entry or an account.
    Unreadable {
        /// The account that cannot be counted because of it; none where an entry is looked at by itself.
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

    /// The account that it is about.
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

    /// Returns whether [`Ledger::rebuild`](super::Ledger::rebuild) puts it right, unless it stops before: it is a number that follows from
    /// the entries.
    pub fn can_be_rebuilt(&self) -> bool {
        matches!(self, Finding::Balance { .. } | Finding::Cache { recomputed: Some(_), .. })
    }

    /// Returns whether a [`Ledger::rebuild`](super::Ledger::rebuild) of the account stops there: nothing can be counted beyond it.
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
            Some((balance, 0)) => write!(f, " that changed the balance by {balance}"),
            Some((balance, held)) => write!(f, " that changed the balance by {balance} and what is held by {held}"),
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
                write!(f, "account {account}: entry {entry} at place {seq_id} {text} {}", recomputed.0)
            }
            Finding::Balance { account, seq_id, entry, cached: Some(cached), recomputed } => {
                let (balance, held) = cached;
                let is = format!("{} with {} held", recomputed.0, recomputed.1);
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
                let changed = |(balance, held): &(i64, i64)| match held {
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
