//! Documents as they came and as they went, for batches that say what they have searched for.
//!
//! A serializable transaction that read all documents which match a filter must not commit if the answer is another one
//! by now. Its snapshot is gone from the committer's sight, but not what changed since:
//!
//! ```text
//! snapshot            changes since then: (before, after)                            commit
//!    |        {n: 5} -> {n: 15}      {n: 30} -> nothing      nothing -> {n: 31}        |
//!    read {n: {$gte: 10, $lt: 20}}: the first one enters the range: a conflict. Without it there would be none.
//! ```
//!
//! An answer changes exactly if a document comes that matches, or one goes that matched; a change is both. So both
//! images of every change are kept from the first such batch on (stores that never see one pay nothing), for as long as
//! a snapshot is in use that is older, within a bound on their bytes. A batch whose snapshot is older than the log goes
//! is judged by the whole collection: a conflict too many, never one too few.

use std::collections::VecDeque;

use handfast_store::{CommitTimestamp, Result as StoreResult};

use crate::format::CollectionId;

#[cfg(test)]
mod tests;

/// What an image takes beside its document, in bytes.
const IMAGE_OVERHEAD_BYTES: usize = size_of::<Image>();

pub(crate) struct Images {
    /// Oldest first.
    kept: VecDeque<Image>,
    bytes: usize,
    bytes_max: usize,
    /// Every image that is younger than this is here; none if nobody has asked for images yet.
    floor: Option<CommitTimestamp>,
}

struct Image {
    timestamp: CommitTimestamp,
    collection: CollectionId,
    document: Box<[u8]>,
}

impl Images {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Images { kept: VecDeque::new(), bytes: 0, bytes_max, floor: None }
    }

    /// Somebody has searched: from this commit on, images are kept.
    pub(crate) fn want(&mut self, last: CommitTimestamp) {
        self.floor.get_or_insert(last);
    }

    /// Keeps an image of a document that comes or goes with a commit.
    pub(crate) fn note(&mut self, timestamp: CommitTimestamp, collection: CollectionId, document: &[u8]) {
        if self.floor.is_none() {
            return;
        }
        self.kept.push_back(Image { timestamp, collection, document: document.into() });
        self.bytes += document.len() + IMAGE_OVERHEAD_BYTES;
        while self.bytes > self.bytes_max {
            self.forget_oldest();
        }
    }

    /// Whether an image that came after a snapshot matches. None if some of them may be forgotten.
    pub(crate) fn since(
        &self,
        snapshot: CommitTimestamp,
        collection: CollectionId,
        mut matches: impl FnMut(&[u8]) -> StoreResult<bool>,
    ) -> StoreResult<Option<bool>> {
        if self.floor.is_none_or(|floor| snapshot < floor) {
            return Ok(None);
        }
        for image in self.kept.iter().rev().take_while(|image| image.timestamp > snapshot) {
            if image.collection == collection && matches(&image.document)? {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// Forgets what no snapshot can still need.
    pub(crate) fn forget_before(&mut self, oldest: CommitTimestamp) {
        while self.kept.front().is_some_and(|image| image.timestamp <= oldest) {
            self.forget_oldest();
        }
    }

    /// The operation at work has failed: its images go. If there were so many that older ones were forgotten, those stay
    /// forgotten, and the floor where it is.
    pub(crate) fn take_back(&mut self, before: CommitTimestamp) {
        while let Some(image) = self.kept.pop_back_if(|image| image.timestamp > before) {
            self.bytes -= image.document.len() + IMAGE_OVERHEAD_BYTES;
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(image) = self.kept.pop_front() {
            self.bytes -= image.document.len() + IMAGE_OVERHEAD_BYTES;
            self.floor = self.floor.max(Some(image.timestamp));
        }
    }
}
