//! The committer, which makes entries final in the order of their accounts, and records the balances of the accounts.
//!
//! An entry is ready when the place before each of its places is committed. Then its balances follow from the balances
//! there, and nothing can change them any more. The committer takes the oldest entries first. An entry that is not
//! ready leads to the first uncommitted entry of the account that it waits for, and so on, until one is ready.
//!
//! An account may have no entry that can be committed now, because an entry is lost or altered, or a place was drawn
//! for an entry that is still under way. All later entries of that account wait. A round leaves them out of its next
//! page, so that they do not delay entries of other accounts.

use std::collections::HashMap;

use bson::{Bson, Document, doc};
use tracing::Instrument;

use super::account::{Account, Cache};
use super::record::EntryChange;
use super::{Entry, EntryEvent, Ledger, Proc, requests};
use crate::metrics::Event;
use crate::steps::Request;
use crate::value::key_of;
use crate::{CancellationToken, Error, Result, Round, Runner, RunnerOptions};

/// Limit on a chain of entries that wait for one another. Each is the first of an account, so that a longer chain can
/// only be a cycle.
const CHAIN_MAX: usize = 1000;

/// Limit on the pages of entries that a round reads. Each page after the first leaves out the accounts that were found
/// waiting.
const PAGES_MAX: usize = 16;

/// Limit on the waiting accounts that a round leaves out, as each of them is part of the query.
const WAITING_MAX: usize = 1000;

/// The balance of an account at its last committed place, as far as this round has read.
struct CommittedBalance {
    account: Account,
    at: Cache,
    /// The account's document has an older cache.
    moved: bool,
}

type CommittedBalances = HashMap<Vec<u8>, CommittedBalance>;

/// The accounts that a round has read.
#[derive(Default)]
struct RoundState {
    balances: CommittedBalances,
    /// Accounts whose next entry cannot be committed now.
    waiting: Vec<Bson>,
}

/// An entry, and the entries that it waits for, each for the next one.
struct Chain {
    /// The entries; the last one is to be committed first.
    entries: Vec<Entry>,
    /// The accounts in which each entry but the last waits for the next one.
    accounts: Vec<Bson>,
}

/// The state of the place before an entry.
enum Before {
    /// Everything up to it is committed.
    Committed(Cache),
    /// It has an entry that is not committed.
    Entry(Box<Entry>),
    /// It was drawn, and its entry may still come.
    Waits,
    /// The entry after it has been committed meanwhile.
    Over,
}

/// Whether an entry can be committed.
enum Readiness {
    /// It can be committed, with this balance at each of its changes.
    Now(Vec<Cache>),
    /// This entry must be committed first, because of the account.
    After(Box<Entry>, Bson),
    /// It must wait.
    Waits,
    /// Another process has committed it.
    Over,
}

impl RoundState {
    fn wait(&mut self, account: Bson) {
        if !self.waiting.contains(&account) {
            self.waiting.push(account);
        }
    }
}

impl Ledger {
    /// Commits entries that are ready, and those that they wait for. It reads pages of `batch` entries, and ends when
    /// as many are committed or when it finds no more that are ready. It may run in any process at any time.
    ///
    /// # Errors
    /// [`Error::Store`] if the search fails. A failure at a single entry or account is logged and counted.
    pub async fn commit(&self, batch: u32) -> Result<Round> {
        let mut state = RoundState::default();
        let mut result = self.commit_pages(batch, &mut state).await;
        for balance in state.balances.into_values().filter(|balance| balance.moved) {
            if let Err(error) = self.remember(&balance.account, balance.at).await {
                // The entries have their balances, from which this one follows.
                let account = &balance.account.id;
                tracing::warn!(%error, %account, "the balance of an account could not be recorded; its next entry does it");
                result.iter_mut().for_each(|round| round.failed += 1);
            }
        }
        result
    }

    async fn commit_pages(&self, batch: u32, state: &mut RoundState) -> Result<Round> {
        let oldest_first = doc! { &self.fields().ts: 1 };
        let mut round = Round::default();
        for _ in 0..PAGES_MAX {
            let known = state.waiting.len();
            let waiting = requests::uncommitted_without(self.fields(), &state.waiting);
            let found = self.entries.find(&waiting, &oldest_first, batch).await?;
            round.more = found.len() as u64 >= u64::from(batch);
            for document in found {
                self.commit_found(&document, state, &mut round).await;
            }
            let is_new = known < state.waiting.len() && state.waiting.len() <= WAITING_MAX;
            if !round.more || !is_new || round.done >= u64::from(batch) {
                break;
            }
        }
        Ok(round)
    }

