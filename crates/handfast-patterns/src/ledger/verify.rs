//! Verifying: everything is counted again from the first entry on, and compared with what is written.

use std::collections::BTreeMap;

use bson::{Bson, doc};

use super::account::{Account, Cache};
use super::balance::Line;
use super::finding::{Finding, Gap};
use super::{Entry, Ledger, PAGE, Proc, requests};
use crate::value::key_of;
use crate::{Error, Findings, Result};

/// Times that an account is looked at before what is found in it is believed.
const LOOKS_MAX: u32 = 3;

/// What was verified.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Accounts.
    pub accounts: u64,
    /// Places of accounts.
    pub places: u64,
    /// Entries, if the whole ledger was verified.
    pub entries: u64,
    /// Places that were drawn from a sequence, and whose entries may still come.
    pub in_flight: u64,
    /// Lost entries.
    pub gaps: Findings<Gap>,
    /// What else is not as it must be. What follows from a gap is not among it.
    pub findings: Findings<Finding>,
}

impl Verified {
    /// Whether everything is as it must be.
    pub fn is_clean(&self) -> bool {
        self.gaps.count() == 0 && self.findings.count() == 0
    }

    /// Adds what was verified of another account.
    pub fn add(&mut self, other: Verified) {
        let Verified { accounts, places, entries, in_flight, gaps, findings } = other;
        self.accounts += accounts;
        self.places += places;
        self.entries += entries;
        self.in_flight += in_flight;
        self.gaps.join(gaps);
        self.findings.join(findings);
    }

    fn found(&mut self, finding: Finding) {
        self.findings.keep(finding);
    }
}

/// Places in a row that have no entry.
struct Empty {
    first: i64,
    last: i64,
    /// Whether the places before them are all there, or a final balance behind a gap was counted from.
    counted: bool,
}

/// Walks the places of an account in their order.
struct Audit<'a> {
    account: &'a Account,
    /// The sum up to the last place that was seen.
    at: Cache,
    /// Whether it can be relied on. It cannot behind a gap, until a final balance is there to count from.
    counted: bool,
    /// All places so far are committed.
    committed: bool,
    /// Empty places behind which nothing is committed so far.
    empty: Vec<Empty>,
    /// What the cache of the account should be, once it can be said.
    cache: Option<Option<Cache>>,
}

impl<'a> Audit<'a> {
    fn new(account: &'a Account) -> Self {
        let at = Cache::default();
        let cache = account.cache.filter(|cache| cache.seq_id <= 0).map(|cache| (cache.seq_id == 0).then_some(at));
        Audit { account, at, counted: true, committed: true, empty: Vec::new(), cache }
    }

    /// The next line of the account. Its place is behind the last one.
    fn line(&mut self, line: &Line, verified: &mut Verified) -> Result<()> {
        let (account, place) = (&self.account.id, &line.place);
        verified.places += 1;
        self.skip_to(place.seq_id - 1, verified);
        if place.asset != self.account.asset {
            let asset = place.asset.clone();
            verified.found(Finding::Asset { account: account.clone(), seq_id: place.seq_id, asset });
        }
        self.at = self.at.after(place, line.status.state.counts())?;
        let on_cache = self.account.cache.is_some_and(|cache| cache.seq_id == place.seq_id);
        if line.status.proc == Proc::Uncommitted {
            self.committed = false;
            if on_cache {
                self.cache = Some(None);
            }
            return Ok(());
        }
        let (seq_id, entry) = (place.seq_id, line.entry.clone());
        if !self.committed {
            verified.found(Finding::Order { account: account.clone(), seq_id, entry: entry.clone() });
        }
        let cached = place.cached_balance.map(|balance| (balance, place.cached_held));
        self.close(cached, verified);
        let recomputed = (self.at.balance, self.at.held);
        match cached {
            Some((balance, held)) if !self.counted => {
                (self.at, self.counted) = (Cache { balance, held, seq_id }, true);
            }
            _ if self.counted && cached != Some(recomputed) => {
                let account = account.clone();
                verified.found(Finding::Balance { account, seq_id, entry, cached, recomputed });
            }
            _ => {}
        }
        if on_cache && self.counted {
            self.cache = Some(Some(self.at));
        }
        Ok(())
    }

    /// The places up to this one have no entry.
    fn skip_to(&mut self, last: i64, verified: &mut Verified) {
        let first = self.at.seq_id + 1;
        if first > last {
            return;
        }
        self.empty.push(Empty { first, last, counted: self.counted });
        self.counted = false;
        // The account's document may know how it stood after the last of them.
        if let Some(cache) = self.account.cache.filter(|cache| cache.seq_id == last) {
            let known = (cache.balance, cache.held);
            self.close(Some(known), verified);
            (self.at, self.counted) = (cache, true);
        }
    }

    /// Nothing is committed behind a place that is still to come: the empty ones are lost. The balance here is this one.
    fn close(&mut self, balance: Option<(i64, i64)>, verified: &mut Verified) {
        let single = self.empty.len() == 1;
        for Empty { first, last, counted } in self.empty.drain(..) {
            let change = balance.filter(|_| single && counted);
            let change = change
                .map(|(balance, held)| (balance.saturating_sub(self.at.balance), held.saturating_sub(self.at.held)));
            verified.gaps.keep(Gap { account: self.account.id.clone(), first, last, change });
        }
    }

