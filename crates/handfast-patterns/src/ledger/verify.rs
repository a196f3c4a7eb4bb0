//! The verification: balances are recomputed from the first entry on, and compared with those that are written.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};

use super::account::{Account, Cache};
use super::audit::{Audit, Audited};
use super::finding::{Finding, Gap};
use super::{Entry, EntryState, Ledger, Link, PAGE, Totals, requests, totals};
use crate::value::{key_of, one_of, same_id};
use crate::{Error, Findings, Result};

/// Reads of an account before a finding in it is reported.
const LOOKS_MAX: u32 = 3;

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// The accounts that were verified.
    pub accounts: u64,
    /// The places that were verified.
    pub places: u64,
    /// The entries, if the whole ledger was verified.
    pub entries: u64,
    /// The places that were drawn from a sequence, and whose entries may still come.
    pub in_flight: u64,
    /// The sums of the readable entries by asset, if the whole ledger was verified. Each entry is counted completely
    /// or not at all.
    pub totals: Vec<Totals>,
    /// Lost entries.
    pub gaps: Findings<Gap>,
    /// The other inconsistencies, without those that follow from a gap.
    pub findings: Findings<Finding>,
}

impl Verified {
    /// Returns whether there are neither gaps nor findings.
    pub fn is_clean(&self) -> bool {
        self.gaps.count() == 0 && self.findings.count() == 0
    }

    /// Adds the result for another account.
    pub fn add(&mut self, other: Verified) {
        let Verified { accounts, places, entries, in_flight, totals, gaps, findings } = other;
        self.accounts += accounts;
        self.places += places;
        self.entries += entries;
        self.in_flight += in_flight;
        self.totals.extend(totals);
        self.gaps.join(gaps);
        self.findings.join(findings);
    }

    fn found(&mut self, finding: Finding) {
        self.findings.keep(finding);
    }
}

impl Ledger {
    /// Recomputes an account from its first entry on, and compares it with what is written. It may run at any time.
    pub async fn verify(&self, account: impl Into<Bson>) -> Result<Verified> {
        Ok(self.audited(&account.into()).await?.map(|audited| audited.verified).unwrap_or_default())
    }

    /// Verifies every entry by itself, then every account, and the unique index on places.
    pub async fn verify_all(&self) -> Result<Verified> {
        self.verify_all_with_progress(|_| ()).await
    }

    /// Verifies as [`Ledger::verify_all`], and calls `report` with the counts so far from time to time.
    pub async fn verify_all_with_progress(&self, report: impl Fn(&Verified)) -> Result<Verified> {
        let (mut verified, mut totals) = (Verified::default(), BTreeMap::new());
        let mut pages = self.entries.pages(&Document::new(), PAGE).await?;
        while let Some(page) = pages.next().await? {
            verified.entries += page.len() as u64;
            let mut entries = Vec::with_capacity(page.len());
            for document in &page {
                match self.read(document) {
                    Ok(entry) => entries.push(entry),
                    Err(error) => verified.found(Finding::Unreadable { account: None, what: error.to_string() }),
                }
            }
            entries.iter().for_each(|entry| totals::add(&mut totals, entry));
            self.verify_links(&entries, &mut verified).await?;
            report(&verified);
        }
        verified.totals = totals.into_values().collect();
        if !self.has_unique_places().await? {
            verified.found(Finding::NoIndex { collection: self.entries.namespace().to_string() });
        }
        match self.check_names_of_accounts().await {
            Err(Error::Invalid { what, .. }) => verified.found(Finding::Unreadable { account: None, what }),
            checked => checked?,
        }
        if verified.entries > 0 && !self.has_recorded_settings().await? {
            verified.found(Finding::NoSettings { collection: self.entries.namespace().to_string() });
        }
        for id in self.account_ids().await? {
            verified.add(self.verify(id).await?);
            report(&verified);
        }
        Ok(verified)
    }