    async fn commit_found(&self, document: &Document, state: &mut RoundState, round: &mut Round) {
        let id = document.get("_id").cloned().unwrap_or(Bson::Null);
        let span = tracing::info_span!("ledger.commit", %id);
        let work = async { self.commit_chain(self.read(document)?, state).await };
        match work.instrument(span.clone()).await {
            Ok(committed) => round.done += committed,
            Err(error) => {
                span.in_scope(|| tracing::warn!(%error, "an entry could not be committed, it is tried again later"));
                round.failed += 1;
            }
        }
    }

    /// Commits an entry after those that it waits for; returns how many were committed.
    async fn commit_chain(&self, entry: Entry, state: &mut RoundState) -> Result<u64> {
        let mut chain = Chain { entries: vec![entry], accounts: Vec::new() };
        let result = self.commit_entries(&mut chain, state).await;
        // Every other entry that waits for one of these accounts leads to the same entry.
        for account in chain.accounts {
            state.wait(account);
        }
        result
    }

    async fn commit_entries(&self, chain: &mut Chain, state: &mut RoundState) -> Result<u64> {
        let mut committed = 0;
        while let Some(entry) = chain.entries.pop() {
            match self.readiness(&entry, state).await? {
                Readiness::Now(standings) => {
                    if self.commit_one(&entry, &standings, &mut state.balances).await? {
                        committed += 1;
                    } else if let Some(now) = self.show(entry.id).await?.filter(|now| !now.is_committed()) {
                        // The entry was canceled meanwhile, or its links have changed.
                        chain.entries.push(now);
                        continue;
                    }
                }
                Readiness::After(first, account) => {
                    let is_in_chain = |one: &Entry| one.id == first.id;
                    if chain.entries.len() >= CHAIN_MAX || is_in_chain(&entry) || chain.entries.iter().any(is_in_chain)
                    {
                        let what = format!("entries {} and {} wait for each other: verify", entry.id, first.id);
                        return Err(Error::invalid(what));
                    }
                    chain.entries.extend([entry, *first]);
                    chain.accounts.push(account);
                    continue;
                }
                Readiness::Waits => return Ok(committed),
                Readiness::Over => {}
            }
            chain.accounts.pop();
        }
        Ok(committed)
    }

    /// Checks what is before each of the entry's places.
    async fn readiness(&self, entry: &Entry, state: &mut RoundState) -> Result<Readiness> {
        if let Some((asset, sum)) = self.unbalanced(entry).first() {
            return Err(Error::invalid(format!(
                "entry {} is not committed, as its changes in {asset:?} add up to {sum}: it was altered",
                entry.id
            )));
        }
        let mut order: Vec<(usize, &EntryChange)> = entry.changes.iter().enumerate().collect();
        order.sort_by_key(|(_, change)| change.seq_id);
        let mut standings = vec![Cache::default(); entry.changes.len()];
        // Several places of this entry in one account may follow one another.
        let mut own: HashMap<Vec<u8>, Cache> = HashMap::new();
        for (number, change) in order {
            let key = key_of(&change.account)?;
            let before = match own.get(&key) {
                Some(before) if before.seq_id + 1 == change.seq_id => *before,
                Some(_) => return Err(Error::invalid(format!("entry {} has scattered places: verify", entry.id))),
                None => match self.before(entry, change, &mut state.balances).await {
                    Ok(Before::Committed(before)) => before,
                    Ok(Before::Entry(first)) => return Ok(Readiness::After(first, change.account.clone())),
                    Ok(Before::Over) => return Ok(Readiness::Over),
                    Ok(Before::Waits) => {
                        state.wait(change.account.clone());
                        return Ok(Readiness::Waits);
                    }
                    Err(error) => {
                        state.wait(change.account.clone());
                        return Err(error);
                    }
                },
            };
            let standing = before.after(change, entry.counts())?;
            if let Some(slot) = standings.get_mut(number) {
                *slot = standing;
            }
            own.insert(key, standing);
        }
        Ok(Readiness::Now(standings))
    }

