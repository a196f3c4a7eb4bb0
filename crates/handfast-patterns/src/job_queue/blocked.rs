//! The orders that a claim has skipped because their first job blocks them, and the filter for the jobs after them.
//!
//! ```text
//! due, in the order of claims     a2 a3 a4 ..  a1  b1      a1 is the first job of its order, and may not be due
//! keys {a}, firsts {a1}           ->           a1  b1      what the next look finds
//! ```

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};

use super::{Job, JobFields};

/// Bound on the keys in the filter of a claim. Jobs of further keys are skipped one by one.
const KEYS_MAX: usize = 256;

/// Orders whose jobs cannot be claimed now.
#[derive(Debug, Default)]
pub(super) struct BlockedOrders {
    keys: BTreeSet<String>,
    /// The first jobs of these orders, which are claimed at their own position.
    firsts: Vec<Bson>,
    /// The number of candidates to skip that the filter still lets through.
    skip: u64,
}

impl BlockedOrders {
    /// Returns the filter of the due jobs that are not blocked, and how many of them to skip.
    pub(super) fn filter(&self, fields: &JobFields, due: &Document) -> (Document, u64) {
        let mut filter = due.clone();
        if !self.keys.is_empty() {
            let keys: Vec<_> = self.keys.iter().collect();
            filter.insert("$or", [doc! { &fields.order: { "$nin": keys } }, doc! { "_id": { "$in": &self.firsts } }]);
        }
        (filter, self.skip)
    }

    pub(super) fn contains(&self, job: &Job) -> bool {
        job.order.as_ref().is_some_and(|key| self.keys.contains(key)) && !self.firsts.contains(&job.id)
    }

    /// Adds the order of a job. Its `first` job may still be claimed.
    pub(super) fn add(&mut self, job: &Job, first: Option<Bson>) {
        self.firsts.retain(|id| *id != job.id);
        match &job.order {
            Some(key) if self.keys.len() < KEYS_MAX || self.keys.contains(key) => {
                self.keys.insert(key.clone());
                self.firsts.extend(first);
            }
            _ => self.skip += 1,
        }
    }
}
