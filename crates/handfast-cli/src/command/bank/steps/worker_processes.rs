//! The worker processes, which the parent starts, kills and pauses.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bson::oid::ObjectId;
use handfast_store::Random;
use tokio::sync::mpsc;

use super::{Plan, Run, STORE_VARIABLE};
use crate::command::bank::progress::Progress;
use crate::configuration::ConnectionString;

/// The time that a process gets to pause: longer than any transfer.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Lines that wait to be read.
const LINES_MAX: usize = 10_000;

/// A line that a process has written.
struct Line {
    /// The number of the process; numbers are not used again.
    number: u32,
    /// The text, or none at the end of the output.
    text: Option<String>,
}

struct WorkerProcess {
    number: u32,
    slot: u32,
    child: Child,
    orders: ChildStdin,
    /// Whether the last order was to work.
    works: bool,
    /// Whether the process has reported that its workers are paused.
    is_paused: bool,
    answers_lost: u64,
}

pub(super) struct WorkerProcesses {
    plan: Plan,
    uri: ConnectionString,
    running: Vec<WorkerProcess>,
    lines: mpsc::Receiver<Line>,
    sender: mpsc::Sender<Line>,
    next: u32,
    progress: Arc<Progress>,
    /// Answers that killed processes had lost.
    lost_by_killed: u64,
    pub(super) acknowledged: HashSet<ObjectId>,
    pub(super) refused: u64,
}

impl WorkerProcesses {
    /// Starts all processes, which are paused at first.
    pub(super) async fn start(plan: &Plan, uri: ConnectionString, progress: Arc<Progress>) -> Result<Self> {
        let (sender, lines) = mpsc::channel(LINES_MAX);
        let (running, acknowledged) = (Vec::new(), HashSet::new());
        let mut processes = WorkerProcesses {
            plan: plan.clone(),
            uri,
            running,
            lines,
            sender,
            next: 1,
            progress,
            lost_by_killed: 0,
            acknowledged,
            refused: 0,
        };
        for slot in 0..plan.processes {
            processes.start_process(slot)?;
        }
        processes.wait_for_pause().await?;
        Ok(processes)
    }

    /// Returns how many answers were lost so far.
    pub(super) fn answers_lost(&self) -> u64 {
        self.lost_by_killed + self.running.iter().map(|process| process.answers_lost).sum::<u64>()
    }

    pub(super) fn go(&mut self) -> Result<()> {
        for process in &mut self.running {
            (process.works, process.is_paused) = (true, false);
            process.orders.write_all(b"go\n")?;
        }
        Ok(())
    }

    /// Lets the processes work for a while, or until `enough` transfers are acknowledged.
    pub(super) async fn work(&mut self, life: Duration, enough: u64) -> Result<()> {
        let over = tokio::time::sleep(life);
        tokio::pin!(over);
        while (self.acknowledged.len() as u64) < enough {
            tokio::select! {
                () = &mut over => break,
                line = self.lines.recv() => self.receive(line)?,
            }
        }
        Ok(())
    }

    /// Kills a random process, and starts another in its slot.
    pub(super) async fn kill_one(&mut self, random: &dyn Random) -> Result<()> {
        let victim = usize::try_from(random.next_u64() % self.running.len().max(1) as u64)?;
        let mut process = self.running.swap_remove(victim);
        process.child.kill().context("a process cannot be killed")?;
        tokio::task::spawn_blocking(move || process.child.wait()).await??;
        self.progress.killed();
        self.lost_by_killed += process.answers_lost;
        self.start_process(process.slot)
    }

    /// Pauses all processes, and waits until they are.
    pub(super) async fn pause(&mut self) -> Result<()> {
        // A process that was just started is paused by itself, and reports it.
        for process in self.running.iter_mut().filter(|process| process.works) {
            process.works = false;
            process.orders.write_all(b"pause\n")?;
        }
        self.wait_for_pause().await
    }

    /// Ends all processes.
    pub(super) async fn stop(self) -> Result<()> {
        for WorkerProcess { mut child, orders, .. } in self.running {
            drop(orders);
            let status = tokio::task::spawn_blocking(move || child.wait()).await??;
            ensure!(status.success(), "the workers ended with {status}");
        }
        Ok(())
    }

    async fn wait_for_pause(&mut self) -> Result<()> {
        while self.running.iter().any(|process| !process.is_paused) {
            let line = tokio::time::timeout(PAUSE_TIMEOUT, self.lines.recv()).await;
            self.receive(line.context("the worker processes did not pause in time")?)?;
        }
        Ok(())
    }

    fn receive(&mut self, line: Option<Line>) -> Result<()> {
        let Some(Line { number, text }) = line else { bail!("all worker processes have ended") };
        let process = self.running.iter_mut().find(|process| process.number == number);
        match (text.as_deref().and_then(|text| text.split_once(' ')), text.as_deref(), process) {
            (Some(("made", made)), _, _) => {
                let (id, micros) =
                    made.split_once(' ').context("a worker process reported a transfer without its duration")?;
                let took = Duration::from_micros(micros.parse()?);
                self.acknowledged.insert(ObjectId::parse_str(id)?);
                self.progress.transferred(took);
            }
            (_, Some("refused"), _) => self.refused += 1,
            (Some(("paused", lost)), _, Some(process)) => {
                (process.is_paused, process.answers_lost) = (true, lost.parse()?);
            }
            // The last lines of a killed process; perhaps a part of one.
            (_, _, None) => {}
            (_, None, Some(_)) => bail!("a worker process has ended unexpectedly"),
            (_, Some(text), Some(_)) => bail!("a worker process wrote an unknown line: '{text}'"),
        }
        Ok(())
    }

    fn start_process(&mut self, slot: u32) -> Result<()> {
        let number = self.next;
        self.next += 1;
        let mut child = self.command(slot, number)?.spawn().context("the workers cannot be started")?;
        let output = child.stdout.take().context("the child has no output")?;
        let orders = child.stdin.take().context("the child has no input")?;
        let sender = self.sender.clone();
        tokio::task::spawn_blocking(move || {
            // An error is the end of the output: the process was killed while it wrote.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.blocking_send(Line { number, text: Some(line) }).is_err() {
                    return;
                }
            }
            // The receiver may be gone.
            let _ = sender.blocking_send(Line { number, text: None });
        });
        self.running.push(WorkerProcess {
            number,
            slot,
            child,
            orders,
            works: false,
            is_paused: false,
            answers_lost: 0,
        });
        Ok(())
    }

    fn command(&self, slot: u32, number: u32) -> Result<Command> {
        let Run { accounts, seed, lost_replies_per_thousand, .. } = &self.plan.run;
        let mut command = Command::new(std::env::current_exe().context("cannot find the path of this program")?);
        let lost = f64::from(*lost_replies_per_thousand) / 10.0;
        command.args(["bank", "--mechanism", self.plan.kind.name(), "--child", &number.to_string()]);
        command.args(["--accounts", &accounts.to_string(), "--workers", &self.plan.workers_of(slot).to_string()]);
        command.args(["--seed", &seed.to_string(), "--lost-replies", &lost.to_string()]);
        command.env(STORE_VARIABLE, self.uri.secret());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Ok(command)
    }
}
