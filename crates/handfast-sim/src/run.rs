//! Lets processes carry out a workload, and has judged what they saw.

mod process;

use std::fmt;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use handfast_history::event::Bank;
use handfast_history::{Event, Expectation, Floors, Header, HistoryWriter, Judges, Verdict};
use handfast_store::{SeededRandom, Sources};

use self::process::Process;
use crate::workload::{ACCOUNT_MONEY, Plan, Step};
use crate::{Client, Failure, Recorder, Workload, WorkloadKind};

/// Attempts for each transaction that is to commit. A store that lets fewer through is as good as stuck.
const ATTEMPTS_PER_COMMIT_MAX: u64 = 50;
/// Attempts at a transaction that nobody else is in the way of: the setup, a final read.
const ATTEMPTS_ALONE_MAX: u64 = 20;
/// Keys that are read in one transaction at the end.
const FINAL_READ_KEYS: usize = 64;

/// How a run is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// Everything random comes from it. It is in every message.
    pub seed: u64,
    /// Clients at once.
    pub processes: u32,
    /// Transactions that are to commit.
    pub committed: u64,
    /// What the history is held against.
    pub expectation: Expectation,
    /// What has to have happened besides.
    pub floors: Floors,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store did what no workload asks for.
    #[error("seed {seed}: {failure}")]
    Store {
        /// Of the run.
        seed: u64,
        /// What it said.
        failure: Failure,
    },
    /// A process came to a bad end.
    #[error("seed {seed}: a process panicked")]
    Panicked {
        /// Of the run.
        seed: u64,
    },
    /// What was recorded is no history.
    #[error("seed {seed}")]
    History {
        /// Of the run.
        seed: u64,
        /// What is wrong with it.
        source: handfast_history::Error,
    },
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What was done.
    pub workload: Workload,
    /// How.
    pub options: RunOptions,
    /// What was recorded.
    pub header: Header,
    /// What was recorded.
    pub events: Vec<Event>,
    /// What the judges say.
    pub verdict: Verdict,
}

/// What all processes share.
pub(crate) struct Shared {
    pub(crate) workload: Workload,
    pub(crate) client: Arc<dyn Client>,
    pub(crate) recorder: Recorder,
    /// Values given out so far. The next one is one more.
    pub(crate) values: AtomicI64,
    pub(crate) committed: AtomicU64,
    pub(crate) attempts: AtomicU64,
}

/// Runs a workload until enough transactions have committed, reads every key once more, and has the history judged.
///
/// The sources give the clock alone; chance comes from the seed.
///
/// # Errors
/// The store does what no workload asks for. What it does wrong with transactions is in the outcome.
pub async fn run(
    workload: Workload,
    client: Arc<dyn Client>,
    sources: Sources,
    options: RunOptions,
) -> Result<Outcome, Error> {
    let seed = options.seed;
    let store_error = |failure| Error::Store { seed, failure };
    let shared = Arc::new(Shared {
        workload,
        client,
        recorder: Recorder::new(sources),
        values: AtomicI64::new(0),
        committed: AtomicU64::new(0),
        attempts: AtomicU64::new(0),
    });
    let process = |number: u32| {
        // Neighbouring seeds give streams that have nothing to do with each other (SplitMix64).
        let random = SeededRandom::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(number)));
        Process::new(Arc::clone(&shared), i64::from(number), random)
    };

    let mut alone = process(0);
    if let Some(plan) = workload.setup() {
        carry_out(&mut alone, &plan).await.map_err(store_error)?;
    }
    let mut running = Vec::new();
    for number in 1..=options.processes {
        let mut process = process(number);
        let shared = Arc::clone(&shared);
        running.push(tokio::spawn(async move {
            let attempts_max = options.committed.saturating_mul(ATTEMPTS_PER_COMMIT_MAX);
            while shared.committed.load(Ordering::Relaxed) < options.committed
                && shared.attempts.fetch_add(1, Ordering::Relaxed) < attempts_max
            {
                process.next().await?;
            }
            Ok(())
        }));
    }
    for task in running {
        task.await.map_err(|_| Error::Panicked { seed })?.map_err(store_error)?;
    }
    let keys = 0..workload.window(shared.values.load(Ordering::Relaxed)).end.saturating_add(workload.keys);
    for first in keys.clone().step_by(FINAL_READ_KEYS) {
        let last = first.saturating_add(FINAL_READ_KEYS as i64).min(keys.end);
        let plan = Plan { steps: vec![Step::Scan(first..last)], is_aborted: false };
        carry_out(&mut alone, &plan).await.map_err(store_error)?;
    }
    judge(workload, options, shared.recorder.take()).map_err(|source| Error::History { seed, source })
}

/// Carries out a plan, again if it has to be.
async fn carry_out(process: &mut Process, plan: &Plan) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS_ALONE_MAX {
        if process.carry_out(plan).await? {
            return Ok(());
        }
    }
    let why = process.failed();
    Err(Failure::Unexpected(format!(
        "{ATTEMPTS_ALONE_MAX} attempts failed although nobody else was there, the last one: {why}"
    )))
}

fn judge(workload: Workload, options: RunOptions, events: Vec<Event>) -> handfast_history::Result<Outcome> {
    let bank = (workload.kind == WorkloadKind::Bank)
        .then(|| Bank { total: workload.keys * ACCOUNT_MONEY, accounts: workload.keys.unsigned_abs() });
    let header = Header {
        model: Some(workload.model()),
        isolation: Some(options.expectation.isolation),
        order: Some(options.expectation.order),
        bank,
    };
    let mut judges = Judges::new(&header);
    for event in &events {
        judges.observe(event.clone())?;
    }
    let verdict = judges.finish(options.expectation)?;
    Ok(Outcome { workload, options, header, events, verdict })
}

impl Outcome {
    /// What is wrong: anomalies, judges who disagree, too little that happened; a line or more each.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints: Vec<String> = self.verdict.report.anomalies.iter().map(ToString::to_string).collect();
        complaints.extend(self.verdict.disagreement());
        complaints.extend(self.verdict.report.below(&self.options.floors));
        let (committed, due) = (self.verdict.report.counts.committed, self.options.committed);
        if committed < due {
            complaints.push(format!("{committed} transactions committed, {due} were to"));
        }
        complaints
    }

    /// Writes the history to a file, for `handfast check history`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> handfast_history::Result<()> {
        let mut writer = HistoryWriter::new(BufWriter::new(std::fs::File::create(path)?), &self.header)?;
        for event in &self.events {
            writer.write(event)?;
        }
        writer.finish().map(drop)
    }
}

/// One line for people: what was run, with which seed, how much happened.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.verdict.report.counts;
        write!(
            f,
            "{:?} {:?} seed {}: {} committed, {} failed, {} given up, {}+{} unknown, {} reads, {} of old versions",
            self.workload.kind,
            self.options.expectation.isolation,
            self.options.seed,
            counts.committed,
            counts.failed,
            counts.given_up,
            counts.unknown_seen,
            counts.unknown_unseen,
            counts.reads,
            counts.old_version_reads,
        )
    }
}
