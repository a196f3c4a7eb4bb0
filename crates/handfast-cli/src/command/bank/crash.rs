//! The workers in a child process that is killed and started again, or in several at the same time on one store.
//!
//! ```text
//! parent   start ── read events ── SIGKILL ── read what is left ── start again ── .. ── close its input ── last events
//! child             begin .. commit .. x      (begun without an end: the outcome is unknown)
//! ```
//!
//! The child writes each event to its standard output before it goes on: so the parent has read the beginning of all that it
//! did. It ends when its standard input does, also when the parent dies.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use handfast_history::{EventKind, Header, HistoryReader, Item};
use handfast_store::{Random, SeededRandom, Sources};
use handfast_txn::Isolation;
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;

use super::accounts::Accounts;
use super::arguments::BankMechanism;
use super::lost_answers::LostAnswers;
use super::mechanism::Mechanism;
use super::progress::Progress;
use super::record::{Recorder, SideMessage, side_message_of};
use super::workers::{PROCESSES, Workers};
use super::{OpenedBank, Run, RunResult, STORE_VARIABLE};
use crate::store::Location;

/// The shortest and longest life of a child before it is killed, in milliseconds.
const LIFE_MILLIS: std::ops::Range<u64> = 150..900;
/// Marks that one child may use.
const MARKS: i64 = 1 << 40;

/// Runs the child process, which works until its standard input ends.
pub(super) async fn child(run: &Run, location: &Location, first: u32, sources: Sources) -> Result<()> {
    // Each child makes other choices.
    let run = &Run { seed: run.seed.wrapping_add(u64::from(first)), ..run.clone() };
    let opened = OpenedBank::open(run, location, &sources).await?;
    let recorder = Recorder::new(Unbuffered, &Header::default(), Arc::clone(&sources.clock))?;
    let outcomes = opened.outcomes();
    let counter = Arc::clone(&outcomes);
    let recorder = recorder.marks_above(i64::from(first) * MARKS).reporting_to_parent(move || counter.lost_answers());
    let workers = Workers {
        run: run.clone(),
        accounts: Accounts::new(run.accounts, location.store_count())?,
        mechanism: opened.mechanism.clone(),
        recorder: Arc::new(recorder),
        outcomes,
        sources,
        first: i64::from(first) * PROCESSES,
    };
    let ended = async {
        let mut nothing = [0];
        // An error means the same: the parent is gone.
        let _ = tokio::io::stdin().read(&mut nothing).await;
    };
    tokio::select! {
        done = workers.run(u64::MAX, |_| ()) => { done?; }
        () = ended => {}
    }
    opened.close().await.map(|_| ())
}

/// Standard output without a buffer, so that the parent has an event once it is written.
struct Unbuffered;

impl Write for Unbuffered {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().lock().flush()
    }
}

/// Runs the parent: kills and restarts children until there were enough kills and enough transfers. Each of several slots has its share
/// of the kills.
pub(super) async fn run(
    run: &Run,
    location: &Location,
    recorder: &Arc<Recorder>,
    sources: &Sources,
    progress: &Arc<Progress>,
) -> Result<RunResult> {
    let began = sources.clock.elapsed();
    let shared = Arc::new(Shared {
        run: run.clone(),
        location: location.clone(),
        sources: sources.clone(),
        recorder: Arc::clone(recorder),
        progress: Arc::clone(progress),
        last: AtomicU32::new(0),
        committed: Arc::default(),
    });
    let mut slots = JoinSet::new();
    for slot in 0..run.processes {
        slots.spawn(Arc::clone(&shared).run_children(slot));
    }
    let mut work = RunResult::default();
    while let Some(done) = slots.join_next().await {
        let done = done??;
        work.committed += done.committed;
        work.conflicts += done.conflicts;
        work.under_way += done.under_way;
        work.lost_answers += done.lost_answers;
        work.kills += done.kills;
    }
    work.took = sources.clock.elapsed().saturating_sub(began);
    Ok(work)
}

