//! A table of claims with a queue of waiting transactions for each document.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::DocumentKey;

/// The number of times that other transactions overtake the first one in a queue before the document is reserved for it. A transaction that wants several
/// documents would otherwise never find all of them free at once, and an immediate reservation would leave documents idle.
const OVERTAKEN_MAX: u32 = 64;

/// The claims of all open transactions. A transaction is identified by a number; numbers ascend.
#[derive(Default)]
pub(super) struct ClaimQueues {
    documents: HashMap<DocumentKey, DocumentQueue>,
    waiting: BTreeMap<u64, Waiter>,
    last: u64,
}

#[derive(Default)]
struct DocumentQueue {
    holder: Option<Claim>,
    /// The waiting transactions in order of arrival, each once.
    queue: VecDeque<u64>,
    /// The number of times that the first one was overtaken.
    overtaken: u32,
}

/// The claim of a transaction, which others respect until its deadline.
#[derive(Clone, Copy)]
struct Claim {
    number: u64,
    deadline: Duration,
}

/// The result of an attempt to claim a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimResult {
    New,
    Held,
    Refused,
}

struct Waiter {
    claim: Claim,
    wanted: Vec<DocumentKey>,
    granted: oneshot::Sender<()>,
}

impl DocumentQueue {
    /// Returns whether this transaction may claim the document now.
    fn is_free_for(&self, number: u64, now: Duration) -> bool {
        let is_held = self.holder.is_some_and(|holder| holder.number != number && holder.deadline > now);
        let is_kept = self.overtaken >= OVERTAKEN_MAX && self.queue.front().is_some_and(|first| *first != number);
        !is_held && !is_kept
    }

    fn give(&mut self, claim: Claim) {
        self.holder = Some(claim);
        if self.queue.front().is_some_and(|first| *first != claim.number) {
            self.overtaken += 1;
        }
    }

    fn leave_queue(&mut self, number: u64) {
        if self.queue.front() == Some(&number) {
            self.overtaken = 0;
        }
        self.queue.retain(|waiting| *waiting != number);
    }
}

impl ClaimQueues {
    /// Returns the number of a new transaction.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Claims a document without waiting.
    pub(super) fn claim(&mut self, key: &DocumentKey, number: u64, deadline: Duration, now: Duration) -> ClaimResult {
        let document = self.documents.entry(key.clone()).or_default();
        if document.holder.is_some_and(|holder| holder.number == number) {
            ClaimResult::Held
        } else if document.is_free_for(number, now) {
            document.give(Claim { number, deadline });
            ClaimResult::New
        } else {
            ClaimResult::Refused
        }
    }

    /// Claims all these documents at once; or joins their queues without holding any, and returns a receiver that is notified once all are
    /// claimed.
    pub(super) fn claim_or_enqueue(
        &mut self,
        wanted: Vec<DocumentKey>,
        number: u64,
        deadline: Duration,
        now: Duration,
    ) -> Option<oneshot::Receiver<()>> {
        let claim = Claim { number, deadline };
        let is_free = |key| self.documents.get(key).is_none_or(|document| document.is_free_for(number, now));
        if wanted.iter().all(is_free) {
            for key in wanted {
                self.documents.entry(key).or_default().give(claim);
            }
            return None;
        }
        for key in &wanted {
            self.documents.entry(key.clone()).or_default().queue.push_back(number);
        }
        let (granted, comes) = oneshot::channel();
        self.waiting.insert(number, Waiter { claim, wanted, granted });
        Some(comes)
    }

    /// Releases the claims of a transaction on these documents, and takes it out of their queues.
    pub(super) fn leave(&mut self, keys: &[DocumentKey], number: u64, now: Duration) {
        self.waiting.remove(&number);
        for key in keys {
            let Some(document) = self.documents.get_mut(key) else { continue };
            document.leave_queue(number);
            // Another transaction may have taken the claim over after the deadline.
            document.holder = document.holder.filter(|holder| holder.number != number);
        }
        for key in keys {
            self.grant_next(key, now);
            let is_idle = |document: &DocumentQueue| document.holder.is_none() && document.queue.is_empty();
            if self.documents.get(key).is_some_and(is_idle) {
                self.documents.remove(key);
            }
        }
    }

    /// Gives a free document to the first transaction in its queue whose documents are all free.
    fn grant_next(&mut self, key: &DocumentKey, now: Duration) {
        let Some(document) = self.documents.get(key).filter(|document| document.holder.is_none()) else { return };
        let is_free = |number: u64| {
            let mut keys = self.waiting.get(&number).into_iter().flat_map(|waiter| &waiter.wanted);
            keys.all(|key| self.documents.get(key).is_none_or(|document| document.is_free_for(number, now)))
        };
        let Some(next) = document.queue.iter().copied().find(|number| is_free(*number)) else { return };
        let Some(waiter) = self.waiting.remove(&next) else { return };
        for key in &waiter.wanted {
            let document = self.documents.entry(key.clone()).or_default();
            document.give(waiter.claim);
            document.leave_queue(next);
        }
        // A receiver that is gone belongs to a transaction that is about to release its claims.
        let _ = waiter.granted.send(());
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len().max(self.documents.values().map(|document| document.queue.len()).max().unwrap_or(0))
    }
}
