//! The entries that callers post, which are checked before anything is sent.

use std::collections::BTreeMap;

use bson::{Bson, DateTime, Document, doc};

use crate::steps::raw;
use crate::value::{is_condition, same_id};
use crate::{Error, Result};

/// Limit on the changes of one entry: an entry is one document, and each account in it costs a query for its state.
pub const CHANGES_MAX: usize = 100;
/// Limit on the amount of a change, with either sign. A thousand of them fit into a balance, and each into a double of
/// a shell.
pub const VALUE_MAX: i64 = 1_000_000_000_000_000;
/// Limit on the characters of the code of an asset.
const ASSET_CHARACTERS_MAX: usize = 64;

/// Limit on the bytes of an id of a caller. The ids of the entries that cancel or resolve an entry have its id in them,
/// and entries are found by them and by the ids of accounts in an index, whose keys have 32 KiB at most.
const ID_BYTES_MAX: usize = 8 * 1024;

/// A change of one account by an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The `_id` of the account.
    pub account: Bson,
    /// Its name in statements.
    pub kind: String,
    /// The amount, in the smallest unit of the asset. A negative amount is taken from the account.
    pub value: i64,
    /// The currency or other unit.
    pub asset: String,
    /// The amount that it holds in the account or, if negative, frees.
    pub(super) hold: i64,
}

impl Change {
    /// Creates a deposit, or a withdrawal if the value is negative.
    pub fn new(account: impl Into<Bson>, value: i64, asset: impl Into<String>) -> Self {
        let kind = if value < 0 { "withdraw" } else { "deposit" };
        Change { account: account.into(), kind: kind.to_owned(), value, asset: asset.into(), hold: 0 }
    }

    /// Sets another name, such as `fee` or `interest`.
    #[must_use]
    pub fn called(self, kind: impl Into<String>) -> Self {
        Change { kind: kind.into(), ..self }
    }

    /// Returns the amount by which the account can spend more after it.
    pub(super) fn available(&self) -> i64 {
        self.value.saturating_sub(self.hold)
    }
}

/// An entry to be posted.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry {
    id: Option<Bson>,
    ts: Option<DateTime>,
    changes: Vec<Change>,
    metadata: Document,
}

impl NewEntry {
    /// Creates an entry with these changes.
    pub fn new(changes: impl IntoIterator<Item = Change>) -> Self {
        NewEntry { id: None, ts: None, changes: changes.into_iter().collect(), metadata: Document::new() }
    }

    /// Creates a transfer from one account to another.
    pub fn transfer(payer: impl Into<Bson>, payee: impl Into<Bson>, value: i64, asset: &str) -> Self {
        let out = Change::new(payer, value.saturating_neg(), asset);
        NewEntry::new([out, Change::new(payee, value, asset)])
    }

    /// Sets an id of the caller's, which serves as idempotency key: posting the entry again does nothing.
    #[must_use]
    pub fn with_id(self, id: impl Into<Bson>) -> Self {
        NewEntry { id: Some(id.into()), ..self }
    }

    /// Sets another time than the current one, for an entry that is imported.
    #[must_use]
    pub fn at(self, ts: DateTime) -> Self {
        NewEntry { ts: Some(ts), ..self }
    }

    /// Sets fields of the caller's own.
    #[must_use]
    pub fn with_metadata(self, metadata: Document) -> Self {
        NewEntry { metadata, ..self }
    }

    /// Returns the draft of the entry, with a fresh id if it has none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an id, or for changes, that an entry of a caller cannot have.
    pub(super) fn draft(self, fresh: impl FnOnce() -> Bson, now: DateTime) -> Result<Draft> {
        check_callers_id(self.id.as_ref())?;
        if self.changes.iter().any(|change| change.value == 0) {
            return Err(Error::invalid("the value of a change is not 0"));
        }
        let id = self.id.unwrap_or_else(fresh);
        Ok(Draft { metadata: self.metadata, ..Draft::new(id, self.ts.unwrap_or(now), self.changes) })
    }
}

/// The relation of an entry to another one.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// The entry reverses this one.
    Reverses(Bson),
    /// The entry resolves this authorisation.
    Resolves(Bson),
    /// The entry keeps a place while this one is canceled, so that its gains are not spent.
    Cancels(Bson),
    /// The entry holds an amount for a payee.
    Authorises {
        /// The `_id` of the payee's account.
        payee: Bson,
        /// The amount, in the smallest unit of the asset.
        value: i64,
    },
}

/// An entry without its places.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) id: Bson,
    pub(super) ts: DateTime,
    pub(super) changes: Vec<Change>,
    pub(super) link: Option<Link>,
    pub(super) expires_at: Option<DateTime>,
    pub(super) reason: Option<String>,
    pub(super) metadata: Document,
    /// The amounts that accounts will lose besides the changes.
    pub(super) losses: Vec<(Bson, i64)>,
}

