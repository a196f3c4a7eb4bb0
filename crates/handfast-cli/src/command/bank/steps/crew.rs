//! The processes with the workers, as the one that started them sees them.

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

/// Longer than any transfer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines that wait to be read.
const LINES_MAX: usize = 10_000;

/// Something that a process has said, or that it has ended.
struct Told {
    /// Which process: numbers are not used again.
    number: u32,
    line: Option<String>,
}

struct Member {
    number: u32,
    /// Which of the processes at once.
    seat: u32,
    child: Child,
    orders: ChildStdin,
    /// It was told to work, and not yet to rest.
    works: bool,
    /// It says that nobody in it works.
    rests: bool,
    /// Answers that it says it has lost.
    lost: u64,
}

pub(super) struct Crew {
    plan: Plan,
    uri: ConnectionString,
    members: Vec<Member>,
    told: mpsc::Receiver<Told>,
    teller: mpsc::Sender<Told>,
    next: u32,
    progress: Arc<Progress>,
    /// What the members that are gone had lost.
    lost_before: u64,
    pub(super) acknowledged: HashSet<ObjectId>,
    pub(super) refused: u64,
}

impl Crew {
    /// Starts all processes, which rest at first.
    pub(super) async fn start(plan: &Plan, uri: ConnectionString, progress: Arc<Progress>) -> Result<Self> {
        let (teller, told) = mpsc::channel(LINES_MAX);
        let (members, acknowledged) = (Vec::new(), HashSet::new());
        let mut crew = Crew {
            plan: plan.clone(),
            uri,
            members,
            told,
            teller,
            next: 1,
            progress,
            lost_before: 0,
            acknowledged,
            refused: 0,
        };
        for seat in 0..plan.processes {
            crew.hire(seat)?;
        }
        crew.wait_for_rest().await?;
        Ok(crew)
    }

    /// Answers that were lost so far.
    pub(super) fn answers_lost(&self) -> u64 {
        self.lost_before + self.members.iter().map(|member| member.lost).sum::<u64>()
    }

    pub(super) fn go(&mut self) -> Result<()> {
        for member in &mut self.members {
            (member.works, member.rests) = (true, false);
            member.orders.write_all(b"go\n")?;
        }
        Ok(())
    }

    /// Lets them work for a while; less if enough is made.
    pub(super) async fn work(&mut self, life: Duration, enough: u64) -> Result<()> {
        let over = tokio::time::sleep(life);
        tokio::pin!(over);
        while (self.acknowledged.len() as u64) < enough {
            tokio::select! {
                () = &mut over => break,
                told = self.told.recv() => self.hear(told)?,
            }
        }
        Ok(())
    }

    /// Kills one of them, wherever it is, and starts another in its place.
    pub(super) async fn kill_one(&mut self, random: &dyn Random) -> Result<()> {
        let victim = usize::try_from(random.next_u64() % self.members.len().max(1) as u64)?;
        let mut member = self.members.swap_remove(victim);
        member.child.kill().context("a process cannot be killed")?;
        tokio::task::spawn_blocking(move || member.child.wait()).await??;
        self.progress.killed();
        self.lost_before += member.lost;
        self.hire(member.seat)
    }

    /// Asks all to rest, and waits until they do.
    pub(super) async fn pause(&mut self) -> Result<()> {
        // One that was started just now rests by itself, and says so.
        for member in self.members.iter_mut().filter(|member| member.works) {
            member.works = false;
            member.orders.write_all(b"pause\n")?;
        }
        self.wait_for_rest().await
    }

    /// Lets all end.
    pub(super) async fn dismiss(self) -> Result<()> {
        for Member { mut child, orders, .. } in self.members {
            drop(orders);
            let status = tokio::task::spawn_blocking(move || child.wait()).await??;
            ensure!(status.success(), "the workers ended with {status}");
        }
        Ok(())
    }

    async fn wait_for_rest(&mut self) -> Result<()> {
        while self.members.iter().any(|member| !member.rests) {
            let told = tokio::time::timeout(PATIENCE, self.told.recv()).await;
            self.hear(told.context("workers do not come to rest")?)?;
        }
        Ok(())
    }

    fn hear(&mut self, told: Option<Told>) -> Result<()> {
        let Some(Told { number, line }) = told else { bail!("nobody is left") };
        let member = self.members.iter_mut().find(|member| member.number == number);
        match (line.as_deref().and_then(|line| line.split_once(' ')), line.as_deref(), member) {
            (Some(("made", made)), _, _) => {
                let (id, micros) = made.split_once(' ').context("a transfer without the time that it took")?;
                let took = Duration::from_micros(micros.parse()?);
                self.acknowledged.insert(ObjectId::parse_str(id)?);
                self.progress.transferred(took);
            }
            (_, Some("refused"), _) => self.refused += 1,
            (Some(("paused", lost)), _, Some(member)) => (member.rests, member.lost) = (true, lost.parse()?),
            // What one that was killed had still to say; perhaps not to the end of a line.
            (_, _, None) => {}
            (_, None, Some(_)) => bail!("a process with workers has ended by itself"),
            (_, Some(line), Some(_)) => bail!("a process with workers said '{line}'"),
        }
        Ok(())
    }

    fn hire(&mut self, seat: u32) -> Result<()> {
        let number = self.next;
        self.next += 1;
        let mut child = self.command(seat, number)?.spawn().context("the workers cannot be started")?;
        let output = child.stdout.take().context("the child has no output")?;
        let orders = child.stdin.take().context("the child has no input")?;
        let teller = self.teller.clone();
        tokio::task::spawn_blocking(move || {
            // An error is the end: it was killed while it wrote.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if teller.blocking_send(Told { number, line: Some(line) }).is_err() {
                    return;
                }
            }
            // Nobody may be listening any more.
            let _ = teller.blocking_send(Told { number, line: None });
        });
        self.members.push(Member { number, seat, child, orders, works: false, rests: false, lost: 0 });
        Ok(())
    }

    fn command(&self, seat: u32, number: u32) -> Result<Command> {
        let Run { accounts, seed, lost_replies_per_thousand, .. } = &self.plan.run;
        let mut command = Command::new(std::env::current_exe().context("the program cannot find itself")?);
        let lost = f64::from(*lost_replies_per_thousand) / 10.0;
        command.args(["bank", "--mechanism", self.plan.kind.name(), "--child", &number.to_string()]);
        command.args(["--accounts", &accounts.to_string(), "--workers", &self.plan.workers_of(seat).to_string()]);
        command.args(["--seed", &seed.to_string(), "--lost-replies", &lost.to_string()]);
        command.env(STORE_VARIABLE, self.uri.secret());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Ok(command)
    }
}
