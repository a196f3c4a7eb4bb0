//! Posting an entry: it takes the next place of each account, or loses a race and tries again.

use std::time::Duration;

use bson::{Bson, doc};
use handfast_mql::Code;

use super::account::Account;
use super::account_state::FundsCheck;
use super::entry::Draft;
use super::record::{EntryChange, SEQUENCE_NUMBER_MAX};
use super::{Entry, Ledger, NewEntry, Posting, Proc, requests};
use crate::metrics::{self, Event, Span};
use crate::steps::{Added, Request, raw};
use crate::value::{equal, same_id};
use crate::{Error, Result};

/// Limit on the bytes of an entry. A store of single documents keeps a document and its next version in 16 MiB, and the committed entry has its balances, too.
const ENTRY_BYTES_MAX: usize = 6 * 1024 * 1024;

/// An attempt that lost a race to other posters, with a description of the race.
struct Lost(String);

type Attempt = Result<Posting, Lost>;

/// Places that were drawn from a sequence for an attempt.
struct Drawn {
    account: Account,
    first: i64,
    count: i64,
}

impl Ledger {
    /// Posts an entry: all of its changes, or none. Posting an entry with the same id again does nothing.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: if [`Error::applied`] is `Maybe`, post the entry again with the same id.
    /// [`Error::Invalid`] for an entry that is invalid, for example one that does not balance, and if another entry
    /// has this id. [`Error::Contended`] if other posters take the places at each attempt.
    ///
    /// # Cancellation
    /// The entry may have been posted: post it again with the same id.
    pub async fn post(&self, entry: NewEntry) -> Result<Posting> {
        let draft = entry.draft(|| Bson::ObjectId(self.sources.ids.object_id()), self.now())?;
        self.post_draft(draft).await
    }

    pub(super) async fn post_draft(&self, draft: Draft) -> Result<Posting> {
        draft.check(self.options.single_entry)?;
        self.check_bytes(&draft)?;
        let clock = &*self.sources.clock;
        let begun = clock.elapsed();
        let posting = self.race(&draft).await;
        metrics::took_since(Span::Post, self.entries.namespace(), clock, begun);
        let posting = posting?;
        let event = match &posting {
            Posting::Posted(_) => Event::EntryPosted,
            Posting::AlreadyPosted(_) => Event::EntryRepeated,
            Posting::Refused(_) => Event::EntryRefused,
        };
        self.count(event, 1);
        Ok(posting)
    }

