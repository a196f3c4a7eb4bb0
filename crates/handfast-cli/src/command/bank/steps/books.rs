//! Counts each balance anew from the first transfer on, while no worker works.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context as _, Result, ensure};
use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocumentBuf, doc};
use handfast_patterns::Ledger;
use handfast_patterns::ledger::EntryState;
use handfast_patterns::two_phase::State;
use handfast_store::{BatchLimit, Find};

use super::mechanism::{ACCOUNTS, BALANCE, BATCH, CASH, ENTRIES, Pattern, PatternBank, TRANSACTIONS, namespace};
use crate::listing::counted;

/// Findings in a message.
const FINDINGS_SHOWN_MAX: usize = 5;

/// The accounts and transfers as counted.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// The sum of all balances.
    pub(super) total: i64,
    /// Transfers that are made.
    pub(super) made: HashSet<ObjectId>,
    half_done: u64,
    findings: Vec<String>,
}

/// The sum that transfers add to each account.
type Changes = BTreeMap<i64, i64>;

impl PatternBank {
    /// Counts everything, and mends nothing.
    pub(super) async fn books(&self) -> Result<Books> {
        let mut books = Books::default();
        match &self.pattern {
            Pattern::TwoPhase(two_phase) => {
                let status = two_phase.status().await?;
                let half_done = status.states.iter().filter(|state| !state.state.is_final());
                books.half_done = half_done.map(|state| state.count).sum();
                let verified = two_phase.verify(BATCH, |_| ()).await?;
                books.findings.extend(verified.findings.iter().map(ToString::to_string));
                self.count_accounts(&mut books).await?;
            }
            Pattern::Ledger(ledger) => self.count_ledger(ledger, &mut books).await?,
            Pattern::Unprotected => self.count_accounts(&mut books).await?,
        }
        Ok(books)
    }

    /// Checks that each balance is the sum of the transfers that are done.
    async fn count_accounts(&self, books: &mut Books) -> Result<()> {
        let (mut changes, mut made) = (Changes::new(), HashSet::new());
        let done = doc! { "state": State::Done.name() };
        self.each(TRANSACTIONS, &done, |transaction| {
            made.insert(transaction.get_object_id("_id")?);
            let value = transaction.get_i64("value")?;
            *changes.entry(transaction.get_i64("source")?).or_default() -= value;
            *changes.entry(transaction.get_i64("destination")?).or_default() += value;
            Ok(())
        })
        .await?;
        books.made = made;
        self.each(ACCOUNTS, &doc! {}, |account| {
            let number = account.get_i64("_id")?;
            if account.get_array("pendingTransactions").is_ok_and(|pending| !pending.is_empty()) {
                books.findings.push(format!("account {number} has transactions under way"));
            }
            books.balance(number, account.get_i64("balance")?, BALANCE, &changes);
            Ok(())
        })
        .await
    }

    /// Checks that each cached balance is the sum of its entries. A process that was killed may have left the cache of an
    /// account behind, but never a wrong one: what is verified is brought up to date before it is read.
    async fn count_ledger(&self, ledger: &Ledger, books: &mut Books) -> Result<()> {
        books.half_done = ledger.status().await?.uncommitted;
        let verified = ledger.verify_all().await?;
        books.findings.extend(verified.gaps.iter().map(ToString::to_string));
        books.findings.extend(verified.findings.iter().map(ToString::to_string));
        if verified.is_clean() {
            books.findings.extend(ledger.rebuild_all().await?.gaps.iter().map(ToString::to_string));
        }
        let (mut changes, mut made) = (Changes::new(), HashSet::new());
        let valid = doc! { "state": EntryState::Valid.name() };
        self.each(ENTRIES, &valid, |entry| {
            made.extend(entry.get_object_id("_id").ok());
            for change in entry.get_array("changes")? {
                let change = change.as_document().context("a change of an entry is not a document")?;
                if let Some(Bson::Int64(number)) = change.get("account") {
                    *changes.entry(*number).or_default() += change.get_i64("value")?;
                }
            }
            Ok(())
        })
        .await?;
        books.made = made;
        let mut accounts = ledger.accounts(BATCH).await?;
        loop {
            let page = accounts.next().await?;
            if page.is_empty() {
                return Ok(());
            }
            let page = page.into_iter().collect::<Result<Vec<_>, _>>()?;
            for account in page.into_iter().filter(|account| account.id != Bson::from(CASH)) {
                let number = account.id.as_i64().context("the id of an account is not a number")?;
                let cached = account.cache.map_or(0, |cache| cache.balance);
                books.balance(number, cached, 0, &changes);
            }
        }
    }

    /// Calls a function with each document of a collection that matches.
    async fn each(
        &self,
        collection: &str,
        filter: &Document,
        mut visit: impl FnMut(Document) -> Result<()>,
    ) -> Result<()> {
        let find = Find::new(namespace(collection)?, RawDocumentBuf::try_from(filter)?);
        let mut cursor = self.store.find(find).await?;
        loop {
            let page = cursor.next_page(BatchLimit::REPLY).await?;
            for document in page.documents {
                visit(Document::try_from(&*document)?)?;
            }
            if page.exhausted {
                return Ok(());
            }
        }
    }
}

impl Books {
    fn balance(&mut self, account: i64, balance: i64, first_balance: i64, changes: &Changes) {
        self.total += balance;
        let expected = first_balance + changes.get(&account).copied().unwrap_or(0);
        if balance != expected {
            self.findings.push(format!("account {account} has {balance}, its transfers add up to {expected}"));
        }
        if balance < 0 {
            self.findings.push(format!("account {account} has {balance}, and must keep 0"));
        }
    }

    /// Fails if a count is wrong, or an acknowledged transfer is missing.
    pub(super) fn check(&self, total: i64, acknowledged: &HashSet<ObjectId>) -> Result<()> {
        ensure!(self.total == total, "the accounts hold {} instead of {total}", self.total);
        ensure!(self.half_done == 0, "half done: {}", counted(self.half_done, "transfers"));
        let (count, shown) = (self.findings.len(), &self.findings[..self.findings.len().min(FINDINGS_SHOWN_MAX)]);
        ensure!(count == 0, "{}, such as: {}", counted(count as u64, "findings"), shown.join("; "));
        let lost = acknowledged.difference(&self.made).count();
        ensure!(lost == 0, "missing: {}", counted(lost as u64, "acknowledged transfers"));
        Ok(())
    }
}
