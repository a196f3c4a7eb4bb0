//! Runs the engine Percolator in interleavings that a seed determines, and checks the history of its clients with the judges.
//!
//! Three clients on two processes change two documents, and a third process cleans. Each request to the store waits until the
//! [`scheduler`] releases it: one at a time, in an order that the seed determines. At times the scheduler loses a request or an
//! answer, delivers one late or twice, lets locks expire, or crashes a process. There are no threads and no running clock, so a seed
//! reproduces its run.
//!
//! `HANDFAST_SCHEDULES=100000` runs as many seeds of each kind, `HANDFAST_SCHEDULE=n` only that seed.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

mod collection_removals;
mod mutants;
mod scenario;
mod scheduler;

use std::collections::BTreeMap;

use handfast_sim::WorkloadKind;

use self::mutants::Mutant;
use self::scenario::{Scenario, ScheduleResult, run_schedule};
use self::scheduler::Disturbance;

/// The default number of seeds of each disturbance, which take half a minute.
const SCHEDULES: u64 = 500;
/// The default number of seeds in which machines sleep, which take longer. Seed 191 has found an engine that used only its monotonic
/// clock.
const SCHEDULES_WRONG_CLOCKS: u64 = 200;
/// The number of seeds within which a mutant has to be caught.
const CATCH_SEEDS_MAX: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Returns the seeds of the environment variables, or the default number.
pub(crate) fn seeds(schedules: u64) -> std::ops::Range<u64> {
    match number("HANDFAST_SCHEDULE") {
        Some(one) => one..one + 1,
        None => 0..number("HANDFAST_SCHEDULES").unwrap_or(schedules),
    }
}

async fn check_schedules(disturbance: Disturbance) {
    let (mut requests, mut committed, mut failed, mut unknown, mut injected, mut clock_faults) = (0, 0, 0, 0, 0, 0);
    let schedules = if disturbance == Disturbance::WrongClocks { SCHEDULES_WRONG_CLOCKS } else { SCHEDULES };
    for seed in seeds(schedules) {
        let kind = [WorkloadKind::ListAppend, WorkloadKind::Register, WorkloadKind::Bank][(seed % 3) as usize];
        let small = Scenario::small(kind, disturbance);
        let scenario = if seed % 10 == 9 { Scenario::long(disturbance) } else { small };
        let result = run_schedule(seed, scenario, None).await;
        assert!(result.problems.is_empty(), "{disturbance:?} seed {seed}:\n{}", result.problems.join("\n"));
        requests += result.requests;
        injected += result.faults;
        clock_faults += result.clock_faults;
        committed += result.committed;
        failed += result.failed;
        unknown += result.unknown;
    }
    println!(
        "{disturbance:?}: {} schedules of {requests} requests, {injected} faults; {committed} committed, {failed} failed, \
         {unknown} unknown",
        seeds(schedules).count()
    );
    // A run without commits and faults would pass any engine.
    let schedules = seeds(schedules).count() as u64;
    if schedules > 1 {
        assert!(committed > 3 * schedules && failed > schedules / 2, "{committed} committed, {failed} failed");
        assert!(
            matches!(disturbance, Disturbance::None | Disturbance::ExpiringLocks) || injected > schedules,
            "{injected} faults"
        );
        assert!(
            disturbance != Disturbance::WrongClocks || clock_faults > schedules,
            "{clock_faults} clocks set and machines asleep"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn histories_of_any_order_of_requests_are_clean() {
    check_schedules(Disturbance::None).await;
}

#[tokio::test(start_paused = true)]
async fn histories_are_clean_while_locks_expire() {
    check_schedules(Disturbance::ExpiringLocks).await;
}

#[tokio::test(start_paused = true)]
async fn histories_with_lost_late_and_repeated_requests_are_clean() {
    check_schedules(Disturbance::LostRequests).await;
}

#[tokio::test(start_paused = true)]
async fn histories_with_crashes_are_clean() {
    check_schedules(Disturbance::Crashes).await;
}

#[tokio::test(start_paused = true)]
async fn histories_with_wrong_clocks_and_sleeping_machines_are_clean() {
    check_schedules(Disturbance::WrongClocks).await;
}

#[tokio::test(start_paused = true)]
async fn a_seed_determines_the_schedule() {
    for seed in 0..20 {
        let run_once = || run_schedule(seed, Scenario::small(WorkloadKind::ListAppend, Disturbance::Crashes), None);
        let (one, other) = (run_once().await, run_once().await);
        assert_eq!((one.requests, one.trace), (other.requests, other.trace), "seed {seed}");
    }
}

/// Each mutant is caught by the expected anomaly. The search begins with a seed that has caught it before.
#[tokio::test(start_paused = true)]
async fn every_mutant_is_caught_by_name() {
    let mut escaped = Vec::new();
    for mutant in Mutant::ALL {
        let (scenario, name, first) = mutant.detection();
        let (mut found, mut others) = (None, BTreeMap::new());
        for seed in first..first + CATCH_SEEDS_MAX {
            let ScheduleResult { kinds, .. } = run_schedule(seed, scenario, Some(mutant)).await;
            if kinds.iter().any(|kind| kind == name) {
                found = Some(seed);
                break;
            }
            for kind in kinds {
                *others.entry(kind).or_insert(0) += 1;
            }
        }
        match found {
            Some(seed) => {
                println!("{mutant:?}: {name}, with seed {seed}");
                // The same run without the mutant passes.
                let sound = run_schedule(seed, scenario, None).await;
                assert!(sound.problems.is_empty(), "{scenario:?} seed {seed}:\n{}", sound.problems.join("\n"));
            }
            None => escaped.push(format!("{mutant:?}: no {name} in {CATCH_SEEDS_MAX} seeds, but {others:?}")),
        }
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}
