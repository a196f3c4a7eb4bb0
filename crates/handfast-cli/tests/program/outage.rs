//! The store dies during transfers, stays away, and comes back: the results that the library's clients get are true.
//!
//! ```text
//! store     serve ─── SIGKILL ........ serve ─── SIGKILL ....................... serve
//! clients   transfer, transfer, error, error, transfer, transfer, error, error, error, transfer, .. settle, audit
//! ```
//!
//! The clients are never restarted. Each of their transfers is acknowledged, certainly refused, or unknown; once the store is back,
//! the test asks for the unknown ones by their ids. Every account must then hold its first balance with all transfers that were
//! acknowledged or found committed, and no others. `HANDFAST_OUTAGE_SECONDS` says how long the store stays away (default 10, 60 in
//! continuous integration).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::rawdoc;
use handfast::mongodb::{ConnectOptions, connect};
use handfast::{Database, Error, Namespace, Outcome, PercolatorOptions, Sources, StoreExt, TransactionId};
use handfast_store::{Find, Random, SeededRandom};
use handfast_txn::Percolator;

use crate::support::{Scratch, Serve, handfast};

const ACCOUNTS: i32 = 24;
const MONEY: i64 = 1000;
/// The number of concurrent clients: enough that some commit at the moment of a kill.
const CLIENTS: u64 = 16;
/// The number of unknown outcomes after which the long outage follows the short ones. An outage causes one if a client commits at
/// that moment.
const UNKNOWN_MIN: u64 = 2;
const SHORT_OUTAGES_MAX: u32 = 30;
const SHORT_OUTAGE_SECONDS: u64 = 2;
/// The number of transfers that have to succeed between two outages, of all clients together.
const TRANSFERS_BETWEEN: u64 = 60;
/// The time that recovery may take on a busy machine.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(50);

/// Money that moves from an account to another one.
#[derive(Clone, Copy)]
struct MoneyTransfer {
    from: i32,
    to: i32,
    amount: i64,
}

/// The counts of a client.
#[derive(Default)]
struct Knowledge {
    done: Vec<MoneyTransfer>,
    unknown: Vec<(TransactionId, MoneyTransfer)>,
    /// The number of transfers that were certainly not applied.
    refused: u64,
    /// The sums of all accounts, each read in one transaction.
    sums: u64,
}

