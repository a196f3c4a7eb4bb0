//! The real engine under interleavings that a seed chooses, judged from what its clients saw.
//!
//! Three clients on two processes change two documents, a third process cleans, and each request to the store waits until
//! the [`conductor`] lets it go on: one at a time, in an order that follows from the seed. Now and then it loses a request or
//! an answer, delivers one late or twice, lets locks run out, or has a process crash. There is nothing else that chance
//! could come from: no threads, no clock that runs. So a seed gives the same run again.
//!
//! `HANDFAST_SCHEDULES=100000` runs as many seeds of each kind, `HANDFAST_SCHEDULE=n` that one alone.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

mod conductor;
mod departures;
mod mutants;
mod stage;

use std::collections::BTreeMap;

use handfast_sim::WorkloadKind;

use self::conductor::Weather;
use self::mutants::Mutant;
use self::stage::{Piece, Played, play};

/// Seeds of each kind of weather, if nothing else is said: half a minute's worth.
const SCHEDULES: u64 = 500;
/// Of those in which machines sleep, which are longer. In number 191 an engine was wrong that went by its stopwatch alone.
const SCHEDULES_ASTRAY: u64 = 200;
/// Seeds within which a mutant has to be caught.
const CATCH_SEEDS_MAX: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// The seeds that were asked for, or so many.
pub(crate) fn seeds(schedules: u64) -> std::ops::Range<u64> {
    match number("HANDFAST_SCHEDULE") {
        Some(one) => one..one + 1,
        None => 0..number("HANDFAST_SCHEDULES").unwrap_or(schedules),
    }
}

async fn all_are_right(weather: Weather) {
    let (mut requests, mut committed, mut failed, mut unknown, mut injected, mut astray) = (0, 0, 0, 0, 0, 0);
    let schedules = if weather == Weather::Astray { SCHEDULES_ASTRAY } else { SCHEDULES };
    for seed in seeds(schedules) {
        let kind = [WorkloadKind::ListAppend, WorkloadKind::Register, WorkloadKind::Bank][(seed % 3) as usize];
        let small = Piece::small(kind, weather);
        let piece = if seed % 10 == 9 { Piece::long(weather) } else { small };
        let played = play(seed, piece, None).await;
        assert!(played.complaints.is_empty(), "{weather:?} seed {seed}:\n{}", played.complaints.join("\n"));
        requests += played.requests;
        injected += played.faults;
        astray += played.astray;
        committed += played.committed;
        failed += played.failed;
        unknown += played.unknown;
    }
    println!(
        "{weather:?}: {} schedules of {requests} requests, {injected} faults; {committed} committed, {failed} failed, \
         {unknown} unknown",
        seeds(schedules).count()
    );
    // A run in which nothing happened says nothing.
    let schedules = seeds(schedules).count() as u64;
    if schedules > 1 {
        assert!(committed > 3 * schedules && failed > schedules / 2, "{committed} committed, {failed} failed");
        assert!(matches!(weather, Weather::Calm | Weather::Slow) || injected > schedules, "{injected} faults");
        assert!(weather != Weather::Astray || astray > schedules, "{astray} clocks set and machines asleep");
    }
}

#[tokio::test(start_paused = true)]
async fn any_order_of_requests() {
    all_are_right(Weather::Calm).await;
}

#[tokio::test(start_paused = true)]
async fn any_order_while_locks_run_out() {
    all_are_right(Weather::Slow).await;
}

#[tokio::test(start_paused = true)]
async fn any_order_with_lost_late_and_repeated_requests() {
    all_are_right(Weather::Lossy).await;
}

#[tokio::test(start_paused = true)]
async fn any_order_with_crashes() {
    all_are_right(Weather::Deadly).await;
}

#[tokio::test(start_paused = true)]
async fn any_order_with_clocks_that_are_wrong_and_machines_that_sleep() {
    all_are_right(Weather::Astray).await;
}

#[tokio::test(start_paused = true)]
async fn a_seed_replays_its_schedule() {
    for seed in 0..20 {
        let play = || play(seed, Piece::small(WorkloadKind::ListAppend, Weather::Deadly), None);
        let (one, other) = (play().await, play().await);
        assert_eq!((one.requests, one.trace), (other.requests, other.trace), "seed {seed}");
    }
}

/// Each is caught, by what it was said to break: soon, as it begins with a seed that has caught it before.
#[tokio::test(start_paused = true)]
async fn every_mutant_is_caught_by_name() {
    let mut escaped = Vec::new();
    for mutant in Mutant::ALL {
        let (piece, name, first) = mutant.breaks();
        let (mut found, mut others) = (None, BTreeMap::new());
        for seed in first..first + CATCH_SEEDS_MAX {
            let Played { kinds, .. } = play(seed, piece, Some(mutant)).await;
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
                // It is the mutation that is caught, and not the engine around it.
                let sound = play(seed, piece, None).await;
                assert!(sound.complaints.is_empty(), "{piece:?} seed {seed}:\n{}", sound.complaints.join("\n"));
            }
            None => escaped.push(format!("{mutant:?}: no {name} in {CATCH_SEEDS_MAX} seeds, but {others:?}")),
        }
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}