    /// Follows an account from its last committed place to this entry, as far as everything is committed.
    async fn before(&self, entry: &Entry, change: &EntryChange, balances: &mut CommittedBalances) -> Result<Before> {
        let balance = self.committed_balance(&change.account, balances).await?;
        loop {
            let next = balance.at.seq_id + 1;
            if next == change.seq_id {
                return Ok(Before::Committed(balance.at));
            }
            if next > change.seq_id {
                return Ok(Before::Over);
            }
            let found = self.entries.find_one(&requests::places(self.fields(), &change.account, next)).await?;
            let Some(first) = found.map(|document| self.read(&document)).transpose()? else {
                if !self.fill_gap(entry, &balance.account, next).await? {
                    return Ok(Before::Waits);
                }
                continue;
            };
            if !first.is_committed() {
                return Ok(Before::Entry(Box::new(first)));
            }
            // Another process commits, too.
            for change in first.changes_of(&change.account).filter(|change| change.seq_id == next) {
                (balance.at, balance.moved) = (balance.at.after(change, first.counts())?, true);
            }
        }
    }

    /// Handles a place that was drawn and whose entry is not there, because it may be under way. After a while an
    /// entry that counts for nothing takes the place; the index lets one of the two in, and a poster that is too late
    /// draws another place. Returns whether to look again.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the account has no sequence: then an entry was lost.
    async fn fill_gap(&self, entry: &Entry, account: &Account, place: i64) -> Result<bool> {
        if account.last_seq_id.is_none() {
            let what =
                format!("the entry at place {place} of account {} is lost: `verify` says how to go on", account.id);
            return Err(Error::invalid(what));
        }
        if entry.ts > self.ago(self.options.abandoned_after) {
            return Ok(false);
        }
        let abandoned = Entry::abandoned(self, Proc::Uncommitted, vec![EntryChange::abandoned(account, place, None)]);
        if self.insert_abandoned(abandoned).await? {
            tracing::info!(account = %account.id, place, "a place that was drawn is abandoned, as its entry did not come");
        }
        Ok(true)
    }

    async fn committed_balance<'t>(
        &self,
        id: &Bson,
        balances: &'t mut CommittedBalances,
    ) -> Result<&'t mut CommittedBalance> {
        let key = key_of(id)?;
        if !balances.contains_key(&key) {
            let unknown =
                || Account { id: id.clone(), asset: String::new(), minimum: None, last_seq_id: None, cache: None };
            let account = self.account(id.clone()).await?.unwrap_or_else(unknown);
            let at = self.committed(&account).await?;
            // One of the two is wrong, and balances written from here on would hide which.
            if let Some(cache) = account.cache.filter(|cache| cache.seq_id == at.seq_id && *cache != at) {
                return Err(Error::invalid(format!(
                    "account {id}: its document says {} at place {}, and the entry there {}: `verify` says which is wrong",
                    cache.balance, at.seq_id, at.balance
                )));
            }
            // The last committer may have died before it updated the account's document.
            let moved = at.seq_id > account.cache.map_or(0, |cache| cache.seq_id);
            balances.insert(key.clone(), CommittedBalance { account, at, moved });
        }
        balances.get_mut(&key).ok_or_else(|| Error::invalid(format!("the id of account {id} is ambiguous")))
    }

    /// Commits an entry; returns whether this process did so. An entry that has changed since it was read stays as it
    /// is.
    async fn commit_one(&self, entry: &Entry, standings: &[Cache], balances: &mut CommittedBalances) -> Result<bool> {
        if entry.status.after(EntryEvent::Committed).is_none() {
            return Ok(false);
        }
        let Request { filter, update } = requests::commit(self.fields(), entry, standings);
        if !self.entries.update_one(&filter, &update).await? {
            return Ok(false);
        }
        self.count(Event::EntryCommitted, 1);
        for (change, standing) in entry.changes.iter().zip(standings) {
            let balance = self.committed_balance(&change.account, balances).await?;
            if standing.seq_id > balance.at.seq_id {
                (balance.at, balance.moved) = (*standing, true);
            }
        }
        Ok(true)
    }

    /// Writes the balance into an account's document, unless it has a later one. A lost document is not inserted
    /// again, because its limits are unknown.
    pub(super) async fn remember(&self, account: &Account, at: Cache) -> Result<()> {
        let Request { filter, update } = requests::advance_cache(self.fields(), &account.id, at);
        self.accounts.update_one(&filter, &update).await.map(|_| ())
    }

    /// Runs [`Ledger::commit`] in the background.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that are out of range.
    pub fn spawn_committer(&self, options: RunnerOptions, cancel: &CancellationToken) -> Result<Runner> {
        let ledger = self.clone();
        Runner::spawn("ledger.committer", &self.sources, options, cancel, move |batch| {
            let ledger = ledger.clone();
            async move { ledger.commit(batch).await }
        })
    }
}
