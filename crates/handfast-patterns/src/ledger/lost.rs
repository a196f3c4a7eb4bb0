//! Lost entries that cannot be restored: entries that are marked as abandoned take their places.
//!
//! An abandoned entry counts for nothing and closes the gap: from then on balances are computed without the lost
//! entry. The balances after the gap include it, so [`Ledger::verify`] reports them, and [`Ledger::rebuild`]
//! recomputes them. If the lost entry is known from elsewhere it can be posted anew, as its id is free.
//!
//! If anything after the gap is committed, the lost entry was committed, too. The entry that takes its place is then
//! inserted as committed.

use std::ops::RangeInclusive;

use bson::Bson;

use super::account::{Account, Cache};
use super::balance::Line;
use super::cancel::check_reason;
use super::entry::CHANGES_MAX;
use super::record::{EntryChange, integer};
use super::{Entry, EntryState, Ledger, PAGE, Proc, requests};
use crate::{Error, Result};

/// Limit on the places that are abandoned at once. A gap is a few entries long; a much longer one is not a loss of
/// entries but damage to the account's document.
pub const ABANDONED_MAX: i64 = 10_000;

/// Attempts at a gap of which other processes have closed a part meanwhile.
const LOOKS_MAX: u32 = 4;

/// The last places of an account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// The last place that is known to be taken.
    pub(super) last: i64,
    /// The last place that is known to be committed, with all places before it.
    pub(super) committed: i64,
}

impl Ledger {
    /// Closes a gap: entries that count for nothing take these places of an account, because the lost ones cannot be
    /// restored. Returns how many places were abandoned now; abandoning them again does nothing. [`Ledger::rebuild`]
    /// then recomputes the balances after them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for places that are not in a gap, for more than [`ABANDONED_MAX`], and for a reason of more
    /// than [`REASON_CHARACTERS_MAX`](super::REASON_CHARACTERS_MAX) characters. [`Error::Damaged`]
    /// for an entry of the account that cannot be read, as it may be the missing one. [`Error::Store`] if the store
    /// fails: abandon them again.
    ///
    /// # Cancellation
    /// Some of the places may be abandoned: abandon them again.
    pub async fn abandon(&self, account: impl Into<Bson>, places: RangeInclusive<i64>, reason: &str) -> Result<u64> {
        let id = account.into();
        check_reason(reason)?;
        let (first, last) = places.into_inner();
        if first < 1 || last < first {
            return Err(Error::invalid(format!("there are no places {first} to {last}: the first place is 1")));
        }
        if last - first >= ABANDONED_MAX {
            return Err(Error::invalid(format!("at most {ABANDONED_MAX} places are abandoned at once")));
        }
        for _ in 0..LOOKS_MAX {
            let Some(account) = self.known(id.clone()).await? else {
                return Err(Error::invalid(format!("there is no account {id}")));
            };
            if let Some(unreadable) = self.unreadable(&account.id).await? {
                return Err(unreadable);
            }
            let is_cached = account.cache.is_some_and(|cache| cache.seq_id == first - 1);
            if first > 1 && !is_cached && self.lines(&id, &mut Cache::default(), first - 2, 1).await?.is_empty() {
                // Only the balances around the whole gap show what was lost.
                return Err(Error::invalid(format!(
                    "place {} of account {id} has no entry either: abandon the places from the first empty one on",
                    first - 1
                )));
            }
            let ends = self.ends(&account).await?;
            check_end(&account, ends, last)?;
            let missing = self.missing(&account, first, last, ends).await?;
            if self.abandon_all(&missing, ends, reason).await? {
                return Ok(missing.len() as u64);
            }
        }
        Err(Error::Contended { what: format!("others closed gaps of account {id}"), attempts: LOOKS_MAX })
    }

    pub(super) async fn ends(&self, account: &Account) -> Result<Ends> {
        let cached = account.cache.map_or(0, |cache| cache.seq_id);
        let found = self.entries.aggregate(&requests::ends(self.fields(), &account.id, cached.max(1))).await?;
        let number = |field: &str| match found.first() {
            Some(group) => Ok::<_, Error>(integer(group, field)?.unwrap_or(0).max(cached)),
            None => Ok(cached),
        };
        Ok(Ends { last: number("last")?, committed: number("committed")? })
    }

