//! Balances: now, as of an entry, as of a time; and pending changes.

use bson::{Bson, DateTime, Document, doc};

use super::account::{Account, Cache};
use super::account_state::AccountState;
use super::record::{EntryChange, integer};
use super::{Entry, EntryState, Ledger, Link, PAGE, Proc, Status, requests};
use crate::value::equal;
use crate::{Error, Result};

/// The balance of an account, in the smallest unit of its asset.
#[derive(Clone, Debug, PartialEq)]
pub struct Balance {
    /// The `_id` of the account.
    pub account: Bson,
    /// The currency or other unit.
    pub asset: String,
    /// The sum of all valid entries.
    pub balance: i64,
    /// The part of it that authorisations hold.
    pub held: i64,
    /// The amount that can be spent: the balance without held amounts, and without the gains from entries that are
    /// being canceled.
    pub available: i64,
    /// The part of the balance that is not final yet.
    pub pending: i64,
    /// The last place that was counted; 0 if there is none.
    pub seq_id: i64,
    /// The place of the final balance that the count began at; 0 for the beginning.
    pub anchor_seq_id: i64,
    /// The empty places between the two: drawn, and not posted yet. If the account has no sequence they are lost.
    pub missing: i64,
}

/// The end of the entries that a balance counts.
#[derive(Clone, Debug, PartialEq)]
pub enum AsOf {
    /// All changes up to this sequence number.
    SequenceNumber(i64),
    /// All changes up to the last one that this entry makes in the account.
    Entry(Bson),
    /// All changes of entries that were posted at this time or before. The clocks of posters may differ, so this
    /// counts all of the account's entries.
    Time(DateTime),
}

/// A change as an account's statement shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The `_id` of the entry.
    pub entry: Bson,
    /// The time when it was posted.
    pub ts: DateTime,
    /// The status of the entry.
    pub status: Status,
    /// The change.
    pub change: EntryChange,
    /// The balance after it, which is final if the entry is committed.
    pub balance: i64,
    /// The amount that is held after it.
    pub held: i64,
    /// The relation of the entry to another one.
    pub(super) link: Option<Link>,
    /// The sums of the entry's changes, for assets where the sum must be 0 and is not.
    pub(super) unbalanced: Vec<(String, i64)>,
}

impl Line {
    /// Returns whether its place was abandoned.
    pub(super) fn is_given_up(&self) -> bool {
        self.status.state == EntryState::Abandoned && self.change.is_abandoned()
    }

    /// Returns whether the entry is committed.
    pub(super) fn is_committed(&self) -> bool {
        self.status.proc == Proc::Committed
    }

    /// Returns the final balance that is written at its place.
    pub(super) fn final_standing(&self) -> Option<Cache> {
        let EntryChange { cached_balance, cached_held: held, seq_id, .. } = self.change;
        cached_balance.filter(|_| self.is_committed()).map(|balance| Cache { balance, held, seq_id })
    }
}

impl Ledger {
    /// Returns the balance of an account now; `None` for an account without a document.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the balance does not fit into 64 bits.
    pub async fn balance(&self, account: impl Into<Bson>) -> Result<Option<Balance>> {
        let id = account.into();
        match self.balance_now(id.clone()).await {
            Err(error @ Error::Invalid { .. }) => Err(self.unreadable(&id).await?.unwrap_or(error)),
            balance => balance,
        }
    }

    async fn balance_now(&self, id: Bson) -> Result<Option<Balance>> {
        let Some(account) = self.known(id).await? else { return Ok(None) };
        let standing = self.account_state(&account, self.committed(&account).await?).await?;
        balance_of(account, &standing).map(Some)
    }

    /// Returns the balance of an account as of an entry or a time; `None` for an unknown account, and if the entry
    /// does not change it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the balance does not fit into 64 bits.
    pub async fn balance_at(&self, account: impl Into<Bson>, as_of: AsOf) -> Result<Option<Balance>> {
        let Some(account) = self.known(account.into()).await? else { return Ok(None) };
        let last = match as_of {
            AsOf::SequenceNumber(last) => last,
            AsOf::Entry(id) => {
                let entry = self.show(id).await?;
                let last = entry.and_then(|entry| entry.changes_of(&account.id).map(|change| change.seq_id).last());
                let Some(last) = last else { return Ok(None) };
                last
            }
            AsOf::Time(until) => return self.balance_at_time(account, until).await.map(Some),
        };
        let standing = self.account_state_at(&account, last).await?;
        let last = self.last_up_to(&account, standing.last, last).await?;
        balance_of(account, &AccountState { last, ..standing }).map(Some)
    }

