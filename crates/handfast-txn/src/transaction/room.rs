//! Room in memory for what open transactions have written: a bound for each, and one for all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use handfast_mql::Code;
use handfast_store::{Error as StoreError, Result as StoreResult};

/// What a written document takes beside its bytes: its places among the writes, the claims and the unique keys, and the
/// namespace in each, in bytes. An estimate, for a collection with one unique index.
pub(super) const WRITE_OVERHEAD_BYTES: usize = 512;

/// What all open transactions of a database have written.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: AtomicUsize,
}

impl Room {
    /// Bytes that are taken.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// What one transaction has taken of it, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Taken {
    /// Nothing yet.
    pub(super) fn of(room: Arc<Room>) -> Self {
        Taken { room, bytes: 0 }
    }

    /// Takes so many bytes more, after giving some back.
    ///
    /// # Errors
    /// `TransactionTooLarge` (257) beyond the transaction's own bound; `WriteConflict` (112) beyond that of all, as MongoDB's
    /// transactions say where its cache has no room: run again, it may find some.
    pub(super) fn change(&mut self, freed: usize, more: usize, own_max: usize, all_max: usize) -> StoreResult<()> {
        let bytes = self.bytes.saturating_sub(freed) + more;
        if bytes > own_max && bytes > self.bytes {
            let text = format!(
                "the transaction has written more than {own_max} bytes, {WRITE_OVERHEAD_BYTES} counted for each document beside its own: write less in one, or raise its bound"
            );
            return Err(StoreError::command(Code::TransactionTooLarge, text));
        }
        if bytes <= self.bytes {
            self.room.bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let grown = bytes - self.bytes;
            if self.room.bytes.fetch_add(grown, Ordering::Relaxed).saturating_add(grown) > all_max {
                self.room.bytes.fetch_sub(grown, Ordering::Relaxed);
                let text = format!(
                    "write conflict: all open transactions together have written more than {all_max} bytes: try again later"
                );
                return Err(StoreError::command(Code::WriteConflict, text));
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
