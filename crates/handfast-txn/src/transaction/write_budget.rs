//! The memory that the writes of open transactions may take: one bound for each transaction, and one for all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use handfast_mql::Code;
use handfast_store::{Error as StoreError, Result as StoreResult};

use crate::TransactionOptions;

/// The memory that a written document takes besides its bytes: entries in the write buffer (a tree whose nodes are at least half
/// full) and in the claims (a list, and a hash table that may just have doubled), and an allocation for each.
///
/// `tests/write_budget.rs` holds this and [`UNIQUE_KEY_OVERHEAD_BYTES`] against what an allocator counts.
const WRITE_OVERHEAD_BYTES: usize = 640;
/// The memory that a unique key takes in a hash table besides its bytes.
const UNIQUE_KEY_OVERHEAD_BYTES: usize = 240;

/// Returns the memory that a written document takes until the transaction ends. Its claim holds its key twice, and the buffer holds the
/// `_id`, which is about as long as the key.
pub(super) fn bytes_of_write(key: &[u8], document_bytes: usize) -> usize {
    document_bytes + 4 * key.len() + WRITE_OVERHEAD_BYTES
}

/// Returns the memory that a unique key of a written document takes.
pub(super) fn bytes_of_unique_key(index: &str, key: &[u8]) -> usize {
    index.len() + key.len() + UNIQUE_KEY_OVERHEAD_BYTES
}

/// Counts the bytes that all open transactions of a database have written.
#[derive(Debug, Default)]
pub(crate) struct WriteBudget {
    bytes: AtomicUsize,
}

impl WriteBudget {
    /// Returns the reserved bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The bytes that one transaction has reserved in a budget. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<WriteBudget>,
    bytes: usize,
}

impl Reservation {
    /// Returns a reservation of no bytes.
    pub(super) fn of(budget: Arc<WriteBudget>) -> Self {
        Reservation { budget, bytes: 0 }
    }

    /// Returns the bytes that all transactions of the budget have reserved.
    pub(super) fn bytes_of_all(&self) -> usize {
        self.budget.bytes()
    }

    /// Releases some bytes and reserves more.
    ///
    /// # Errors
    /// `TransactionTooLarge` (257) beyond the transaction's own bound; `WriteConflict` (112) beyond the bound of all transactions, as
    /// MongoDB answers when its cache is full: the transaction may be run again.
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