/// The state that all slots share.
struct Shared {
    run: Run,
    location: Location,
    sources: Sources,
    recorder: Arc<Recorder>,
    progress: Arc<Progress>,
    /// The number of the child that was started last.
    last: AtomicU32,
    /// Transfers of all children.
    committed: Arc<AtomicU64>,
}

impl Shared {
    /// Runs one child after another in a slot, until the slot had its share of kills and all children together made enough transfers.
    async fn run_children(self: Arc<Self>, slot: u32) -> Result<RunResult> {
        let Shared { run, location, sources, recorder, progress, .. } = &*self;
        let random = SeededRandom::new(run.seed.wrapping_add(u64::from(slot)) ^ 0x006b_696c_6c73);
        let (kills, workers) = (share(run.kills, slot, run.processes), share(run.workers, slot, run.processes));
        let mut work = RunResult::default();
        loop {
            let last = work.kills >= kills;
            let child_number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
            let (recorder, progress) = (Arc::clone(recorder), Arc::clone(progress));
            let all = Arc::clone(&self.committed);
            let child = ChildRun { run, location, child_number, workers, recorder, progress, all };
            let life =
                Duration::from_millis(LIFE_MILLIS.start + random.next_u64() % (LIFE_MILLIS.end - LIFE_MILLIS.start));
            let tally = child.run(if last { None } else { Some(life) }).await?;
            work.committed += tally.committed;
            work.conflicts += tally.events.failed;
            work.under_way += tally.open;
            work.lost_answers += tally.events.lost_answers;
            end_sessions(run, location, sources, &tally.events.sessions).await?;
            if last {
                return Ok(work);
            }
            work.kills += 1;
            self.progress.killed();
        }
    }
}

/// Returns the share of a slot in a number that is divided among all.
fn share(all: u32, slot: u32, slots: u32) -> u32 {
    all / slots + u32::from(slot < all % slots)
}

/// Ends the sessions of a killed child on the server: otherwise their open transactions would block others until their time is over.
async fn end_sessions(run: &Run, location: &Location, sources: &Sources, sessions: &[[u8; 16]]) -> Result<()> {
    if run.mechanism == BankMechanism::Transaction {
        // Other transactions resolve the locks of a killed child.
        return Ok(());
    }
    let opened = OpenedBank::open(run, location, sources).await?;
    if let Mechanism::Server(server) = &opened.mechanism {
        server.end_sessions(sessions).await?;
    }
    opened.close().await.map(|_| ())
}

struct ChildRun<'a> {
    run: &'a Run,
    location: &'a Location,
    child_number: u32,
    workers: u32,
    recorder: Arc<Recorder>,
    progress: Arc<Progress>,
    /// Transfers of all processes.
    all: Arc<AtomicU64>,
}

/// The counts of a child, as far as it has reported them.
#[derive(Default)]
struct ChildTally {
    committed: u64,
    /// Transactions that were begun and have no end.
    open: u64,
    events: ChildEvents,
}

