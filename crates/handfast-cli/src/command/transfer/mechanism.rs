//! The mechanisms that apply rows: transactions, two-phase commit, a ledger. With each, a row with the same name may be applied again,
//! whatever its first outcome was.

mod ledger;
mod transaction;
mod two_phase;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use handfast_mongodb::Server;
use handfast_patterns::{Ledger, LedgerOptions, TwoPhase, TwoPhaseOptions};
use handfast_store::{Namespace, Sources, StoreExt};
use handfast_txn::percolator::ensure_unmanaged;
use tokio::task::JoinSet;

use self::ledger::ByLedger;
use self::transaction::ByTransaction;
use self::two_phase::ByTwoPhase;
use super::arguments::{TransferArguments, TransferMechanism};
use super::name::Name;
use super::row::Row;
use crate::command::pattern::rename;
use crate::command::two_phase::ACCOUNTS;
use crate::command::two_phase::arguments::AccountFlags;
use crate::command::two_phase::settings::{not_recorded, set_accounts};
use crate::configuration::Configuration;
use crate::console::Console;
use crate::exit::Usage;
use crate::store::{Directory, OpenedDatabase, SingleDocumentStore, ensure_there, namespace};

/// The application's name in two-phase transactions: the same after a restart, which then continues them.
const APPLICATION: &str = "handfast transfer";

/// A row with its name.
#[derive(Clone, Debug)]
pub(super) struct NamedRow {
    pub(super) name: Name,
    pub(super) row: Row,
}

/// The outcome of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RowOutcome {
    Applied,
    /// It was applied before, by an earlier run or an earlier row with the same name.
    AlreadyApplied,
    /// It cannot be applied, for this reason; nothing was changed.
    Rejected(String),
    /// It is not applied yet, because another process has its transaction in progress, or was faster each time: the command must be
    /// repeated.
    Undecided(String),
}

pub(super) enum Mechanism {
    Transaction(ByTransaction),
    TwoPhase(Arc<ByTwoPhase>),
    Ledger(Arc<ByLedger>),
}

/// The store that is open.
enum Opened {
    Database(OpenedDatabase),
    SingleDocuments(SingleDocumentStore),
}

/// A mechanism over a store that is open.
pub(super) struct Applier {
    pub(super) mechanism: Mechanism,
    opened: Opened,
    workers: usize,
}

/// Returns the mechanism. With --store a flag must name it, because each mechanism has other rules for all other writers of the
/// accounts.
///
/// # Errors
/// Fails if no flag names a mechanism, or if a flag belongs to another one.
pub(super) fn chosen(arguments: &TransferArguments, configuration: &Configuration) -> Result<TransferMechanism> {
    let mechanism = match (arguments.mechanism, &configuration.settings.store) {
        (Some(mechanism), _) => mechanism,
        (None, None) => TransferMechanism::Transaction,
        (None, Some(_)) => {
            let text = "--store needs --mechanism: two-phase or ledger if other programs write to that server directly, \
                        transaction if all of them use `handfast serve --store`";
            return Err(Usage(text.to_owned()).into());
        }
    };
    let AccountFlags { balance_field, overdraft, pending_credits, .. } = &arguments.accounts;
    let (transaction, two_phase, ledger) =
        (TransferMechanism::Transaction, TransferMechanism::TwoPhase, TransferMechanism::Ledger);
    let flags: [(&str, bool, &[TransferMechanism]); 7] = [
        ("--balance-field", balance_field.is_some(), &[transaction, two_phase]),
        ("--overdraft", *overdraft, &[transaction, two_phase]),
        ("--pending-credits", pending_credits.is_some(), &[two_phase]),
        ("--asset", arguments.asset.is_some(), &[ledger]),
        ("--holds", arguments.holds.is_some(), &[ledger]),
        ("--workers", arguments.workers.is_some(), &[two_phase, ledger]),
        ("--field", !arguments.open.fields.is_empty(), &[two_phase, ledger]),
    ];
    for (flag, is_given, mechanisms) in flags {
        if is_given && !mechanisms.contains(&mechanism) {
            let names: Vec<_> = mechanisms.iter().map(|mechanism| mechanism.name()).collect();
            let (name, names) = (mechanism.name(), names.join(" and "));
            return Err(Usage(format!("{flag} does not apply to --mechanism {name}: it is for {names}")).into());
        }
    }
    Ok(mechanism)
}