    /// Returns the places without an entry, each with the balance there if that is final.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one of the places has an entry that is not abandoned.
    async fn missing(&self, account: &Account, first: i64, last: i64, ends: Ends) -> Result<Vec<EntryChange>> {
        let (mut missing, mut next) = (Vec::new(), first);
        let mut at = self.final_before(account, first).await?;
        // `behind` is the balance after the last of them, as balances after the gap include the lost entries.
        let mut take = |at: Option<Cache>, next: i64, to: i64, behind: Option<Cache>| {
            for seq_id in next..=to {
                let is_final = seq_id <= ends.committed;
                let mut change = EntryChange::abandoned(account, seq_id, at.filter(|_| is_final));
                if let Some(behind) = behind.filter(|_| is_final && seq_id == to) {
                    (change.cached_balance, change.cached_held) = (Some(behind.balance), behind.held);
                    if let Some(before) = at {
                        change.value = behind.balance.saturating_sub(before.balance);
                        change.hold = behind.held.saturating_sub(before.held);
                    }
                }
                missing.push(change);
            }
        };
        let mut page = first - 1;
        while page < last {
            for line in self.lines(&account.id, &mut Cache::default(), page, PAGE).await? {
                if line.change.seq_id > last {
                    break;
                }
                check_abandoned(&line)?;
                take(at, next, line.change.seq_id - 1, line.final_before());
                (at, next) = (line.final_standing(), line.change.seq_id + 1);
            }
            page += i64::from(PAGE);
        }
        take(at, next, last, self.final_behind(account, last).await?);
        Ok(missing)
    }

    /// Returns the balance at a place if that is final: from the account's document, or from the next entry.
    async fn final_behind(&self, account: &Account, place: i64) -> Result<Option<Cache>> {
        if let Some(cache) = account.cache.filter(|cache| cache.seq_id == place) {
            return Ok(Some(cache));
        }
        let lines = self.lines(&account.id, &mut Cache::default(), place, 1).await?;
        Ok(lines.first().and_then(Line::final_before))
    }

    /// Returns the balance right before a place, if that is final.
    pub(super) async fn final_before(&self, account: &Account, place: i64) -> Result<Option<Cache>> {
        let before = place - 1;
        if before == 0 {
            return Ok(Some(Cache::default()));
        }
        let lines = self.lines(&account.id, &mut Cache::default(), before - 1, 1).await?;
        let cached = account.cache.filter(|cache| cache.seq_id == before);
        Ok(lines.first().map_or(cached, Line::final_standing))
    }

    /// Takes the places; returns whether all of them were free.
    async fn abandon_all(&self, missing: &[EntryChange], ends: Ends, reason: &str) -> Result<bool> {
        let (committed, open): (Vec<_>, Vec<_>) =
            missing.iter().cloned().partition(|change| change.seq_id <= ends.committed);
        for (proc, places) in [(Proc::Committed, committed), (Proc::Uncommitted, open)] {
            for places in places.chunks(CHANGES_MAX) {
                let entry = Entry::abandoned(self, proc, places.to_vec());
                if !self.insert_abandoned(Entry { reason: Some(reason.to_owned()), ..entry }).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Checks that an entry at this place can be lost.
fn check_end(account: &Account, ends: Ends, last: i64) -> Result<()> {
    let Account { id, last_seq_id, .. } = account;
    if last > ends.last {
        let text = format!("account {id} has no entry at place {last} or behind it: nothing says that one was there");
        return Err(Error::invalid(text));
    }
    if last_seq_id.is_some() && last > ends.committed {
        let text = format!(
            "the entry at place {last} of account {id} may still come: the committer waits for it, and abandons the place"
        );
        return Err(Error::invalid(text));
    }
    Ok(())
}

fn check_abandoned(line: &Line) -> Result<()> {
    if line.status.state == EntryState::Abandoned {
        return Ok(());
    }
    let Line { entry, change, .. } = line;
    Err(Error::invalid(format!(
        "place {} of account {} has entry {entry}: it is not lost",
        change.seq_id, change.account
    )))
}
