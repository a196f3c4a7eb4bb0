//! Releases requests to the store one at a time, in an order that a seed determines.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bson::DateTime;
use handfast_store::decorator::{Fault, Faulty};
use handfast_store::{Clock, DocumentStore, ManualClock, Random, SeededRandom};

/// A time longer than the lifetime of a lock.
const LOCK_TIME: Duration = Duration::from_secs(6);
/// A time longer than all retention times.
const LONG: Duration = Duration::from_secs(1_300);
/// The number of steps of the clock by the lifetime of a lock: together less than the longest delay of a request.
const TICKS_MAX: u32 = 30;
/// The number of requests of which one is delayed.
const HELD_ONE_IN: usize = 12;
/// The least and the largest number of other requests before a delayed one is released.
const HELD_FOR: (usize, usize) = (20, 100);
/// The errors of clocks in seconds: days, more than the retention, more than the lifetime of a lock, or none.
pub(crate) const WRONG_BY_SECONDS: [i64; 8] = [-3 * 86_400, -1_200, -10, 0, 0, 1, 1_200, 3 * 86_400];
/// The number of requests for which only the cleaner runs, at times, after a long pause.
const CLEANER_ALONE: usize = 60;
/// The number of requests of others while a machine sleeps.
const SLEEP: usize = 90;
/// The number of idle rounds after which a sleeping machine wakes up.
const NAP_MAX: u32 = 100;
/// The number of yields in which all tasks proceed to their next request.
const TURNS: u32 = 12;
/// The number of rounds without a request after which a schedule counts as stuck: pauses at locks are shorter.
const IDLE_MAX: u32 = 5_000;

/// The disturbances of a schedule; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// All requests are answered in time.
    None,
    /// Time passes, so that locks expire while their owners are alive.
    ExpiringLocks,
    /// Requests and answers are lost, late and repeated.
    LostRequests,
    /// Processes crash and restart; at times after a long pause.
    Crashes,
    /// Each process has its own clocks: its time of day is wrong and is changed; its monotonic clock stops while its machine sleeps.
    WrongClocks,
}

impl Disturbance {
    fn includes(self, disturbance: Disturbance) -> bool {
        self as u8 >= disturbance as u8
    }
}

pub(crate) type Gate = Faulty<dyn DocumentStore>;

/// Releases the requests of all processes.
pub(crate) struct Scheduler {
    pub(crate) gates: Vec<Arc<Gate>>,
    /// The clocks of each process and of the store, or one for all.
    pub(crate) clocks: Vec<Arc<ManualClock>>,
    pub(crate) random: SeededRandom,
    pub(crate) disturbance: Disturbance,
    ticks: u32,
    /// A delayed request: process, number, and the step of its release.
    held: Option<(usize, u64, usize)>,
    /// The step up to which only the cleaner runs.
    alone: usize,
    /// A process whose machine sleeps, and the step at which it wakes up.
    asleep: Option<(usize, usize)>,
    steps: usize,
    pub(crate) requests: u64,
    pub(crate) faults: u64,
    /// The number of changed clocks and sleeping machines.
    pub(crate) clock_faults: u64,
    /// All steps, one word each.
    pub(crate) trace: String,
}

impl Scheduler {
    pub(crate) fn new(
        gates: Vec<Arc<Gate>>,
        clocks: Vec<Arc<ManualClock>>,
        seed: u64,
        disturbance: Disturbance,
    ) -> Self {
        let random = SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        Scheduler {
            gates,
            clocks,
            random,
            disturbance,
            ticks: 0,
            held: None,
            alone: 0,
            asleep: None,
            steps: 0,
            requests: 0,
            faults: 0,
            clock_faults: 0,
            trace: String::new(),
        }
    }

    fn below(&self, bound: usize) -> usize {
        (self.random.next_u64() % bound.max(1) as u64) as usize
    }

