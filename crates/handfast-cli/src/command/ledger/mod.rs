//! `handfast ledger`: shows entries and balances, verifies and repairs the books.

pub(super) mod arguments;
mod books;
mod export;
mod holds;
mod lost;
mod shown;

use anyhow::{Context as _, Result, bail};
use bson::{Bson, DateTime, doc};
use handfast_patterns::Ledger;
use handfast_patterns::ledger::{
    AsOf, Cancel, Change, Entry, LedgerOptions, LedgerStatus, NewEntry, Page, Posting, Proc, Statement, Totals,
};
use handfast_store::Namespace;
use serde_json::json;

use self::arguments::{AccountChange, LedgerArguments, LedgerFlags};
use crate::command::pattern::{ItemOutcomes, OpenedCollection, rename, report_rounds, rounds, with_collection};
use crate::console::Console;
use crate::exit::Exit;
use crate::flags::LimitFlags;
use crate::id::{Id, shown as id};
use crate::listing::{Listing, age};

pub(super) fn run(arguments: &LedgerArguments) -> Result<Exit> {
    let ledger = arguments.ledger();
    with_collection(&ledger.open, &ledger.collection, |collection, console| execute(collection, arguments, console))
}

async fn execute(collection: OpenedCollection, arguments: &LedgerArguments, console: Console) -> Result<Exit> {
    let options = options(&collection, arguments).await?;
    let states: Vec<_> = Proc::ALL.into_iter().map(Proc::name).collect();
    collection.ensure_holds("entries of a ledger", doc! { &options.fields.proc: { "$in": states } }).await?;
    let books = Books { collection, options };
    match arguments {
        LedgerArguments::Status { .. } => books.status(console).await,
        LedgerArguments::List { limit, .. } => books.list(*limit, console).await,
        LedgerArguments::Accounts { limit, .. } => books.accounts(*limit, console).await,
        LedgerArguments::Holds { selection, .. } => books.holds(selection, console).await,
        LedgerArguments::Show { id, .. } => books.show(id, console).await,
        LedgerArguments::Balance { accounts, at, .. } => books.balance(accounts, *at, console).await,
        LedgerArguments::Totals { .. } => books.totals(console).await,
        LedgerArguments::Post { changes, asset, id, metadata, at, .. } => {
            let change = |change: &AccountChange| Change::new(change.account.0.clone(), change.value, asset.clone());
            let entry = NewEntry::new(changes.iter().map(change)).with_id(id.0.clone()).with_metadata(metadata.clone());
            books.post(at.iter().fold(entry, |entry, at| entry.at(*at)), console).await
        }
        LedgerArguments::Statement { account, before, after, limit, .. } => {
            let page = match (before, after) {
                (Some(before), _) => Page::Before(*before),
                (None, Some(after)) => Page::After(*after),
                (None, None) => Page::Last,
            };
            books.statement(account, page, *limit, console).await
        }
        LedgerArguments::Open { account, settings, .. } => books.open_account(account, settings, console).await,
        LedgerArguments::Reconcile { .. } => books.reconcile(console).await,
        LedgerArguments::Cancel { ids, reason, .. } => books.cancel(ids, reason, console).await,
        LedgerArguments::Verify { accounts, .. } => books.verify(accounts, console).await,
        LedgerArguments::Rebuild { accounts, .. } => books.rebuild(accounts, console).await,
        LedgerArguments::Restore { file, ids, .. } => books.restore(file, ids, console).await,
        LedgerArguments::Abandon { account, first, last, reason, .. } => {
            books.abandon(account, *first..=last.unwrap_or(*first), reason, console).await
        }
        LedgerArguments::Export { format, to, .. } => books.export(*format, to.as_deref(), console).await,
    }
}

/// Returns the recorded settings with those of flags. The ledger refuses a flag that contradicts the record.
async fn options(collection: &OpenedCollection, arguments: &LedgerArguments) -> Result<LedgerOptions> {
    let LedgerFlags { open, accounts, holds, .. } = arguments.ledger();
    let known = LedgerOptions::recorded(collection.store.clone(), &collection.namespace).await?.unwrap_or_default();
    let mut options = LedgerOptions {
        accounts: accounts.clone().unwrap_or(known.accounts),
        holds: holds.clone().unwrap_or(known.holds),
        ..known
    };
    rename(&mut options.fields, &open.fields)?;
    match arguments {
        LedgerArguments::Reconcile { abandoned_after, .. } => options.abandoned_after = abandoned_after.0,
        LedgerArguments::Verify { single_entry: true, .. }
        | LedgerArguments::Totals { single_entry: true, .. }
        | LedgerArguments::Restore { single_entry: true, .. } => {
            options.single_entry = true;
        }
        _ => {}
    }
    Ok(options)
}

