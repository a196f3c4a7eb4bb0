//! An approximate table of the last change of each document, so that a commit need not read a document again to know that no
//! other operation changed it.
//!
//! ```text
//! document key --hash--> slot: the newest change of all documents that share it
//!
//! slot <= snapshot    none of them has changed since               sure
//! slot >  snapshot    one of them has, or was rolled back          read the document
//! ```
//!
//! The committer records a change before any reader can see it. A change that is rolled back stays recorded, which costs a
//! read.

use std::sync::atomic::{AtomicU64, Ordering};

use handfast_store::CommitTimestamp;

/// Slots, of eight bytes each. With a thousand documents changed since a snapshot, two reads of a hundred are unnecessary.
const SLOTS: usize = 1 << 16;

pub(crate) struct RecentChanges {
    slots: Box<[AtomicU64]>,
    /// The last drop or rename of a collection, or the opening of the store: all documents may have changed then.
    everything: AtomicU64,
}

impl RecentChanges {
    /// Returns the table of a store that has just been opened: no change is younger than `opened_at`.
    pub(crate) fn new(opened_at: CommitTimestamp) -> Self {
        RecentChanges {
            slots: std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect(),
            everything: AtomicU64::new(opened_at.0),
        }
    }

    pub(crate) fn record(&self, document: &[u8], timestamp: CommitTimestamp) {
        self.slot(document).fetch_max(timestamp.0, Ordering::Release);
    }

    /// Records that any document may have changed.
    pub(crate) fn record_everything(&self, timestamp: CommitTimestamp) {
        self.everything.fetch_max(timestamp.0, Ordering::Release);
    }

    /// Returns whether a document has certainly not changed after a snapshot.
    pub(crate) fn is_unchanged(&self, document: &[u8], snapshot: CommitTimestamp) -> bool {
        let changed = self.slot(document).load(Ordering::Acquire).max(self.everything.load(Ordering::Acquire));
        changed <= snapshot.0
    }

    fn slot(&self, document: &[u8]) -> &AtomicU64 {
        #[allow(clippy::cast_possible_truncation, reason = "the lowest bits are as good as any")]
        let slot = xxhash_rust::xxh3::xxh3_64(document) as usize % SLOTS;
        &self.slots[slot]
    }
}
