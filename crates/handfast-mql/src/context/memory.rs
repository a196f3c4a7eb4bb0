//! The memory limits of queries: of one stage, and of the stages of all queries together.
//!
//! A stage that has to hold its input (a sort, a group) has a limit of its own. Many small requests can open many stages: an open
//! cursor over a sort holds its documents even if its client never reads on. So there is a second limit for all of them. A stage
//! reserves memory as it grows, and releases it as it returns documents and when it is dropped. What does not fit goes to files,
//! where there is a place for them ([`SpillSpace`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Context;
use crate::spill::SpillSpace;
use crate::{Code, Error, Result};

/// MongoDB's limit for a stage that has to hold its input: 100 MB.
pub const STAGE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// The default limit on the bytes that all stages of all queries hold together: 512 MB, five of the largest stages.
pub const STAGE_TOTAL_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The memory limits of the stages of queries.
#[derive(Clone, Debug)]
pub struct QueryMemory {
    /// The most bytes that one stage (a sort, a group, the results of a lookup) may hold.
    pub stage_bytes_max: usize,
    /// The limit on the bytes that the stages of all queries hold together, which clones share.
    pub total: StageTotal,
    /// The place for sorts and groups that exceed a limit; they fail without one.
    pub spill: Option<Arc<dyn SpillSpace>>,
}

impl Default for QueryMemory {
    fn default() -> Self {
        QueryMemory { stage_bytes_max: STAGE_BYTES_MAX, total: StageTotal::new(STAGE_TOTAL_BYTES_MAX), spill: None }
    }
}

/// The limit on the bytes that the stages of all queries hold together. Clones share one limit.
#[derive(Clone, Debug)]
pub struct StageTotal(Arc<Total>);

#[derive(Debug)]
struct Total {
    held: AtomicUsize,
    bytes_max: usize,
}

impl StageTotal {
    /// Creates a limit of `bytes_max` bytes, of which none is reserved.
    pub fn new(bytes_max: usize) -> Self {
        StageTotal(Arc::new(Total { held: AtomicUsize::new(0), bytes_max }))
    }

    /// Returns the bytes that are reserved now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }
}

/// The bytes that one stage has reserved. They are released when this is dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    total: StageTotal,
    bytes: usize,
}

impl MemoryReservation {
    /// Creates an empty reservation.
    pub fn new(context: &Context) -> Self {
        MemoryReservation { total: context.memory.total.clone(), bytes: 0 }
    }

    /// Returns the bytes of this reservation.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves more bytes.
    ///
    /// # Errors
    /// `QueryExceededMemoryLimitNoDiskUseAllowed` (292) if the stages of all queries would hold too much; then no byte of the
    /// request is reserved.
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