struct Bank {
    database: Database,
    accounts: Namespace,
    done: AtomicU64,
    unknown: AtomicU64,
    is_over: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_are_right_although_the_store_was_gone() -> Result<()> {
    let scratch = Scratch::new("outage")?;
    let mut store = start(&scratch, "127.0.0.1:0")?;
    let address = store.address()?;
    let uri = format!("mongodb://{address}/?serverSelectionTimeoutMS=1000");
    let database = Database::connect_with(&uri, Sources::system()?, ConnectOptions::default(), options()).await?;
    let accounts = Namespace::new("bank", "accounts")?;
    for id in 0..ACCOUNTS {
        database.insert_one(&accounts, rawdoc! { "_id": id, "balance": MONEY }).await?;
    }
    let (done, unknown, is_over) = Default::default();
    let bank = Arc::new(Bank { database, accounts, done, unknown, is_over });
    let clients: Vec<_> = (0..CLIENTS).map(|seed| tokio::spawn(client(Arc::clone(&bank), seed))).collect();
    let seconds = std::env::var("HANDFAST_OUTAGE_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(10);
    for number in 0.. {
        progress(&bank).await?;
        let is_last = bank.unknown.load(Ordering::Relaxed) >= UNKNOWN_MIN || number == SHORT_OUTAGES_MAX;
        store.signal("KILL")?;
        store.wait()?;
        tokio::time::sleep(Duration::from_secs(if is_last { seconds } else { SHORT_OUTAGE_SECONDS })).await;
        store = start(&scratch, &address)?;
        if is_last {
            break;
        }
    }
    progress(&bank).await?;
    bank.is_over.store(true, Ordering::Relaxed);
    let mut expected: BTreeMap<i32, i64> = (0..ACCOUNTS).map(|id| (id, MONEY)).collect();
    let (mut done, mut refused, mut sums, mut settled) = (0, 0, 0, [0, 0]);
    for client in clients {
        let knowledge = client.await??;
        (done, refused, sums) = (done + knowledge.done.len(), refused + knowledge.refused, sums + knowledge.sums);
        for moved in knowledge.done {
            book(&mut expected, moved);
        }
        for (id, moved) in knowledge.unknown {
            match bank.database.outcome(id).await? {
                Outcome::Committed(_) => {
                    settled[0] += 1;
                    book(&mut expected, moved);
                }
                Outcome::RolledBack => settled[1] += 1,
                Outcome::Forgotten => anyhow::bail!("nobody knows any more what became of {id}"),
            }
        }
    }
    println!("{done} done, {refused} refused, {sums} sums; unknown: {} committed, {} not", settled[0], settled[1]);
    let found = bank.database.find_all(Find::new(bank.accounts.clone(), rawdoc! {})).await?;
    let found: BTreeMap<i32, i64> = found
        .iter()
        .map(|account| Ok((account.get_i32("_id")?, account.get_i64("balance")?)))
        .collect::<Result<_>>()?;
    ensure!(found == expected, "the accounts hold {found:?} instead of {expected:?}");
    ensure!(settled[0] + settled[1] > 0 && refused > 0 && sums > 0, "too little went wrong, or right");
    nothing_is_left(&uri, &bank).await
}

/// Returns options with a lifetime of locks that is short, and long enough for a busy machine.
fn options() -> PercolatorOptions {
    PercolatorOptions { lock_ttl: Duration::from_secs(1), ..PercolatorOptions::default() }
}

fn start(scratch: &Scratch, address: &str) -> Result<Serve> {
    Serve::start(&mut handfast(scratch, &["serve", "--data", "data", "--listen", address]))
}

/// Waits until [`TRANSFERS_BETWEEN`] more transfers have succeeded.
async fn progress(bank: &Bank) -> Result<()> {
    let wanted = bank.done.load(Ordering::Relaxed) + TRANSFERS_BETWEEN;
    let reached = async {
        while bank.done.load(Ordering::Relaxed) < wanted {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(RECOVERY_MAX, reached).await.context("the clients do not recover")
}

/// Moves money until the test is over; every fourth client only reads the sum of all accounts.
async fn client(bank: Arc<Bank>, seed: u64) -> Result<Knowledge> {
    let random = SeededRandom::new(seed);
    let mut knowledge = Knowledge::default();
    while !bank.is_over.load(Ordering::Relaxed) {
        if seed.is_multiple_of(4) {
            // A read that an outage interrupts is no finding.
            let Ok(sum) = sum(&bank).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            ensure!(sum == i64::from(ACCOUNTS) * MONEY, "all accounts together held {sum} at one moment");
            knowledge.sums += 1;
            continue;
        }
        let (from, to) = pair(random.next_u64());
        let moved = MoneyTransfer { from, to, amount: 1 + (random.next_u64() % 9) as i64 };
        match transfer(&bank, moved, seed.is_multiple_of(2)).await {
            Ok(()) => {
                knowledge.done.push(moved);
                bank.done.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::CommitUnknown { id, .. }) => {
                knowledge.unknown.push((id, moved));
                bank.unknown.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::Conflict(_) | Error::Store(_)) => {
                knowledge.refused += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Ok(knowledge)
}

fn pair(chance: u64) -> (i32, i32) {
    let accounts = ACCOUNTS as u64;
    let (from, step) = (chance % accounts, 1 + (chance >> 32) % (accounts - 1));
    (from as i32, ((from + step) % accounts) as i32)
}

async fn transfer(
    bank: &Bank,
    MoneyTransfer { from, to, amount }: MoneyTransfer,
    is_named: bool,
) -> handfast::Result<()> {
    let tx = bank.database.begin().await?;
    if is_named {
        // A transaction whose id is asked for before the commit leaves a record of its own.
        tx.id();
    }
    for (id, change) in [(from, -amount), (to, amount)] {
        tx.update_one(&bank.accounts, rawdoc! { "_id": id }, rawdoc! { "$inc": { "balance": change } }).await?;
    }
    tx.commit().await.map(drop)
}

async fn sum(bank: &Bank) -> Result<i64> {
    let tx = bank.database.begin().await?;
    let accounts = tx.find_all(Find::new(bank.accounts.clone(), rawdoc! {})).await?;
    ensure!(accounts.len() == ACCOUNTS as usize, "{} accounts", accounts.len());
    accounts.iter().map(|account| Ok(account.get_i64("balance")?)).sum()
}

fn book(balances: &mut BTreeMap<i32, i64>, MoneyTransfer { from, to, amount }: MoneyTransfer) {
    *balances.entry(from).or_default() -= amount;
    *balances.entry(to).or_default() += amount;
}

/// Checks that no lock is left after those of interrupted transactions have expired and are removed.
async fn nothing_is_left(uri: &str, bank: &Bank) -> Result<()> {
    let sources = Sources::system()?;
    let store = connect(uri, sources.clone(), ConnectOptions::default()).await?.store;
    tokio::time::sleep(options().lock_ttl).await;
    let operator = Percolator::new(store, sources, options())?;
    let cleaned = operator.clean().await?;
    let (locks, open) = (operator.count_locks().await?, bank.database.counts().open());
    ensure!(locks == 0 && open == 0, "{locks} locks and {open} transactions are left after {cleaned:?}");
    Ok(())
}
