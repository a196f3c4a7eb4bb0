//! The walk through the places of an account in their order: a report from documents that were read, without a store.
//!
//! At empty places the check of the balances before them ends; after them it continues from the next final balance.

use bson::Bson;

use super::account::{Account, Cache};
use super::balance::Line;
use super::chain::{Chain, ChainReport};
use super::finding::{Amount, Finding, Gap};
use super::minimum::Minimum;
use super::{Proc, Verified};
use crate::Result;

/// The findings of an account.
#[derive(Clone, Debug, Default)]
pub(super) struct Audited {
    pub(super) verified: Verified,
    /// The first place that nothing can be counted beyond, other than gaps.
    pub(super) stop: Option<i64>,
}

/// Places in a row that have no entry.
struct Empty {
    first: i64,
    last: i64,
    /// Whether the balance before them is known: all places before them have entries, or there is a final balance
    /// after the last gap.
    counted: bool,
}

/// Walks the places of an account in their order.
pub(super) struct Audit<'a> {
    account: &'a Account,
    /// The sum up to the last place so far.
    at: Cache,
    /// Whether the sum is known. It is not after a gap, until there is a final balance.
    counted: bool,
    /// The first place that is not committed, if nothing after it is committed either.
    uncommitted: Option<(i64, Bson)>,
    /// Empty places after which nothing is committed so far.
    empty: Vec<Empty>,
    chain: Chain,
    minimum: Minimum,
    report: ChainReport,
    looked: Verified,
}

impl<'a> Audit<'a> {
    pub(super) fn new(account: &'a Account) -> Self {
        let mut audit = Audit {
            account,
            at: Cache::default(),
            counted: true,
            uncommitted: None,
            empty: Vec::new(),
            chain: Chain::new(),
            minimum: Minimum::new(account),
            report: ChainReport::default(),
            looked: Verified::default(),
        };
        // There is no entry at or before place 0 that a cache could include.
        if let Some(cache) = account.cache.filter(|cache| cache.seq_id <= 0 && *cache != Cache::default()) {
            let recomputed = Some(Cache::default());
            audit.report.findings.keep(Finding::Cache { account: account.id.clone(), cached: cache, recomputed });
        }
        audit
    }

    /// Adds the next line of the account, whose place must not be before the last one.
    pub(super) fn line(&mut self, line: &Line) -> Result<()> {
        let (account, change) = (&self.account.id, &line.change);
        let (seq_id, entry) = (change.seq_id, line.entry.clone());
        self.looked.places += 1;
        if seq_id <= self.at.seq_id {
            self.report.stop_at(seq_id, Finding::SamePlace { account: account.clone(), seq_id, entry });
            return Ok(());
        }
        self.skip_to(seq_id - 1);
        if change.asset != self.account.asset {
            let asset = change.asset.clone();
            self.report.stop_at(seq_id, Finding::Asset { account: account.clone(), seq_id, asset });
        }
        for (asset, sum) in &line.unbalanced {
            let (account, entry, asset) = (account.clone(), entry.clone(), asset.clone());
            self.report.stop_at(seq_id, Finding::Unbalanced { account, seq_id, entry, asset, sum: *sum });
        }
        self.minimum.line(line);
        self.at = self.at.after(change, line.status.state.counts())?;
        let cache = self.account.cache.filter(|cache| cache.seq_id == seq_id);
        if line.status.proc == Proc::Uncommitted {
            self.uncommitted.get_or_insert((seq_id, entry));
            if let Some(cached) = cache {
                let finding = Finding::Cache { account: account.clone(), cached, recomputed: None };
                self.report.stop_at(seq_id, finding);
            }
            return Ok(());
        }
        if let Some((seq_id, entry)) = self.uncommitted.take() {
            self.report.stop_at(seq_id, Finding::Order { account: account.clone(), seq_id, entry });
        }
        let cached = change.cached_balance.map(|balance| Amount { balance, held: change.cached_held });
        self.close(cached);
        if let (false, Some(Amount { balance, held })) = (self.counted, cached) {
            (self.at, self.counted) = (Cache { balance, held, seq_id }, true);
        }
        if self.counted {
            self.compare(line, cached, cache);
        }
        Ok(())
    }

