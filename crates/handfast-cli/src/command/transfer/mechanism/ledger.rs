//! Posts an entry of a ledger for each row, under its name, and commits the entries at the end.

use anyhow::Result;
use bson::Bson;
use handfast_patterns::ledger::{Entry, NewEntry, Posting};
use handfast_patterns::{Error, Ledger};

use super::transaction::{no_account, taken};
use super::{NamedRow, RowOutcome};
use crate::command::pattern::rounds;
use crate::command::transfer::row::Row;
use crate::command::transfer::row::is_same_account;
use crate::console::Console;

/// Entries that are committed after a chunk of rows: those of the chunk, and some that were left.
const COMMIT: u32 = 500;

pub(in crate::command::transfer) struct ByLedger {
    pub(super) ledger: Ledger,
    /// The asset of rows that name none.
    pub(super) asset: Option<String>,
}

impl ByLedger {
    pub(super) async fn apply(&self, NamedRow { name, row }: &NamedRow) -> Result<RowOutcome> {
        let Some(asset) = row.asset.as_ref().or(self.asset.as_ref()) else {
            return Ok(RowOutcome::Rejected("it has no asset: a column says one, or --asset one for all".to_owned()));
        };
        // A repeated run begins with rows that are posted: a read is cheaper than posting them again.
        let mut is_taken = false;
        for id in name.recorded() {
            match self.ledger.show(id).await? {
                Some(there) if is_of(&there, row, asset) => return Ok(RowOutcome::AlreadyApplied),
                there => is_taken |= there.is_some(),
            }
        }
        if is_taken {
            return Ok(RowOutcome::Rejected(taken(name)));
        }
        // The first entry opens an account: a mistyped one would be there for ever.
        for account in [&row.from, &row.to] {
            if !self.has(account).await? {
                return Ok(RowOutcome::Rejected(no_account(account)));
            }
        }
        let entry = NewEntry::transfer(row.from.clone(), row.to.clone(), row.amount, asset).with_id(name.id().clone());
        match self.ledger.post(entry).await {
            Ok(Posting::Posted(_)) => Ok(RowOutcome::Applied),
            Ok(Posting::AlreadyPosted(_)) => Ok(RowOutcome::AlreadyApplied),
            Ok(Posting::Refused(refusal)) => Ok(RowOutcome::Rejected(refusal.to_string())),
            Err(Error::Invalid { what }) => Ok(RowOutcome::Rejected(what)),
            Err(error @ Error::Contended { .. }) => Ok(RowOutcome::Undecided(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn has(&self, account: &Bson) -> Result<bool> {
        Ok(self.ledger.account(account.clone()).await?.is_some())
    }

    /// Commits what was just posted, so that the next postings have few entries to add up.
    pub(super) async fn commit_some(&self) -> Result<()> {
        self.ledger.commit(COMMIT).await?;
        Ok(())
    }

    /// Commits what is posted. What cannot be committed yet waits for the ledger's own committer.
    pub(super) async fn commit(&self, console: Console) -> Result<()> {
        rounds(console, "commit", "entries", |batch| self.ledger.commit(batch)).await.map(|_| ())
    }
}

/// Returns whether an entry is the transfer of the row.
fn is_of(entry: &Entry, row: &Row, asset: &str) -> bool {
    let expected = [(&row.from, -row.amount), (&row.to, row.amount)];
    let same = |(change, (account, value)): (&handfast_patterns::ledger::EntryChange, (&Bson, i64))| {
        is_same_account(&change.account, account) && change.value == value && change.asset == asset
    };
    entry.link.is_none() && entry.changes.len() == expected.len() && entry.changes.iter().zip(expected).all(same)
}