impl ChildRun<'_> {
    /// Runs a child until it is killed after `life`; without `life`, until all children together made enough transfers.
    async fn run(self, life: Option<Duration>) -> Result<ChildTally> {
        let mut child = self.start()?;
        let output = child.stdout.take().context("the child has no output")?;
        let (committed, open) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicI64::new(0)));
        let (counters, begun) = ([Arc::clone(&committed), Arc::clone(&self.all)], Arc::clone(&open));
        let (recorder, progress) = (Arc::clone(&self.recorder), Arc::clone(&self.progress));
        let reading = tokio::task::spawn_blocking(move || follow(output, &recorder, &progress, &counters, &begun));
        match life {
            Some(life) => {
                tokio::time::sleep(life).await;
                child.kill().context("the child cannot be killed")?;
            }
            None => {
                while self.all.load(Ordering::Relaxed) < self.run.transfers && child.try_wait()?.is_none() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                // The end of its input asks it to stop.
                drop(child.stdin.take());
            }
        }
        let events = reading.await??;
        let status = tokio::task::spawn_blocking(move || child.wait()).await??;
        ensure!(life.is_some() || status.success(), "the workers ended with {status}");
        let open = u64::try_from(open.load(Ordering::Relaxed)).unwrap_or(0);
        Ok(ChildTally { committed: committed.load(Ordering::Relaxed), open, events })
    }

    fn start(&self) -> Result<Child> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let run = self.run;
        let isolation = match run.isolation {
            Isolation::Snapshot => "snapshot",
            Isolation::Serializable => "serializable",
        };
        let mut command = Command::new(program);
        command.arg("bank");
        if run.mechanism == BankMechanism::ServerSide {
            command.args(["--mechanism", "server-side"]);
        }
        match self.location {
            Location::Directory(directory) => {
                command.arg("--data").arg(&directory.path);
            }
            Location::Servers(servers) => {
                command.env(STORE_VARIABLE, servers.stores.secret());
                command.args(servers.sole_writer.then_some("--sole-writer"));
            }
        }
        command.args(["--accounts", &run.accounts.to_string(), "--workers", &self.workers.to_string()]);
        command.args(["--isolation", isolation, "--seed", &run.seed.to_string()]);
        let lost_percent = f64::from(run.lost_replies_per_thousand) / 10.0;
        command.args(["--lost-replies", &lost_percent.to_string(), "--child", &self.child_number.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.spawn().context("the workers cannot be started")
    }
}

/// Counts over the events of a child.
#[derive(Default)]
struct ChildEvents {
    /// Attempts that were rolled back.
    failed: u64,
    lost_answers: LostAnswers,
    /// Sessions of the server that the child has used.
    sessions: Vec<[u8; 16]>,
}

/// Copies the events of a child into the history, up to the end of its output.
fn follow(
    output: impl std::io::Read,
    recorder: &Recorder,
    progress: &Progress,
    committed: &[Arc<AtomicU64>],
    open: &AtomicI64,
) -> Result<ChildEvents> {
    let mut reader = HistoryReader::new(BufReader::new(output));
    let mut events = ChildEvents::default();
    // When the first attempt of a transfer began, by the process of the history.
    let mut begun: HashMap<i64, i64> = HashMap::new();
    loop {
        let event = match reader.next_item() {
            Ok(Some(Item::Event(event))) => event,
            Ok(Some(Item::Header(_))) => continue,
            Ok(None) => return Ok(events),
            // The line that was being written when the child was killed.
            Err(handfast_history::Error::Line { .. }) if reader.next_item().is_ok_and(|rest| rest.is_none()) => {
                return Ok(events);
            }
            Err(error) => bail!("a worker process wrote an invalid history: {error}"),
        };
        match side_message_of(&event)? {
            None => {}
            Some(SideMessage::LostAnswers(lost_answers)) => {
                events.lost_answers = lost_answers;
                continue;
            }
            Some(SideMessage::Session(id)) => {
                events.sessions.push(id);
                continue;
            }
        }
        let now = event.nanoseconds.unwrap_or(0);
        let is_transfer = event.operations.iter().any(|operation| operation.written().is_some());
        match event.kind {
            EventKind::Invoke => {
                open.fetch_add(1, Ordering::Relaxed);
                begun.entry(event.process).or_insert(now);
            }
            EventKind::Ok | EventKind::Fail | EventKind::Info => {
                open.fetch_sub(1, Ordering::Relaxed);
                events.failed += u64::from(event.kind == EventKind::Fail);
                let first = if event.kind == EventKind::Fail { None } else { begun.remove(&event.process) };
                if event.kind == EventKind::Ok && is_transfer {
                    for count in committed {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    let took = u64::try_from(now - first.unwrap_or(now)).unwrap_or(0);
                    progress.transferred(Duration::from_nanos(took));
                }
            }
        }
        recorder.write(&event)?;
    }
}
