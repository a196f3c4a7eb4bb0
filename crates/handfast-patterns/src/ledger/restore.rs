//! Restores lost entries from an export.
//!
//! An entry is restored at the places that it had, if they are free and nothing in its account contradicts it. The
//! export may be older than the loss: an entry that was not committed then may have been committed or canceled since.
//! If an entry after it is committed, it was committed, too; and the final balances around it show what it had
//! changed. If they do not show it, or contradict the export, nothing is restored.

use bson::{Bson, Document, doc};

use super::account::{Account, Cache};
use super::balance::Line;
use super::entry::VALUE_MAX;
use super::{Entry, EntryChange, Ledger, Link, Proc, requests};
use crate::steps::{Added, Request};
use crate::value::{key_of, same_id};
use crate::{Error, Result};
use handfast_mql::Code;

/// Attempts at an entry when other processes take its places meanwhile.
const LOOKS_MAX: u32 = 4;

/// The result of [`Ledger::restore`].
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Restored {
    /// The entry was restored.
    Restored(Box<Entry>),
    /// The entry exists: it was not lost, or was restored before.
    There(Box<Entry>),
    /// The entry was not restored, for this reason. Nothing was changed.
    Refused(String),
}

/// The places of an entry in one account, which follow one another, and their surroundings.
struct Run {
    account: Account,
    first: i64,
    last: i64,
    /// The empty places before them, after the last entry of the account.
    empty_before: Option<(i64, i64)>,
    /// The final balance before them.
    before: Option<Cache>,
    /// Whether the entry before them is there and not committed.
    before_is_open: bool,
    /// The final balance after them.
    after: Option<Cache>,
    /// Whether the entry was committed when it was lost.
    was_committed: bool,
    /// Whether the account shows that an entry was at the places.
    is_gap: bool,
}

/// The reason why an entry is not restored.
type Checked<T> = Result<T, String>;

impl Ledger {
    /// Restores a lost entry from the JSON that [`Ledger::export`] wrote. Restoring it again does nothing.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails: restore it again. [`Error::Invalid`] for a document that is not an entry.
    ///
    /// # Cancellation
    /// The entry may have been restored: restore it again.
    pub async fn restore(&self, exported: &Document) -> Result<Restored> {
        let entry = self.read(exported)?;
        if let Err(why) = self.check_restored(&entry) {
            return Ok(Restored::Refused(why));
        }
        for _ in 0..LOOKS_MAX {
            if let Some(there) = self.show(entry.id.clone()).await? {
                let same = same_entry(&there, &entry);
                let other = || Restored::Refused("another entry has its id".to_owned());
                return Ok(if same { Restored::There(Box::new(there)) } else { other() });
            }
            let runs = match self.runs(&entry).await {
                Ok(Ok(runs)) => runs,
                Ok(Err(why)) => return Ok(Restored::Refused(why)),
                // The error is about documents around its places and not about the copy, so that other copies can be
                // restored all the same.
                Err(error @ (Error::Damaged { .. } | Error::Invalid { .. })) => {
                    return Ok(Restored::Refused(error.to_string()));
                }
                Err(error) => return Err(error),
            };
            let restored = match self.as_it_was(&entry, &runs).await? {
                Ok(restored) => restored,
                Err(why) => return Ok(Restored::Refused(why)),
            };
            if self.put_back(exported, &restored).await? {
                self.raise_sequences(&runs).await?;
                return Ok(Restored::Restored(Box::new(restored)));
            }
        }
        Err(Error::Contended { what: format!("others took places of entry {}", entry.id), attempts: LOOKS_MAX })
    }

    /// Checks the conditions on every restored entry.
    fn check_restored(&self, entry: &Entry) -> Checked<()> {
        if entry.changes.is_empty() {
            return Err("it has no changes".to_owned());
        }
        for change in &entry.changes {
            if change.value.checked_abs().is_none_or(|value| value > VALUE_MAX) {
                return Err(format!("no entry has the value {}", change.value));
            }
        }
        if let Some((asset, sum)) = self.unbalanced(entry).first() {
            return Err(format!("its changes in {asset:?} add up to {sum}"));
        }
        Ok(())
    }

