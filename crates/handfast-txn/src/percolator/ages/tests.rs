//! Recorded ages never exceed the real ones, whichever processes watch them, and few are kept.

use std::collections::HashMap;
use std::time::Duration;

use handfast_store::{Random, SeededRandom};

use super::super::row::Timestamp;
use super::{AgeWatch, Ages, MARK_GAP_SHARE, MARKS_MAX};
use crate::percolator::versioned_document::VersionedDocument as _;

const RETENTION: Duration = Duration::from_secs(600);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Makes a collector's pass over the document, as it is read and written.
fn pass(stored: &Ages, watch: &mut AgeWatch, now: Timestamp, elapsed: Duration) -> Ages {
    let mut ages = Ages::from_document(&stored.to_document()).unwrap().next();
    ages.add(now);
    watch.update(&mut ages, elapsed);
    ages.thin_out(RETENTION);
    ages
}

#[test]
fn an_age_is_what_was_known_and_what_was_counted_since() {
    let (mut one, mut other) = (AgeWatch::default(), AgeWatch::default());
    let first = pass(&Ages::default(), &mut one, Timestamp(7), secs(1_000));
    assert_eq!(first.older_than(secs(0)), Timestamp(7));
    assert_eq!(first.older_than(Duration::from_millis(1)), Timestamp(0));
    let second = pass(&first, &mut other, Timestamp(9), secs(5));
    // This collector has counted 600 s; one that reads the document for the first time has counted none.
    let third = pass(&second, &mut one, Timestamp(11), secs(1_600));
    assert_eq!(third.older_than(RETENTION), Timestamp(7));
    let mut fresh = AgeWatch::default();
    let fourth = pass(&third, &mut fresh, Timestamp(13), secs(90_000));
    assert_eq!((fourth.older_than(secs(600)), fourth.older_than(secs(601))), (Timestamp(7), Timestamp(0)));
    // The time of a monotonic clock is added, and not counted twice.
    let fifth = pass(&fourth, &mut fresh, Timestamp(15), secs(90_600));
    assert_eq!((fifth.older_than(secs(1_200)), fifth.older_than(secs(1_201))), (Timestamp(7), Timestamp(0)));
}

#[test]
fn a_timestamp_is_no_younger_than_a_larger_one() {
    let mut watch = AgeWatch::default();
    let later = pass(&Ages::default(), &mut watch, Timestamp(9), secs(0));
    // The smaller timestamp was fetched before the larger one and is written after it.
    let both = pass(&later, &mut watch, Timestamp(7), secs(700));
    assert_eq!(
        both.marks.iter().map(|mark| (mark.at.0, mark.age)).collect::<Vec<_>>(),
        [(7, secs(700)), (9, secs(700))]
    );
}

/// Processes start and end, their machines sleep, their writes are lost, and some write a state that they read long before: no mark
/// ever has an age that exceeds its real one.
#[test]
fn no_age_is_too_great() {
    for seed in 0..50 {
        let random = SeededRandom::new(seed);
        let chance = |of: u64| random.next_u64() % of;
        let (mut real, mut stored, mut read_before) = (0, Ages::default(), Ages::default());
        let mut given_out: HashMap<Timestamp, u64> = HashMap::new();
        let mut processes: Vec<(AgeWatch, u64)> = (0..3).map(|_| (AgeWatch::default(), chance(1_000_000))).collect();
        for step in 1..1_000 {
            let gone_by = chance(100);
            real += gone_by;
            // A machine that sleeps counts no time.
            processes
                .iter_mut()
                .for_each(|(_, elapsed_secs)| *elapsed_secs += if chance(10) == 0 { 0 } else { gone_by });
            let at = Timestamp(step * 3);
            given_out.insert(at, real);
            let which = chance(3) as usize;
            let (watch, elapsed_secs) = &mut processes[which];
            let late = chance(20) == 0;
            let next = pass(if late { &read_before } else { &stored }, watch, at, secs(*elapsed_secs));
            match chance(10) {
                0 => {}
                1 => (processes[which].0, read_before) = (AgeWatch::default(), stored.clone()),
                _ => stored = next,
            }
            for mark in &stored.marks {
                assert!(mark.age <= secs(real - given_out[&mark.at]), "seed {seed}, step {step}: {mark:?}");
            }
        }
        assert!(stored.older_than(RETENTION) > Timestamp(0), "seed {seed}: nothing was forgotten");
    }
}

/// In a process that runs for days, or for a year, the marks stay few, and for any age there is a mark that is not much older.
#[test]
fn marks_are_few_and_near_any_age() {
    for (interval, passes) in [(secs(30), 6_000), (secs(3_600), 8_760)] {
        let (mut stored, mut watch) = (Ages::default(), AgeWatch::default());
        for number in 0..passes {
            let elapsed = interval * number;
            // The timestamp says when it was given out.
            stored = pass(&stored, &mut watch, Timestamp(elapsed.as_secs() + 1), elapsed);
            assert!(stored.marks.len() <= MARKS_MAX - 50, "{} marks after {elapsed:?}", stored.marks.len());
            if number % 500 != 499 {
                continue;
            }
            for age in [RETENTION, secs(24 * 3_600), secs(30 * 24 * 3_600)] {
                if elapsed > age * 2 {
                    let found = elapsed.saturating_sub(secs(stored.older_than(age).0.saturating_sub(1)));
                    assert!(
                        found >= age && found <= age + age / MARK_GAP_SHARE + interval,
                        "{found:?} for {age:?} after {elapsed:?}"
                    );
                }
            }
        }
    }
}
