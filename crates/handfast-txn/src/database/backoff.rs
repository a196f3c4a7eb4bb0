//! The random pause before a transaction is run again. It grows with each attempt, so that losers of a conflict do not return all at once.
//!
//! ```text
//! attempt    0           1         2         3        ..  8 and later
//! pause      0..0.5 ms   0..1 ms   0..2 ms   0..4 ms      0..100 ms
//! ```
//!
//! Source: "full jitter", Exponential Backoff And Jitter, AWS Architecture Blog.

use std::time::Duration;

/// The longest first pause; each further one may be twice as long.
const FIRST_MAX: Duration = Duration::from_micros(500);
/// The longest pause.
const MAX: Duration = Duration::from_millis(100);

/// Returns the pause after this many earlier attempts.
pub(super) fn pause(attempt: u32, chance: u64) -> Duration {
    let longest = FIRST_MAX.saturating_mul(1 << attempt.min(16)).min(MAX);
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(chance % nanos.max(1))
}

#[cfg(test)]
mod tests {
    use handfast_store::{Random, SeededRandom};

    use super::{FIRST_MAX, MAX, pause};

    #[test]
    fn a_pause_is_random_below_a_bound_that_doubles() {
        let random = SeededRandom::new(1);
        for attempt in (0..12).chain([31, 32, u32::MAX]) {
            let bound = if attempt < 8 { FIRST_MAX * (1 << attempt) } else { MAX };
            let mut pauses: Vec<_> = (0..1_000).map(|_| pause(attempt, random.next_u64())).collect();
            pauses.sort_unstable();
            assert!(pauses.last().is_some_and(|longest| *longest < bound), "after {attempt}: {pauses:?}");
            // The pauses are spread evenly over the whole range, so that two transactions with a conflict rarely meet again.
            for (tenth, pauses) in (0_u32..).zip(pauses.chunks(100)) {
                let middle = bound * (2 * tenth + 1) / 20;
                let is_near = pauses.iter().all(|pause| pause.abs_diff(middle) < bound / 10);
                assert!(is_near, "after {attempt}, tenth {tenth}: {pauses:?}");
            }
        }
    }
}