impl Applier {
    /// Opens the store, in which the accounts must exist.
    pub(super) async fn open(
        arguments: &TransferArguments,
        mechanism: TransferMechanism,
        configuration: &Configuration,
        sources: Sources,
    ) -> Result<Self> {
        let workers = arguments.workers.map_or(1, usize::from);
        if mechanism == TransferMechanism::Transaction {
            if configuration.settings.store.is_none() {
                Directory::of(&configuration.settings).ensure_exists()?;
            }
            let opened = OpenedDatabase::open(configuration, sources).await?;
            let result = match opened.handfast_server() {
                Some(server) => Err(has_its_own(server)),
                None => by_transaction(arguments, &opened).await,
            };
            return match result {
                Ok(mechanism) => Ok(Applier { mechanism, opened: Opened::Database(opened), workers }),
                Err(error) => opened.close().await.and(Err(error)),
            };
        }
        let store = SingleDocumentStore::open(configuration, sources.clone()).await?;
        let result = match mechanism {
            TransferMechanism::Ledger => by_ledger(arguments, &store, sources).await,
            TransferMechanism::TwoPhase | TransferMechanism::Transaction => {
                by_two_phase(arguments, &store, sources).await
            }
        };
        match result {
            Ok(mechanism) => Ok(Applier { mechanism, opened: Opened::SingleDocuments(store), workers }),
            Err(error) => store.close().await.and(Err(error)),
        }
    }

    /// Applies rows, and returns the outcome of each.
    ///
    /// # Errors
    /// Returns a failure of the store, after which the same rows may be applied again.
    pub(super) async fn apply(&self, rows: Vec<NamedRow>) -> Result<Vec<RowOutcome>> {
        match &self.mechanism {
            Mechanism::Transaction(by) => by.apply(&rows).await,
            Mechanism::TwoPhase(by) => {
                each(by, rows, self.workers, |by, row| async move { by.apply(&row).await }).await
            }
            Mechanism::Ledger(by) => {
                let outcomes = each(by, rows, self.workers, |by, row| async move { by.apply(&row).await }).await?;
                by.commit_some().await?;
                Ok(outcomes)
            }
        }
    }

    /// Finishes after all rows are applied.
    pub(super) async fn finish(&self, console: Console) -> Result<()> {
        match &self.mechanism {
            Mechanism::Ledger(by) => by.commit(console).await,
            Mechanism::Transaction(_) | Mechanism::TwoPhase(_) => Ok(()),
        }
    }

    pub(super) async fn close(self) -> Result<()> {
        drop(self.mechanism);
        match self.opened {
            Opened::Database(opened) => opened.close().await,
            Opened::SingleDocuments(store) => store.close().await,
        }
    }
}

/// Returns the error for a server with transactions of its own: two kinds of transactions over the same accounts do not respect
/// each other.
fn has_its_own(server: &Server) -> anyhow::Error {
    let text = format!(
        "--mechanism transaction does not work on {}, which is {}: that server has its own transactions, which do not respect \
         those of this command; use --mechanism two-phase or ledger, or stop that server and use --data",
        server.address, server.product
    );
    Usage(text).into()
}

async fn by_transaction(arguments: &TransferArguments, opened: &OpenedDatabase) -> Result<Mechanism> {
    let database = &arguments.open.database;
    let accounts = namespace(database, arguments.accounts.accounts.as_deref().unwrap_or(ACCOUNTS), "--accounts")?;
    let transfers = namespace(database, arguments.collection.as_deref().unwrap_or("transfers"), "--collection")?;
    ensure_different(&accounts, &transfers)?;
    if opened.is_directory() {
        // The directory may be that of a server with a Handfast in front.
        ensure_unmanaged(&opened.database, &accounts).await?;
    }
    ensure_there(&opened.database, &accounts, "--accounts").await?;
    Ok(Mechanism::Transaction(ByTransaction {
        database: opened.database.clone(),
        accounts,
        transfers,
        balance: arguments.accounts.balance_field.clone().unwrap_or_else(|| "balance".to_owned()),
        overdraft: arguments.accounts.overdraft,
    }))
}