    /// Checks that the entry can be committed, which adds the balances.
    fn check_bytes(&self, draft: &Draft) -> Result<()> {
        let places = vec![SEQUENCE_NUMBER_MAX; draft.changes.len()];
        let bytes = raw(&Entry::of_draft(draft, &places).to_document(self.fields()))?.as_bytes().len();
        if bytes > ENTRY_BYTES_MAX {
            let text = format!("an entry has {bytes} bytes with its metadata, at most {ENTRY_BYTES_MAX} are allowed");
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    async fn race(&self, draft: &Draft) -> Result<Posting> {
        let mut lost = String::new();
        for attempt in 0..self.options.attempts_max {
            if attempt > 0 {
                tokio::time::sleep(self.pause(attempt)).await;
            }
            match self.attempt(draft).await? {
                Ok(posting) => return Ok(posting),
                Err(Lost(what)) => {
                    self.count(Event::EntryRaced, 1);
                    lost = what;
                }
            }
        }
        Err(Error::Contended { what: lost, attempts: self.options.attempts_max })
    }

    /// Tries to post the draft. The order matters: the state of each account is read first, and the next place is
    /// taken only if no other entry came meanwhile, so that what was checked still holds. A sequence is drawn from
    /// after that, so that entries that are before this one in one account are before it in all.
    async fn attempt(&self, draft: &Draft) -> Result<Attempt> {
        let accounts = self.accounts_of(draft).await?;
        let mut next = Vec::with_capacity(accounts.len());
        for account in accounts.iter().filter(|account| account.last_seq_id.is_none()) {
            let standing = self.account_state(account, self.anchor(account).await?).await?;
            if standing.last >= SEQUENCE_NUMBER_MAX {
                return Err(self.unreadable(&account.id).await?.unwrap_or_else(|| no_place(account)));
            }
            match standing.check_funds(account, draft) {
                FundsCheck::Fits => next.push((&account.id, standing.last)),
                FundsCheck::Unsure => {
                    let missing = standing.missing();
                    let what = format!(
                        "{missing} places of account {} have no entry: `verify` says whether one is lost",
                        account.id
                    );
                    return Ok(Err(Lost(what)));
                }
                FundsCheck::Refused(refusal) => {
                    let posted = self.posted(draft).await?;
                    return Ok(Ok(posted.map_or(Posting::Refused(refusal), Posting::AlreadyPosted)));
                }
            }
        }
        let drawn = match accounts.iter().find(|account| account.last_seq_id.is_some()) {
            Some(account) => Some(self.draw(account, draft).await?),
            None => None,
        };
        next.extend(drawn.iter().map(|drawn| (&drawn.account.id, drawn.first - 1)));
        let entry = Entry::of_draft(draft, &numbers(draft, next));
        self.insert(draft, entry, drawn).await
    }

    /// Inserts the entry at its places, all or none: the unique index on accounts and places lets only one entry in at
    /// each.
    async fn insert(&self, draft: &Draft, entry: Entry, drawn: Option<Drawn>) -> Result<Attempt> {
        match self.entries.insert(&entry.to_document(self.fields())).await {
            Ok(Added::New) => return Ok(Ok(Posting::Posted(entry))),
            Ok(Added::There) => {}
            // If the attempt before has inserted the entry, the store may report the conflict of either index.
            Err(Error::Store(error)) if error.code() == Code::DuplicateKey => {}
            Err(error) => return Err(error),
        }
        if let Some(posted) = self.posted(draft).await? {
            return Ok(Ok(Posting::AlreadyPosted(posted)));
        }
        if let Some(drawn) = drawn {
            self.give_up(&drawn).await?;
        }
        Ok(Err(Lost("others took the next place in an account".to_owned())))
    }

    /// Returns the entry that was posted from this draft, if any.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another entry has the id of the draft.
    pub(super) async fn posted(&self, draft: &Draft) -> Result<Option<Entry>> {
        match self.show(draft.id.clone()).await? {
            Some(entry) if entry.is_of(draft) => Ok(Some(entry)),
            // A caller that wanted to resolve an authorisation in another way looks at the entry itself.
            Some(entry) if draft.id.as_document().is_some() => Ok(Some(entry)),
            Some(_) => Err(Error::invalid(format!("another entry has the id {}", draft.id))),
            None => Ok(None),
        }
    }

    /// Draws the next places of a sequence.
    async fn draw(&self, account: &Account, draft: &Draft) -> Result<Drawn> {
        let count = draft.changes.iter().filter(|change| same_id(&change.account, &account.id)).count();
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let Request { filter, update } = requests::draw(self.fields(), &account.id, count);
        let Some(found) = self.accounts.find_and_update(&filter, &update).await? else {
            return Err(Error::invalid(format!("account {} has no sequence any more", account.id)));
        };
        let account = Account::read(&self.accounts, &found, self.fields())?;
        let last = account.last_seq_id.unwrap_or(0);
        Ok(Drawn { account, first: last - count + 1, count })
    }

    /// Gives up places that were drawn and are not used: an entry that counts for nothing takes them, so that no
    /// committer waits for them. If they are taken, the sequence is behind the existing entries.
    async fn give_up(&self, drawn: &Drawn) -> Result<()> {
        let Drawn { account, first, count } = drawn;
        let places = (*first..first + count).map(|seq_id| EntryChange::abandoned(account, seq_id, None)).collect();
        if !self.insert_abandoned(Entry::abandoned(self, Proc::Uncommitted, places)).await? {
            let last = self.last_place(&account.id).await?;
            let Request { filter, update } = requests::raise(self.fields(), &account.id, last);
            self.accounts.update_one(&filter, &update).await?;
        }
        Ok(())
    }

    /// Takes places for an entry that counts for nothing; returns whether they were free.
    pub(super) async fn insert_abandoned(&self, entry: Entry) -> Result<bool> {
        let free = match self.entries.insert(&entry.to_document(self.fields())).await {
            Ok(Added::New | Added::There) => Ok(true),
            Err(Error::Store(error)) if error.code() == Code::DuplicateKey => {
                Ok(self.entries.find_one(&doc! { "_id": equal(&entry.id) }).await?.is_some())
            }
            Err(error) => Err(error),
        }?;
        self.count(Event::PlaceAbandoned, if free { entry.changes.len() as u64 } else { 0 });
        Ok(free)
    }

    /// Returns a random pause, which gets longer with each attempt.
    fn pause(&self, attempt: u32) -> Duration {
        let longest = self.options.pause_first.saturating_mul(1 << attempt.min(16)).min(self.options.pause_longest);
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.sources.random.next_u64() % nanos.max(1))
    }
}

fn no_place(account: &Account) -> Error {
    Error::invalid(format!("all places of account {}, up to {SEQUENCE_NUMBER_MAX}, are taken", account.id))
}

/// Returns the place of each change, given the last place that is taken in each account.
fn numbers(draft: &Draft, mut last: Vec<(&Bson, i64)>) -> Vec<i64> {
    let mut number = |account: &Bson| {
        let last = last.iter_mut().find(|(id, _)| same_id(id, account));
        last.map_or(0, |(_, last)| {
            *last += 1;
            *last
        })
    };
    draft.changes.iter().map(|change| number(&change.account)).collect()
}