    /// Returns the last place of an account up to a given one, with an entry or without. `found` is the last one there
    /// that has an entry.
    async fn last_up_to(&self, account: &Account, found: i64, last: i64) -> Result<i64> {
        let cached = account.cache.map_or(0, |cache| cache.seq_id);
        if found >= last || cached >= last {
            return Ok(found.max(last.min(cached)));
        }
        let later = requests::places(self.fields(), &account.id, doc! { "$gt": last });
        Ok(if self.entries.find_one(&later).await?.is_some() { last } else { found })
    }

    /// Returns changes of an account that count and are not final yet, the first ones first, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the balance does not fit into 64 bits.
    pub async fn pending(&self, account: impl Into<Bson>, limit: u32) -> Result<Vec<Line>> {
        let Some(account) = self.known(account.into()).await? else { return Ok(Vec::new()) };
        let anchor = self.committed(&account).await?;
        let mut pending = Vec::new();
        let (mut at, mut from) = (anchor, anchor.seq_id);
        while pending.len() < limit as usize
            && let Some((lines, last)) = self.next_lines(&account.id, &mut at, from).await?
        {
            pending.extend(lines.into_iter().filter(|line| line.status == Status::POSTED));
            from = last;
        }
        pending.truncate(limit as usize);
        Ok(pending)
    }

    /// Returns an account that has a document, or an entry.
    pub(super) async fn known(&self, id: Bson) -> Result<Option<Account>> {
        match self.account(id.clone()).await? {
            Some(account) => Ok(Some(account)),
            None => self.known_by_entries(id).await,
        }
    }

    /// Returns an account that has an entry and no document.
    pub(super) async fn known_by_entries(&self, id: Bson) -> Result<Option<Account>> {
        let asset = self.asset_of_entries(&id).await?;
        Ok(asset.map(|asset| Account { id, asset, minimum: None, last_seq_id: None, cache: None }))
    }

    /// Returns the error of the first entry of the account that cannot be read.
    pub(super) async fn unreadable(&self, account: &Bson) -> Result<Option<Error>> {
        let fields = self.fields();
        let mut pages = self.entries.pages(&doc! { fields.of_change(&fields.account): equal(account) }, PAGE).await?;
        while let Some(page) = pages.next().await? {
            if let Some(error) = page.iter().find_map(|document| self.read(document).err()) {
                return Ok(Some(error));
            }
        }
        Ok(None)
    }

    /// Returns the sums of an account at a place.
    pub(super) async fn account_state_at(&self, account: &Account, last: i64) -> Result<AccountState> {
        let anchor = match account.cache {
            Some(cache) if cache.seq_id <= last => cache,
            _ => self.anchor_before(&account.id, last).await?,
        };
        if anchor.seq_id >= last {
            return Ok(AccountState { anchor, last: anchor.seq_id, ..AccountState::default() });
        }
        let (standing, _) = self.counted(&account.id, anchor, doc! { "$gt": anchor.seq_id, "$lte": last }).await?;
        Ok(standing)
    }

    /// Returns the last final balance at a place or before it, which is usually that of the place itself.
    async fn anchor_before(&self, account: &Bson, last: i64) -> Result<Cache> {
        let found = self.entries.find_one(&requests::places(self.fields(), account, last)).await?;
        if let Some(entry) = found.map(|document| self.read(&document)).transpose()?
            && entry.is_committed()
            && let Some(change) = entry.changes_of(account).find(|change| change.seq_id == last)
            && let Some(balance) = change.cached_balance
        {
            return Ok(Cache { balance, held: change.cached_held, seq_id: last });
        }
        self.last_committed(account, doc! { "$gt": 0_i64, "$lte": last }).await
    }