struct Books {
    collection: OpenedCollection,
    options: LedgerOptions,
}

impl Books {
    /// Opens the ledger without creating indexes or recording settings.
    async fn attach(&self) -> Result<Ledger> {
        let OpenedCollection { store, sources, namespace } = &self.collection;
        Ok(Ledger::attach(store.clone(), namespace.clone(), sources.clone(), self.options.clone()).await?)
    }

    /// Opens with all indexes. The application, which knows the settings, records them.
    async fn open(&self) -> Result<Ledger> {
        let ledger = self.attach().await?;
        ledger.create_indexes().await?;
        Ok(ledger)
    }

    async fn status(&self, console: Console) -> Result<Exit> {
        let LedgerStatus { entries, uncommitted, oldest_uncommitted, expiring } = self.attach().await?.status().await?;
        let accounts = Namespace::new(self.collection.namespace.database(), self.options.accounts.as_str())?;
        let accounts = self.collection.store.collection_stats(&accounts).await?.count;
        let mut text = vec![
            self.collection.namespace.to_string(),
            format!("  entries      {entries:>10}"),
            format!("  uncommitted  {uncommitted:>10}"),
            format!("  accounts     {accounts:>10}"),
            format!("  expiring     {expiring:>10}  authorisations that expire and are not resolved"),
        ];
        if let (Some(oldest), Some(line)) = (oldest_uncommitted, text.get_mut(2)) {
            line.push_str(&format!("  the oldest for {}", age(oldest)));
        }
        if uncommitted > 0 {
            text.push("next: the committer of the application commits them, or `ledger reconcile`".to_owned());
        }
        let json = json!({
            "collection": self.collection.namespace.to_string(),
            "entries": entries,
            "uncommitted": uncommitted,
            "oldest_uncommitted_seconds": oldest_uncommitted.map(|oldest| oldest.as_secs_f64()),
            "accounts": accounts,
            "expiring": expiring,
        });
        console.report(|| text.join("\n"), &json)?;
        Ok(Exit::Good)
    }

