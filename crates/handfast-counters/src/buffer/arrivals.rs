//! The times at which the events of a queue came, as far as somebody has looked at the queue.
//!
//! # The idea
//! The numbers of events ascend. A *note* is a number and a time: the events from that number on came at that time or later. So the last note whose
//! number is not above that of an event gives the longest time for which the event may have waited.
//!
//! ```text
//!   looks      next number 1, at 10 s        next number 4, at 12 s        next number 6, at 14 s
//!   events                        1  2  3                         4  5                           6
//!   event 5 came at 12 s or later: at 14 s, its age is 2 s at most
//! ```
//!
//! The buffers in a process note each event as it comes, a second apart at least. The buffer in Redis notes the next number at each look at the queue,
//! and so knows the age to within the time between two looks.

use std::collections::VecDeque;
use std::time::Duration;

use crate::SequenceNumber;

#[cfg(test)]
mod tests;

/// The least time between two notes, as long as there are few.
const STEP_MIN: Duration = Duration::from_secs(1);
/// The maximum number of notes: those of about an hour. Beyond it every second one is dropped, and the time between two doubles, so an age is never
/// longer by more than a two-thousandth of the time that the notes span.
const NOTES_MAX: usize = 4_096;

/// The notes of one queue.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    /// Numbers with times. The numbers ascend.
    notes: VecDeque<(SequenceNumber, Duration)>,
    /// The least time between two notes.
    step: Duration,
}

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals { notes: VecDeque::new(), step: STEP_MIN }
    }
}

impl Arrivals {
    /// Notes that no event from `number` on came before `now`.
    pub(crate) fn note(&mut self, number: SequenceNumber, now: Duration) {
        match self.notes.back_mut() {
            // The answer to a look that was begun earlier.
            Some((last, _)) if *last > number => {}
            Some((last, came)) if *last == number => *came = now.max(*came),
            Some((_, came)) if now.saturating_sub(*came) < self.step => {}
            _ => {
                self.notes.push_back((number, now));
                self.thin();
            }
        }
    }

    /// Notes a look at the queue that was begun at `now`: the number of its oldest event, and the next number, which is the same if it is empty. An
    /// event that was there before the first look came, as far as this process knows, with that look.
    pub(crate) fn look(&mut self, oldest: SequenceNumber, next: SequenceNumber, now: Duration) {
        if oldest < next && self.last_until(oldest).is_none() {
            self.notes.push_front((oldest, now));
        }
        self.note(next, now);
        self.forget(oldest);
    }

    /// Drops the notes that no event from `oldest` on needs.
    pub(crate) fn forget(&mut self, oldest: SequenceNumber) {
        while self.notes.get(1).is_some_and(|(number, _)| *number <= oldest) {
            self.notes.pop_front();
        }
        if self.notes.len() < 2 {
            self.step = STEP_MIN;
        }
    }

    /// Returns the longest time for which the event with this number may have waited; `None` if there is no note about it.
    pub(crate) fn age(&self, number: SequenceNumber, now: Duration) -> Option<Duration> {
        self.last_until(number).map(|came| now.saturating_sub(came))
    }

    /// Returns the time of the last note whose number is not above this one.
    fn last_until(&self, number: SequenceNumber) -> Option<Duration> {
        let notes = self.notes.iter().take_while(|(noted, _)| *noted <= number);
        notes.last().map(|(_, came)| *came)
    }

    fn thin(&mut self) {
        if self.notes.len() <= NOTES_MAX {
            return;
        }
        let mut is_kept = false;
        self.notes.retain(|_| {
            is_kept = !is_kept;
            is_kept
        });
        self.step = self.step.saturating_mul(2);
    }
}
