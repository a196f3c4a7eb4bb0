//! The bytes that the stages of all queries hold together.
//!
//! Each stage has a bound of its own, and many small requests can open many stages: a sorted cursor that no client reads on
//! from holds its documents for as long as it is open. So there is one more bound for all of them. A stage
//! reserves memory as it grows, and releases it as it returns documents, or when it is dropped, for whatever reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Context;
use crate::{Code, Error, Result};

/// The bound that the stages of all queries share. Copies are one bound; the default is no bound.
#[derive(Clone, Debug)]
pub struct StageTotal(Arc<Total>);

#[derive(Debug)]
struct Total {
    held: AtomicUsize,
    bytes_max: usize,
}

impl StageTotal {
    /// Creates a bound of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        StageTotal(Arc::new(Total { held: AtomicUsize::new(0), bytes_max }))
    }

    /// Returns the bytes that are reserved now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }
}

impl Default for StageTotal {
    fn default() -> Self {
        StageTotal::new(usize::MAX)
    }
}

/// The reservation of one stage; it is released when this is dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    total: StageTotal,
    bytes: usize,
}

impl MemoryReservation {
    /// Creates an empty reservation.
    pub fn new(context: &Context) -> Self {
        MemoryReservation { total: context.stage_total.clone(), bytes: 0 }
    }

    /// Returns the bytes of this reservation.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves more bytes.
    ///
    /// # Errors
    /// `QueryExceededMemoryLimitNoDiskUseAllowed` (292) if all together would be too much; then nothing is counted.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        let Total { held, bytes_max } = &*self.total.0;
        let grown = |held: usize| held.checked_add(bytes).filter(|sum| sum <= bytes_max);
        if held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_err() {
            let message = format!(
                "the sorts, groups and other stages of all queries would hold more than {bytes_max} bytes together: close \
                 cursors, sort by an index, ask for less, or raise `stage-bytes-total`"
            );
            return Err(Error::new(Code::QueryExceededMemoryLimitNoDiskUseAllowed, message));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Releases bytes.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.total.0.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}
