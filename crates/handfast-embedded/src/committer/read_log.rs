//! A log of the states of documents before and after each change, to validate the reads of serializable transactions.
//!
//! A serializable transaction that read all documents which match a filter must not commit if the result is different now.
//! The committer compares the filter with the changes since the snapshot:
//!
//! ```text
//! snapshot            changes since then: (before, after)                            commit
//!    |        {n: 5} -> {n: 15}      {n: 30} -> nothing      nothing -> {n: 31}        |
//!    read {n: {$gte: 10, $lt: 20}}: the first one enters the range: a conflict. Without it there would be none.
//! ```
//!
//! A result changes exactly if a document appears that matches, or one disappears that matched; a change is both. So both
//! images of every change are kept from the first such batch on (other stores pay nothing), while an older snapshot is in
//! use, within a bound on their bytes. A batch whose snapshot is older than the log conflicts with any change of the
//! collection: such a conflict may be unnecessary; none is missed.

use std::collections::VecDeque;

use handfast_store::{CommitTimestamp, Result as StoreResult};

use crate::format::CollectionId;

#[cfg(test)]
mod tests;

/// The size of an image without its document, in bytes.
const IMAGE_OVERHEAD_BYTES: usize = size_of::<Image>();

pub(crate) struct ReadLog {
    /// Oldest first.
    kept: VecDeque<Image>,
    bytes: usize,
    bytes_max: usize,
    /// The log has every image that is younger than this; `None` if it is not started.
    floor: Option<CommitTimestamp>,
}

struct Image {
    timestamp: CommitTimestamp,
    collection: CollectionId,
    document: Box<[u8]>,
}

impl ReadLog {
    pub(crate) fn new(bytes_max: usize) -> Self {
        ReadLog { kept: VecDeque::new(), bytes: 0, bytes_max, floor: None }
    }

    /// Starts the log after a commit, if it is not started yet.
    pub(crate) fn start(&mut self, last: CommitTimestamp) {
        self.floor.get_or_insert(last);
    }

    /// Records an image of a document before or after a commit, if the log is started.
    pub(crate) fn record(&mut self, timestamp: CommitTimestamp, collection: CollectionId, document: &[u8]) {
        if self.floor.is_none() {
            return;
        }
        self.kept.push_back(Image { timestamp, collection, document: document.into() });
        self.bytes += document.len() + IMAGE_OVERHEAD_BYTES;
        while self.bytes > self.bytes_max {
            self.forget_oldest();
        }
    }

    /// Returns whether an image that is younger than a snapshot matches; `None` if some of these images may be forgotten.
    pub(crate) fn any_since(
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

    /// Forgets the images that no snapshot needs.
    pub(crate) fn forget_before(&mut self, oldest: CommitTimestamp) {
        while self.kept.front().is_some_and(|image| image.timestamp <= oldest) {
            self.forget_oldest();
        }
    }

    /// Rolls back the images of the running operation, which failed. Older images that it displaced stay forgotten.
    pub(crate) fn roll_back(&mut self, before: CommitTimestamp) {
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
