//! The workers in a process of their own, which is killed and started again.
//!
//! ```text
//! parent   start ── read events ── SIGKILL ── read what is left ── start again ── .. ── close its input ── last events
//! child             begin .. commit .. x      (what was begun and has no end: nobody knows)
//! ```
//!
//! The child writes each event to its standard output as it happens, before it goes on: so whatever it did, the parent
//! has read that it was begun. It ends when its standard input does, also when the parent dies.

use std::io::{BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use handfast_history::{EventKind, Header, HistoryReader, Item};
use handfast_store::{Random, SeededRandom, Sources};
use handfast_txn::Isolation;
use tokio::io::AsyncReadExt;

use super::doubts::Doubts;
use super::record::{Recorder, doubts_of};
use super::workers::{PROCESSES, Workers};
use super::{Opened, Place, Run, STORE_VARIABLE, Work};

/// A child lives at least and at most so long before it is killed.
const LIFE: std::ops::Range<u64> = 150..900;
/// Marks that one child may use.
const MARKS: i64 = 1 << 40;

/// The child: works until its standard input ends.
pub(super) async fn child(run: &Run, place: &Place, first: u32, sources: Sources) -> Result<()> {
    // What happens to one is not to happen to the next again.
    let run = &Run { seed: run.seed.wrapping_add(u64::from(first)), ..run.clone() };
    let opened = Opened::open(run, place, &sources).await?;
    let recorder = Recorder::new(Unbuffered, &Header::default(), Arc::clone(&sources.clock))?;
    let witness = opened.witness();
    let recorder = Arc::new(recorder.marks_above(i64::from(first) * MARKS).telling(Arc::clone(&witness)));
    let first = i64::from(first) * PROCESSES;
    let workers = Workers::new(run, opened.database.clone(), recorder, witness, sources, first)?;
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

/// The parent: kills and restarts until enough was killed and enough was moved.
pub(super) async fn run(
    run: &Run,
    place: &Place,
    recorder: &Arc<Recorder>,
    sources: &Sources,
    bar: &indicatif::ProgressBar,
) -> Result<Work> {
    let began = sources.clock.elapsed();
    let random = SeededRandom::new(run.seed ^ 0x006b_696c_6c73);
    let mut work = Work::default();
    let mut incarnation = 1;
    loop {
        let last = work.kills >= run.kills;
        let killed = Lifetime { run, place, incarnation, recorder: Arc::clone(recorder), bar: bar.clone() };
        let life = Duration::from_millis(LIFE.start + random.next_u64() % (LIFE.end - LIFE.start));
        let left = run.transfers.saturating_sub(work.committed);
        let tally = killed.live(if last { None } else { Some(life) }, left).await?;
        work.committed += tally.committed;
        work.conflicts += tally.failed;
        work.under_way += tally.open;
        work.doubts += tally.doubts;
        if last {
            break;
        }
        work.kills += 1;
        incarnation += 1;
        bar.set_message(format!("{} kills", work.kills));
    }
    work.took = sources.clock.elapsed().saturating_sub(began);
    Ok(work)
}

struct Lifetime<'a> {
    run: &'a Run,
    place: &'a Place,
    incarnation: u32,
    recorder: Arc<Recorder>,
    bar: indicatif::ProgressBar,
}

/// What one child did, as far as it came to tell.
#[derive(Default)]
struct Tally {
    committed: u64,
    failed: u64,
    /// Begun without an end.
    open: u64,
    doubts: Doubts,
}

impl Lifetime<'_> {
    /// One child's life, until it is killed, or until enough was moved if it is not to be killed.
    async fn live(self, life: Option<Duration>, enough: u64) -> Result<Tally> {
        let mut child = self.start()?;
        let output = child.stdout.take().context("the child has no output")?;
        let (committed, open) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicI64::new(0)));
        let (told, begun) = (Arc::clone(&committed), Arc::clone(&open));
        let (recorder, bar) = (Arc::clone(&self.recorder), self.bar.clone());
        let reading = tokio::task::spawn_blocking(move || follow(output, &recorder, &bar, &told, &begun));
        match life {
            Some(life) => {
                tokio::time::sleep(life).await;
                child.kill().context("the child cannot be killed")?;
            }
            None => {
                while committed.load(Ordering::Relaxed) < enough && child.try_wait()?.is_none() {
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
        let Followed { failed, doubts } = followed;
        Ok(Tally { committed: committed.load(Ordering::Relaxed), failed, open, doubts })
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
        match self.place {
            Place::Directory(path) => {
                command.arg("--data").arg(path);
            }
            Place::Server { uri, sole_writer } => {
                command.env(STORE_VARIABLE, uri.secret());
                command.args(sole_writer.then_some("--sole-writer"));
            }
        }
        command.args(["--accounts", &run.accounts.to_string(), "--workers", &run.workers.to_string()]);
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
}

/// Takes over what a child records, up to its end.
fn follow(
    output: impl std::io::Read,
    recorder: &Recorder,
    bar: &indicatif::ProgressBar,
    committed: &AtomicU64,
    open: &AtomicI64,
) -> Result<Followed> {
    let mut reader = HistoryReader::new(BufReader::new(output));
    let mut followed = Followed::default();
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
        if let Some(doubts) = doubts_of(&event)? {
            followed.doubts = doubts;
            continue;
        }
        let is_transfer = event.operations.iter().any(|operation| operation.written().is_some());
        match event.kind {
            EventKind::Invoke => {
                open.fetch_add(1, Ordering::Relaxed);
            }
            EventKind::Ok | EventKind::Fail | EventKind::Info => {
                open.fetch_sub(1, Ordering::Relaxed);
                followed.failed += u64::from(event.kind == EventKind::Fail);
                if event.kind == EventKind::Ok && is_transfer {
                    committed.fetch_add(1, Ordering::Relaxed);
                    bar.inc(1);
                }
            }
        }
        recorder.write(&event)?;
    }
}
