//! A pause of a queue: no job is claimed until it is resumed; workers finish the jobs that they have.
//!
//! ```text
//! jobs.limits    {_id: "pause", since: 12:00, why: "the mail server is moved"}     paused while this document exists
//! ```
//!
//! All processes read it from the store. A claim reads it at most once a second, to keep its cost low: workers of other
//! processes pause and resume within a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bson::{DateTime, Document, doc};

use super::JobQueue;
use crate::Result;

/// The time for which a claim relies on the last look at the store.
const TRUSTED: Duration = Duration::from_secs(1);
/// The `_id` of the document.
const PAUSE: &str = "pause";

/// A pause of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// The time, by the clock of the process that paused it.
    pub since: DateTime,
    /// The reason, for people.
    pub why: String,
}

/// The answer of the last look at the store, and the time when it was made.
#[derive(Debug, Default)]
pub(super) struct CachedPause(Mutex<Option<(Duration, bool)>>);

impl CachedPause {
    fn at(&self, now: Duration) -> Option<bool> {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.filter(|(at, _)| now.saturating_sub(*at) < TRUSTED).map(|(_, paused)| paused)
    }

    fn set(&self, now: Duration, paused: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, paused));
    }
}

impl JobQueue {
    /// Pauses the queue: no worker of any process claims a job until [`JobQueue::resume`]. If the queue is paused
    /// already, the pause keeps its date and gets the new reason.
    pub async fn pause(&self, why: &str) -> Result<()> {
        let change = doc! { "$set": { "why": why }, "$setOnInsert": { "since": self.now() } };
        self.limits()?.upsert_one(&doc! { "_id": PAUSE }, &change).await?;
        self.shared.pause.set(self.sources.clock.elapsed(), true);
        Ok(())
    }

    /// Resumes a paused queue; returns whether it was paused.
    pub async fn resume(&self) -> Result<bool> {
        let was_paused = self.limits()?.delete_one(&doc! { "_id": PAUSE }).await?;
        self.shared.pause.set(self.sources.clock.elapsed(), false);
        self.wake();
        Ok(was_paused)
    }

    /// Returns the pause with its date and reason; `None` if the queue is not paused.
    pub async fn paused(&self) -> Result<Option<Pause>> {
        let found = self.limits()?.find_one(&doc! { "_id": PAUSE }).await?;
        let now = self.now();
        let read = |pause: &Document| Pause {
            since: pause.get_datetime("since").copied().unwrap_or(now),
            why: pause.get_str("why").unwrap_or_default().to_owned(),
        };
        Ok(found.as_ref().map(read))
    }

    /// Returns whether the queue is paused, from a look that is at most a second old.
    pub(super) async fn is_paused(&self) -> Result<bool> {
        let now = self.sources.clock.elapsed();
        if let Some(paused) = self.shared.pause.at(now) {
            return Ok(paused);
        }
        let paused = self.paused().await?.is_some();
        self.shared.pause.set(now, paused);
        Ok(paused)
    }
}
