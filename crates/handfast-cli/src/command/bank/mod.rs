//! `handfast bank` demonstrates the guarantees. Many workers move money between accounts during crashes and lost answers; at the
//! end all the money must be there, no transfer may be half done, and the recorded history must be one that snapshot isolation
//! (or serializability) allows.
//!
//! ```text
//! account   {_id: 7, balance: 93, mark: 4211}      `mark` is new with every write: a read of it names the write that it saw
//! transfer  read two accounts, write both, commit   `Database::transaction_with`; one history entry for each attempt
//! audit     read all accounts of one snapshot       the sum must be the money that was put in
//! ```
//!
//! With `--store` the accounts are on another server, and transfers are transactions over a store that is atomic one document at
//! a time. With `--crash` the workers are in a process of their own, which is killed (SIGKILL) and started again on the same
//! store; with `--processes` there are several. With `--lost-replies` commits are done and their answers lost: the library asks
//! the store for their outcomes, and where that answer is lost, too, the worker asks by id. With `--mechanism server-side` the
//! transactions are those of the server itself, as drivers use them; a commit whose answer was lost is sent again.

mod accounts;
pub(super) mod arguments;
mod attempts;
mod crash;
mod lost_answers;
mod mechanism;
mod open_transaction;
mod opened;
mod progress;
mod record;
mod report;
mod server_side;
mod steps;
mod totals;
mod workers;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use handfast_history::event::Bank;
use handfast_history::{Header, Model, Order};
use handfast_mongodb::SELECTION_TIMEOUT;
use handfast_store::routed::{Route, Routing, Scope};
use handfast_store::{Clock, Random, Sources};
use handfast_txn::Isolation;

use self::accounts::Accounts;
use self::arguments::{BankArguments, BankMechanism};
use self::lost_answers::LostAnswers;
use self::opened::OpenedBank;
use self::progress::Progress;
use self::record::Recorder;
use self::report::Report;
use self::steps::Kind;
use self::workers::Workers;
use crate::command::check::arguments::HistoryIsolation;
use crate::configuration::Stores;
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::scratch::Scratch;
use crate::store::{Directory, Location, Servers};

/// The variable that names the servers if no flag does. Child processes get it instead of the flag, because other users can see a
/// command line.
const STORE_VARIABLE: &str = "HANDFAST_STORE";

#[derive(Clone, Debug)]
struct Run {
    mechanism: BankMechanism,
    accounts: u32,
    workers: u32,
    /// The number of processes of the program, which share the workers.
    processes: u32,
    transfers: u64,
    isolation: Isolation,
    lost_replies_per_thousand: u16,
    kills: u32,
    seed: u64,
}

/// A transfer that a worker makes.
#[derive(Clone, Copy)]
struct MoneyTransfer {
    from: u32,
    to: u32,
    amount: i64,
}

impl MoneyTransfer {
    /// Returns a transfer of 1 to `amount_max` between two different accounts.
    fn random(random: &dyn Random, accounts: u32, amount_max: u64) -> Self {
        let count = u64::from(accounts);
        let from = random.next_u64() % count;
        let to = (from + 1 + random.next_u64() % (count - 1)) % count;
        let amount = 1 + (random.next_u64() % amount_max) as i64;
        MoneyTransfer { from: from as u32, to: to as u32, amount }
    }
}

/// The counts of a run, before its history is recorded.
#[derive(Default)]
struct RunResult {
    committed: u64,
    conflicts: u64,
    lost_answers: LostAnswers,
    kills: u32,
    /// Transfers that were under way at kills.
    under_way: u64,
    took: Duration,
}

