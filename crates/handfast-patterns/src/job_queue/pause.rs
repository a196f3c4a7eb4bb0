//! A queue that is paused: nobody claims its jobs until it is resumed; those that workers have are done.
//!
//! ```text
//! jobs.limits    {_id: "pause", since: 12:00, why: "the mail server is moved"}     paused while this is there
//! ```
//!
//! All processes see it, as it is in the store. A claim looks at it at most once a second, so that a job costs no more for it: workers of other
//! processes pause and resume within a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bson::{DateTime, Document, doc};

use super::JobQueue;
use crate::Result;

/// For how long a claim trusts what was seen.
const TRUSTED: Duration = Duration::from_secs(1);
/// The document that says so.
const PAUSE: &str = "pause";

/// Since when a queue is paused, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// By the clock of who paused it.
    pub since: DateTime,
    /// For people.
    pub why: String,
}

/// What was seen last, and when.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Option<(Duration, bool)>>);

impl Seen {
    fn at(&self, now: Duration) -> Option<bool> {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.filter(|(at, _)| now.saturating_sub(*at) < TRUSTED).map(|(_, paused)| paused)
    }

    fn set(&self, now: Duration, paused: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, paused));
    }
}

impl JobQueue {
    /// Pauses the queue: no worker of any process claims a job until [`JobQueue::resume`]. One that is paused stays so, with the new reason.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn pause(&self, why: &str) -> Result<()> {
        let change = doc! { "$set": { "why": why }, "$setOnInsert": { "since": self.now() } };
        self.limits()?.upsert_one(&doc! { "_id": PAUSE }, &change).await?;
        self.shared.pause.set(self.sources.clock.elapsed(), true);
        Ok(())
    }

    /// Lets jobs be claimed again; says whether the queue was paused.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn resume(&self) -> Result<bool> {
        let was_paused = self.limits()?.delete_one(&doc! { "_id": PAUSE }).await?;
        self.shared.pause.set(self.sources.clock.elapsed(), false);
        self.wake();
        Ok(was_paused)
    }

    /// Whether the queue is paused, as the store says.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn paused(&self) -> Result<Option<Pause>> {
        let found = self.limits()?.find_one(&doc! { "_id": PAUSE }).await?;
        let now = self.now();
        let read = |pause: &Document| Pause {
            since: pause.get_datetime("since").copied().unwrap_or(now),
            why: pause.get_str("why").unwrap_or_default().to_owned(),
        };
        Ok(found.as_ref().map(read))
    }

    /// The same for a claim.
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
