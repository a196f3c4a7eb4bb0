//! The bank without transactions: money moves step by step, by two-phase commit or in a ledger, from several processes at once, while
//! they are killed and answers get lost.
//!
//! ```text
//! parent   go ── work ── kill one, start another ── pause ── settle, count ── go ── ..
//! child      transfer, transfer, x       (what it had begun is found by the others, or by the parent)
//! child      transfer, transfer ── ── ── ── ── ── ── rests
//! ```
//!
//! There is no isolation to be judged: in between, others see money on its way. What holds is said of every moment when nobody works:
//! all the money is there, nothing is half done, the balances are what the transfers have made of them, counted anew from the first one on,
//! and every transfer that was acknowledged is among them.

mod books;
mod child;
mod crew;
mod host;
mod mechanism;
mod report;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use handfast_store::{Random, SeededRandom, Sources};

use self::crew::Crew;
use self::host::Host;
use self::mechanism::{BALANCE, Steps};
use self::report::Report;
use super::progress::Progress;
use super::{Run, STORE_VARIABLE, directory, location, plan};
use crate::command::bank::arguments::{BankArguments, BankMechanism};
use crate::console::Console;
use crate::exit::{Exit, Usage};
use crate::scratch::Scratch;

/// Processes at once, unless somebody says so.
const PROCESSES: u16 = 3;
/// The workers work at least and at most so long before the books are looked at.
const LIFE_MILLIS: std::ops::Range<u64> = 150..900;
/// How often the books are looked at before what is found is believed: a request of a process that was killed may still arrive.
const LOOKS_MAX: u32 = 20;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Which building block moves the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    TwoPhase,
    Ledger,
    /// None.
    Unprotected,
}

/// What the processes are to do.
#[derive(Clone, Debug)]
struct Plan {
    run: Run,
    kind: Kind,
    processes: u32,
}

impl Kind {
    /// None for transactions.
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
        let misplaced = [
            ("--isolation", arguments.isolation.is_some()),
            ("--history", arguments.history.is_some()),
            ("--sole-writer", arguments.sole_writer),
        ];
        if let Some((flag, _)) = misplaced.iter().find(|(_, given)| *given) {
            let text = format!("{flag} is not for --mechanism {}: several processes work step by step", kind.name());
            return Err(Usage(text).into());
        }
        let processes = u32::from(arguments.processes.unwrap_or(PROCESSES)).min(run.workers);
        Ok(Plan { run, kind, processes })
    }

    /// The workers of one of the processes.
    fn workers_of(&self, seat: u32) -> u32 {
        let (all, processes) = (self.run.workers, self.processes);
        all / processes + u32::from(seat < all % processes)
    }
}

/// Runs the bank, or one of its processes.
pub(super) async fn run(arguments: &BankArguments, kind: Kind, sources: Sources) -> Result<Exit> {
    let run = plan(arguments, &sources)?;
    if let Some(number) = arguments.child {
        let location = location(arguments)?.context("workers without a store")?;
        child::work(&run, kind, &location, number, sources).await?;
        return Ok(Exit::Good);
    }
    let plan = Plan::new(arguments, kind, run)?;
    let (console, location) = (Console::new(arguments.output), location(arguments)?);
    let scratch = Scratch::create(&arguments.directory, "bank")?;
    let location = location.unwrap_or_else(|| directory(scratch.path.join("data")));
    let host = Host::open(&location, &sources).await?;
    let progress = Arc::new(Progress::new(console.progress("bank", "transfers", plan.run.transfers))?);
    let result = tour(&plan, &host, &sources, &progress).await;
    progress.finish();
    host.close().await?;
    let report = result?;
    console.report(|| report.text(), &report)?;
    Ok(if report.holds { Exit::Good } else { Exit::GuaranteeBroken })
}

async fn tour(plan: &Plan, host: &Host, sources: &Sources, progress: &Arc<Progress>) -> Result<Report> {
    let Run { accounts, transfers, kills, seed, .. } = plan.run;
    Steps::clear(&*host.store).await?;
    let patience = Duration::ZERO;
    let steps = Steps::open(plan.kind, Arc::clone(&host.store), sources.clone(), "the bank", patience).await?;
    steps.fill(accounts).await?;
    let total = i64::from(accounts) * BALANCE;
    let mut report = Report::new(plan, total);
    let began = sources.clock.elapsed();
    let random = SeededRandom::new(seed ^ 0x0062_616e_6b73);
    let mut crew = Crew::start(plan, host.uri.clone(), Arc::clone(progress)).await?;
    loop {
        crew.go()?;
        let enough = if report.totals.kills < kills { u64::MAX } else { transfers };
        let life = LIFE_MILLIS.start + random.next_u64() % (LIFE_MILLIS.end - LIFE_MILLIS.start);
        crew.work(Duration::from_millis(life), enough).await?;
        if report.totals.kills < kills {
            crew.kill_one(&random).await?;
            report.totals.kills += 1;
        }
        crew.pause().await?;
        let wrong = look(&steps, total, &crew, &mut report).await?;
        report.moments += 1;
        if let Some(wrong) = wrong {
            report.wrong = Some(wrong.to_string());
            break;
        }
        if report.totals.kills >= kills && crew.acknowledged.len() as u64 >= transfers {
            break;
        }
    }
    report.finish(&crew, sources.clock.elapsed().saturating_sub(began), &progress.finish());
    crew.dismiss().await?;
    Ok(report)
}

/// Counts everything while nobody works; says what is wrong, if that stays so.
async fn look(steps: &Steps, total: i64, crew: &Crew, report: &mut Report) -> Result<Option<anyhow::Error>> {
    for looks in 1.. {
        steps.settle().await?;
        let books = steps.books().await?;
        (report.totals.money_out, report.totals.transfers) = (books.total, books.made.len() as u64);
        match books.check(total, &crew.acknowledged) {
            Ok(()) => return Ok(None),
            Err(wrong) if looks >= LOOKS_MAX => return Ok(Some(wrong)),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    ensure!(false, "the books are looked at a bounded number of times");
    Ok(None)
}
