//! Limits on all workers of a queue, in any number of processes.
//!
//! ```text
//! jobs           {.., state: PROCESSING, slot: 2}         a unique index allows one job for each of 3 slots
//! jobs.limits    {_id: "rate", window: 12:00, used: 7}    jobs begun since 12:00; the first claim after 12:01 resets it
//! ```
//!
//! A window has the length of the rate's time and begins at a multiple of it, by the clock of the process that claims.
//! It never goes back, so that of two clocks the one that is ahead counts.

use std::collections::HashSet;

use bson::{DateTime, doc};
use handfast_store::Namespace;

use super::{JobQueue, RateLimit};
use crate::steps::{Added, Steps};
use crate::value::date;
use crate::{Error, Result};

/// Attempts at the window document when other processes change it meanwhile.
const RACES_MAX: u32 = 16;
/// Limit on the slots of a queue, since each claim reads those that are taken.
const CONCURRENCY_MAX: u32 = 10_000;
/// The `_id` of the document that counts.
const RATE: &str = "rate";

/// The limits on all workers of a queue together. Every process must open the queue with the same limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// The largest number of jobs at the same time, up to 10,000. A job whose worker fell silent counts until it is
    /// reclaimed.
    pub concurrency: Option<u32>,
    /// The largest number of jobs that begin in each window. A span of time that lies across two windows may see twice
    /// as many.
    pub rate: Option<RateLimit>,
}

impl Limits {
    pub(super) fn any(&self) -> bool {
        self.concurrency.is_some() || self.rate.is_some()
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.concurrency.is_some_and(|slots| slots == 0 || slots > CONCURRENCY_MAX) {
            return Err(Error::invalid(format!("a queue needs a concurrency from 1 to {CONCURRENCY_MAX}")));
        }
        if self.rate.is_some_and(|rate| rate.jobs == 0 || rate.within.as_millis() == 0) {
            return Err(Error::invalid("a rate needs at least one job within at least a millisecond"));
        }
        Ok(())
    }
}

impl JobQueue {
    /// Returns the free slots, from a random one on; a single `None` if jobs need no slot; and `None` if the queue has
    /// no limits at all.
    pub(super) async fn free_slots(&self) -> Result<Option<Vec<Option<u32>>>> {
        let limits = self.options.limits;
        let Some(slots) = limits.concurrency else { return Ok(limits.any().then(|| vec![None])) };
        let field = &self.fields().slot;
        let found = self.jobs.find(&doc! { field: { "$exists": true } }, &doc! { field: 1 }, CONCURRENCY_MAX).await?;
        let taken: HashSet<i64> = found.iter().filter_map(|job| job.get_i64(field).ok()).collect();
        let mut free: Vec<_> = (0..slots).filter(|slot| !taken.contains(&i64::from(*slot))).collect();
        let first = self.sources.random.next_u64() as usize % free.len().max(1);
        free.rotate_left(first);
        Ok(Some(free.into_iter().map(Some).collect()))
    }

    /// Counts a job that is about to begin; returns whether the rate limit allows it.
    pub(super) async fn count_begun(&self) -> Result<bool> {
        let Some(rate) = self.options.limits.rate else { return Ok(true) };
        let (counts, jobs) = (self.limits()?, i64::try_from(rate.jobs).unwrap_or(i64::MAX));
        let length = i64::try_from(rate.within.as_millis()).unwrap_or(i64::MAX);
        let now = DateTime::from_millis(self.now().timestamp_millis() / length * length);
        let mut window = now;
        for _ in 0..RACES_MAX {
            let room = doc! { "_id": RATE, "window": window, "used": { "$lt": jobs } };
            // An update that is sent twice counts twice: one job less begins, never one more.
            if counts.update_one(&room, &doc! { "$inc": { "used": 1_i64 } }).await? {
                return Ok(true);
            }
            let Some(found) = counts.find_one(&doc! { "_id": RATE }).await? else {
                if counts.insert(&doc! { "_id": RATE, "window": now, "used": 1_i64 }).await? == Added::New {
                    return Ok(true);
                }
                continue;
            };
            let current = date(&found, "window").map_err(|error| counts.damaged(&found, error))?;
            if current >= now {
                if current == window {
                    return Ok(false);
                }
                window = current;
            } else {
                let old = doc! { "_id": RATE, "window": current };
                if counts.update_one(&old, &doc! { "$set": { "window": now, "used": 1_i64 } }).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns the collection of the limits, beside the queue.
    pub(super) fn limits(&self) -> Result<Steps> {
        let jobs = self.jobs.namespace();
        Ok(self.jobs.at(Namespace::new(jobs.database(), format!("{}.limits", jobs.collection()))?))
    }
}