    async fn balance_at_time(&self, account: Account, until: DateTime) -> Result<Balance> {
        let pipeline = requests::account_state(self.fields(), &account.id, doc! { "$gt": 0_i64 }, Some(until));
        let found = self.entries.aggregate(&pipeline).await?;
        let empty = Document::new();
        let group = found.first().unwrap_or(&empty);
        let number = |field: &str| Ok::<_, Error>(integer(group, field)?.unwrap_or(0));
        // The time of a lost entry is unknown: every place counts as missing up to the next one that has an entry.
        let counted = number("last")?;
        let last = match self.next_place(&account.id, counted).await? {
            Some(next) => next - 1,
            None => counted.max(account.cache.map_or(0, |cache| cache.seq_id)),
        };
        // Entries of later times may lie between.
        let (there, _) = self.counted(&account.id, Cache::default(), doc! { "$gt": 0_i64, "$lte": last }).await?;
        let standing = AccountState {
            anchor: Cache::default(),
            places: there.places,
            last,
            pending: number("balance")?,
            pending_held: number("held")?,
            uncommitted: number("uncommitted")?,
            canceling: 0,
        };
        balance_of(account, &standing)
    }

    /// Returns a page of the changes of an account after a place, and the place up to which it is complete; `None`
    /// after the last one. Many places before them may be empty.
    pub(super) async fn next_lines(
        &self,
        account: &Bson,
        at: &mut Cache,
        mut after: i64,
    ) -> Result<Option<(Vec<Line>, i64)>> {
        let mut lines = self.lines(account, at, after, PAGE).await?;
        if lines.is_empty() {
            let Some(next) = self.next_place(account, after).await? else { return Ok(None) };
            after = next - 1;
            lines = self.lines(account, at, after, PAGE).await?;
        }
        Ok(Some((lines, after.saturating_add(PAGE.into()))))
    }

    /// Returns the changes of an account at the places from `after` on, at most `places` of them. `at` is the balance
    /// at `after`, and then the balance at the last one. Final balances are read and not computed, as an entry between
    /// two places may be lost.
    pub(super) async fn lines(&self, account: &Bson, at: &mut Cache, after: i64, places: u32) -> Result<Vec<Line>> {
        let numbers: Vec<i64> = (after + 1..=after.saturating_add(places.into())).collect();
        let filter = requests::places(self.fields(), account, doc! { "$in": numbers.clone() });
        let found = self.entries.find(&filter, &Document::new(), places).await?;
        let entries = found.iter().map(|document| self.read(document)).collect::<Result<Vec<Entry>>>()?;
        let mut taken: Vec<(&Entry, &EntryChange)> =
            entries.iter().flat_map(|entry| entry.changes_of(account).map(move |change| (entry, change))).collect();
        taken.retain(|(_, change)| numbers.contains(&change.seq_id));
        taken.sort_by_key(|(_, change)| change.seq_id);
        let mut lines = Vec::with_capacity(taken.len());
        for (entry, change) in taken {
            let Entry { id, ts, status, link, .. } = entry;
            let (link, unbalanced) = (link.clone(), self.unbalanced(entry));
            let mut line = Line {
                entry: id.clone(),
                ts: *ts,
                status: *status,
                change: change.clone(),
                balance: 0,
                held: 0,
                link,
                unbalanced,
            };
            *at = match line.final_standing() {
                Some(standing) => standing,
                None => at.after(change, entry.counts())?,
            };
            (line.balance, line.held) = (at.balance, at.held);
            lines.push(line);
        }
        Ok(lines)
    }
}

fn balance_of(account: Account, standing: &AccountState) -> Result<Balance> {
    let too_large = || Error::invalid(format!("the balance of account {} is too large", account.id));
    Ok(Balance {
        balance: standing.balance().ok_or_else(too_large)?,
        held: standing.held(),
        available: standing.available().ok_or_else(too_large)?,
        pending: standing.uncommitted,
        seq_id: standing.last,
        anchor_seq_id: standing.anchor.seq_id,
        missing: standing.missing(),
        account: account.id,
        asset: account.asset,
    })
}