/// Runs the bank, or, if `child` says so, the part of it that is killed.
pub(crate) async fn run(arguments: BankArguments) -> Result<Exit> {
    let sources = Sources::system()?;
    if let Some(kind) = Kind::of(arguments.mechanism) {
        return steps::run(&arguments, kind, sources).await;
    }
    let run = plan(&arguments, &sources)?;
    if let Some(first) = arguments.child {
        let location = location(&arguments)?.context("a worker process has no store")?;
        crash::child(&run, &location, first, sources).await?;
        return Ok(Exit::Good);
    }
    let console = Console::new(arguments.output);
    if let Some(history) = &arguments.history {
        // A pipe or a device has no length.
        let is_taken = std::fs::metadata(history).is_ok_and(|metadata| metadata.len() > 0);
        ensure!(!is_taken, Usage(format!("--history: {} is not empty: name another file", history.display())));
    }
    let location = location(&arguments)?;
    check_processes(&run, location.as_ref())?;
    let scratch = Scratch::create(&arguments.directory, "bank")?;
    let location = location.unwrap_or_else(|| directory(scratch.path.join("data")));
    let history = arguments.history.clone().unwrap_or_else(|| scratch.path.join("history.jsonl"));
    let header = Header {
        model: Some(Model::RwRegister),
        isolation: Some(expected(run.isolation)),
        // Events of several processes are read in the order in which they arrive, not in which they happened.
        order: Some(if run.processes > 1 { Order::Session } else { Order::RealTime }),
        bank: Some(Bank { total: Accounts::total(run.accounts), accounts: u64::from(run.accounts) }),
    };
    let file = File::create(&history).with_context(|| format!("cannot write {}", history.display()))?;
    let recorder = Arc::new(Recorder::new(BufWriter::new(file), &header, Arc::clone(&sources.clock))?);
    let records_before = prepare(&run, &location, &sources, &recorder, console).await?;
    let progress = Arc::new(Progress::new(console.progress("bank", "transfers", run.transfers))?);
    let work = if run.kills > 0 || run.processes > 1 {
        crash::run(&run, &location, &recorder, &sources, &progress).await?
    } else {
        work_here(&run, &location, &recorder, &sources, &progress).await?
    };
    let latencies = progress.finish();
    let end = audit(&run, &location, &sources, &recorder, records_before).await?;
    Arc::into_inner(recorder).context("a worker still uses the recorder")?.finish()?;
    let recorded = history.clone();
    let verdict = tokio::task::spawn_blocking(move || judge(&recorded)).await??;
    let report = Report::new(&run, &work, &latencies, &end, &verdict);
    console.report(|| report.text(), &report)?;
    Ok(if report.holds { Exit::Good } else { Exit::GuaranteeBroken })
}

/// Refuses several processes on a store that takes only one.
fn check_processes(run: &Run, location: Option<&Location>) -> Result<()> {
    let why = match location {
        _ if run.processes == 1 => return Ok(()),
        Some(Location::Servers(servers)) if servers.sole_writer => "only one process can write with --sole-writer",
        Some(Location::Servers(_)) if run.workers < run.processes => {
            "each process needs a worker, and --workers is smaller"
        }
        Some(Location::Servers(_)) => return Ok(()),
        Some(Location::Directory(_)) | None => {
            "only one process can open a data directory: several processes need --store"
        }
    };
    Err(Usage(format!("--processes: {why}")).into())
}

/// Returns the store of the accounts that a flag or the variable names.
fn location(arguments: &BankArguments) -> Result<Option<Location>> {
    let BankArguments { store, data, sole_writer, .. } = arguments;
    let (stores, from) = match (store.as_slice(), data) {
        ([], Some(_)) => (None, ""),
        ([], None) => (std::env::var(STORE_VARIABLE).ok().map(|text| Stores::of_text(&text)), STORE_VARIABLE),
        (stores, _) => (Some(Stores(stores.to_vec())), "--store"),
    };
    let is_server_side = arguments.mechanism == BankMechanism::ServerSide;
    let Some(stores) = stores else {
        if is_server_side {
            let text = "--mechanism server-side needs --store with a server that has transactions";
            return Err(Usage(text.to_owned()).into());
        }
        if *sole_writer {
            return Err(Usage("--sole-writer needs --store".to_owned()).into());
        }
        return Ok(data.clone().map(directory));
    };
    if is_server_side && *sole_writer {
        return Err(Usage(
            "--sole-writer does not apply to --mechanism server-side: it is for --mechanism transaction".to_owned(),
        )
        .into());
    }
    stores.check().map_err(|reason| Usage(format!("{from}: {reason}")))?;
    let routes = routes(&stores).map_err(|error| Usage(format!("{from}: {}", error.message())))?;
    if !routes.is_empty() && arguments.mechanism != BankMechanism::Transaction {
        return Err(Usage(format!("{from}: several stores need --mechanism transaction")).into());
    }
    let timeout = SELECTION_TIMEOUT;
    Ok(Some(Location::Servers(Servers { stores, routes, sole_writer: *sole_writer, timeout })))
}

fn directory(path: PathBuf) -> Location {
    Location::Directory(Directory { path, options: handfast_embedded::Options::default() })
}

/// Routes the accounts of each store; the first store has all other collections, too.
fn routes(stores: &Stores) -> handfast_store::Result<Vec<Route>> {
    let names: Vec<&str> = stores.0.iter().filter_map(|store| store.name.as_deref()).collect();
    let [_, _, ..] = stores.0.as_slice() else { return Ok(Vec::new()) };
    let scope = |index: usize| match index {
        0 => Ok(Scope::Rest),
        index => Accounts::namespace_in(index).map(Scope::Collection),
    };
    let route = |(index, name): (usize, &&str)| scope(index).map(|scope| Route { scope, part: (*name).to_owned() });
    let routes: Vec<Route> = names.iter().enumerate().map(route).collect::<Result<_, _>>()?;
    Routing::new(&names, &routes)?;
    Ok(routes)
}

