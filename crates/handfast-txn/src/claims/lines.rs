//! Who holds which document, and the lines of those who wait for theirs.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::Place;

/// How often the first in a line is passed over by others before the document is kept for it. Those who want other documents
/// too would otherwise never find all of them free at once; and if it was kept at once, documents would lie idle.
const PASSED_MAX: u32 = 64;

/// The claims of all open transactions. A transaction is a number; they are given out in ascending order.
#[derive(Default)]
pub(super) struct Lines {
    documents: HashMap<Place, Document>,
    waiting: BTreeMap<u64, Waiter>,
    last: u64,
}

#[derive(Default)]
struct Document {
    holder: Option<Claim>,
    /// In the order in which they came, each once.
    line: VecDeque<u64>,
    /// How often the first in the line was passed over.
    passed: u32,
}

/// Who holds a document, and until when others respect that.
#[derive(Clone, Copy)]
struct Claim {
    number: u64,
    deadline: Duration,
}

/// What came of an attempt to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    New,
    Held,
    Refused,
}

struct Waiter {
    claim: Claim,
    places: Vec<Place>,
    granted: oneshot::Sender<()>,
}

impl Document {
    /// Whether this transaction may have it now.
    fn is_free_for(&self, number: u64, now: Duration) -> bool {
        let is_held = self.holder.is_some_and(|holder| holder.number != number && holder.deadline > now);
        let is_kept = self.passed >= PASSED_MAX && self.line.front().is_some_and(|first| *first != number);
        !is_held && !is_kept
    }

    fn give(&mut self, claim: Claim) {
        self.holder = Some(claim);
        if self.line.front().is_some_and(|first| *first != claim.number) {
            self.passed += 1;
        }
    }

    fn leave_line(&mut self, number: u64) {
        if self.line.front() == Some(&number) {
            self.passed = 0;
        }
        self.line.retain(|waiting| *waiting != number);
    }
}

impl Lines {
    /// The number of another transaction.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Claims a document without waiting.
    pub(super) fn claim(&mut self, place: &Place, number: u64, deadline: Duration, now: Duration) -> Claimed {
        let document = self.documents.entry(place.clone()).or_default();
        if document.holder.is_some_and(|holder| holder.number == number) {
            Claimed::Held
        } else if document.is_free_for(number, now) {
            document.give(Claim { number, deadline });
            Claimed::New
        } else {
            Claimed::Refused
        }
    }

    /// Claims all these documents at once, or stands in line for them, holding none: then something comes once they are
    /// claimed.
    pub(super) fn stand_in_line(
        &mut self,
        places: Vec<Place>,
        number: u64,
        deadline: Duration,
        now: Duration,
    ) -> Option<oneshot::Receiver<()>> {
        let claim = Claim { number, deadline };
        let is_free = |place| self.documents.get(place).is_none_or(|document| document.is_free_for(number, now));
        if places.iter().all(is_free) {
            for place in places {
                self.documents.entry(place).or_default().give(claim);
            }
            return None;
        }
        for place in &places {
            self.documents.entry(place.clone()).or_default().line.push_back(number);
        }
        let (granted, comes) = oneshot::channel();
        self.waiting.insert(number, Waiter { claim, places, granted });
        Some(comes)
    }

    /// Gives up what a transaction holds and waits for, which is among these.
    pub(super) fn leave(&mut self, places: &[Place], number: u64, now: Duration) {
        self.waiting.remove(&number);
        for place in places {
            let Some(document) = self.documents.get_mut(place) else { continue };
            document.leave_line(number);
            // It may have been taken over after the deadline.
            document.holder = document.holder.filter(|holder| holder.number != number);
        }
        for place in places {
            self.call_next(place, now);
            let is_idle = |document: &Document| document.holder.is_none() && document.line.is_empty();
            if self.documents.get(place).is_some_and(is_idle) {
                self.documents.remove(place);
            }
        }
    }

    /// Gives a free document to the first in its line for whom all is free.
    fn call_next(&mut self, place: &Place, now: Duration) {
        let Some(document) = self.documents.get(place).filter(|document| document.holder.is_none()) else { return };
        let is_free = |number: u64| {
            let mut places = self.waiting.get(&number).into_iter().flat_map(|waiter| &waiter.places);
            places.all(|place| self.documents.get(place).is_none_or(|document| document.is_free_for(number, now)))
        };
        let Some(next) = document.line.iter().copied().find(|number| is_free(*number)) else { return };
        let Some(waiter) = self.waiting.remove(&next) else { return };
        for place in &waiter.places {
            let document = self.documents.entry(place.clone()).or_default();
            document.give(waiter.claim);
            document.leave_line(next);
        }
        // Whoever does not hear it any more gives the claims up in a moment.
        let _ = waiter.granted.send(());
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len().max(self.documents.values().map(|document| document.line.len()).max().unwrap_or(0))
    }
}
