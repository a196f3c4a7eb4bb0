//! Rebuilding: balances and caches are recomputed from the first entry on, and written where they are missing or
//! wrong.
//!
//! A rebuild can only compute balances as long as all entries are there. So it stops at a lost entry: the balances
//! after it were final before the entry was lost, and cannot be improved. For the same reason it stops at an entry
//! that is altered, and inserts no document for an account that has none. A cache only goes forward.

use bson::{Bson, doc};

use super::account::{Account, Cache};
use super::audit::Audited;
use super::balance::Line;
use super::finding::{Finding, Gap};
use super::{Ledger, PAGE, requests};
use crate::steps::Request;
use crate::value::equal;
use crate::{Error, Findings, Result};

/// The counts of a rebuild.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Rebuilt {
    /// Accounts that were counted.
    pub accounts: u64,
    /// Committed places that were counted.
    pub places: u64,
    /// Balances of committed entries that were missing or wrong.
    pub balances: u64,
    /// Caches of accounts that were missing, wrong or behind.
    pub caches: u64,
    /// Lost entries. The balances after them were not changed.
    pub gaps: Findings<Gap>,
    /// The other findings that ended the count of an account.
    pub stops: Findings<Finding>,
}

impl Rebuilt {
    /// Returns whether no account stopped the rebuild.
    pub fn is_whole(&self) -> bool {
        self.gaps.count() == 0 && self.stops.count() == 0
    }

    /// Adds the result for another account.
    pub fn add(&mut self, other: Rebuilt) {
        let Rebuilt { accounts, places, balances, caches, gaps, stops } = other;
        self.accounts += accounts;
        self.places += places;
        self.balances += balances;
        self.caches += caches;
        self.gaps.join(gaps);
        self.stops.join(stops);
    }
}

impl Ledger {
    /// Recomputes an account from its first entry on, and writes what is missing or wrong: balances in committed
    /// entries, the cache in its document, the number of its sequence. It stops at a lost or altered entry. It may run
    /// at any time, and again.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the balances that were written before stay written.
    pub async fn rebuild(&self, account: impl Into<Bson>) -> Result<Rebuilt> {
        self.rebuild_account(&account.into()).await
    }

    /// Rebuilds every account, except those that have no document, because their limits are unknown.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the balances that were written before stay written.
    pub async fn rebuild_all(&self) -> Result<Rebuilt> {
        self.rebuild_all_with_progress(|_| ()).await
    }

    /// Rebuilds as [`Ledger::rebuild_all`], and calls `report` with the counts so far after each account.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: the balances that were written before stay written.
    pub async fn rebuild_all_with_progress(&self, report: impl Fn(&Rebuilt)) -> Result<Rebuilt> {
        let mut rebuilt = Rebuilt::default();
        for id in self.account_ids().await? {
            rebuilt.add(self.rebuild_account(&id).await?);
            report(&rebuilt);
        }
        Ok(rebuilt)
    }

    async fn rebuild_account(&self, id: &Bson) -> Result<Rebuilt> {
        let Some(Audited { verified, stop }) = self.audited(id).await? else { return Ok(Rebuilt::default()) };
        let mut rebuilt = Rebuilt { accounts: 1, gaps: verified.gaps, ..Rebuilt::default() };
        for finding in verified.findings.iter().filter(|finding| finding.stops_a_rebuild()) {
            rebuilt.stops.keep(finding.clone());
        }
        // The finding that stops the rebuild may not be among those that were kept.
        if let (Some(place), true) = (stop, rebuilt.stops.is_empty()) {
            let what = format!("nothing can be counted from place {place} on");
            rebuilt.stops.keep(Finding::Unreadable { account: Some(id.clone()), what });
        }
        if stop.is_some_and(|place| place <= 1) {
            return Ok(rebuilt);
        }
        let Some(account) = &self.account(id.clone()).await? else { return Ok(rebuilt) };
        let counted = self.rebuild_places(account, stop, &mut rebuilt).await?;
        let may_write = match account.cache {
            Some(cache) => cache.seq_id <= counted.seq_id,
            // The balance of an account without a cache is computed from its last final balance, which may be after a
            // gap.
            None => rebuilt.is_whole(),
        };
        if may_write {
            rebuilt.caches += u64::from(self.rebuild_cache(account, counted).await?);
        }
        if account.last_seq_id.is_some() {
            // A cache after the last place shows that entries are lost, or is wrong itself.
            let cached = account.cache.filter(|_| rebuilt.is_whole()).map_or(0, |cache| cache.seq_id);
            let last = self.last_place(&account.id).await?.max(cached);
            let Request { filter, update } = requests::raise(self.fields(), &account.id, last);
            self.accounts.update_one(&filter, &update).await?;
        }
        Ok(rebuilt)
    }

    /// Writes the balances at committed places, as far as all places before them are there and committed. Returns the
    /// balance after the last of them.
    async fn rebuild_places(&self, account: &Account, stop: Option<i64>, rebuilt: &mut Rebuilt) -> Result<Cache> {
        let mut at = Cache::default();
        loop {
            let lines = match self.lines(&account.id, &mut Cache::default(), at.seq_id, PAGE).await {
                Err(Error::Damaged { .. }) => return Ok(at),
                lines => lines?,
            };
            let before = at.seq_id;
            for line in lines {
                let is_stop = stop.is_some_and(|stop| line.change.seq_id >= stop);
                if is_stop || line.change.seq_id != at.seq_id + 1 || !line.is_committed() {
                    return Ok(at);
                }
                at = at.after(&line.change, line.status.state.counts())?;
                rebuilt.places += 1;
                rebuilt.balances += u64::from(self.rebuild_line(&line, at).await?);
            }
            if at.seq_id == before {
                return Ok(at);
            }
        }
    }

    /// Writes the balance at a committed place; returns whether it was another one before.
    async fn rebuild_line(&self, line: &Line, at: Cache) -> Result<bool> {
        if line.change.cached_balance == Some(at.balance) && line.change.cached_held == at.held {
            return Ok(false);
        }
        let Request { filter, update } = requests::rebuild_balance(self.fields(), line, at);
        self.entries.update_one(&filter, &update).await
    }

    /// Writes an account's cache, if it has not changed since it was read: a committer that has changed it knows more.
    async fn rebuild_cache(&self, account: &Account, counted: Cache) -> Result<bool> {
        if account.cache == Some(counted) || (account.cache.is_none() && counted.seq_id == 0) {
            return Ok(false);
        }
        let Some(seen) = account.cache else {
            return self.remember(account, counted).await.map(|()| true);
        };
        let fields = self.fields();
        let seen = doc! {
            "_id": equal(&account.id),
            fields.of_cache(&fields.balance): seen.balance,
            fields.of_cache(&fields.seq_id): seen.seq_id,
        };
        let update = doc! { "$set": { &fields.cache: counted.to_document(fields) } };
        self.accounts.update_one(&seen, &update).await
    }
}
