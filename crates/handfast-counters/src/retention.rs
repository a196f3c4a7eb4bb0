//! The removal of old daily figures while the counters run: some months of items after each pass that saves views, so that no pass waits for
//! long, and a look for more every hour.

use std::time::Duration;

use jiff::Span;
use jiff::civil::Date;

use crate::{Counters, Error, Result, Trimmed};

/// The months of items that are removed between two passes: each is a transaction, which takes milliseconds.
const MONTHS_MAX: u64 = 200;
/// The time between two looks for old daily figures: they become old once a month, and views that were late begin a month again.
const INTERVAL: Duration = Duration::from_secs(3_600);
/// The longest time between two passes while there is more to remove, as views may be saved far more rarely.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The time until the next attempt after an error.
const AFTER_ERROR: Duration = Duration::from_secs(60);

/// The time at which old daily figures are looked for next, by the steady clock.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    next: Duration,
}

impl Retention {
    /// Removes some old daily figures if it is time to. Returns the time until the next pass that saves views.
    pub(crate) async fn pass(&mut self, counters: &Counters) -> Duration {
        let (now, pause) = (counters.sources().clock.elapsed(), counters.options().flush_interval);
        if counters.options().keep_days.is_none() || now < self.next {
            return pause;
        }
        match counters.trim(MONTHS_MAX).await {
            Ok(trimmed) => {
                if trimmed.months > 0 {
                    let Trimmed { months, views, .. } = trimmed;
                    tracing::info!(months, views, "daily figures became a part of the totals without days");
                }
                if trimmed.more {
                    return pause.min(PAUSE_MAX);
                }
                self.next = now.saturating_add(INTERVAL);
            }
            Err(error) => {
                tracing::warn!(%error, "old daily figures could not be removed");
                self.next = now.saturating_add(AFTER_ERROR);
            }
        }
        pause
    }
}

impl Counters {
    /// Removes the daily figures of whole months that are older than [`CountersOptions::keep_days`](crate::CountersOptions::keep_days), at most
    /// those of `months_max` months of an item; nothing if they are kept for ever. The totals stay as they are.
    ///
    /// # Errors
    /// Those of [`Storage::trim`](crate::Storage::trim).
    pub async fn trim(&self, months_max: u64) -> Result<Trimmed> {
        let Some(days) = self.options().keep_days else { return Ok(Trimmed::default()) };
        let first = first_kept(self.today()?, days)?;
        self.while_store_answers(self.storage().trim(first, months_max, |_| ())).await
    }
}

/// Returns the first day that is kept.
fn first_kept(today: Date, days: u32) -> Result<Date> {
    let days = Span::new().try_days(i64::from(days).max(1) - 1);
    let days = days.map_err(|error| Error::invalid(format!("the number of days to keep: {error}")))?;
    Ok(today.saturating_sub(days))
}

#[cfg(test)]
mod tests {
    use jiff::civil::{Date, date};

    use super::first_kept;

    #[test]
    fn today_is_the_last_of_the_days_that_are_kept() {
        let check = |days, expected| assert_eq!(first_kept(date(2026, 11, 30), days).expect("a day"), expected);
        check(1, date(2026, 11, 30));
        check(30, date(2026, 11, 1));
        check(31, date(2026, 10, 31));
        check(u32::from(u16::MAX) * 100, Date::MIN);
        assert!(first_kept(date(2026, 11, 30), u32::MAX).is_err());
    }
}
