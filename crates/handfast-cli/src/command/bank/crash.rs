//! The workers in a process of their own, which is killed and started again; or in several, at the same time on one store.
//!
//! ```text
//! parent   start ── read events ── SIGKILL ── read what is left ── start again ── .. ── close its input ── last events
//! child             begin .. commit .. x      (what was begun and has no end: nobody knows)
//! ```
//!
//! The child writes each event to its standard output as it happens, before it goes on: so whatever it did, the parent
//! has read that it was begun. It ends when its standard input does, also when the parent dies.

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
use super::doubts::Doubts;
use super::mechanism::Mechanism;
use super::progress::Progress;
use super::record::{Aside, Recorder, aside_of};
use super::workers::{PROCESSES, Workers};
use super::{OpenedBank, Run, STORE_VARIABLE, Work};
use crate::store::Location;

/// A child lives at least and at most so long before it is killed.
const LIFE: std::ops::Range<u64> = 150..900;
/// Marks that one child may use.
const MARKS: i64 = 1 << 40;

/// The child: works until its standard input ends.
pub(super) async fn child(run: &Run, location: &Location, first: u32, sources: Sources) -> Result<()> {
    // What happens to one is not to happen to the next again.
    let run = &Run { seed: run.seed.wrapping_add(u64::from(first)), ..run.clone() };
    let opened = OpenedBank::open(run, location, &sources).await?;
    let recorder = Recorder::new(Unbuffered, &Header::default(), Arc::clone(&sources.clock))?;
    let witness = opened.witness();
    let recorder = Arc::new(recorder.marks_above(i64::from(first) * MARKS).telling(Arc::clone(&witness)));
    let first = i64::from(first) * PROCESSES;
    let accounts = Accounts::new(run.accounts, location.store_count())?;
    let workers = Workers::new(run, accounts, opened.mechanism.clone(), recorder, witness, sources, first)?;
    let ended = async {
        let mut nothing = [0];
        // An error means the same: nobody is there.
        let _ = tokio::io::stdin().read(&mut nothing).await;
    };
    tokio::select! {
        done = workers.run(u64::MAX, |_| ()) => { done?; }
        () = ended => {}
    }
    opened.close().await.map(|_| ())
}

/// Standard output, one write a call: an event is with the parent once it is written.
struct Unbuffered;

impl Write for Unbuffered {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().lock().flush()
    }
}

/// The parent: kills and restarts until enough was killed and enough was moved. Each of several processes is killed its share.
pub(super) async fn run(
    run: &Run,
    location: &Location,
    recorder: &Arc<Recorder>,
    sources: &Sources,
    progress: &Arc<Progress>,
) -> Result<Work> {
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
    let mut seats = JoinSet::new();
    for seat in 0..run.processes {
        seats.spawn(Arc::clone(&shared).one_after_the_other(seat));
    }
    let mut work = Work::default();
    while let Some(done) = seats.join_next().await {
        let done = done??;
        work.committed += done.committed;
        work.conflicts += done.conflicts;
        work.under_way += done.under_way;
        work.doubts += done.doubts;
        work.kills += done.kills;
    }
    work.took = sources.clock.elapsed().saturating_sub(began);
    Ok(work)
}

/// What those have in common who kill and restart.
struct Shared {
    run: Run,
    location: Location,
    sources: Sources,
    recorder: Arc<Recorder>,
    progress: Arc<Progress>,
    /// The number of the process that was started last.
    last: AtomicU32,
    /// Transfers of all of them.
    committed: Arc<AtomicU64>,
}

impl Shared {
    /// One process after the other in the same seat, until it was killed its share and all of them have moved enough.
    async fn one_after_the_other(self: Arc<Self>, seat: u32) -> Result<Work> {
        let Shared { run, location, sources, recorder, progress, .. } = &*self;
        let random = SeededRandom::new(run.seed.wrapping_add(u64::from(seat)) ^ 0x006b_696c_6c73);
        let (kills, workers) = (share(run.kills, seat, run.processes), share(run.workers, seat, run.processes));
        let mut work = Work::default();
        loop {
            let last = work.kills >= kills;
            let incarnation = self.last.fetch_add(1, Ordering::Relaxed) + 1;
            let (recorder, progress) = (Arc::clone(recorder), Arc::clone(progress));
            let all = Arc::clone(&self.committed);
            let killed = Lifetime { run, location, incarnation, workers, recorder, progress, all };
            let life = Duration::from_millis(LIFE.start + random.next_u64() % (LIFE.end - LIFE.start));
            let tally = killed.live(if last { None } else { Some(life) }).await?;
            work.committed += tally.committed;
            work.conflicts += tally.followed.failed;
            work.under_way += tally.open;
            work.doubts += tally.followed.doubts;
            end_sessions(run, location, sources, &tally.followed.sessions).await?;
            if last {
                return Ok(work);
            }
            work.kills += 1;
            self.progress.killed();
        }
    }
}