fn plan(arguments: &BankArguments, sources: &Sources) -> Result<Run> {
    if arguments.accounts < 2 {
        return Err(Usage("--accounts must be at least 2, because money moves between two accounts".to_owned()).into());
    }
    if !(0.0..=50.0).contains(&arguments.lost_replies) {
        let text = format!("--lost-replies is a percentage between 0 and 50, not {}", arguments.lost_replies);
        return Err(Usage(text).into());
    }
    if (arguments.mechanism, arguments.isolation) == (BankMechanism::ServerSide, Some(HistoryIsolation::Serializable)) {
        let text = "--mechanism server-side has only --isolation snapshot: servers have no serializable transactions";
        return Err(Usage(text.to_owned()).into());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 500, as checked above")]
    let lost_replies_per_thousand = (arguments.lost_replies * 10.0).round() as u16;
    Ok(Run {
        mechanism: arguments.mechanism,
        accounts: arguments.accounts,
        workers: arguments.workers.max(1),
        processes: u32::from(arguments.processes.unwrap_or(1)),
        transfers: arguments.transfers,
        isolation: match arguments.isolation {
            None | Some(HistoryIsolation::Snapshot) => Isolation::Snapshot,
            Some(HistoryIsolation::Serializable) => Isolation::Serializable,
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

/// Opens the accounts with their money, and returns how many records of outcomes were there before.
async fn prepare(
    run: &Run,
    location: &Location,
    sources: &Sources,
    recorder: &Arc<Recorder>,
    console: Console,
) -> Result<u64> {
    let quiet = Run { lost_replies_per_thousand: 0, ..run.clone() };
    let opened = OpenedBank::open(&quiet, location, sources).await?;
    if opened.leaves_transactions_unused() {
        console.remark(
            "that server has its own transactions, which this run does not use; --mechanism server-side uses them",
        );
    }
    let accounts = Accounts::new(run.accounts, location.store_count())?;
    let records = opened.mechanism.records().await?;
    accounts.fill(&opened.mechanism, recorder).await?;
    opened.close().await?;
    Ok(records)
}

/// Runs all workers in this process.
async fn work_here(
    run: &Run,
    location: &Location,
    recorder: &Arc<Recorder>,
    sources: &Sources,
    progress: &Arc<Progress>,
) -> Result<RunResult> {
    let opened = OpenedBank::open(run, location, sources).await?;
    let began = sources.clock.elapsed();
    let outcomes = opened.outcomes();
    let workers = Workers {
        run: run.clone(),
        accounts: Accounts::new(run.accounts, location.store_count())?,
        mechanism: opened.mechanism.clone(),
        recorder: Arc::clone(recorder),
        outcomes: Arc::clone(&outcomes),
        sources: sources.clone(),
        first: 1,
    };
    let progress = Arc::clone(progress);
    let committed = workers.run(run.transfers, move |took| progress.transferred(took)).await?;
    let took = sources.clock.elapsed().saturating_sub(began);
    let lost_answers = outcomes.lost_answers();
    drop(outcomes);
    let tally = opened.close().await?;
    ensure!(tally.open == 0, "{} of the transactions were left open", tally.open);
    Ok(RunResult { committed, conflicts: tally.conflicts, lost_answers, kills: 0, under_way: 0, took })
}

/// The final state of the store, opened again.
struct FinalState {
    total: i64,
    expected: i64,
    /// Records of outcomes that are there and were not before.
    records: u64,
    /// The store keeps the records for their retention time.
    records_stay: bool,
    locks: u64,
}

async fn audit(
    run: &Run,
    location: &Location,
    sources: &Sources,
    recorder: &Arc<Recorder>,
    records_before: u64,
) -> Result<FinalState> {
    let quiet = Run { lost_replies_per_thousand: 0, ..run.clone() };
    let opened = OpenedBank::open(&quiet, location, sources).await?;
    let accounts = Accounts::new(run.accounts, location.store_count())?;
    let total = accounts.audit(&opened.mechanism, recorder, 0, async { Ok(()) }).await?;
    let total = total.context("the last audit failed with a conflict, although no other transaction was open")?;
    // Only records of outcomes may remain.
    let are_forgotten = opened.forget_outcomes().await?;
    let records_due = if are_forgotten { 0 } else { records_before };
    let records = opened.mechanism.records().await?.saturating_sub(records_due);
    let locks = opened.locks(&accounts, recorder).await?;
    opened.close().await?;
    Ok(FinalState { total, expected: Accounts::total(run.accounts), records, records_stay: !are_forgotten, locks })
}

fn judge(history: &Path) -> Result<handfast_history::Verdict> {
    let file = File::open(history).with_context(|| format!("cannot read {}", history.display()))?;
    Ok(handfast_history::judge(BufReader::new(file), None, None)?)
}

/// Returns the time since the recorder began, for the history.
fn nanoseconds(clock: &dyn Clock) -> Option<i64> {
    i64::try_from(clock.elapsed().as_nanos()).ok()
}