impl Draft {
    pub(super) fn new(id: Bson, ts: DateTime, changes: Vec<Change>) -> Self {
        let (link, expires_at, reason) = (None, None, None);
        Draft { id, ts, changes, link, expires_at, reason, metadata: Document::new(), losses: Vec::new() }
    }

    /// Returns the amount by which an account can spend more after it.
    pub(super) fn available(&self, account: &Bson) -> i64 {
        let own = self.changes.iter().filter(|change| same_id(&change.account, account)).map(Change::available);
        let lost =
            self.losses.iter().filter(|(loser, _)| same_id(loser, account)).map(|(_, value)| value.saturating_neg());
        own.chain(lost).fold(0, i64::saturating_add)
    }

    /// Returns the accounts, each once, with their assets.
    pub(super) fn accounts(&self) -> Vec<(&Bson, &str)> {
        let mut accounts: Vec<(&Bson, &str)> = Vec::new();
        for change in &self.changes {
            if !accounts.iter().any(|(account, _)| same_id(account, &change.account)) {
                accounts.push((&change.account, &change.asset));
            }
        }
        accounts
    }

    /// Checks that the draft can be posted.
    ///
    /// # Errors
    /// [`Error::Invalid`], which says what is wrong.
    pub(super) fn check(&self, single_entry: bool) -> Result<()> {
        if self.changes.is_empty() || self.changes.len() > CHANGES_MAX {
            return Err(Error::invalid(format!("an entry has from 1 to {CHANGES_MAX} changes")));
        }
        check_id(&self.id, "an entry")?;
        let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
        for change in &self.changes {
            check_change(change)?;
            *sums.entry(&change.asset).or_default() += change.value;
        }
        for (account, asset) in self.accounts() {
            if self.changes.iter().any(|change| change.asset != asset && same_id(&change.account, account)) {
                return Err(Error::invalid(format!("account {account} has one asset, not {asset} and another")));
            }
        }
        match sums.iter().find(|(_, sum)| **sum != 0) {
            Some((asset, sum)) if !single_entry => {
                Err(Error::invalid(format!("the changes in {asset} add up to {sum}, they must add up to 0")))
            }
            _ => Ok(()),
        }
    }
}

/// Checks the id that a caller gives to an entry.
pub(super) fn check_callers_id(id: Option<&Bson>) -> Result<()> {
    match id {
        Some(id @ Bson::Document(_)) if !is_condition(id) => {
            Err(Error::invalid("an entry's id is no document: those name what the ledger makes itself"))
        }
        Some(id) => check_length(id, "an entry"),
        None => Ok(()),
    }
}

/// Checks the length of a caller's id.
pub(super) fn check_length(id: &Bson, of: &str) -> Result<()> {
    let bytes = raw(&doc! { "": id.clone() })?.as_bytes().len();
    if bytes > ID_BYTES_MAX {
        return Err(Error::invalid(format!("the id of {of} has {bytes} bytes, at most {ID_BYTES_MAX} are allowed")));
    }
    Ok(())
}

fn check_change(change: &Change) -> Result<()> {
    check_id(&change.account, "an account")?;
    check_length(&change.account, "an account")?;
    check_asset(&change.asset)?;
    if change.value.checked_abs().is_none_or(|value| value > VALUE_MAX) {
        return Err(Error::invalid(format!("a value is {}, it must be within {VALUE_MAX} of 0", change.value)));
    }
    if change.kind.is_empty() {
        return Err(Error::invalid("a change has a type, such as deposit"));
    }
    Ok(())
}

pub(super) fn check_asset(asset: &str) -> Result<()> {
    if asset.is_empty() || asset.chars().count() > ASSET_CHARACTERS_MAX {
        let text = format!("an asset has a code of 1 to {ASSET_CHARACTERS_MAX} characters, such as EUR");
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// Checks an id, which must be of a type that equality finds unambiguously.
pub(super) fn check_id(id: &Bson, of: &str) -> Result<()> {
    match id {
        Bson::Null | Bson::Undefined | Bson::Array(_) | Bson::RegularExpression(_) | Bson::MinKey | Bson::MaxKey => {
            Err(Error::invalid(format!("{of} cannot have the id {id}")))
        }
        Bson::Double(number) if number.is_nan() => Err(Error::invalid(format!("{of} cannot have the id NaN"))),
        Bson::Decimal128(number) if number.to_string() == "NaN" => {
            Err(Error::invalid(format!("{of} cannot have the id NaN")))
        }
        id if is_condition(id) => Err(Error::invalid(format!("{of} cannot have the id {id}: $ begins an operator"))),
        _ => Ok(()),
    }
}
