//! `handfast blackpipe explore`: a program runs once to list its operations, then once for each of them and each fault.
//!
//! ```text
//! server    empty, in memory, another one for each run
//! setup     prepares the data, without faults
//! program   through the proxy
//! check     reads the data, without faults
//! ```

use std::io::Write as _;
use std::path::Path;
use std::thread::available_parallelism;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use futures_util::{StreamExt as _, stream};
use handfast_blackpipe::rules::OPERATIONS_MAX;
use handfast_blackpipe::{Condition, Fault, Injection, ObservedOperation, Pair, Rule, Rules};
use handfast_store::Sources;

use super::arguments::ExploreArguments;
use super::checks::Observation;
use super::output::OutputMemory;
use super::program::{self, Finished, Output};
use super::report::{Checked, CheckedRun, Occurrence, PairRun, Report, RunOutcome, Verdict};
use super::server::ServerBehindProxy;
use super::{junit, lines, selection};
use crate::console::{Console, write_remark};
use crate::exit::{Exit, Usage};
use crate::shutdown::{STOPPING, Shutdown};
use crate::unfinished::UnfinishedFile;

/// The arguments and the sources of all runs.
struct Exploration {
    arguments: ExploreArguments,
    sources: Sources,
}

struct ProgramRun {
    operations: Vec<ObservedOperation>,
    /// The number of late requests that the server did not answer.
    undelivered: u64,
    program: Finished,
    check: Option<Finished>,
    data: Observation,
}

/// Runs the program with the faults, and reports what was found.
pub(super) async fn run(arguments: ExploreArguments) -> Result<Exit> {
    let console = Console::new(arguments.output);
    let sources = Sources::system()?;
    // A report that cannot be written would be noticed only after all runs otherwise.
    let junit = arguments.junit.as_deref().map(begin_junit).transpose()?;
    let jobs = match arguments.jobs {
        Some(jobs) => jobs.get(),
        None => available_parallelism().map_or(1, std::num::NonZeroUsize::get),
    };
    let exploration = Exploration { arguments, sources };
    let shutdown = Shutdown::listen(|| write_remark(STOPPING)).context("cannot listen for signals")?;
    let (pairs, right) = tokio::select! {
        prepared = exploration.prepare() => prepared?,
        () = shutdown.clone().requested() => bail!("stopped before the first fault"),
    };
    let bar = console.progress("explore", "runs", pairs.len() as u64);
    // No tasks of their own: where this is dropped, because it was asked to stop, the programs are killed before the report.
    let (exploration, right) = (&exploration, right.as_ref());
    let runs = stream::iter(pairs.iter().cloned().enumerate())
        .map(|(index, pair)| async move { (index, exploration.run_pair(pair, right).await) });
    let mut memory = OutputMemory::default();
    let runs = runs.buffer_unordered(jobs).map(|(index, mut run)| {
        bar.inc(1);
        run.check_output_mut().into_iter().for_each(|output| memory.keep(output));
        (index, run)
    });
    let mut runs: Vec<(usize, PairRun)> = runs.take_until(shutdown.requested()).collect().await;
    runs.sort_by_key(|(index, _)| *index);
    bar.finish_and_clear();
    let is_run = |index: usize| runs.binary_search_by_key(&index, |(index, _)| *index).is_ok();
    let not_run = pairs.into_iter().enumerate().filter(|(index, _)| !is_run(*index)).map(|(_, pair)| pair).collect();
    let report =
        Report { arguments: &exploration.arguments, runs: runs.into_iter().map(|(_, run)| run).collect(), not_run };
    if let Some(mut file) = junit {
        let written = file.write_all(junit::xml(&report).as_bytes()).map_err(anyhow::Error::from);
        written.and_then(|()| file.finish()).context("--junit")?;
    }
    console.report(|| report.text(), &report.json())?;
    Ok(report.exit())
}

impl Exploration {
    /// Returns the pairs that are explored, and what the checks of data read after the run without faults.
    async fn prepare(&self) -> Result<(Vec<Pair>, Option<Observation>)> {
        let replay = &self.arguments.replay;
        if let (Some(pair), false) = (replay, self.arguments.checks.data.need_run_without_faults()) {
            return Ok((vec![pair.clone()], None));
        }
        let (operations, right) = self.run_without_faults().await?;
        let pairs = match replay {
            Some(pair) => vec![pair.clone()],
            None => selection::pairs(&operations, &self.arguments.only).map_err(Usage)?,
        };
        Ok((pairs, Some(right)))
    }

    /// Runs the program without faults. Returns its operations, and what the checks of data read.
    async fn run_without_faults(&self) -> Result<(Vec<ObservedOperation>, Observation)> {
        let run = self.run_program(Rules::default()).await?;
        let ProgramRun { operations, program, check, data, .. } = run;
        ensure!(program.ended.is_success(), "the program fails without any fault ({program})");
        if let Some(check) = check {
            ensure!(check.ended.is_success(), "--check fails without any fault ({check})");
        }
        ensure!(
            data.vacuous().is_empty(),
            "a check of the data would pass whatever the program does: {}; name a collection without its database, and a field of its documents",
            data.vacuous().join("; ")
        );
        let violations = self.arguments.checks.data.violations(&data, None);
        ensure!(violations.is_empty(), "the data are wrong without any fault: {}", violations.join("; "));
        ensure!(
            !operations.is_empty(),
            "the program sent no operation: it has to connect to the server that the environment variable MONGODB_URI names"
        );
        ensure!(
            operations.len() < OPERATIONS_MAX,
            "the program sends {OPERATIONS_MAX} operations or more: give it less work"
        );
        Ok((operations, data))
    }

