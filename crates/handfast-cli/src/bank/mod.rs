//! `handfast bank`: the guarantee, shown. Many workers move money between accounts while things go wrong; at the end all the
//! money is there, nothing is half done, and the recorded history is one that snapshot isolation (or serializability) allows.
//!
//! ```text
//! account   {_id: 7, balance: 93, mark: 4211}      `mark` is new with every write: who reads it says whose write it saw
//! transfer  read two accounts, write both, commit   `Database::transaction_with`; one history entry a run of the closure
//! audit     read all accounts of one snapshot       the sum must be the money that was put in
//! ```
//!
//! With `--store` the accounts are on another server, and transfers are transactions on single documents. With `--crash` the
//! workers are a process of their own, which is killed (SIGKILL) and started again on the same store. With `--lost-replies` commits are
//! done and their answers lost: the library asks the store what became of them, and where that answer is lost too, the worker asks by id.

mod accounts;
mod crash;
mod doubts;
mod opened;
mod record;
mod report;
mod runs;
mod workers;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use handfast_history::event::Bank;
use handfast_history::{Header, Model, Order};
use handfast_store::{Clock, Sources};
use handfast_txn::Isolation;

use self::accounts::Accounts;
use self::doubts::Doubts;
use self::opened::{Opened, Place};
use self::record::Recorder;
use self::report::Report;
use self::workers::{Latencies, Workers};
use crate::arguments::{BankArguments, HistoryIsolation};
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::scratch::Scratch;

/// What names a server where no flag does; a child is told so, because others can see a command line.
const STORE_VARIABLE: &str = "HANDFAST_STORE";

/// What a run is about.
#[derive(Clone, Debug)]
struct Run {
    accounts: u32,
    workers: u32,
    transfers: u64,
    isolation: Isolation,
    lost_replies_per_thousand: u16,
    kills: u32,
    seed: u64,
}

/// What a run came to, before it is judged.
#[derive(Default)]
struct Work {
    committed: u64,
    conflicts: u64,
    doubts: Doubts,
    kills: u32,
    /// Begun when a kill came.
    under_way: u64,
    took: Duration,
    latencies: Option<Latencies>,
}

/// Runs the bank, or, if `child` says so, the part of it that is killed.
pub(crate) async fn run(arguments: BankArguments) -> Result<Exit> {
    let sources = Sources::system().context("the operating system gives no randomness")?;
    let run = plan(&arguments, &sources)?;
    if let Some(first) = arguments.child {
        let place = place(&arguments)?.context("workers without a store")?;
        crash::child(&run, &place, first, sources).await?;
        return Ok(Exit::Good);
    }
    let console = Console::new(arguments.output);
    let place = place(&arguments)?;
    let scratch = Scratch::create(&arguments.directory, "bank")?;
    let place = place.unwrap_or_else(|| Place::Directory(scratch.path.join("data")));
    let history = arguments.history.clone().unwrap_or_else(|| scratch.path.join("history.jsonl"));
    let header = Header {
        model: Some(Model::RwRegister),
        isolation: Some(expected(run.isolation)),
        order: Some(Order::RealTime),
        bank: Some(Bank { total: Accounts::total(run.accounts), accounts: u64::from(run.accounts) }),
    };
    let file = File::create(&history).with_context(|| format!("cannot write {}", history.display()))?;
    let recorder = Arc::new(Recorder::new(BufWriter::new(file), &header, Arc::clone(&sources.clock))?);
    prepare(&run, &place, &sources, &recorder).await?;
    let bar = console.progress("bank", "transfers", run.transfers);
    let work = if run.kills > 0 {
        crash::run(&run, &place, &recorder, &sources, &bar).await?
    } else {
        work_here(&run, &place, &recorder, &sources, &bar).await?
    };
    bar.finish_and_clear();
    let end = audit(&run, &place, &sources, &recorder).await?;
    Arc::into_inner(recorder).context("a worker is left")?.finish()?;
    let judged = history.clone();
    let verdict = tokio::task::spawn_blocking(move || judge(&judged)).await??;
    let report = Report::new(&run, &work, &end, &verdict);
    console.report(|| report.text(), &report)?;
    Ok(if report.holds { Exit::Good } else { Exit::GuaranteeBroken })
}

/// Where the accounts are to be, if somebody says so.
fn place(arguments: &BankArguments) -> Result<Option<Place>> {
    let BankArguments { store, data, sole_writer, .. } = arguments;
    let (uri, from) = match (store, data) {
        (Some(uri), _) => (Some(uri.clone()), "--store"),
        (None, Some(_)) => (None, ""),
        (None, None) => (std::env::var(STORE_VARIABLE).ok().and_then(|uri| uri.parse().ok()), STORE_VARIABLE),
    };
    let Some(uri) = uri else {
        if *sole_writer {
            return Err(Usage("--sole-writer is about a server, which --store names".to_owned()).into());
        }
        return Ok(data.clone().map(Place::Directory));
    };
    uri.check().map_err(|reason| Usage(format!("{from}: {reason}")))?;
    Ok(Some(Place::Server { uri, sole_writer: *sole_writer }))
}