/// Fails if the accounts and the records of transfers are one collection.
fn ensure_different(accounts: &Namespace, records: &Namespace) -> Result<()> {
    let text = || format!("--accounts and --collection are both {accounts}: name two different collections");
    ensure!(accounts != records, Usage(text()));
    Ok(())
}

async fn by_two_phase(
    arguments: &TransferArguments,
    store: &SingleDocumentStore,
    sources: Sources,
) -> Result<Mechanism> {
    let database = &arguments.open.database;
    let accounts = namespace(database, arguments.accounts.accounts.as_deref().unwrap_or(ACCOUNTS), "--accounts")?;
    let transactions = namespace(database, arguments.collection.as_deref().unwrap_or("transactions"), "--collection")?;
    ensure_different(&accounts, &transactions)?;
    let mut options = match TwoPhaseOptions::recorded(store.store.clone(), &transactions, APPLICATION).await? {
        Some(recorded) => recorded,
        None if store.store.count_matching(&transactions, bson::rawdoc! {}).await? > 0 => {
            return Err(not_recorded(&transactions).into());
        }
        None => TwoPhaseOptions::new(APPLICATION, accounts),
    };
    set_accounts(&mut options.accounts, &transactions, &arguments.accounts)?;
    rename(&mut options.fields, &arguments.open.fields)?;
    ensure_there(&*store.store, &options.accounts.namespace, "--accounts").await?;
    let accounts = options.accounts.clone();
    let two_phase = TwoPhase::open_with(store.store.clone(), transactions, sources, options).await?;
    Ok(Mechanism::TwoPhase(Arc::new(ByTwoPhase { two_phase, accounts })))
}

async fn by_ledger(arguments: &TransferArguments, store: &SingleDocumentStore, sources: Sources) -> Result<Mechanism> {
    let database = &arguments.open.database;
    let entries = namespace(database, arguments.collection.as_deref().unwrap_or("tx"), "--collection")?;
    let known = LedgerOptions::recorded(store.store.clone(), &entries).await?.unwrap_or_default();
    let mut options = LedgerOptions {
        accounts: arguments.accounts.accounts.clone().unwrap_or(known.accounts),
        holds: arguments.holds.clone().unwrap_or(known.holds),
        ..known
    };
    rename(&mut options.fields, &arguments.open.fields)?;
    let accounts = namespace(database, &options.accounts, "--accounts")?;
    ensure_there(&*store.store, &accounts, "--accounts").await?;
    let ledger = Ledger::open_with(store.store.clone(), entries, sources, options).await?;
    Ok(Mechanism::Ledger(Arc::new(ByLedger { ledger, asset: arguments.asset.clone() })))
}

/// Applies rows with `workers` concurrent tasks; a single one keeps their order.
async fn each<B, F>(
    by: &Arc<B>,
    rows: Vec<NamedRow>,
    workers: usize,
    apply: fn(Arc<B>, NamedRow) -> F,
) -> Result<Vec<RowOutcome>>
where
    B: Send + Sync + 'static,
    F: Future<Output = Result<RowOutcome>> + Send + 'static,
{
    let (rows, next) = (Arc::new(rows), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..workers.min(rows.len()) {
        let (by, rows, next) = (Arc::clone(by), Arc::clone(&rows), Arc::clone(&next));
        tasks.spawn(async move {
            let mut outcomes = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(row) = rows.get(number) else { return Ok::<_, anyhow::Error>(outcomes) };
                outcomes.push((number, apply(Arc::clone(&by), row.clone()).await?));
            }
        });
    }
    let mut outcomes = Vec::with_capacity(rows.len());
    while let Some(done) = tasks.join_next().await {
        outcomes.extend(done??);
    }
    outcomes.sort_by_key(|(number, _)| *number);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}
