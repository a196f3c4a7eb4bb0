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
    /// An entry is committed although one before it is not.
    Order {
        /// The account.
        account: Bson,
        /// The place of the committed one.
        seq_id: i64,
        /// The committed one.
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
        /// What it says.
        cached: Cache,
        /// What it should say; none if the entry at its place is not committed.
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
    /// The changes of an entry do not add up to zero.
    Unbalanced {
        /// The entry.
        entry: Bson,
        /// In this asset.
        asset: String,
        /// But to this.
        sum: i64,
    },
    /// A document that is none of an entry or an account.
    Unreadable {
        /// What is wrong with it.
        what: String,
    },
}

impl Finding {
    /// Whether [`Ledger::rebuild`](super::Ledger::rebuild) puts it right: it is a number that follows from the entries.
    pub fn can_be_rebuilt(&self) -> bool {
        match self {
            Finding::Balance { .. } | Finding::Cache { recomputed: Some(_), .. } => true,
            Finding::Cache { recomputed: None, .. }
            | Finding::Order { .. }
            | Finding::Asset { .. }
            | Finding::Unbalanced { .. }
            | Finding::Unreadable { .. } => false,
        }
    }

    /// Whether a rebuild cannot count beyond it.
    pub(super) fn stops_a_rebuild(&self) -> bool {
        matches!(self, Finding::Order { .. } | Finding::Unreadable { .. } | Finding::Cache { recomputed: None, .. })
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
                    "account {account}: entry {entry} at place {seq_id} is committed before those that it follows"
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
            Finding::Unbalanced { entry, asset, sum } => {
                write!(f, "entry {entry}: its changes in {asset:?} add up to {sum}")
            }
            Finding::Unreadable { what } => f.write_str(what),
        }
    }
}
