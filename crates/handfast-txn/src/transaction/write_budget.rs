//! WriteBudget in memory for what open transactions have written: a bound for each, and one for all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use handfast_mql::Code;
use handfast_store::{Error as StoreError, Result as StoreResult};

use crate::TransactionOptions;

/// What a written document takes beside the bytes of what is kept: its place among the writes (in a tree whose nodes are half full
/// at least) and among the claims (in a list, and in a hash table that may just have doubled), and an allocation for each.
///
/// `tests/write_budget.rs` holds this and [`UNIQUE_KEY_OVERHEAD_BYTES`] against what an allocator counts.
const WRITE_OVERHEAD_BYTES: usize = 640;
/// The same of a unique key: its place in a hash table.
const UNIQUE_KEY_OVERHEAD_BYTES: usize = 240;

/// What a written document takes in memory until the transaction ends. Its key is with its claim too, twice, and the `_id`, which
/// is about as long as its key, is with the write.
pub(super) fn bytes_of_write(key: &[u8], document_bytes: usize) -> usize {
    document_bytes + 4 * key.len() + WRITE_OVERHEAD_BYTES
}

/// What a unique key of a written document takes beside that.
pub(super) fn bytes_of_unique_key(index: &str, key: &[u8]) -> usize {
    index.len() + key.len() + UNIQUE_KEY_OVERHEAD_BYTES
}

/// What all open transactions of a database have written.
#[derive(Debug, Default)]
pub(crate) struct WriteBudget {
    bytes: AtomicUsize,
}

impl WriteBudget {
    /// Bytes that are taken.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// What one transaction has taken of it, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<WriteBudget>,
    bytes: usize,
}

impl Reservation {
    /// Nothing yet.
    pub(super) fn of(budget: Arc<WriteBudget>) -> Self {
        Reservation { budget, bytes: 0 }
    }

    /// Takes so many bytes more, after giving some back.
    ///
    /// # Errors
    /// `TransactionTooLarge` (257) beyond the transaction's own bound; `WriteConflict` (112) beyond that of all, as MongoDB's
    /// transactions say where its cache has no budget: run again, it may find some.
    pub(super) fn change(&mut self, freed: usize, more: usize, options: &TransactionOptions) -> StoreResult<()> {
        let (transaction_max, all_max) = (options.write_bytes_max, options.all_write_bytes_max);
        let bytes = self.bytes.saturating_sub(freed) + more;
        if bytes > transaction_max && bytes > self.bytes {
            let text = format!(
                "the transaction has written more than {transaction_max} bytes, with some {WRITE_OVERHEAD_BYTES} for each document beside its own: write less in one, or raise its bound"
            );
            return Err(StoreError::command(Code::TransactionTooLarge, text));
        }
        if bytes <= self.bytes {
            self.budget.bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let grown = bytes - self.bytes;
            if self.budget.bytes.fetch_add(grown, Ordering::Relaxed).saturating_add(grown) > all_max {
                self.budget.bytes.fetch_sub(grown, Ordering::Relaxed);
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

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
