//! The state of an account: its last final balance, and the sums of the entries after it.

use bson::{Bson, Document, doc};

use super::account::{Account, Cache};
use super::entry::Draft;
use super::record::integer;
use super::{Entry, Ledger, Refusal, requests};
use crate::{Error, Result};

/// Attempts at the state of an account whose entries are being canceled. At each attempt a cancel has succeeded.
const LOOKS_MAX: u32 = 16;

/// The sums of an account over all its entries, final or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AccountState {
    /// The last final balance.
    pub(super) anchor: Cache,
    /// The number of places after the anchor.
    pub(super) places: i64,
    /// The last place.
    pub(super) last: i64,
    /// The sum of the changes that count.
    pub(super) pending: i64,
    /// The sum of what they hold or free.
    pub(super) pending_held: i64,
    /// The part of the sum that is not final. A committed change may be after the anchor.
    pub(super) uncommitted: i64,
    /// The sum of gains from entries that are being canceled, which cannot be spent any more.
    pub(super) canceling: i64,
}

/// The result of the check whether an account can take an entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FundsCheck {
    Fits,
    Refused(Refusal),
    /// Places after the anchor were missing in the result: query again.
    Unsure,
}

impl AccountState {
    pub(super) fn balance(&self) -> Option<i64> {
        self.anchor.balance.checked_add(self.pending)
    }

    pub(super) fn held(&self) -> i64 {
        self.anchor.held.saturating_add(self.pending_held)
    }

    pub(super) fn available(&self) -> Option<i64> {
        self.balance()?.checked_sub(self.held())?.checked_sub(self.canceling)
    }

    /// Returns how many places after the anchor are missing.
    pub(super) fn missing(&self) -> i64 {
        self.last.saturating_sub(self.anchor.seq_id).saturating_sub(self.places)
    }

    /// Returns whether the account can take this draft at the next place. A draft that takes nothing from it is always
    /// accepted.
    pub(super) fn check_funds(&self, account: &Account, draft: &Draft) -> FundsCheck {
        let change = draft.available(&account.id);
        let minimum = match account.minimum {
            Some(minimum) if change < 0 => minimum,
            _ => return FundsCheck::Fits,
        };
        if self.missing() != 0 {
            return FundsCheck::Unsure;
        }
        let available = self.available().unwrap_or(i64::MIN);
        if available.checked_add(change).is_some_and(|left| left >= minimum) {
            return FundsCheck::Fits;
        }
        FundsCheck::Refused(Refusal { account: account.id.clone(), available, change, minimum })
    }
}

impl Ledger {
    /// Returns the final balance that the state of an account is computed from: that of its document; if the document
    /// has none, that of the last committed change; otherwise 0.
    pub(super) async fn anchor(&self, account: &Account) -> Result<Cache> {
        match account.cache {
            Some(cache) => Ok(cache),
            None => self.last_committed(&account.id, doc! { "$gt": 0_i64 }).await,
        }
    }

    /// Returns the balance of the last committed change that has one, among the places that match.
    pub(super) async fn last_committed(&self, account: &Bson, seq_id: Document) -> Result<Cache> {
        let fields = self.fields();
        let found = self.entries.aggregate(&requests::last_committed(fields, account, seq_id)).await?;
        let Some(anchor) = found.first().and_then(|group| group.get_document("anchor").ok()) else {
            return Ok(Cache::default());
        };
        let number = |field: &String| Ok::<_, Error>(integer(anchor, field)?.unwrap_or(0));
        Ok(Cache { balance: number(&fields.balance)?, held: number(&fields.held)?, seq_id: number(&fields.seq_id)? })
    }

    pub(super) async fn last_place(&self, account: &Bson) -> Result<i64> {
        let found = self.entries.aggregate(&requests::last_place(self.fields(), account)).await?;
        found.first().map_or(Ok(0), |group| Ok(integer(group, "last")?.unwrap_or(0)))
    }

    /// Returns the first place after a given one that has an entry.
    pub(super) async fn next_place(&self, account: &Bson, after: i64) -> Result<Option<i64>> {
        let found = self.entries.aggregate(&requests::next_place(self.fields(), account, after)).await?;
        found.first().map_or(Ok(None), |group| integer(group, "next"))
    }

    /// Returns the final balance at the last committed place from its entry, as the account's document may be older.
    pub(super) async fn committed(&self, account: &Account) -> Result<Cache> {
        let known = account.cache.unwrap_or_default();
        let last = self.last_committed(&account.id, doc! { "$gte": known.seq_id }).await?;
        Ok(if last.seq_id >= known.seq_id { last } else { known })
    }

    /// Returns the sums of an account from one query of the entries after the anchor.
    pub(super) async fn account_state(&self, account: &Account, anchor: Cache) -> Result<AccountState> {
        let (standing, cancels) = self.counted(&account.id, anchor, doc! { "$gt": anchor.seq_id }).await?;
        if cancels.is_empty() || account.minimum.is_none() {
            return Ok(standing);
        }
        self.account_state_during_cancels(account, anchor, cancels).await
    }

    /// Returns the sums of an account while entries are about to be canceled: their places are taken, they still
    /// count, and their gains cannot be spent any more. An entry stops counting only once, so the sums between two
    /// reads with the same counting entries are exact.
    async fn account_state_during_cancels(
        &self,
        account: &Account,
        anchor: Cache,
        cancels: Vec<Bson>,
    ) -> Result<AccountState> {
        let mut before = self.still_valid(cancels).await?;
        for _ in 0..LOOKS_MAX {
            let (standing, cancels) = self.counted(&account.id, anchor, doc! { "$gt": anchor.seq_id }).await?;
            let after = self.still_valid(cancels).await?;
            let ids = |entries: &[Entry]| entries.iter().map(|entry| entry.id.clone()).collect::<Vec<_>>();
            if ids(&before) == ids(&after) {
                let brought = after.iter().map(|entry| entry.available(&account.id).max(0));
                return Ok(AccountState { canceling: brought.fold(0, i64::saturating_add), ..standing });
            }
            before = after;
        }
        let what = format!("entries of account {} were canceled", account.id);
        Err(Error::Contended { what, attempts: LOOKS_MAX })
    }

    /// Returns the entries among these that count and can be canceled.
    async fn still_valid(&self, ids: Vec<Bson>) -> Result<Vec<Entry>> {
        let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let filter = requests::still_valid(self.fields(), ids);
        let found = self.entries.find(&filter, &doc! { "_id": 1 }, limit).await?;
        found.iter().map(|document| self.read(document)).collect()
    }

    /// Returns the sums of the places that match, and the entries that are being canceled there.
    pub(super) async fn counted(
        &self,
        account: &Bson,
        anchor: Cache,
        seq_id: Document,
    ) -> Result<(AccountState, Vec<Bson>)> {
        let pipeline = requests::account_state(self.fields(), account, seq_id, None);
        let found = self.entries.aggregate(&pipeline).await?;
        let Some(group) = found.first() else {
            return Ok((AccountState { anchor, last: anchor.seq_id, ..AccountState::default() }, Vec::new()));
        };
        let number = |field: &str| Ok::<_, Error>(integer(group, field)?.unwrap_or(0));
        let standing = AccountState {
            anchor,
            places: number("places")?,
            last: number("last")?,
            pending: number("balance")?,
            pending_held: number("held")?,
            uncommitted: number("uncommitted")?,
            canceling: 0,
        };
        Ok((standing, group.get_array("cancels").cloned().unwrap_or_default()))
    }
}
