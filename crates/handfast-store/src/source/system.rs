//! The only module that asks the machine for time and randomness.

use std::time::{Duration, Instant};

use bson::DateTime;

use super::Clock;

/// The clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Creates a clock whose elapsed time starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the source that everything else takes its time from")]
    pub fn new() -> Self {
        SystemClock { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the source that everything else takes its time from")]
    fn now(&self) -> DateTime {
        DateTime::now()
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Fills a buffer with randomness of the operating system, which is fit for secrets, unlike [`Random`](super::Random).
///
/// # Errors
/// The operating system returns no randomness.
#[expect(clippy::disallowed_methods, reason = "this is the source that everything else takes its randomness from")]
pub fn os_random_bytes(buffer: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(buffer).map_err(std::io::Error::from)
}

/// Returns an unpredictable state for a generator.
pub(super) fn os_random_state() -> std::io::Result<[u64; 4]> {
    let mut state = [0_u64; 4];
    for word in &mut state {
        let mut bytes = [0_u8; 8];
        os_random_bytes(&mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(state)
}