    /// Runs the program with a fault. An error of the run says nothing about the other ones.
    async fn run_pair(&self, pair: Pair, right: Option<&Observation>) -> PairRun {
        let outcome = match self.check_pair(&pair, right).await {
            Ok(run) => RunOutcome::Checked(run),
            Err(error) => RunOutcome::Failed(format!("{error:#}")),
        };
        let mut run = PairRun { pair, outcome };
        // The outputs of thousands of runs are not needed.
        if let (Verdict::Right, RunOutcome::Checked(CheckedRun { checked, .. })) = (run.verdict(), &mut run.outcome)
            && let Some(check) = &mut checked.program
        {
            check.output = check.reason();
        }
        run
    }

    async fn check_pair(&self, pair: &Pair, right: Option<&Observation>) -> Result<CheckedRun> {
        let condition = Condition::of_operations(pair.operation.clone(), self.arguments.times);
        let rules = Rules::new(vec![Rule { injection: self.injection(pair.fault), condition }]);
        let ProgramRun { operations, undelivered, program, check, data } = self.run_program(rules).await?;
        let occurrence = occurrence(pair, &operations, undelivered);
        let checked = Checked { program: check, violations: self.arguments.checks.data.violations(&data, right) };
        Ok(CheckedRun { occurrence, program: program.ended, checked })
    }

    /// Returns the fault with the parameters that were asked for.
    fn injection(&self, fault: Fault) -> Injection {
        match fault {
            Fault::Delay => Injection::Delay(self.arguments.delay.0),
            Fault::Reorder => Injection::Reorder { within: self.arguments.delay.0 },
            Fault::Error => Injection::Error(self.arguments.error.reply()),
            fault => fault.into(),
        }
    }

    /// Runs setup, program and check on an empty server.
    async fn run_program(&self, rules: Rules) -> Result<ProgramRun> {
        let ExploreArguments { setup, checks, timeout, program, .. } = &self.arguments;
        let server = ServerBehindProxy::start(&self.sources, rules).await?;
        let direct = server.direct_uri();
        let output = if self.arguments.replay.is_some() { Output::Shown } else { Output::Kept };
        if let Some(setup) = setup {
            let setup = program::run_shell(setup, &direct, timeout.0, Output::Kept).await?;
            ensure!(setup.ended.is_success(), "--setup fails ({setup})");
        }
        let program = program::run(program, &server.proxy_uri(), timeout.0, output).await;
        let program = program.map_err(|error| anyhow!("{error:#}: the program stands behind --"))?;
        let late = tokio::time::timeout(timeout.0, server.handle.deliver_late()).await;
        late.map_err(|_| anyhow!("the server did not answer a late request within --timeout: give it more time"))?;
        let (operations, undelivered) = (server.handle.operations(), server.handle.undelivered_count());
        let check = match &checks.check {
            Some(check) => Some(program::run_shell(check, &direct, timeout.0, Output::Kept).await?),
            None => None,
        };
        let data = checks.data.observe(&server.database).await?;
        Ok(ProgramRun { operations, undelivered, program, check, data })
    }
}

/// Returns whether an operation of a run met its fault.
fn occurrence(pair: &Pair, operations: &[ObservedOperation], undelivered: u64) -> Occurrence {
    let is_unacknowledged =
        |found: &ObservedOperation| found.operation == pair.operation && !found.has_reply && pair.fault.needs_reply();
    if operations.iter().any(|operation| operation.fault.is_some()) {
        if undelivered > 0 { Occurrence::NotDelivered } else { Occurrence::Met }
    } else if operations.iter().any(is_unacknowledged) {
        Occurrence::WithoutReply
    } else {
        Occurrence::Missing
    }
}

/// Begins the report of --junit.
fn begin_junit(path: &Path) -> Result<UnfinishedFile> {
    let _pipe = lines::pipe_with_reader(path).with_context(|| format!("cannot write --junit {}", path.display()))?;
    UnfinishedFile::replace(path).context("--junit")
}

#[cfg(test)]
mod tests {
    use handfast_blackpipe::{Operation, Rule, Rules};

    use super::occurrence;
    use crate::command::blackpipe::report::Occurrence;

    #[test]
    fn a_fault_is_met_if_its_late_requests_are_delivered() {
        let check = |pair: &str, has_reply: bool, undelivered: u64, expected: Occurrence| {
            let pair: handfast_blackpipe::Pair = pair.parse().unwrap();
            let mut rules = Rules::new(vec![Rule::once(pair.clone())]);
            rules.decide(&Operation { has_reply, ..Operation::of("insert") });
            assert_eq!(occurrence(&pair, rules.operations(), undelivered), expected, "{pair}");
        };
        check("insert:1/duplicate", true, 0, Occurrence::Met);
        check("insert:1/duplicate", true, 1, Occurrence::NotDelivered);
        check("insert:1/cut", false, 0, Occurrence::WithoutReply);
        check("insert:2/cut", true, 0, Occurrence::Missing);
    }
}
