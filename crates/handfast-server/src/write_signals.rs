//! Wakes those in the server's own process that wait for a write to a collection, such as a claim over HTTP that waits for a job.
//!
//! A signal says that there may be something new: those who wait look again. It comes after each command of this server that may have written to the collection,
//! and after each commit of a transaction, whose collections are not known here. Other servers and programs that write to the same store give none, so that a
//! waiter also looks from time to time.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use handfast_store::Namespace;
use tokio::sync::watch;

use crate::lock::lock;

/// The collections that somebody waits for.
#[derive(Default)]
pub(crate) struct WriteSignals {
    waiting: Mutex<HashMap<Namespace, watch::Sender<()>>>,
    /// Whether there are any, so that a write takes no lock while nobody waits.
    is_used: AtomicBool,
}

impl WriteSignals {
    /// Returns a receiver that changes after each later write to a collection.
    pub(crate) fn subscribe(&self, namespace: Namespace) -> watch::Receiver<()> {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|_, sender| sender.receiver_count() > 0);
        self.is_used.store(true, Ordering::SeqCst);
        waiting.entry(namespace).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Wakes those who wait for a collection; all if it is not known which one was written to.
    pub(crate) fn send(&self, namespace: Option<&Namespace>) {
        if !self.is_used.load(Ordering::SeqCst) {
            return;
        }
        let mut waiting = lock(&self.waiting);
        match namespace {
            Some(namespace) => {
                if let Some(sender) = waiting.get(namespace)
                    && sender.send(()).is_err()
                {
                    waiting.remove(namespace);
                }
            }
            None => waiting.retain(|_, sender| sender.send(()).is_ok()),
        }
        if waiting.is_empty() {
            self.is_used.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use handfast_store::Namespace;

    use super::WriteSignals;

    #[test]
    fn a_write_wakes_those_who_wait_for_its_collection() {
        let signals = WriteSignals::default();
        let [jobs, other] = ["jobs", "other"].map(|name| Namespace::new("db", name).unwrap());
        signals.send(Some(&jobs));
        let mut waiting = signals.subscribe(jobs.clone());
        let mut elsewhere = signals.subscribe(other);
        assert!(!waiting.has_changed().unwrap(), "it was before");
        signals.send(Some(&jobs));
        assert!(waiting.has_changed().unwrap() && !elsewhere.has_changed().unwrap());
        waiting.mark_unchanged();
        signals.send(None);
        assert!(waiting.has_changed().unwrap() && elsewhere.has_changed().unwrap());
        elsewhere.mark_unchanged();
        drop(waiting);
        signals.send(Some(&jobs));
        assert!(!elsewhere.has_changed().unwrap());
        drop(elsewhere);
        signals.send(None);
        assert!(!signals.is_used.load(Ordering::SeqCst), "nobody waits any more");
    }
}