    fn finish(mut self, verified: &mut Verified) {
        let written = self.account.cache.map_or(0, |cache| cache.seq_id);
        self.skip_to(written, verified);
        for Empty { first, last, .. } in self.empty.drain(..) {
            // Places that were drawn from a sequence may still get their entries.
            let lost = if self.account.last_seq_id.is_some() { last.min(written) } else { last };
            if lost >= first {
                verified.gaps.keep(Gap { account: self.account.id.clone(), first, last: lost, change: None });
            }
            verified.in_flight += (last - lost.max(first - 1)).unsigned_abs();
        }
        let drawn = self.account.last_seq_id.unwrap_or(0).saturating_sub(self.at.seq_id.max(written));
        verified.in_flight += drawn.max(0).unsigned_abs();
        if let (Some(cached), Some(recomputed)) = (self.account.cache, self.cache)
            && Some(cached) != recomputed
        {
            verified.found(Finding::Cache { account: self.account.id.clone(), cached, recomputed });
        }
    }
}

impl Ledger {
    /// Counts an account again from its first entry on, and compares. It may run beside anything.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn verify(&self, account: impl Into<Bson>) -> Result<Verified> {
        let mut verified = Verified::default();
        if let Some(account) = self.known(account.into()).await? {
            verified.add(self.verified(&account).await?);
        }
        Ok(verified)
    }

    /// Verifies every entry by itself, and then every account.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn verify_all(&self) -> Result<Verified> {
        self.verify_all_telling(|_| ()).await
    }

    /// The same; now and then it is told what has been verified so far.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn verify_all_telling(&self, tell: impl Fn(&Verified)) -> Result<Verified> {
        let mut verified = Verified::default();
        let mut pages = self.entries.pages(&bson::Document::new(), PAGE).await?;
        while let Some(page) = pages.next().await? {
            for document in page {
                verified.entries += 1;
                match self.read(&document) {
                    Ok(entry) if !self.options.single_entry => unbalanced(&entry, &mut verified),
                    Ok(_) => {}
                    Err(error) => verified.found(Finding::Unreadable { what: error.to_string() }),
                }
            }
            tell(&verified);
        }
        for id in self.account_ids().await? {
            if let Some(account) = self.known(id).await? {
                verified.add(self.verified(&account).await?);
                tell(&verified);
            }
        }
        Ok(verified)
    }

    /// Posters and committers may be seen half-way. What is still found when the account is looked at again is there.
    pub(super) async fn verified(&self, account: &Account) -> Result<Verified> {
        let mut looked = self.look_through(account).await?;
        for _ in 1..LOOKS_MAX {
            if looked.is_clean() {
                break;
            }
            let Some(account) = self.known(account.id.clone()).await? else { break };
            looked = self.look_through(&account).await?;
        }
        looked.accounts = 1;
        Ok(looked)
    }

    async fn look_through(&self, account: &Account) -> Result<Verified> {
        let (mut looked, mut audit) = (Verified::default(), Audit::new(account));
        let (last, mut after) = (self.last_place(&account.id).await?, 0);
        while after < last {
            let lines = match self.lines(&account.id, &mut Cache::default(), after, PAGE).await {
                Err(error @ Error::Damaged { .. }) => {
                    looked.found(Finding::Unreadable { what: error.to_string() });
                    return Ok(looked);
                }
                lines => lines?,
            };
            for line in &lines {
                audit.line(line, &mut looked)?;
            }
            after += i64::from(PAGE);
        }
        audit.finish(&mut looked);
        Ok(looked)
    }

    /// All accounts that have an entry or a document.
    pub(super) async fn account_ids(&self) -> Result<Vec<Bson>> {
        let fields = self.fields();
        let mut ids = BTreeMap::new();
        let mut pages = self.entries.aggregate_pages(&requests::account_ids(fields), PAGE).await?;
        while let Some(page) = pages.next().await? {
            for id in page.iter().filter_map(|group| group.get("_id")) {
                ids.insert(key_of(id)?, id.clone());
            }
        }
        let mut pages = self.accounts.pages(&doc! {}, PAGE).await?;
        while let Some(page) = pages.next().await? {
            for id in page.iter().filter_map(|account| account.get("_id")) {
                ids.insert(key_of(id)?, id.clone());
            }
        }
        Ok(ids.into_values().collect())
    }
}

/// What the changes of an entry add up to, by asset.
pub(super) fn sums(entry: &Entry) -> BTreeMap<&str, i64> {
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for place in &entry.changes {
        let sum = sums.entry(&place.asset).or_default();
        *sum = sum.saturating_add(place.value);
    }
    sums
}

fn unbalanced(entry: &Entry, verified: &mut Verified) {
    for (asset, sum) in sums(entry).into_iter().filter(|(_, sum)| *sum != 0) {
        verified.found(Finding::Unbalanced { entry: entry.id.clone(), asset: asset.to_owned(), sum });
    }
}
