//! Runs a workload and has the history judged.

mod process;

use std::fmt;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use handfast_history::event::Bank;
use handfast_history::{Event, Expectation, Header, HistoryWriter, Judges, MinimumCounts, Verdict};
use handfast_store::{SeededRandom, Sources};

use self::process::Process;
use crate::workload::{ACCOUNT_MONEY, Plan, Step};
use crate::{Client, Failure, Recorder, Workload, WorkloadKind};

/// The number of attempts per transaction that has to commit. A store that lets fewer commit is stuck.
const ATTEMPTS_PER_COMMIT_MAX: u64 = 50;
/// The number of attempts at a transaction that runs alone: the setup and the final reads.
const ATTEMPTS_ALONE_MAX: u64 = 20;
/// The number of keys that one final read covers.
const FINAL_READ_KEYS: usize = 64;

/// The parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The seed of all randomness; each message has it.
    pub seed: u64,
    /// The number of concurrent clients.
    pub processes: u32,
    /// The number of transactions that have to commit.
    pub committed: u64,
    /// The promise that the history is checked against.
    pub expectation: Expectation,
    /// The least counts that the history has to reach.
    pub minimum: MinimumCounts,
}

/// The reason why a run has no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store reported an error that no workload provokes.
    #[error("seed {seed}: {failure}")]
    Store {
        /// The seed of the run.
        seed: u64,
        /// The error of the store.
        failure: Failure,
    },
    /// A process panicked.
    #[error("seed {seed}: a process panicked")]
    Panicked {
        /// The seed of the run.
        seed: u64,
    },
    /// The recorded events are not a valid history.
    #[error("seed {seed}")]
    History {
        /// The seed of the run.
        seed: u64,
        /// The fault in the history.
        source: handfast_history::Error,
    },
}

/// The history of a run and its verdict.
#[derive(Debug)]
pub struct RunReport {
    /// The workload of the run.
    pub workload: Workload,
    /// The parameters of the run.
    pub options: RunOptions,
    /// The header of the history.
    pub header: Header,
    /// The events of the history.
    pub events: Vec<Event>,
    /// The findings of the judges.
    pub verdict: Verdict,
}

/// The state that all processes share.
pub(crate) struct Shared {
    pub(crate) workload: Workload,
    pub(crate) client: Arc<dyn Client>,
    pub(crate) recorder: Recorder,
    /// The last value that was assigned to a write.
    pub(crate) values: AtomicI64,
    pub(crate) committed: AtomicU64,
    pub(crate) attempts: AtomicU64,
}

/// Runs a workload until enough transactions have committed, reads every key once more, and has the history judged.
///
/// The sources provide only the clock; randomness comes from the seed.
///
/// # Errors
/// [`Error::Store`] if the store reports an error that no workload provokes. Anomalies are in the report and are no error.
pub async fn run(
    workload: Workload,
    client: Arc<dyn Client>,
    sources: Sources,
    options: RunOptions,
) -> Result<RunReport, Error> {
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
        // SplitMix64 makes the streams of neighbouring seeds independent.
        let random = SeededRandom::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(number)));
        Process::new(Arc::clone(&shared), i64::from(number), random)
    };

    let mut alone = process(0);
    if let Some(plan) = workload.setup() {
        execute(&mut alone, &plan).await.map_err(store_error)?;
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
        execute(&mut alone, &plan).await.map_err(store_error)?;
    }
    judge(workload, options, shared.recorder.take()).map_err(|source| Error::History { seed, source })
}

/// Executes a plan; repeats it after conflicts.
async fn execute(process: &mut Process, plan: &Plan) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS_ALONE_MAX {
        if process.execute(plan).await? {
            return Ok(());
        }
    }
    let why = process.failed();
    Err(Failure::Unexpected(format!(
        "{ATTEMPTS_ALONE_MAX} attempts failed without any concurrent transaction, the last one: {why}"
    )))
}

fn judge(workload: Workload, options: RunOptions, events: Vec<Event>) -> handfast_history::Result<RunReport> {
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
    Ok(RunReport { workload, options, header, events, verdict })
}

impl RunReport {
    /// Describes each anomaly, disagreement of the judges and count below its minimum, in one or more lines each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.verdict.report.anomalies.iter().map(ToString::to_string).collect();
        problems.extend(self.verdict.disagreement());
        problems.extend(self.verdict.report.shortfalls(&self.options.minimum));
        let (committed, due) = (self.verdict.report.counts.committed, self.options.committed);
        if committed < due {
            problems.push(format!("{committed} transactions committed, {due} were to"));
        }
        problems
    }

    /// Writes the history to a file, for `handfast check history`.
    ///
    /// # Errors
    /// [`Io`](handfast_history::Error::Io) if the file cannot be written.
    pub fn save(&self, path: &Path) -> handfast_history::Result<()> {
        let mut writer = HistoryWriter::new(BufWriter::new(std::fs::File::create(path)?), &self.header)?;
        for event in &self.events {
            writer.write(event)?;
        }
        writer.finish().map(drop)
    }
}

/// Shows the workload, the seed and the counts in one line.
impl fmt::Display for RunReport {
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
