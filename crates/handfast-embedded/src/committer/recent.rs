//! When documents were changed last, roughly and in little memory: so that a transaction need not read a document again to
//! learn that nobody else was there.
//!
//! ```text
//! document key --hash--> slot: the newest change of all documents that share it
//!
//! slot <= snapshot    none of them has changed since               sure
//! slot >  snapshot    one of them has, or was going to             look at the document
//! ```
//!
//! The committer notes a change before anybody can see it. What it takes back stays noted: a look too many.

use std::sync::atomic::{AtomicU64, Ordering};

use handfast_store::CommitTimestamp;

/// Slots, of eight bytes each. With a thousand documents changed since a snapshot, two of a hundred looks are in vain.
const SLOTS: usize = 1 << 16;

pub(crate) struct Recent {
    slots: Box<[AtomicU64]>,
    /// When a collection was dropped or renamed last, or the store was opened: all documents may have changed at once.
    everything: AtomicU64,
}

impl Recent {
    /// Of a store that has just been opened: no change so far is younger than this.
    pub(crate) fn new(opened_at: CommitTimestamp) -> Self {
        Recent {
            slots: std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect(),
            everything: AtomicU64::new(opened_at.0),
        }
    }

    /// A document changes.
    pub(crate) fn note(&self, document: &[u8], timestamp: CommitTimestamp) {
        self.slot(document).fetch_max(timestamp.0, Ordering::Release);
    }

    /// Any document may have changed.
    pub(crate) fn note_everything(&self, timestamp: CommitTimestamp) {
        self.everything.fetch_max(timestamp.0, Ordering::Release);
    }

    /// Whether a document is sure not to have changed after a snapshot.
    pub(crate) fn is_unchanged(&self, document: &[u8], snapshot: CommitTimestamp) -> bool {
        let changed = self.slot(document).load(Ordering::Acquire).max(self.everything.load(Ordering::Acquire));
        changed <= snapshot.0
    }

    fn slot(&self, document: &[u8]) -> &AtomicU64 {
        #[allow(clippy::cast_possible_truncation, reason = "the lowest bits are as good as any")]
        let place = xxhash_rust::xxh3::xxh3_64(document) as usize % SLOTS;
        &self.slots[place]
    }
}