    /// Releases requests until the schedule is done.
    pub(crate) async fn run(&mut self, is_done: impl Fn() -> bool, on_restart: impl AsyncFn()) {
        let mut idle = 0;
        loop {
            yield_to_all().await;
            if is_done() {
                return;
            }
            let mut awake = (0..self.gates.len()).filter(|process| !self.is_asleep(*process));
            if awake.all(|process| self.gates[process].frozen() == 0) {
                idle += 1;
                assert!(idle < IDLE_MAX, "stuck after {}", self.trace);
                if idle > NAP_MAX {
                    self.asleep = None;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            idle = 0;
            self.steps += 1;
            let (process, number) = self.choose();
            self.step(process, number, &on_restart).await;
        }
    }

    fn is_asleep(&self, process: usize) -> bool {
        self.asleep.is_some_and(|(at, until)| at == process && self.steps <= until)
    }

    /// Chooses a waiting request, with the same probability for each process that is not asleep and has no delayed request.
    fn choose(&mut self) -> (usize, u64) {
        let (steps, held) = (self.steps, self.held);
        let is_held = |process: usize, number: u64| {
            held.is_some_and(|(at, of, until)| (at, of) == (process, number) && until >= steps)
        };
        let is_free = |process: usize, number: u64| !is_held(process, number) && !self.is_asleep(process);
        let mut waiting: Vec<(usize, Vec<u64>)> = Vec::new();
        for (process, gate) in self.gates.iter().enumerate() {
            let numbers = gate.frozen_operations().into_iter().map(|(number, _)| number);
            let numbers: Vec<_> = numbers.filter(|number| is_free(process, *number)).collect();
            if !numbers.is_empty() {
                waiting.push((process, numbers));
            }
        }
        let cleaner = self.gates.len() - 1;
        if steps < self.alone && waiting.iter().any(|(process, _)| *process == cleaner) {
            waiting.retain(|(process, _)| *process == cleaner);
        }
        let Some((process, numbers)) = waiting.get(self.below(waiting.len())) else {
            // Only the delayed request is left.
            return self.held.take().map(|(process, number, _)| (process, number)).unwrap_or_default();
        };
        let number = numbers[self.below(numbers.len())];
        let process = *process;
        let is_over = held.is_none_or(|(_, _, until)| until < steps);
        if is_over && self.below(HELD_ONE_IN) == 0 {
            self.held = Some((process, number, steps + HELD_FOR.0 + self.below(HELD_FOR.1 - HELD_FOR.0)));
            self.note("hold");
            return self.choose();
        }
        (process, number)
    }

    async fn step(&mut self, process: usize, number: u64, on_restart: &impl AsyncFn()) {
        match self.below(100) {
            0..6 if self.disturbance.includes(Disturbance::ExpiringLocks) && self.ticks < TICKS_MAX => {
                self.ticks += 1;
                self.pass(LOCK_TIME);
                self.note("tick");
            }
            6..10 if self.disturbance.includes(Disturbance::LostRequests) => {
                let faults =
                    [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply, Fault::DeliverLate, Fault::Duplicate];
                self.release(process, number, Some(faults[self.below(faults.len())]));
            }
            10..12 if self.disturbance.includes(Disturbance::LostRequests) => {
                let late = self.below(self.gates.len());
                self.gates[late].deliver_late().await;
                self.note(&format!("late{late}"));
            }
            12..14 if self.disturbance.includes(Disturbance::Crashes) => self.crash(process, on_restart).await,
            14 if self.disturbance.includes(Disturbance::Crashes) => self.crash_all_for_long(on_restart).await,
            15..17 if self.disturbance.includes(Disturbance::WrongClocks) => self.set_clock(),
            17 if self.disturbance.includes(Disturbance::WrongClocks) => self.sleep(process).await,
            _ => self.release(process, number, None),
        }
    }

    fn release(&mut self, process: usize, number: u64, fault: Option<Fault>) {
        let operation = self.gates[process].frozen_operations().into_iter().find(|(of, _)| *of == number);
        self.gates[process].release_one(number, fault);
        self.requests += 1;
        self.faults += u64::from(fault.is_some());
        let operation = operation.map(|(_, operation)| operation.to_string()).unwrap_or_default();
        match fault {
            None => self.note(&format!("{process}:{operation}")),
            Some(fault) => self.note(&format!("{process}:{operation}!{fault:?}")),
        }
    }

    /// Crashes a process and restarts it.
    async fn crash(&mut self, process: usize, on_restart: &impl AsyncFn()) {
        self.note(&format!("crash{process}"));
        self.take_down(process);
        yield_to_all().await;
        on_restart().await;
        self.gates[process].restart();
    }

    /// Loses all requests of a process up to its restart.
    fn take_down(&mut self, process: usize) {
        self.faults += 1;
        // The first fault crashes the process; its other requests fail.
        for (number, _) in self.gates[process].frozen_operations() {
            let fault = if self.below(2) == 0 { Fault::CrashBefore } else { Fault::CrashAfter };
            self.gates[process].release_one(number, Some(fault));
        }
    }

    /// Crashes all processes, and restarts them after all locks have expired and all late requests have arrived.
    async fn crash_all_for_long(&mut self, on_restart: &impl AsyncFn()) {
        self.note("long");
        // No request may be in flight for that long, including repeated ones.
        while self.gates.iter().any(|gate| gate.frozen() > 0) {
            for process in 0..self.gates.len() {
                self.take_down(process);
            }
            yield_to_all().await;
        }
        for gate in &self.gates {
            gate.deliver_late().await;
        }
        on_restart().await;
        self.pass(LONG);
        self.ticks = 0;
        if self.below(2) == 0 {
            self.alone = self.steps + CLEANER_ALONE;
        }
        for gate in &self.gates {
            gate.restart();
        }
    }

    /// Advances all clocks.
    fn pass(&self, by: Duration) {
        self.clocks.iter().for_each(|clock| clock.advance(by));
    }

    /// Sets the time of day of a process, right or wrong. That of the store is always right.
    fn set_clock(&mut self) {
        let Some((store, processes)) = self.clocks.split_last() else { return };
        let process = self.below(processes.len());
        let wrong = WRONG_BY_SECONDS[self.below(WRONG_BY_SECONDS.len())];
        processes[process].set(DateTime::from_millis(store.now().timestamp_millis() + wrong * 1_000));
        self.clock_faults += 1;
        self.note(&format!("set{process}:{wrong}"));
    }

    /// Lets the machine of a process sleep for a long time, with its pending requests. Its monotonic clock stops.
    async fn sleep(&mut self, process: usize) {
        self.note(&format!("sleep{process}"));
        // Requests arrive in time or never.
        for gate in &self.gates {
            gate.deliver_late().await;
        }
        for other in (0..self.gates.len()).filter(|other| *other != process) {
            for (number, _) in self.gates[other].frozen_operations() {
                self.gates[other].release_one(number, Some(Fault::LoseRequest));
            }
        }
        for (of, clock) in self.clocks.iter().enumerate() {
            match of == process {
                true => clock.set(DateTime::from_millis(clock.now().timestamp_millis() + LONG.as_millis() as i64)),
                false => clock.advance(LONG),
            }
        }
        self.clock_faults += 1;
        self.ticks = 0;
        // The cleaner runs before the process wakes up.
        self.asleep = Some((process, self.steps + SLEEP));
        self.alone = self.steps + CLEANER_ALONE;
    }

    fn note(&mut self, what: &str) {
        let _ = write!(self.trace, "{what} ");
    }
}

/// Lets all tasks proceed to their next request.
pub(crate) async fn yield_to_all() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}