    async fn runs(&self, entry: &Entry) -> Result<Checked<Vec<Run>>> {
        let mut runs: Vec<Run> = Vec::new();
        for change in &entry.changes {
            if runs.iter().any(|run| same_id(&run.account.id, &change.account)) {
                continue;
            }
            match self.run(entry, &change.account).await? {
                Ok(run) => runs.push(run),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(runs))
    }

    async fn run(&self, entry: &Entry, id: &Bson) -> Result<Checked<Run>> {
        let places: Vec<i64> = entry.changes_of(id).map(|change| change.seq_id).collect();
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
            return Ok(Err(format!("it has no place in account {id}")));
        };
        if places.iter().zip(first..).any(|(place, expected)| *place != expected) {
            return Ok(Err(format!("its places in account {id} do not follow each other")));
        }
        let unknown =
            || Account { id: id.clone(), asset: String::new(), minimum: None, last_seq_id: None, cache: None };
        let account = self.known(id.clone()).await?.unwrap_or_else(unknown);
        let ends = self.ends(&account).await?;
        let end = ends.last.max(account.last_seq_id.unwrap_or(0));
        let around =
            self.lines(id, &mut Cache::default(), first - 2, u32::try_from(places.len()).unwrap_or(0) + 2).await?;
        if let Some(taken) = around.iter().find(|line| (first..=last).contains(&line.change.seq_id)) {
            let (place, by) = (taken.change.seq_id, &taken.entry);
            return Ok(Err(format!("place {place} of account {id} is taken by entry {by} ({})", taken.status.state)));
        }
        let behind = around.iter().find(|line| line.change.seq_id == last + 1);
        let cached = account.cache.filter(|cache| cache.seq_id == last);
        Ok(Ok(Run {
            first,
            last,
            empty_before: (end + 1 < first).then_some((end + 1, first - 1)),
            before: self.final_before(&account, first).await?,
            before_is_open: around.iter().any(|line| line.change.seq_id < first && !line.is_committed()),
            after: cached.or_else(|| behind.and_then(Line::final_before)),
            was_committed: last <= ends.committed,
            is_gap: last <= if account.last_seq_id.is_some() { ends.committed } else { ends.last },
            account,
        }))
    }

    /// Returns the entry as it was when it was lost.
    async fn as_it_was(&self, entry: &Entry, runs: &[Run]) -> Result<Checked<Entry>> {
        // An entry that is missing in one account had all of its places, so the empty places before them in the others
        // are lost, too.
        if !runs.iter().any(|run| run.is_gap) {
            if let Some((id, (from, to))) = runs.iter().find_map(|run| Some((&run.account.id, run.empty_before?))) {
                return Ok(Err(format!("account {id} has no entries at places {from} to {to}: put those back before")));
            }
            let text = "nothing says that it was lost, as none of its accounts has a gap at its places: post it again";
            return Ok(Err(text.to_owned()));
        }
        let mut restored = entry.clone();
        let standings: Vec<_> = runs.iter().map(|run| run.standings(entry)).collect();
        for (run, standings) in runs.iter().zip(&standings) {
            match standings {
                Err(why) => return Ok(Err(why.clone())),
                Ok(Some(standings)) => restored.stand_at(&run.account.id, standings),
                Ok(None) => {}
            }
        }
        if entry.is_committed() {
            let open = runs.iter().find(|run| run.before_is_open);
            return Ok(match open {
                Some(Run { account, first, .. }) => Err(format!(
                    "the entry before place {first} of account {} is not committed: commit before",
                    account.id
                )),
                None => Ok(restored),
            });
        }
        if !runs.iter().any(|run| run.was_committed) {
            let fence = Bson::Document(doc! { "cancels": entry.id.clone() });
            if entry.counts() && self.show(fence).await?.is_some() {
                return Ok(Err("a cancellation of it was announced, and its outcome is unknown".to_owned()));
            }
            return Ok(Ok(entry.clone()));
        }
        if let Some((run, _)) = runs.iter().zip(&standings).find(|(_, standings)| matches!(standings, Ok(None))) {
            let Run { account, first, .. } = run;
            return Ok(Err(format!(
                "the entry before place {first} of account {} is lost, too: put that back before",
                account.id
            )));
        }
        let changes =
            |run: &&Run| entry.changes_of(&run.account.id).any(|change| change.value != 0 || change.hold != 0);
        if entry.counts()
            && runs.iter().any(|run| changes(&run))
            && !runs.iter().filter(changes).any(|run| run.after.is_some())
        {
            let text = "it was not committed when it was exported, and nothing says whether it was canceled since: put back those around it before";
            return Ok(Err(text.to_owned()));
        }
        restored.status.proc = Proc::Committed;
        Ok(Ok(restored))
    }

