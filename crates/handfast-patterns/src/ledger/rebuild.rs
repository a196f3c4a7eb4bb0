//! Rebuilding: whatever is cached is counted again from the first entry on, and written where it is missing or wrong.

use bson::{Bson, doc};

use super::account::{Account, Cache};
use super::balance::Line;
use super::{Ledger, PAGE, Proc, requests};
use crate::Result;

/// What was rebuilt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Accounts that were counted.
    pub accounts: u64,
    /// Places that were counted.
    pub places: u64,
    /// Balances of committed entries that were missing or wrong.
    pub balances: u64,
    /// Caches of accounts that were missing, wrong or behind.
    pub caches: u64,
}

impl Ledger {
    /// Counts an account again from its first entry on, and writes what is missing or wrong: balances in committed entries, the
    /// cache in its document, the number that its sequence stands at. It may run beside anything, and again.
    ///
    /// # Errors
    /// Those of the store; what was rebuilt before stays so.
    pub async fn rebuild(&self, account: impl Into<Bson>) -> Result<Rebuilt> {
        let mut rebuilt = Rebuilt::default();
        if let Some(account) = self.known(account.into()).await? {
            self.rebuild_account(&account, &mut rebuilt).await?;
        }
        Ok(rebuilt)
    }

    /// Rebuilds every account, also one whose document is gone.
    ///
    /// # Errors
    /// As [`Ledger::rebuild`].
    pub async fn rebuild_all(&self) -> Result<Rebuilt> {
        self.rebuild_all_telling(|_| ()).await
    }

    /// The same; it is told what has been rebuilt so far after each account.
    ///
    /// # Errors
    /// As [`Ledger::rebuild`].
    pub async fn rebuild_all_telling(&self, tell: impl Fn(&Rebuilt)) -> Result<Rebuilt> {
        let mut rebuilt = Rebuilt::default();
        for id in self.account_ids().await? {
            if let Some(account) = self.known(id).await? {
                self.rebuild_account(&account, &mut rebuilt).await?;
                tell(&rebuilt);
            }
        }
        Ok(rebuilt)
    }

    async fn rebuild_account(&self, account: &Account, rebuilt: &mut Rebuilt) -> Result<()> {
        rebuilt.accounts += 1;
        let (last, mut after) = (self.last_place(&account.id).await?, 0);
        let (mut at, mut committed, mut open) = (Cache::default(), Cache::default(), false);
        while after < last {
            for line in self.lines(&account.id, &mut at, after, PAGE).await? {
                rebuilt.places += 1;
                open |= line.status.proc == Proc::Uncommitted || line.place.seq_id != committed.seq_id + 1;
                if !open {
                    committed = Cache { balance: line.balance, held: line.held, seq_id: line.place.seq_id };
                    rebuilt.balances += u64::from(self.rebuild_line(&line).await?);
                }
            }
            after += i64::from(PAGE);
        }
        rebuilt.caches += u64::from(self.rebuild_cache(account, committed).await?);
        if account.last_seq_id.is_some() {
            let (filter, update) = requests::raise(self.fields(), &account.id, last);
            self.accounts.update_one(&filter, &update).await?;
        }
        Ok(())
    }

    /// Writes the balance at a committed place; says whether it was another one.
    async fn rebuild_line(&self, line: &Line) -> Result<bool> {
        if line.place.cached_balance == Some(line.balance) && line.place.cached_held == line.held {
            return Ok(false);
        }
        let (filter, update) = requests::rebuild_balance(self.fields(), line);
        self.entries.update_one(&filter, &update).await
    }

    /// Writes an account's cache, if it is still as it was seen: otherwise the committer has written it, who knows more.
    async fn rebuild_cache(&self, account: &Account, committed: Cache) -> Result<bool> {
        if account.cache == Some(committed) || (account.cache.is_none() && committed.seq_id == 0) {
            return Ok(false);
        }
        let Some(seen) = account.cache else {
            return self.remember(account, committed).await.map(|()| true);
        };
        let fields = self.fields();
        let seen = doc! {
            "_id": account.id.clone(),
            fields.of_cache(&fields.balance): seen.balance,
            fields.of_cache(&fields.seq_id): seen.seq_id,
        };
        let update = doc! { "$set": { &fields.cache: committed.to_document(fields) } };
        self.accounts.update_one(&seen, &update).await
    }
}
