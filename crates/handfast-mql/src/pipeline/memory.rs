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
    allows_disk_use: bool,
}

impl StageMemory {
    pub(crate) fn new(stage: &'static str, context: &Context) -> Self {
        StageMemory {
            stage,
            held: MemoryReservation::new(context),
            bytes_max: context.memory.stage_bytes_max,
            allows_disk_use: context.allows_disk_use(),
        }
    }

    /// Reserves more bytes.
    ///
    /// # Errors
    /// 292 beyond the bound, or that of all stages together.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<()> {
        if self.held.bytes().saturating_add(bytes) <= self.bytes_max {
            return self.held.grow(bytes);
        }
        let why = match self.allows_disk_use {
            true => {
                "which has to keep its input, one group or one partition in memory: raise the setting sort-bytes, or ask for less"
            }
            false => "but didn't allow external spilling",
        };
        let text = format!("Exceeded memory limit for {}, {why}; limit is {} bytes", self.stage, self.bytes_max);
        Err(Error::new(Code::QueryExceededMemoryLimitNoDiskUseAllowed, text))
    }
    /// Reserves more bytes than the bound of the stage, for a value that takes the place of another.
    ///
    /// # Errors
    /// 292 beyond the bound of all stages together.
    pub(crate) fn reserve_beyond(&mut self, bytes: usize) -> Result<()> {
        self.held.grow(bytes)
    }
    pub(crate) fn release(&mut self, bytes: usize) {
        self.held.shrink(bytes);
    }
    pub(crate) fn clear(&mut self) {
        self.held.shrink(self.held.bytes());
    }
}