    /// Checks that the entries exist that others reverse or resolve.
    async fn verify_links(&self, entries: &[Entry], verified: &mut Verified) -> Result<()> {
        let linked = |entry: &Entry| match &entry.link {
            Some(Link::Reverses(id) | Link::Resolves(id)) => Some((entry.id.clone(), id.clone())),
            Some(Link::Cancels(_) | Link::Authorises { .. }) | None => None,
        };
        let linked: Vec<_> = entries.iter().filter_map(linked).collect();
        let ids: Vec<_> = linked.iter().map(|(_, id)| id.clone()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let there = self.entries.find(&doc! { "_id": one_of(ids) }, &Document::new(), PAGE).await?;
        for (entry, linked) in linked {
            if !there.iter().any(|there| there.get("_id").is_some_and(|id| same_id(id, &linked))) {
                verified.found(Finding::NoSuchEntry { entry, linked });
            }
        }
        Ok(())
    }

    /// Returns the findings of an account that are there at a second read as well, because a single read may see other
    /// processes half-way. `None` for an unknown account.
    pub(super) async fn audited(&self, id: &Bson) -> Result<Option<Audited>> {
        let mut audited = self.look_through(id).await?;
        for _ in 1..LOOKS_MAX {
            if audited.as_ref().is_none_or(|audited| audited.verified.is_clean()) {
                break;
            }
            audited = self.look_through(id).await?;
        }
        if let Some(audited) = &mut audited {
            audited.verified.accounts = 1;
        }
        Ok(audited)
    }

    async fn look_through(&self, id: &Bson) -> Result<Option<Audited>> {
        let document = self.account(id.clone()).await;
        let has_document = matches!(document, Ok(Some(_)));
        let known = match document {
            Ok(None) => self.known_by_entries(id.clone()).await,
            document => document,
        };
        let known = match known {
            Ok(known) => known,
            Err(error) => {
                let unknown =
                    Account { id: id.clone(), asset: String::new(), minimum: None, last_seq_id: None, cache: None };
                return Ok(Some(Audit::new(&unknown).give_up(self.what_is_unreadable(id, error).await?)));
            }
        };
        let Some(account) = known else { return Ok(None) };
        let mut audit = Audit::new(&account);
        let audited = match self.walk(&account, &mut audit).await {
            Ok(()) => audit.finish(),
            Err(error) => audit.give_up(self.what_is_unreadable(id, error).await?),
        };
        Ok(Some(if has_document { audited } else { audited.without_document(id) }))
    }

    async fn walk(&self, account: &Account, audit: &mut Audit<'_>) -> Result<()> {
        let mut after = 0;
        while let Some((lines, last)) = self.next_lines(&account.id, &mut Cache::default(), after).await? {
            lines.iter().try_for_each(|line| audit.line(line))?;
            after = last;
        }
        Ok(())
    }

    /// Describes the documents of an account that cannot be read or counted, naming the first one.
    ///
    /// # Errors
    /// [`Error::Store`] if `error` is one.
    async fn what_is_unreadable(&self, account: &Bson, error: Error) -> Result<String> {
        match error {
            Error::Damaged { .. } => Ok(error.to_string()),
            Error::Invalid { .. } => Ok(self.unreadable(account).await?.unwrap_or(error).to_string()),
            other => Err(other),
        }
    }

    /// Returns the sums of an entry's changes, for each asset where the sum must be 0 and is not.
    pub(super) fn unbalanced(&self, entry: &Entry) -> Vec<(String, i64)> {
        // An abandoned entry has a change of its own for each account that had lost one.
        if self.options.single_entry || entry.status.state == EntryState::Abandoned {
            return Vec::new();
        }
        let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
        for change in &entry.changes {
            let sum = sums.entry(&change.asset).or_default();
            *sum = sum.saturating_add(change.value);
        }
        sums.into_iter().filter(|(_, sum)| *sum != 0).map(|(asset, sum)| (asset.to_owned(), sum)).collect()
    }

    /// Returns all accounts that have an entry or a document.
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
