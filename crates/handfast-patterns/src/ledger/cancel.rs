//! Cancels an entry: a mark in it cancels it before it is committed, and a reversing entry afterwards.
//!
//! ```text
//! not committed   1  an entry that changes nothing, {cancels: id}, takes the next place of each account that will lose
//!                    (if its minimum still holds then; a sequence has no minimum, and needs no such place)
//!                 2  VALID -> CANCELED, unless it was committed meanwhile
//! committed       1  the reversal: the same changes with opposite signs, with the id {reverses: id}
//! ```
//!
//! Step 1 makes step 2 safe. A poster that read such an account before step 1 wants the place that is now taken, and
//! reads the account again. A poster that reads it later finds the entry of step 1, and does not spend what the
//! canceled entry had brought. So an account is never below its minimum.

use bson::{Bson, doc};

use super::entry::Draft;
use super::{Change, Entry, EntryEvent, Ledger, Link, Posting, Refusal, requests};
use crate::metrics::Event;
use crate::steps::Request;
use crate::value::{equal, same_id};
use crate::{Error, Result};

/// Attempts at an entry that has changed meanwhile, which happens twice at most.
const LOOKS_MAX: u32 = 4;

/// Limit on the characters of a reason, which is written into an entry that may be as large as an entry can be.
pub const REASON_CHARACTERS_MAX: usize = 2000;

/// Limit on the caches of uncommitted entries that a cancel resets. The ledger itself writes none.
const RESETS_MAX: u32 = 1000;

/// The result of [`Ledger::cancel`].
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Cancel {
    /// The entry counts for nothing.
    Canceled,
    /// The entry had been committed. This entry reverses it.
    Reversed(Box<Entry>),
    /// An account has spent what the entry had brought.
    Refused(Refusal),
    /// There is no entry with this id.
    Missing,
}

impl Ledger {
    /// Cancels an entry. Canceling it again does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an authorisation, which is released instead, for an entry that changes nothing, and for a
    /// reason of more than [`REASON_CHARACTERS_MAX`] characters.
    /// [`Error::Store`] if the store fails: cancel again. [`Error::Contended`] if other processes change the entry at
    /// each attempt.
    ///
    /// # Cancellation
    /// The entry may have been canceled: cancel it again.
    pub async fn cancel(&self, id: impl Into<Bson>, reason: &str) -> Result<Cancel> {
        let id = id.into();
        check_reason(reason)?;
        for _ in 0..LOOKS_MAX {
            let Some(entry) = self.show(id.clone()).await? else { return Ok(Cancel::Missing) };
            if !entry.counts() {
                return Ok(Cancel::Canceled);
            }
            check(&entry)?;
            // Other entries may depend on an entry that is linked to another one. It stays, and an entry of its own
            // reverses it.
            if entry.status.after(EntryEvent::Canceled).is_none() || entry.link.is_some() {
                return self.reverse(&entry, reason).await;
            }
            if let Posting::Refused(refusal) = self.fence(&entry).await? {
                return Ok(Cancel::Refused(refusal));
            }
            let Request { filter, update } = requests::cancel(self.fields(), &id, reason);
            if self.entries.update_one(&filter, &update).await? {
                self.count(Event::EntryCanceled, 1);
                self.reset_caches(&entry).await?;
                return Ok(Cancel::Canceled);
            }
        }
        Err(Error::Contended { what: format!("entry {id} was changed by others"), attempts: LOOKS_MAX })
    }

    /// Takes a place in each account that will lose, if its minimum allows it.
    async fn fence(&self, entry: &Entry) -> Result<Posting> {
        let mut draft = Draft::new(Bson::Document(doc! { "cancels": entry.id.clone() }), self.now(), Vec::new());
        draft.link = Some(Link::Cancels(entry.id.clone()));
        for (account, asset) in accounts(entry) {
            let gained = entry.available(account);
            let has_sequence = |account: super::Account| account.last_seq_id.is_some();
            if gained > 0 && !self.account(account.clone()).await?.is_some_and(has_sequence) {
                draft.changes.push(Change::new(account.clone(), 0, asset).called("cancel"));
                draft.losses.push((account.clone(), gained));
            }
        }
        if draft.changes.is_empty() {
            return Ok(Posting::AlreadyPosted(entry.clone()));
        }
        // A process that began to cancel the entry earlier has taken the same places, which are kept for as long as
        // the entry can be canceled.
        match self.posted(&draft).await? {
            Some(posted) => Ok(Posting::AlreadyPosted(posted)),
            None => self.post_draft(draft).await,
        }
    }

    /// Removes caches after an entry that is not committed, which another program has written, as the committer writes
    /// none there. They include the entry and are wrong from now on. A cache after the last place stays, because it
    /// alone shows that entries are lost there.
    async fn reset_caches(&self, entry: &Entry) -> Result<()> {
        let fields = self.fields();
        for change in &entry.changes {
            let account = self.account(change.account.clone()).await?;
            let cached = account.and_then(|account| account.cache).map_or(0, |cache| cache.seq_id);
            if cached >= change.seq_id && cached <= self.last_place(&change.account).await? {
                let stale = doc! { "_id": equal(&change.account), fields.of_cache(&fields.seq_id): cached };
                self.accounts.update_one(&stale, &doc! { "$unset": { &fields.cache: "" } }).await?;
            }
            let Request { filter, update } = requests::reset_behind(fields, &change.account, change.seq_id);
            for _ in 0..RESETS_MAX {
                if !self.entries.update_one(&filter, &update).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn reverse(&self, entry: &Entry, reason: &str) -> Result<Cancel> {
        let reversed = |change: &super::EntryChange| {
            Change::new(change.account.clone(), change.value.saturating_neg(), change.asset.clone()).called("reversal")
        };
        let changes: Vec<_> = entry.changes.iter().filter(|change| change.value != 0).map(reversed).collect();
        let mut draft = Draft::new(Bson::Document(doc! { "reverses": entry.id.clone() }), self.now(), changes);
        draft.link = Some(Link::Reverses(entry.id.clone()));
        draft.reason = Some(reason.to_owned());
        Ok(match self.post_draft(draft).await? {
            Posting::Posted(entry) | Posting::AlreadyPosted(entry) => Cancel::Reversed(Box::new(entry)),
            Posting::Refused(refusal) => Cancel::Refused(refusal),
        })
    }
}

/// Returns the accounts of an entry, each once, with their assets.
fn accounts(entry: &Entry) -> Vec<(&Bson, &str)> {
    let mut accounts: Vec<(&Bson, &str)> = Vec::new();
    for change in &entry.changes {
        if !accounts.iter().any(|(account, _)| same_id(account, &change.account)) {
            accounts.push((&change.account, &change.asset));
        }
    }
    accounts
}

pub(super) fn check_reason(reason: &str) -> Result<()> {
    let characters = reason.chars().count();
    if characters > REASON_CHARACTERS_MAX {
        let text = format!("the reason has {characters} characters, at most {REASON_CHARACTERS_MAX} are allowed");
        return Err(Error::invalid(text));
    }
    Ok(())
}

fn check(entry: &Entry) -> Result<()> {
    if let Some(Link::Authorises { .. }) = entry.link {
        return Err(Error::invalid(format!("entry {} is an authorisation: release it", entry.id)));
    }
    if entry.changes.iter().all(|change| change.value == 0) {
        return Err(Error::invalid(format!("entry {} changes nothing that could be taken back", entry.id)));
    }
    Ok(())
}
