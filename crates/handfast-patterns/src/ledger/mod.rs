//! A ledger: entries move money and are only ever added, and a balance is their sum.
//!
//! An entry is one document with the changes of all its accounts, so it exists as a whole or not at all. Each change
//! takes the next *place* of its account, its sequence number (`seqId`): a unique index on accounts and places gives
//! each place to one entry.
//!
//! ```text
//!                                                       ann                         bob
//! post       {_id: 7, changes: [{ann, -30}, {bob, 30}]}
//!   read     the last place, and the balance there     4, 100                      9, 5
//!   insert   the next places, or another was faster    {seqId: 5, value: -30}      {seqId: 10, value: 30}
//! commit     when 1 to 4 and 1 to 9 are committed       {seqId: 5, cachedBal: 70}   {seqId: 10, cachedBal: 35}
//!            then the accounts' own documents          cache: {balance: 70, seqId: 5} ..
//! balance    the last committed one, and the valid entries after it
//! ```
//!
//! # Places
//!
//! A poster reads the state of an account, and inserts its entry at the next place. If another entry came in between
//! the index refuses it, so reading and inserting are one atomic step for this account. Therefore a minimum that held
//! when the account was read still holds when the entry is inserted, and the places of an account have no gaps. A
//! poster that loses the race waits for a random time and reads again.
//!
//! For an account that all processes post to, such as one for fees, most posters lose that race. Such an account can
//! have a *sequence*: a number in its document from which each poster draws a place (find-and-modify), which no other
//! poster gets. That has a price:
//!
//! - A place that was drawn may stay empty for a while, or for ever if its poster died. Place 7 must not be committed
//!   before it is certain what is at 6: a late entry there would make the balance at 7 wrong for ever. So the
//!   committer waits, and after [`LedgerOptions::abandoned_after`] inserts an entry at 6 that counts for nothing
//!   (`ABANDONED`). The index lets one of the two in. A poster that is too late is refused, and draws another place.
//!   No clock needs to be right for that.
//! - Posters insert in another order than they drew, so it is unknown what an account has when an entry is inserted.
//!   So such an account has no minimum.
//! - Two entries that draw from two sequences may draw in opposite orders: first and second in one, second and first
//!   in the other. Then neither could be committed before the other. So an entry has at most one account with a
//!   sequence, and draws after it has read the others: an entry that is before it in one of those has drawn its place
//!   before. If it loses the race in one of them it draws again.
//!
//! # Failures and their effects
//!
//! | at | what happens |
//! | --- | --- |
//! | post: the answer is lost | the entry has its id before it is sent: it is sent again, and found by its id |
//! | post: sent by two processes, or again much later | one request inserts it; the others find it by its id, or that its places are taken |
//! | post: the process dies between drawing and inserting | the place is empty: see above |
//! | commit: two at once, or the process dies anywhere | each writes the same, as everything before the entry is final; an account's cache only goes forward |
//! | cancel beside commit | both expect `UNCOMMITTED` in the one document: one of them succeeds, and the other looks again |
//! | cancel beside a poster that spends what is canceled | before the mark, an entry that changes nothing (`{cancels: id}`) takes the next place of each account that will lose: a poster that had read before reads again, and one that reads later does not spend it |
//! | a copy of any request arrives late | its place or its id is taken, or the state that it expects is over |
//! | an account's document, or a balance in an entry, is removed or wrong | [`Ledger::verify`] reports it; [`Ledger::rebuild`] recomputes it from the first entry on |
//! | an entry is lost | its places are gaps without an abandoned entry: [`Ledger::verify`] names them, [`Ledger::rebuild`] stops there; [`Ledger::restore`] or [`Ledger::abandon`] closes them |
//!
//! A COMMITTED entry never changes. There is no isolation between accounts: a program that reads the balances of two
//! accounts, one after the other, may see a transfer in one and not in the other. If that matters, read and post in a
//! transaction.
//!
//! Source: seed 0 (solution 4). Our changes: the search for the last place by account (sorted by `changes.seqId`, as
//! printed there, an entry with a larger number of *another* account comes first, and the next place found is one that
//! is taken, for ever); minimums, authorisations, abandoned places, and the place that a cancel takes.

