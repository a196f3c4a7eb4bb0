use std::time::Duration;

use super::{Arrivals, NOTES_MAX};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn age(arrivals: &Arrivals, number: u64, now: u64) -> Option<u64> {
    arrivals.age(number, seconds(now)).map(|age| age.as_secs())
}

/// Looks at (oldest number, next number, seconds).
fn looked(looks: &[(u64, u64, u64)]) -> Arrivals {
    let mut arrivals = Arrivals::default();
    for (oldest, next, at) in looks {
        arrivals.look(*oldest, *next, seconds(*at));
    }
    arrivals
}

#[test]
fn an_event_is_as_old_as_the_last_look_before_it() {
    let check = |looks: &[(u64, u64, u64)], (number, now), expected| {
        assert_eq!(age(&looked(looks), number, now), expected, "event {number} at {now} s after {looks:?}");
    };
    check(&[], (1, 10), None);
    // An empty queue, and events that came after one look and before the next one.
    check(&[(1, 1, 10), (1, 4, 12)], (1, 13), Some(3));
    check(&[(1, 1, 10), (1, 4, 12), (1, 6, 14)], (4, 14), Some(2));
    check(&[(1, 1, 10), (1, 4, 12), (1, 6, 14)], (6, 14), Some(0));
    // Nothing came for an hour.
    check(&[(5, 5, 10), (5, 5, 3_610), (5, 6, 3_612)], (5, 3_612), Some(2));
    // What was there before the first look counts from that one on, and so does what Redis has again after a loss.
    check(&[(5, 9, 10), (5, 9, 20)], (5, 20), Some(10));
    check(&[(9, 9, 10), (5, 9, 20), (5, 9, 25)], (5, 25), Some(5));
    // A saved event makes the next one the oldest.
    check(&[(1, 1, 10), (1, 4, 12), (1, 6, 14), (5, 7, 16)], (5, 16), Some(4));
    // The answer to an earlier look is late.
    check(&[(1, 1, 10), (4, 6, 14), (1, 4, 12)], (6, 15), Some(1));
    // A kind begins anew with numbers far above.
    check(&[(1, 3, 10), (1, 1_000_000, 12), (1_000_000, 1_000_001, 14)], (1_000_000, 15), Some(3));
}

#[test]
fn an_age_is_too_long_by_a_second_at_most() {
    let mut arrivals = Arrivals::default();
    for number in 0..100 {
        arrivals.note(number, Duration::from_millis(100 * number));
    }
    for number in 0..100 {
        let right = Duration::from_millis(10_000 - 100 * number);
        let age = arrivals.age(number, seconds(10)).expect("an age");
        assert!(age >= right && age - right < seconds(1), "event {number}: {age:?} and not {right:?}");
    }
}

#[test]
fn notes_are_bounded_and_an_age_stays_right_to_a_thousandth() {
    let mut arrivals = Arrivals::default();
    let days = 3 * 24 * 3_600;
    for number in 0..days {
        arrivals.note(number, seconds(number));
        assert!(arrivals.notes.len() <= NOTES_MAX);
    }
    for number in (0..days).step_by(997) {
        let (age, right) = (age(&arrivals, number, days).expect("an age"), days - number);
        assert!(age >= right && age - right <= days / 1_000, "event {number}: {age} and not {right}");
    }
    assert_eq!(age(&arrivals, 0, days), Some(days));
    arrivals.forget(days);
    assert_eq!((arrivals.notes.len(), arrivals.step), (1, super::STEP_MIN), "a queue that was emptied is exact again");
}