    /// Checks the balance that is written at a committed place, and the account's cache if it is of this place.
    fn compare(&mut self, line: &Line, cached: Option<Amount>, cache: Option<Cache>) {
        let (at, account, seq_id) = (self.at, &self.account.id, line.change.seq_id);
        let recomputed = Amount::from(at);
        if line.is_given_up() {
            self.chain.give_up(Amount::of(&line.change));
        }
        let counts = line.status.state.counts();
        let value = if counts { Amount::of(&line.change) } else { Amount::default() };
        let altered = |difference: Amount| {
            let written = value.plus(difference);
            Some(Finding::Altered { account: account.clone(), seq_id, entry: line.entry.clone(), value, written })
        };
        let balance =
            Finding::Balance { account: account.clone(), seq_id, entry: line.entry.clone(), cached, recomputed };
        match cached {
            Some(written) => {
                self.chain.written(seq_id, written.minus(recomputed), balance, altered, &mut self.report);
            }
            None => self.report.findings.keep(balance),
        }
        let Some(cache) = cache else { return };
        let wrong = Finding::Cache { account: account.clone(), cached: cache, recomputed: Some(at) };
        let offset = Amount::from(cache).minus(recomputed);
        let is_right = cached == Some(recomputed);
        match (is_right, cached) {
            (true, _) if cache == at => {}
            (true, _) => self.report.findings.keep(wrong),
            (false, Some(_)) => {
                self.chain.written(seq_id, offset, wrong, |_| None, &mut self.report);
            }
            (false, None) => {
                self.chain.written(seq_id, offset, wrong, altered, &mut self.report);
            }
        }
    }

    /// Records that the places up to this one have no entry.
    fn skip_to(&mut self, last: i64) {
        let first = self.at.seq_id + 1;
        if first > last {
            return;
        }
        self.chain.end(&mut self.report);
        self.minimum.lost();
        self.empty.push(Empty { first, last, counted: self.counted });
        self.counted = false;
        // The cache in the account's document may have the balance after the last of them.
        if let Some(cache) = self.account.cache.filter(|cache| cache.seq_id == last) {
            self.close(Some(cache.into()));
            (self.at, self.counted) = (cache, true);
        }
    }

    /// Reports the empty places so far as lost, as something after them is final. `balance` is the final balance there.
    fn close(&mut self, balance: Option<Amount>) {
        let at = self.at;
        let single = self.empty.len() == 1;
        for Empty { first, last, counted } in self.empty.drain(..) {
            let change = balance.filter(|_| single && counted).map(|balance| Amount {
                balance: balance.balance.saturating_sub(at.balance),
                held: balance.held.saturating_sub(at.held),
            });
            self.looked.gaps.keep(Gap { account: self.account.id.clone(), first, last, change });
        }
    }

    /// Ends the walk after the last place.
    pub(super) fn finish(mut self) -> Audited {
        let written = self.account.cache.map_or(0, |cache| cache.seq_id);
        self.skip_to(written);
        for Empty { first, last, .. } in self.empty.drain(..) {
            // Places that were drawn from a sequence may still get their entries.
            let lost = if self.account.last_seq_id.is_some() { last.min(written) } else { last };
            if lost >= first {
                self.looked.gaps.keep(Gap { account: self.account.id.clone(), first, last: lost, change: None });
            }
            self.looked.in_flight += (last - lost.max(first - 1)).unsigned_abs();
        }
        let drawn = self.account.last_seq_id.unwrap_or(0).saturating_sub(self.at.seq_id.max(written));
        self.looked.in_flight += drawn.max(0).unsigned_abs();
        self.chain.end(&mut self.report);
        self.looked.findings = self.report.findings;
        let stop = self.report.stop;
        // After an entry that is wrong, the available amount is unknown.
        let below = self.minimum.finish().filter(|(seq_id, _)| stop.is_none_or(|stop| *seq_id < stop));
        if let Some((_, finding)) = below {
            self.looked.findings.keep(finding);
        }
        Audited { verified: self.looked, stop }
    }

    /// Ends the walk because the documents after the last place cannot be read.
    pub(super) fn give_up(mut self, what: String) -> Audited {
        self.chain.end(&mut self.report);
        let account = Some(self.account.id.clone());
        self.report.stop_at(self.at.seq_id + 1, Finding::Unreadable { account, what });
        self.looked.findings = self.report.findings;
        Audited { verified: self.looked, stop: self.report.stop }
    }
}

impl Audited {
    /// Adds the finding that the account has entries and no document.
    pub(super) fn without_document(mut self, account: &Bson) -> Self {
        self.verified.findings.keep(Finding::NoAccount { account: account.clone() });
        // Nothing can be counted, from the first place on.
        Audited { stop: Some(0), ..self }
    }
}