mod account;
mod account_state;
mod audit;
mod balance;
mod cancel;
mod chain;
mod commit;
mod entry;
mod export;
mod finding;
mod hold;
mod lost;
mod minimum;
mod options;
pub(crate) mod parts;
mod post;
mod rebuild;
mod record;
mod requests;
mod restore;
mod settings;
mod state;
mod statement;
#[cfg(test)]
mod tests;
mod totals;
mod verify;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use handfast_mql::Code;
use handfast_store::{DocumentStore, Error as StoreError, IndexSpec, Namespace, Sources};

pub use account::{Account, Accounts, Cache, NewAccount};
pub use balance::{AsOf, Balance, Line};
pub use cancel::{Cancel, REASON_CHARACTERS_MAX};
pub use entry::{CHANGES_MAX, Change, Link, NewEntry, VALUE_MAX};
pub use export::{EntryLines, Export, ExportFormat};
pub use finding::{Amount, Finding, Gap};
pub use hold::{Authorisation, Capture, Resolution};
pub use lost::ABANDONED_MAX;
pub use options::{LedgerFields, LedgerOptions};
pub use rebuild::Rebuilt;
pub use record::{Entry, EntryChange};
pub use restore::Restored;
pub use state::{EntryEvent, EntryState, HoldEvent, HoldState, NoEntryState, Proc, Status};
pub use statement::{Page, Statement};
pub use totals::Totals;
pub use verify::Verified;

use crate::metrics::{self, Event, Level};
use crate::steps::{Steps, raw};
use crate::value::equal;
use crate::{CancellationToken, Error, FieldNames, Result, Runner, RunnerOptions};

/// Limit on the places of an account that are read at once.
const PAGE: u32 = 500;

/// The result of [`Ledger::post`].
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Posting {
    /// The entry was posted by this call.
    Posted(Entry),
    /// The entry was posted before, by an earlier request with this id or by the first attempt of this one.
    AlreadyPosted(Entry),
    /// An account has too little. Nothing was changed, and the id can be used again.
    Refused(Refusal),
}

impl Posting {
    /// Returns the entry, if it was posted.
    pub fn entry(&self) -> Option<&Entry> {
        match self {
            Posting::Posted(entry) | Posting::AlreadyPosted(entry) => Some(entry),
            Posting::Refused(_) => None,
        }
    }
}

/// The reason why an account cannot take an entry. Amounts are in the smallest unit of its asset.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The `_id` of the account.
    pub account: Bson,
    /// The amount that is available in it.
    pub available: i64,
    /// The amount that the entry would have added.
    pub change: i64,
    /// The amount that must stay available.
    pub minimum: i64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { account, available, change, minimum } = self;
        write!(f, "account {account} has {available} available, and must keep {minimum}: {change} is too much")
    }
}

/// The counts of a ledger's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerStatus {
    /// Entries.
    pub entries: u64,
    /// Entries that are not committed.
    pub uncommitted: u64,
    /// The age of the oldest uncommitted entry.
    pub oldest_uncommitted: Option<Duration>,
    /// Announcements of authorisations that expire and are not resolved.
    pub expiring: u64,
}

/// A ledger in a collection. See the [module's documentation](self).
///
/// ```
/// use handfast_patterns::ledger::{Ledger, NewAccount, NewEntry, Posting};
/// use handfast_store::{MemoryStore, Namespace, Sources};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> handfast_patterns::Result<()> {
/// let sources = Sources::seeded(1);
/// let store = Arc::new(MemoryStore::new(sources.clone()));
/// let ledger = Ledger::open_with(store, Namespace::new("bank", "tx")?, sources, Default::default()).await?;
/// ledger.open_account(NewAccount::new("ann", "EUR").with_minimum(0)).await?;
///
/// ledger.post(NewEntry::transfer("cash", "ann", 100, "EUR")).await?;
/// let paid = NewEntry::transfer("ann", "bob", 30, "EUR").with_id("order 7");
/// assert!(matches!(ledger.post(paid.clone()).await?, Posting::Posted(_)));
/// assert!(matches!(ledger.post(paid).await?, Posting::AlreadyPosted(_)), "posting twice is posting once");
/// assert!(matches!(ledger.post(NewEntry::transfer("ann", "bob", 71, "EUR")).await?, Posting::Refused(_)));
///
/// assert_eq!(ledger.commit(10).await?.done, 2);
/// let balance = ledger.balance("ann").await?.expect("ann has an account");
/// assert_eq!((balance.balance, balance.pending), (70, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Ledger {
    entries: Steps,
    accounts: Steps,
    holds: Steps,
    sources: Sources,
    options: Arc<LedgerOptions>,
}

