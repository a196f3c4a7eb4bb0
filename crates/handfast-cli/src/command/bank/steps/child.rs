//! Workers in a process of their own, which works and pauses at the order of its parent.
//!
//! ```text
//! standard input    go, pause; its end asks to stop
//! standard output   paused N    no worker works, N answers were lost so far
//!                   made ID 900 a transfer was acknowledged after 900 microseconds
//!                   refused     a transfer was not made, for want of money
//! ```

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use handfast_mql::Code;
use handfast_patterns::{CancellationToken, Error};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, ErrorClass, SeededRandom, Sources};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinSet;

use super::mechanism::{ABANDONED, Moved, PatternBank};
use super::{Kind, MoneyTransfer, Run};
use crate::store::{Access, Location, OpenedStore};

/// The time before a transfer is repeated because its answer got lost or another process is working on it.
const PAUSE: Duration = Duration::from_millis(5);
/// The largest amount of a transfer, so large that some transfers are refused.
const AMOUNT_MAX: u64 = 40;

pub(super) async fn work(run: &Run, kind: Kind, location: &Location, number: u32, sources: Sources) -> Result<()> {
    ensure!(matches!(location, Location::Servers(_)), "a worker process has no server");
    let store = OpenedStore::open(location, Access::Transactions, sources.clone()).await?.documents();
    let plan = Plan::seeded(run.seed ^ u64::from(number), run.lost_replies_per_thousand, [Fault::LoseReply]);
    let lossy = Arc::new(Faulty::new(store, plan.writes_only()));
    let shared: Arc<dyn DocumentStore> = lossy.clone();
    let bank = open(kind, shared, &sources, number).await?;
    let (cancel, gate) = (CancellationToken::new(), Arc::new(RwLock::new(())));
    let mut paused = Some(pause(&gate, &lossy).await?);
    let _runner = bank.spawn(&cancel)?;
    let mut workers = JoinSet::new();
    for worker in 0..run.workers {
        let seed = run.seed.wrapping_add(u64::from(number) << 16).wrapping_add(u64::from(worker));
        workers.spawn(make_transfers(
            bank.clone(),
            Arc::clone(&gate),
            sources.clone(),
            SeededRandom::new(seed),
            run.accounts,
        ));
    }
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    loop {
        tokio::select! {
            order = orders.next_line() => match order?.as_deref() {
                Some("go") => paused = None,
                Some("pause") => paused = Some(pause(&gate, &lossy).await?),
                // The end of the input is the end of the parent.
                _ => break,
            },
            Some(ended) = workers.join_next() => ended??,
        }
    }
    drop(paused);
    Ok(())
}

/// Opens the pattern; answers to this may be lost, too.
async fn open(kind: Kind, store: Arc<dyn DocumentStore>, sources: &Sources, number: u32) -> Result<PatternBank> {
    loop {
        match PatternBank::open(kind, store.clone(), sources.clone(), &format!("worker {number}"), ABANDONED).await {
            Err(error) if error.downcast_ref::<Error>().is_some_and(can_be_repeated) => {}
            opened => return opened,
        }
    }
}

/// Waits until no worker works, and reports it.
async fn pause(gate: &Arc<RwLock<()>>, lossy: &Faulty<dyn DocumentStore>) -> Result<OwnedRwLockWriteGuard<()>> {
    let paused = Arc::clone(gate).write_owned().await;
    say(&format!("paused {}", lossy.injected().len()))?;
    Ok(paused)
}

async fn make_transfers(
    bank: PatternBank,
    gate: Arc<RwLock<()>>,
    sources: Sources,
    random: SeededRandom,
    accounts: u32,
) -> Result<()> {
    loop {
        let _working = gate.read().await;
        let transfer = MoneyTransfer::random(&random, accounts, AMOUNT_MAX);
        let id = sources.ids.object_id();
        let began = sources.clock.elapsed();
        match make_transfer(&bank, id, transfer).await? {
            Moved::Made => {
                let took = sources.clock.elapsed().saturating_sub(began);
                say(&format!("made {} {}", id.to_hex(), took.as_micros()))?;
            }
            Moved::Refused | Moved::UnderWay => say("refused")?,
        }
    }
}

/// Makes a transfer, again until there is an answer.
async fn make_transfer(bank: &PatternBank, id: bson::oid::ObjectId, transfer: MoneyTransfer) -> Result<Moved> {
    loop {
        match bank.transfer(id, transfer).await {
            Ok(Moved::UnderWay) => {}
            Ok(moved) => return Ok(moved),
            Err(error) if can_be_repeated(&error) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn can_be_repeated(error: &Error) -> bool {
    match error {
        Error::Contended { .. } => true,
        Error::Store(error) => error.class() == ErrorClass::TransientNetwork || error.code() == Code::WriteConflict,
        Error::Invalid { .. }
        | Error::OtherSettings { .. }
        | Error::Gone { .. }
        | Error::Missing { .. }
        | Error::Damaged { .. } => false,
    }
}

/// Writes a line in one call, so that the parent has it.
fn say(line: &str) -> Result<()> {
    Ok(std::io::stdout().lock().write_all(format!("{line}\n").as_bytes())?)
}
