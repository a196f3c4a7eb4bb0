//! The bank without transactions: money moves step by step, by two-phase commit or in a ledger, from several processes at once, while
//! they are killed and answers get lost.
//!
//! ```text
//! parent   go ── work ── kill one, start another ── pause ── finish, count ── go ── ..
//! child      transfer, transfer, x       (what it had begun is found by the others, or by the parent)
//! child      transfer, transfer ── ── ── ── ── ── ── rests
//! ```
//!
//! There is no isolation to check: others see transfers that are half done. The promises are about each moment at which no worker
//! is active: all the money is there, no transfer is half done, the balances are those that all transfers give, computed from the
//! first one, and every acknowledged transfer is among them.

mod books;
mod child;
mod host;
mod mechanism;
mod report;
mod worker_processes;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use handfast_store::{Random, SeededRandom, Sources};

use self::host::Host;
use self::mechanism::{BALANCE, PatternBank};
use self::report::Report;
use self::worker_processes::WorkerProcesses;
use super::progress::Progress;
use super::{MoneyTransfer, Run, STORE_VARIABLE, directory, location, plan};
use crate::command::bank::arguments::{BankArguments, BankMechanism};
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::scratch::Scratch;

/// Processes at once by default.
const PROCESSES: u16 = 3;
/// The shortest and longest time, in milliseconds, that the workers work before the books are checked.
const LIFE_MILLIS: std::ops::Range<u64> = 150..900;
/// Checks of the books before a finding counts: a request of a process that was killed may still arrive.
const ATTEMPTS_MAX: u32 = 20;
/// The time between two checks.
const PAUSE: Duration = Duration::from_millis(50);

/// The pattern that moves the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    TwoPhase,
    Ledger,
    Unprotected,
}

/// The task of all processes.
#[derive(Clone, Debug)]
struct Plan {
    run: Run,
    kind: Kind,
    processes: u32,
}

impl Kind {
    /// Returns none for transactions.
    pub(super) fn of(mechanism: BankMechanism) -> Option<Self> {
        match mechanism {
            BankMechanism::Transaction | BankMechanism::ServerSide => None,
            BankMechanism::TwoPhase => Some(Kind::TwoPhase),
            BankMechanism::Ledger => Some(Kind::Ledger),
            BankMechanism::Unprotected => Some(Kind::Unprotected),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::TwoPhase => "two-phase",
            Kind::Ledger => "ledger",
            Kind::Unprotected => "unprotected",
        }
    }
}

impl Plan {
    fn new(arguments: &BankArguments, kind: Kind, run: Run) -> Result<Self> {
        let flags = [
            ("--isolation", arguments.isolation.is_some(), "transaction and server-side"),
            ("--history", arguments.history.is_some(), "transaction and server-side"),
            ("--sole-writer", arguments.sole_writer, "transaction"),
        ];
        if let Some((flag, _, mechanisms)) = flags.iter().find(|(_, is_given, _)| *is_given) {
            let text = format!("{flag} does not apply to --mechanism {}: it is for {mechanisms}", kind.name());
            return Err(Usage(text).into());
        }
        let processes = u32::from(arguments.processes.unwrap_or(PROCESSES)).min(run.workers);
        Ok(Plan { run, kind, processes })
    }

    /// Returns how many workers the process in a slot has.
    fn workers_of(&self, slot: u32) -> u32 {
        let (all, processes) = (self.run.workers, self.processes);
        all / processes + u32::from(slot < all % processes)
    }
}

/// Runs the bank, or one of its processes.
pub(super) async fn run(arguments: &BankArguments, kind: Kind, sources: Sources) -> Result<Exit> {
    let run = plan(arguments, &sources)?;
    if let Some(number) = arguments.child {
        let location = location(arguments)?.context("a worker process has no store")?;
        child::work(&run, kind, &location, number, sources).await?;
        return Ok(Exit::Good);
    }
    let plan = Plan::new(arguments, kind, run)?;
    let (console, location) = (Console::new(arguments.output), location(arguments)?);
    let scratch = Scratch::create(&arguments.directory, "bank")?;
    let location = location.unwrap_or_else(|| directory(scratch.path.join("data")));
    let host = Host::open(&location, &sources).await?;
    let progress = Arc::new(Progress::new(console.progress("bank", "transfers", plan.run.transfers))?);
    let result = run_rounds(&plan, &host, &sources, &progress).await;
    progress.finish();
    host.close().await?;
    let report = result?;
    console.report(|| report.text(), &report)?;
    Ok(if report.holds { Exit::Good } else { Exit::GuaranteeBroken })
}

async fn run_rounds(plan: &Plan, host: &Host, sources: &Sources, progress: &Arc<Progress>) -> Result<Report> {
    let Run { accounts, transfers, kills, seed, .. } = plan.run;
    PatternBank::clear(&*host.store).await?;
    let bank =
        PatternBank::open(plan.kind, Arc::clone(&host.store), sources.clone(), "the bank", Duration::ZERO).await?;
    bank.fill(accounts).await?;
    let total = i64::from(accounts) * BALANCE;
    let mut report = Report::new(plan, total);
    let began = sources.clock.elapsed();
    let random = SeededRandom::new(seed ^ 0x0062_616e_6b73);
    let mut processes = WorkerProcesses::start(plan, host.uri.clone(), Arc::clone(progress)).await?;
    loop {
        processes.go()?;
        let enough = if report.totals.kills < kills { u64::MAX } else { transfers };
        let life = LIFE_MILLIS.start + random.next_u64() % (LIFE_MILLIS.end - LIFE_MILLIS.start);
        processes.work(Duration::from_millis(life), enough).await?;
        if report.totals.kills < kills {
            processes.kill_one(&random).await?;
            report.totals.kills += 1;
        }
        processes.pause().await?;
        let wrong = check_books(&bank, total, &processes, &mut report).await?;
        report.moments += 1;
        if let Some(wrong) = wrong {
            report.wrong = Some(wrong.to_string());
            break;
        }
        if report.totals.kills >= kills && processes.acknowledged.len() as u64 >= transfers {
            break;
        }
    }
    report.finish(&processes, sources.clock.elapsed().saturating_sub(began), &progress.finish());
    processes.stop().await?;
    Ok(report)
}

/// Counts everything while no worker works; returns what is wrong, if it stays so.
async fn check_books(
    bank: &PatternBank,
    total: i64,
    processes: &WorkerProcesses,
    report: &mut Report,
) -> Result<Option<anyhow::Error>> {
    for attempt in 1.. {
        bank.finish_begun().await?;
        let books = bank.books().await?;
        (report.totals.money_out, report.totals.transfers) = (books.total, books.made.len() as u64);
        match books.check(total, &processes.acknowledged) {
            Ok(()) => return Ok(None),
            Err(wrong) if attempt >= ATTEMPTS_MAX => return Ok(Some(wrong)),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    ensure!(false, "the books are checked a bounded number of times");
    Ok(None)
}
