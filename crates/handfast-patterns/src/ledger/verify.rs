//! Verifying: everything is counted again from the first entry on, and compared with what is written.

use std::collections::BTreeMap;
use std::fmt;

use bson::{Bson, doc};

use super::account::{Account, Cache};
use super::balance::Line;
use super::{Entry, Ledger, PAGE, Proc, requests};
use crate::value::key_of;
use crate::{Error, Findings, Result};

/// Times that an account is looked at before what is found in it is believed.
const LOOKS_MAX: u32 = 3;

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Places that have no entry, and that no abandoned one explains: entries are lost.
    Gap {
        /// The account.
        account: Bson,
        /// The first of them.
        first: i64,
        /// The last of them.
        last: i64,
    },
    /// An entry is committed although one before it is not.
    Order {
        /// The account.
        account: Bson,
        /// The place of the committed one.
        seq_id: i64,
        /// The committed one.
        entry: Bson,
    },
    /// The balance that is written at a place is not what the entries up to there add up to.
    Balance {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The entry.
        entry: Bson,
        /// Balance and what is held, as written; none if a committed entry has none.
        cached: Option<(i64, i64)>,
        /// Balance and what is held, recomputed.
        recomputed: (i64, i64),
    },
    /// The cache in an account's document is not what the entries up to its place add up to.
    Cache {
        /// The account.
        account: Bson,
        /// What it says.
        cached: Cache,
        /// What it should say; none if it stands on a place that is not committed.
        recomputed: Option<Cache>,
    },
    /// A change is in another asset than its account.
    Asset {
        /// The account.
        account: Bson,
        /// The place.
        seq_id: i64,
        /// The asset of the change.
        asset: String,
    },
    /// The changes of an entry do not add up to zero.
    Unbalanced {
        /// The entry.
        entry: Bson,
        /// In this asset.
        asset: String,
        /// But to this.
        sum: i64,
    },
    /// A document that is none of an entry or an account.
    Unreadable {
        /// What is wrong with it.
        what: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Gap { account, first, last } => {
                write!(f, "account {account}: places {first} to {last} have no entry, and nobody abandoned them")
            }
            Finding::Order { account, seq_id, entry } => {
                write!(
                    f,
                    "account {account}: entry {entry} at place {seq_id} is committed before those that it follows"
                )
            }
            Finding::Balance { account, seq_id, entry, cached: None, recomputed } => {
                let text = "is committed without a balance, which is";
                write!(f, "account {account}: entry {entry} at place {seq_id} {text} {}", recomputed.0)
            }
            Finding::Balance { account, seq_id, entry, cached: Some(cached), recomputed } => {
                let (balance, held) = cached;
                let is = format!("{} with {} held", recomputed.0, recomputed.1);
                write!(
                    f,
                    "account {account}: entry {entry} at place {seq_id} says {balance} with {held} held, it is {is}"
                )
            }
            Finding::Cache { account, cached: Cache { balance, seq_id, .. }, recomputed } => {
                write!(f, "account {account}: its document says {balance} at place {seq_id}, ")?;
                match recomputed {
                    Some(is) => write!(f, "it is {} with {} held", is.balance, is.held),
                    None => f.write_str("which is not committed"),
                }
            }
            Finding::Asset { account, seq_id, asset } => {
                write!(f, "account {account}: the change at place {seq_id} is in {asset:?}")
            }
            Finding::Unbalanced { entry, asset, sum } => {
                write!(f, "entry {entry}: its changes in {asset:?} add up to {sum}")
            }
            Finding::Unreadable { what } => f.write_str(what),
        }
    }
}

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
    /// What is not as it must be.
    pub findings: Findings<Finding>,
}

impl Verified {
    /// Whether everything is as it must be.
    pub fn is_clean(&self) -> bool {
        self.findings.count() == 0
    }

    /// Adds what was verified of another account.
    pub fn add(&mut self, other: Verified) {
        let Verified { accounts, places, entries, in_flight, findings } = other;
        self.accounts += accounts;
        self.places += places;
        self.entries += entries;
        self.in_flight += in_flight;
        self.findings.join(findings);
    }

    fn found(&mut self, finding: Finding) {
        self.findings.keep(finding);
    }
}

