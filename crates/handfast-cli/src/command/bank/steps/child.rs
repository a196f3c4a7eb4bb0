//! Workers in a process of their own, which works when it is told to and rests when it is told to.
//!
//! ```text
//! standard input    go, pause; its end asks to stop
//! standard output   paused N    nobody works, N answers were lost so far
//!                   made ID 900 a transfer has been acknowledged, after so many microseconds
//!                   refused     one was not made, for want of money
//! ```

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use handfast_mql::Code;
use handfast_patterns::{CancellationToken, Error};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, ErrorClass, Random, SeededRandom, Sources};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinSet;

use super::mechanism::{ABANDONED, Moved, Steps};
use super::{Kind, Run};
use crate::store::{Access, Location, OpenedStore};

/// Before a transfer is asked for again whose answer got lost, or that somebody else is at.
const PAUSE: Duration = Duration::from_millis(5);
/// Moved at once: enough of what an account has that some transfers are refused.
const AMOUNT_MAX: u64 = 40;

pub(super) async fn work(run: &Run, kind: Kind, location: &Location, number: u32, sources: Sources) -> Result<()> {
    ensure!(matches!(location, Location::Servers(_)), "workers without a server");
    let store = OpenedStore::open(location, Access::Transactions, sources.clone()).await?.documents();
    let plan = Plan::seeded(run.seed ^ u64::from(number), run.lost_replies_per_thousand, [Fault::LoseReply]);
    let lossy = Arc::new(Faulty::new(store, plan.writes_only()));
    let shared: Arc<dyn DocumentStore> = lossy.clone();
    let steps = open(kind, shared, &sources, number).await?;
    let (cancel, gate) = (CancellationToken::new(), Arc::new(RwLock::new(())));
    let mut rest = Some(pause(&gate, &lossy).await?);
    let _runner = steps.spawn(&cancel)?;
    let mut workers = JoinSet::new();
    for worker in 0..run.workers {
        let seed = run.seed.wrapping_add(u64::from(number) << 16).wrapping_add(u64::from(worker));
        workers.spawn(transfers(
            steps.clone(),
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
                Some("go") => rest = None,
                Some("pause") => rest = Some(pause(&gate, &lossy).await?),
                // Its end, or that of whoever gives orders.
                _ => break,
            },
            Some(ended) = workers.join_next() => ended??,
        }
    }
    drop(rest);
    Ok(())
}

/// Opens the building block; an answer of that may be lost, too.
async fn open(kind: Kind, store: Arc<dyn DocumentStore>, sources: &Sources, number: u32) -> Result<Steps> {
    loop {
        match Steps::open(kind, store.clone(), sources.clone(), &format!("worker {number}"), ABANDONED).await {
            Err(error) if error.downcast_ref::<Error>().is_some_and(can_be_repeated) => {}
            opened => return opened,
        }
    }
}

/// Waits until nobody works, and says so.
async fn pause(gate: &Arc<RwLock<()>>, lossy: &Faulty<dyn DocumentStore>) -> Result<OwnedRwLockWriteGuard<()>> {
    let rest = Arc::clone(gate).write_owned().await;
    say(&format!("paused {}", lossy.injected().len()))?;
    Ok(rest)
}

async fn transfers(
    steps: Steps,
    gate: Arc<RwLock<()>>,
    sources: Sources,
    random: SeededRandom,
    accounts: u32,
) -> Result<()> {
    loop {
        let _working = gate.read().await;
        let count = u64::from(accounts);
        let from = random.next_u64() % count;
        let to = (from + 1 + random.next_u64() % (count - 1)) % count;
        let amount = 1 + (random.next_u64() % AMOUNT_MAX) as i64;
        let id = sources.ids.object_id();
        let began = sources.clock.elapsed();
        match one(&steps, id, (from as u32, to as u32, amount)).await? {
            Moved::Made => {
                let took = sources.clock.elapsed().saturating_sub(began);
                say(&format!("made {} {}", id.to_hex(), took.as_micros()))?;
            }
            Moved::Refused | Moved::UnderWay => say("refused")?,
        }
    }
}

/// Asks until there is an answer.
async fn one(steps: &Steps, id: bson::oid::ObjectId, (from, to, amount): (u32, u32, i64)) -> Result<Moved> {
    loop {
        match steps.transfer(id, from, to, amount).await {
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

/// One write a line: what is said is with the parent.
fn say(line: &str) -> Result<()> {
    Ok(std::io::stdout().lock().write_all(format!("{line}\n").as_bytes())?)
}