fn plan(arguments: &BankArguments, sources: &Sources) -> Result<Run> {
    if arguments.accounts < 2 {
        return Err(Usage("--accounts must be at least 2: money moves between two".to_owned()).into());
    }
    if !(0.0..=50.0).contains(&arguments.lost_replies) {
        let text = format!("--lost-replies is a percentage between 0 and 50, not {}", arguments.lost_replies);
        return Err(Usage(text).into());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 500, as checked above")]
    let lost_replies_per_thousand = (arguments.lost_replies * 10.0).round() as u16;
    Ok(Run {
        accounts: arguments.accounts,
        workers: arguments.workers.max(1),
        transfers: arguments.transfers,
        isolation: match arguments.isolation {
            HistoryIsolation::Snapshot => Isolation::Snapshot,
            HistoryIsolation::Serializable => Isolation::Serializable,
        },
        lost_replies_per_thousand,
        kills: arguments.crash.unwrap_or(0),
        seed: arguments.seed.unwrap_or_else(|| sources.random.next_u64() >> 1),
    })
}

fn expected(isolation: Isolation) -> handfast_history::Isolation {
    match isolation {
        Isolation::Snapshot => handfast_history::Isolation::Snapshot,
        Isolation::Serializable => handfast_history::Isolation::Serializable,
    }
}

/// Puts the money in.
async fn prepare(run: &Run, place: &Place, sources: &Sources, recorder: &Arc<Recorder>) -> Result<()> {
    let quiet = Run { lost_replies_per_thousand: 0, ..run.clone() };
    let opened = Opened::open(&quiet, place, sources).await?;
    let accounts = Accounts::new(run.accounts)?;
    accounts.fill(&opened.database, recorder).await?;
    opened.close().await.map(|_| ())
}

/// All workers in this process.
async fn work_here(
    run: &Run,
    place: &Place,
    recorder: &Arc<Recorder>,
    sources: &Sources,
    bar: &indicatif::ProgressBar,
) -> Result<Work> {
    let opened = Opened::open(run, place, sources).await?;
    let began = sources.clock.elapsed();
    let witness = opened.witness();
    let workers =
        Workers::new(run, opened.database.clone(), Arc::clone(recorder), Arc::clone(&witness), sources.clone(), 1)?;
    let progress = bar.clone();
    let done = workers.run(run.transfers, move |_| progress.inc(1)).await?;
    let took = sources.clock.elapsed().saturating_sub(began);
    let doubts = witness.doubts();
    drop(witness);
    let counts = opened.close().await?;
    ensure!(counts.open() == 0, "{} transactions were left open", counts.open());
    Ok(Work {
        committed: done.committed,
        conflicts: counts.conflicts,
        doubts,
        kills: 0,
        under_way: 0,
        took,
        latencies: Some(done.latencies),
    })
}

/// What is there at the end, opened anew.
struct End {
    total: i64,
    expected: i64,
    records: u64,
    locks: u64,
}

async fn audit(run: &Run, place: &Place, sources: &Sources, recorder: &Arc<Recorder>) -> Result<End> {
    let quiet = Run { lost_replies_per_thousand: 0, ..run.clone() };
    let opened = Opened::open(&quiet, place, sources).await?;
    let accounts = Accounts::new(run.accounts)?;
    let total = accounts.audit(&opened.database, recorder, 0, async { Ok(()) }).await?;
    let total = total.context("the last audit was refused although nobody else was there")?;
    // What is left behind: the outcomes, and nothing else.
    let records = if opened.keeps_outcomes() {
        0
    } else {
        opened.database.forget_outcomes(Duration::ZERO).await?;
        accounts.records(&opened.database).await?
    };
    let locks = opened.locks(accounts.namespace()).await?;
    opened.close().await?;
    Ok(End { total, expected: Accounts::total(run.accounts), records, locks })
}

fn judge(history: &Path) -> Result<handfast_history::Verdict> {
    let file = File::open(history).with_context(|| format!("cannot read {}", history.display()))?;
    Ok(handfast_history::judge(BufReader::new(file), None, None)?)
}

/// Time since the recorder began, for the history.
fn nanoseconds(clock: &dyn Clock) -> Option<i64> {
    i64::try_from(clock.elapsed().as_nanos()).ok()
}