/// Walks the places of an account in their order.
struct Audit<'a> {
    account: &'a Account,
    at: Cache,
    /// All places so far are committed.
    committed: bool,
    /// Places without an entry, behind which nothing is committed so far.
    open_gaps: Vec<(i64, i64)>,
    /// What the account stands at where its document says it does.
    cached: Option<Cache>,
}

impl<'a> Audit<'a> {
    fn new(account: &'a Account) -> Self {
        let at = Cache::default();
        let cached = account.cache.filter(|cache| cache.seq_id == 0).map(|_| at);
        Audit { account, at, committed: true, open_gaps: Vec::new(), cached }
    }

    /// The next line of the account. Its place is behind the last one.
    fn line(&mut self, line: &Line, verified: &mut Verified) -> Result<()> {
        let (account, place) = (&self.account.id, &line.place);
        verified.places += 1;
        if place.seq_id > self.at.seq_id + 1 {
            self.open_gaps.push((self.at.seq_id + 1, place.seq_id - 1));
        }
        if place.asset != self.account.asset {
            let asset = place.asset.clone();
            verified.found(Finding::Asset { account: account.clone(), seq_id: place.seq_id, asset });
        }
        self.at = self.at.after(place, line.status.state.counts())?;
        if line.status.proc == Proc::Uncommitted {
            self.committed = false;
            return Ok(());
        }
        let (seq_id, entry) = (place.seq_id, line.entry.clone());
        if !self.committed {
            verified.found(Finding::Order { account: account.clone(), seq_id, entry: entry.clone() });
        }
        // Nothing may be committed behind a place that is still to come.
        for (first, last) in self.open_gaps.drain(..) {
            verified.found(Finding::Gap { account: account.clone(), first, last });
        }
        let cached = place.cached_balance.map(|balance| (balance, place.cached_held));
        let recomputed = (self.at.balance, self.at.held);
        if cached != Some(recomputed) {
            verified.found(Finding::Balance { account: account.clone(), seq_id, entry, cached, recomputed });
        }
        if self.committed && self.account.cache.is_some_and(|cache| cache.seq_id == seq_id) {
            self.cached = Some(self.at);
        }
        Ok(())
    }

    fn finish(mut self, verified: &mut Verified) {
        let account = &self.account.id;
        let written = self.account.cache.map_or(0, |cache| cache.seq_id);
        if written > self.at.seq_id {
            verified.found(Finding::Gap { account: account.clone(), first: self.at.seq_id + 1, last: written });
        }
        for (first, last) in self.open_gaps.drain(..) {
            match self.account.last_seq_id {
                Some(_) => verified.in_flight += (last - first + 1).unsigned_abs(),
                None => verified.found(Finding::Gap { account: account.clone(), first, last }),
            }
        }
        let drawn = self.account.last_seq_id.unwrap_or(0).saturating_sub(self.at.seq_id.max(written));
        verified.in_flight += drawn.max(0).unsigned_abs();
        if let Some(cached) = self.account.cache.filter(|cache| Some(*cache) != self.cached) {
            verified.found(Finding::Cache { account: account.clone(), cached, recomputed: self.cached });
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
            self.verify_account(&account, &mut verified).await?;
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
                self.verify_account(&account, &mut verified).await?;
                tell(&verified);
            }
        }
        Ok(verified)
    }

    /// Who posts or commits meanwhile may be seen half. What is still found when the account is looked at again is there.
    async fn verify_account(&self, account: &Account, verified: &mut Verified) -> Result<()> {
        let mut looked = self.look_through(account).await?;
        for _ in 1..LOOKS_MAX {
            if looked.is_clean() {
                break;
            }
            let Some(account) = self.known(account.id.clone()).await? else { break };
            looked = self.look_through(&account).await?;
        }
        verified.accounts += 1;
        verified.places += looked.places;
        verified.in_flight += looked.in_flight;
        verified.findings.join(looked.findings);
        Ok(())
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

fn unbalanced(entry: &Entry, verified: &mut Verified) {
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for place in &entry.changes {
        let sum = sums.entry(&place.asset).or_default();
        *sum = sum.saturating_add(place.value);
    }
    for (asset, sum) in sums.into_iter().filter(|(_, sum)| *sum != 0) {
        verified.found(Finding::Unbalanced { entry: entry.id.clone(), asset: asset.to_owned(), sum });
    }
}