    async fn list(&self, limit: LimitFlags, console: Console) -> Result<Exit> {
        let mut listing = Listing::new(&["id", "age", "state", "changes"]);
        for entry in self.attach().await?.uncommitted(limit.and_one()).await? {
            let Entry { ts, status, .. } = &entry;
            let cells =
                [id(&entry.id), age(self.collection.since(*ts)), status.state.to_string(), shown::changes(&entry)];
            listing.push(cells, shown::entry(&entry));
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(Exit::Good)
    }

    async fn accounts(&self, limit: LimitFlags, console: Console) -> Result<Exit> {
        let ledger = self.attach().await?;
        let mut listing = Listing::new(&["account", "asset", "balance", "held", "place", "minimum"]);
        let mut pages = ledger.accounts(limit.and_one()).await?;
        let mut page = pages.next().await?;
        let mut exit = Exit::Good;
        while !page.is_empty() && listing.lines().len() <= limit.limit as usize {
            for account in page {
                match account {
                    Ok(account) => listing.push(shown::account_cells(&account), shown::account(&account)),
                    Err(error) => exit = books::unreadable(error)?,
                }
            }
            page = pages.next().await?;
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(exit)
    }

    async fn show(&self, wanted: &Id, console: Console) -> Result<Exit> {
        let entry =
            self.attach().await?.show(wanted.0.clone()).await?.with_context(|| self.collection.missing(&wanted.0))?;
        self.collection.show(console, &wanted.0, Some(self.remark(&entry))).await?;
        Ok(Exit::Good)
    }

    fn remark(&self, entry: &Entry) -> String {
        let since = age(self.collection.since(entry.ts));
        match (entry.counts(), entry.is_committed()) {
            (true, true) => "committed: it never changes; `ledger cancel` posts a reversal".to_owned(),
            (true, false) => {
                format!("not committed for {since}: it counts; `ledger reconcile` commits it when its turn comes")
            }
            (false, _) => "counts for nothing".to_owned(),
        }
    }

    async fn post(&self, entry: NewEntry, console: Console) -> Result<Exit> {
        let (entry, text) = match self.open().await?.post(entry).await? {
            Posting::Posted(entry) => (entry, "posted"),
            Posting::AlreadyPosted(entry) => (entry, "was posted before"),
            Posting::Refused(refusal) => bail!("not posted: {refusal}"),
        };
        let json = json!({ "posted": text == "posted", "entry": shown::entry(&entry) });
        console.report(|| format!("{} {text}: {}", id(&entry.id), shown::changes(&entry)), &json)?;
        Ok(Exit::Good)
    }

    async fn totals(&self, console: Console) -> Result<Exit> {
        let totals = self.attach().await?.totals().await?;
        let mut listing = Listing::new(&["asset", "debits", "credits", "held"]);
        for total in &totals {
            let Totals { asset, debits, credits, held } = total;
            let cells = [asset.clone(), debits.to_string(), credits.to_string(), held.to_string()];
            listing.push(cells, json!({ "asset": asset, "debits": debits, "credits": credits, "held": held }));
        }
        console.list(&listing)?;
        let balances = self.options.single_entry || totals.iter().all(Totals::is_balanced);
        Ok(if balances { Exit::Good } else { Exit::GuaranteeBroken })
    }

    async fn balance(&self, accounts: &[Id], at: Option<DateTime>, console: Console) -> Result<Exit> {
        let ledger = self.attach().await?;
        let mut listing = Listing::new(&["account", "asset", "balance", "available", "held", "pending", "missing"]);
        let mut exit = Exit::Good;
        for account in bsons(accounts) {
            let balance = match at {
                None => ledger.balance(account.clone()).await,
                Some(at) => ledger.balance_at(account.clone(), AsOf::Time(at)).await,
            };
            match balance {
                Ok(Some(balance)) => listing.push(shown::balance_cells(&balance), shown::balance(&balance)),
                Ok(None) => exit = books::no_account(&account),
                Err(error) => exit = books::unreadable(error)?,
            }
        }
        console.list(&listing)?;
        Ok(exit)
    }

    async fn statement(&self, account: &Id, page: Page, limit: u32, console: Console) -> Result<Exit> {
        let Statement { lines, earlier, later } =
            self.attach().await?.statement(account.0.clone(), page, limit).await?;
        let mut listing = Listing::new(&["place", "time", "entry", "type", "value", "balance", "held", "state"]);
        for line in &lines {
            listing.push(shown::line_cells(line), shown::line(line));
        }
        console.list(&listing)?;
        for (page, which) in [(earlier, "earlier"), (later, "later")] {
            match page {
                Some(Page::Before(place)) => console.remark(&format!("{which} ones: --before {place}")),
                Some(Page::After(place)) => console.remark(&format!("{which} ones: --after {place}")),
                Some(Page::Last) | None => {}
            }
        }
        Ok(Exit::Good)
    }

    async fn reconcile(&self, console: Console) -> Result<Exit> {
        let ledger = self.open().await?;
        let expired = rounds(console, "expire", "authorisations", |batch| ledger.expire(batch)).await?;
        let mut round = rounds(console, "commit", "entries", |batch| ledger.commit(batch)).await?;
        round.failed += expired.failed;
        report_rounds(console, "committed", "entries", round)
    }

    async fn cancel(&self, ids: &[Id], reason: &str, console: Console) -> Result<Exit> {
        let ledger = self.open().await?;
        let mut outcomes = ItemOutcomes::new();
        for Id(wanted) in ids {
            let (asked, outcome) = match ledger.cancel(wanted.clone(), reason).await? {
                Cancel::Canceled => (true, "counts for nothing".to_owned()),
                Cancel::Reversed(by) => (true, format!("was committed: taken back by entry {}", id(&by.id))),
                Cancel::Refused(refusal) => (false, refusal.to_string()),
                Cancel::Missing => (false, "is not there".to_owned()),
            };
            outcomes.push(wanted, asked, outcome);
        }
        outcomes.report(console)
    }
}

/// Returns the ids as values of BSON.
fn bsons(ids: &[Id]) -> impl Iterator<Item = Bson> {
    ids.iter().map(|Id(id)| id.clone())
}