impl Ledger {
    /// Opens the ledger with its entries in this collection; records the settings if none are recorded, and creates the
    /// indexes. The collections of accounts and of authorisations are in the same database.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if other settings are recorded, [`Error::Invalid`] for options that are out of range,
    /// and if the accounts or the authorisations of another ledger are in one of the collections. [`Error::Store`] if the store fails or cannot have unique indexes.
    pub async fn open(store: Arc<dyn DocumentStore>, entries: Namespace, options: LedgerOptions) -> Result<Self> {
        Ledger::open_with(store, entries, Sources::system()?, options).await
    }

    /// Opens it with other sources of time, randomness and ids, for tests that can be repeated.
    ///
    /// # Errors
    /// Returns the errors of [`Ledger::open`].
    pub async fn open_with(
        store: Arc<dyn DocumentStore>,
        entries: Namespace,
        sources: Sources,
        options: LedgerOptions,
    ) -> Result<Self> {
        let ledger = Ledger::of(store, entries, sources, options)?;
        ledger.record_settings().await?;
        ledger.create_indexes().await?;
        Ok(ledger)
    }

    /// Opens a ledger to read it. It records no settings and creates no indexes.
    ///
    /// # Errors
    /// [`Error::OtherSettings`] if other settings are recorded, [`Error::Invalid`] for options that are out of range,
    /// and if the accounts or the authorisations of another ledger are in one of the collections.
    pub async fn attach(
        store: Arc<dyn DocumentStore>,
        entries: Namespace,
        sources: Sources,
        options: LedgerOptions,
    ) -> Result<Self> {
        let ledger = Ledger::of(store, entries, sources, options)?;
        ledger.compare_settings().await?;
        Ok(ledger)
    }

    fn of(store: Arc<dyn DocumentStore>, entries: Namespace, sources: Sources, options: LedgerOptions) -> Result<Self> {
        if options.attempts_max == 0 || options.pause_first.is_zero() || options.pause_longest.is_zero() {
            return Err(Error::invalid("a ledger needs at least one attempt, and pauses"));
        }
        options.fields.check()?;
        let accounts = Namespace::new(entries.database(), options.accounts.as_str())?;
        let holds = Namespace::new(entries.database(), options.holds.as_str())?;
        if accounts == entries || holds == entries || accounts == holds {
            return Err(Error::invalid("entries, accounts and authorisations are in collections of their own"));
        }
        let entries = Steps::new(store, entries);
        let (accounts, holds) = (entries.at(accounts), entries.at(holds));
        Ok(Ledger { entries, accounts, holds, sources, options: Arc::new(options) })
    }

    /// Creates the indexes, as [`Ledger::open`] does.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails or cannot have unique indexes.
    pub async fn create_indexes(&self) -> Result<()> {
        let fields = self.fields();
        // Committed entries are in this index and in the one by time only.
        let place = IndexSpec { unique: true, ..IndexSpec::new(raw(&requests::place_key(fields))?) };
        let waiting = doc! { &fields.proc: 1, &fields.ts: 1 };
        let waiting =
            IndexSpec { partial_filter: Some(raw(&requests::uncommitted(fields))?), ..IndexSpec::new(raw(&waiting)?) };
        let time = IndexSpec::new(raw(&export::by_time(fields))?);
        self.entries.create_indexes([place, waiting, time]).await.map_err(|error| self.unique_places(error))?;
        let expiry = IndexSpec::new(raw(&doc! { &fields.expires_at: 1 })?);
        let entry = IndexSpec::new(raw(&doc! { &fields.entry: 1 })?);
        self.holds.create_indexes([expiry, entry]).await
    }