    /// Inserts the document, unless one of its places is taken.
    async fn put_back(&self, exported: &Document, restored: &Entry) -> Result<bool> {
        if let (Some(Link::Authorises { .. }), Some(expires_at)) = (&restored.link, restored.expires_at) {
            self.announce(&restored.id, expires_at).await?;
        }
        let mut document = exported.clone();
        document.extend(restored.to_document(self.fields()));
        match self.entries.insert(&document).await {
            Ok(Added::New) => Ok(true),
            Ok(Added::There) => Ok(false),
            Err(Error::Store(error)) if error.code() == Code::DuplicateKey => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Raises the sequences to its places, so that they continue after them.
    async fn raise_sequences(&self, runs: &[Run]) -> Result<()> {
        for run in runs.iter().filter(|run| run.account.last_seq_id.is_some_and(|last| last < run.last)) {
            let Request { filter, update } = requests::raise(self.fields(), &run.account.id, run.last);
            self.accounts.update_one(&filter, &update).await?;
        }
        Ok(())
    }
}

impl Run {
    /// Returns the balance at each of the places, if the one before them is final.
    ///
    /// # Errors
    /// Returns a text that says that an entry after these places has another balance.
    fn standings(&self, entry: &Entry) -> Checked<Option<Vec<Cache>>> {
        let Run { account: Account { id, .. }, first, after, .. } = self;
        let Some(before) = self.before else { return Ok(None) };
        let (mut at, mut standings) = (before, Vec::new());
        for change in entry.changes_of(id) {
            at = at.after(change, entry.counts()).map_err(|error| error.to_string())?;
            standings.push(at);
        }
        match after {
            Some(after) if (after.balance, after.held) != (at.balance, at.held) => {
                let changed = |after: Cache| {
                    let balance = after.balance.saturating_sub(before.balance);
                    format!("{balance} with {} held", after.held.saturating_sub(before.held))
                };
                Err(format!(
                    "the final balances around place {first} of account {id} say that {} is lost there, the entry is {}: it is another one, or was canceled later",
                    changed(*after),
                    changed(at)
                ))
            }
            _ => Ok(Some(standings)),
        }
    }
}

impl Line {
    /// Returns the final balance before its place, if the one at its place is final.
    pub(super) fn final_before(&self) -> Option<Cache> {
        self.final_standing()?.without(&self.change, self.status.state.counts())
    }
}

impl Cache {
    /// Returns the balance before a change, if the sums fit into 64 bits.
    fn without(self, change: &EntryChange, counts: bool) -> Option<Self> {
        let (value, hold) = if counts { (change.value, change.hold) } else { (0, 0) };
        let (balance, held) = (self.balance.checked_sub(value)?, self.held.checked_sub(hold)?);
        Some(Cache { balance, held, seq_id: change.seq_id - 1 })
    }
}

impl Entry {
    /// Sets the balance at each of its places.
    fn stand_at(&mut self, account: &Bson, standings: &[Cache]) {
        for change in self.changes.iter_mut().filter(|change| same_id(&change.account, account)) {
            if let Some(at) = standings.iter().find(|at| at.seq_id == change.seq_id) {
                (change.cached_balance, change.cached_held) = (Some(at.balance), at.held);
            }
        }
    }
}

/// Returns whether two entries are the same, apart from their places.
fn same_entry(one: &Entry, other: &Entry) -> bool {
    let key = |change: &EntryChange| (key_of(&change.account).ok(), change.seq_id, change.value, change.hold);
    one.changes.len() == other.changes.len() && one.changes.iter().map(key).eq(other.changes.iter().map(key))
}
