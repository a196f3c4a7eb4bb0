//! The bound on the memory of one stage.

use crate::context::{Context, MemoryReservation};
use crate::error::{Code, Error, Result};

/// The overhead of one held document or entry, in bytes.
pub(crate) const ENTRY_BYTES: usize = 64;
#[derive(Debug)]
pub(crate) struct StageMemory {
    stage: &'static str,
    held: MemoryReservation,
    bytes_max: usize,
}

impl StageMemory {
    pub(crate) fn new(stage: &'static str, context: &Context) -> Self {
        StageMemory { stage, held: MemoryReservation::new(context), bytes_max: context.memory.stage_bytes_max }
    }

    /// Reserves more bytes.
    ///
    /// # Errors
    /// 292 beyond the bound, or that of all stages together.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<()> {
        if self.held.bytes().saturating_add(bytes) <= self.bytes_max {
            return self.held.grow(bytes);
        }
        Err(Error::new(
            Code::QueryExceededMemoryLimitNoDiskUseAllowed,
            format!(
                "Exceeded memory limit for {}, but didn't allow external spilling; limit is {} bytes",
                self.stage, self.bytes_max
            ),
        ))
    }
    pub(crate) fn release(&mut self, bytes: usize) {
        self.held.shrink(bytes);
    }
    pub(crate) fn clear(&mut self) {
        self.held.shrink(self.held.bytes());
    }
}