    /// Says how it came that two entries have the same place, if the index cannot be created because of that.
    fn unique_places(&self, error: Error) -> Error {
        let Error::Store(error) = error else { return error };
        if error.code() != Code::DuplicateKey {
            return error.into();
        }
        let text = format!(
            "two entries of {} have the same place of an account, so that its unique index cannot be created: the index was dropped, \
             or a dump restored, while programs posted. Stop them; `handfast ledger verify` names the accounts: {error}",
            self.entries.namespace()
        );
        StoreError::command(Code::DuplicateKey, text).into()
    }

    /// Returns whether the unique index on accounts and places exists.
    async fn has_unique_places(&self) -> Result<bool> {
        self.entries.has_unique_index(&requests::place_key(self.fields())).await
    }

    /// Returns the same ledger on another store. In an open transaction an entry is posted if and only if the
    /// transaction commits. If another poster has taken a place meanwhile, the commit is a conflict: then the
    /// transaction must be run again, as `Database::transaction` does.
    #[must_use]
    pub fn within(&self, store: Arc<dyn DocumentStore>) -> Self {
        let entries = self.entries.on(store);
        let (accounts, holds) =
            (entries.at(self.accounts.namespace().clone()), entries.at(self.holds.namespace().clone()));
        Ledger { entries, accounts, holds, ..self.clone() }
    }

    /// Returns an entry; `None` if there is none with this id.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not an entry.
    pub async fn show(&self, id: impl Into<Bson>) -> Result<Option<Entry>> {
        let found = self.entries.find_one(&doc! { "_id": equal(&id.into()) }).await?;
        found.map(|document| self.read(&document)).transpose()
    }

    /// Returns entries that are not committed, the oldest first.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a document that is not an entry.
    pub async fn uncommitted(&self, limit: u32) -> Result<Vec<Entry>> {
        let oldest_first = doc! { &self.fields().ts: 1 };
        let found = self.entries.find(&requests::uncommitted(self.fields()), &oldest_first, limit).await?;
        found.iter().map(|document| self.read(document)).collect()
    }

    /// Returns the counts of the ledger, and sets the gauges of [`metrics`] to them.
    pub async fn status(&self) -> Result<LedgerStatus> {
        let oldest = self.uncommitted(1).await?;
        let age = |entry: &Entry| self.now().timestamp_millis().saturating_sub(entry.ts.timestamp_millis());
        let status = LedgerStatus {
            entries: self.entries.count(&Document::new()).await?,
            uncommitted: self.entries.count(&requests::uncommitted(self.fields())).await?,
            oldest_uncommitted: oldest.first().map(|entry| Duration::from_millis(age(entry).try_into().unwrap_or(0))),
            expiring: self.holds.count(&Document::new()).await?,
        };
        metrics::level(Level::Uncommitted, self.entries.namespace(), status.uncommitted as f64);
        metrics::age(Level::OldestUncommitted, self.entries.namespace(), status.oldest_uncommitted);
        Ok(status)
    }

    /// Reads the status regularly in the background, for the gauges of [`metrics`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_status(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let ledger = self.clone();
        Runner::spawn_look("ledger.status", &self.sources, options, cancel, move || {
            let ledger = ledger.clone();
            async move { ledger.status().await }
        })
    }

    /// Counts an event that happened to entries of this ledger.
    fn count(&self, event: Event, times: u64) {
        metrics::count(event, self.entries.namespace(), times);
    }

    fn fields(&self) -> &LedgerFields {
        &self.options.fields
    }

    fn now(&self) -> DateTime {
        self.sources.clock.now()
    }

    fn ago(&self, age: Duration) -> DateTime {
        crate::value::before(self.now(), age)
    }

    fn read(&self, document: &Document) -> Result<Entry> {
        Entry::read(self.entries.namespace(), document, self.fields())
    }
}