/// What one of several has of something that is shared out.
fn share(all: u32, seat: u32, seats: u32) -> u32 {
    all / seats + u32::from(seat < all % seats)
}

/// Ends what a process that is no more has left open on the server; otherwise it would be in the others' way until its time is
/// over.
async fn end_sessions(run: &Run, location: &Location, sources: &Sources, sessions: &[[u8; 16]]) -> Result<()> {
    if run.mechanism == BankMechanism::Transaction {
        // Whoever meets a lock of a dead process takes it away.
        return Ok(());
    }
    let opened = OpenedBank::open(run, location, sources).await?;
    if let Mechanism::Server(server) = &opened.mechanism {
        server.end_sessions(sessions).await?;
    }
    opened.close().await.map(|_| ())
}

struct Lifetime<'a> {
    run: &'a Run,
    location: &'a Location,
    incarnation: u32,
    workers: u32,
    recorder: Arc<Recorder>,
    progress: Arc<Progress>,
    /// Transfers of all processes.
    all: Arc<AtomicU64>,
}

/// What one child did, as far as it came to tell.
#[derive(Default)]
struct Tally {
    committed: u64,
    /// Begun without an end.
    open: u64,
    followed: Followed,
}

impl Lifetime<'_> {
    /// One child's life, until it is killed, or until enough was moved if it is not to be killed.
    async fn live(self, life: Option<Duration>) -> Result<Tally> {
        let mut child = self.start()?;
        let output = child.stdout.take().context("the child has no output")?;
        let (committed, open) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicI64::new(0)));
        let (told, begun) = ([Arc::clone(&committed), Arc::clone(&self.all)], Arc::clone(&open));
        let (recorder, progress) = (Arc::clone(&self.recorder), Arc::clone(&self.progress));
        let reading = tokio::task::spawn_blocking(move || follow(output, &recorder, &progress, &told, &begun));
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
        let followed = reading.await??;
        let status = tokio::task::spawn_blocking(move || child.wait()).await??;
        ensure!(life.is_some() || status.success(), "the workers ended with {status}");
        let open = u64::try_from(open.load(Ordering::Relaxed)).unwrap_or(0);
        Ok(Tally { committed: committed.load(Ordering::Relaxed), open, followed })
    }

    fn start(&self) -> Result<Child> {
        let program = std::env::current_exe().context("the program cannot find itself")?;
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
        command.args(["--lost-replies", &lost_percent.to_string(), "--child", &self.incarnation.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.spawn().context("the workers cannot be started")
    }
}

/// What a child has told once it is gone.
#[derive(Default)]
struct Followed {
    /// Runs that were rolled back.
    failed: u64,
    doubts: Doubts,
    /// Of the server, that it has used.
    sessions: Vec<[u8; 16]>,
}

/// Takes over what a child records, up to its end.
fn follow(
    output: impl std::io::Read,
    recorder: &Recorder,
    progress: &Progress,
    committed: &[Arc<AtomicU64>],
    open: &AtomicI64,
) -> Result<Followed> {
    let mut reader = HistoryReader::new(BufReader::new(output));
    let mut followed = Followed::default();
    // When the first run of a process's transfer began.
    let mut begun: HashMap<i64, i64> = HashMap::new();
    loop {
        let event = match reader.next_item() {
            Ok(Some(Item::Event(event))) => event,
            Ok(Some(Item::Header(_))) => continue,
            Ok(None) => return Ok(followed),
            // The line that was being written when the child died: what it tells was not yet to be relied on.
            Err(handfast_history::Error::Line { .. }) if reader.next_item().is_ok_and(|rest| rest.is_none()) => {
                return Ok(followed);
            }
            Err(error) => bail!("the workers recorded something that is no history: {error}"),
        };
        match aside_of(&event)? {
            None => {}
            Some(Aside::Doubts(doubts)) => {
                followed.doubts = doubts;
                continue;
            }
            Some(Aside::Session(id)) => {
                followed.sessions.push(id);
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
                followed.failed += u64::from(event.kind == EventKind::Fail);
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
