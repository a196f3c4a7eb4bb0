//! The bound on what one stage may hold.

use crate::error::{Code, Error, Result};

/// MongoDB's bound for a stage that has to hold its input: 100 MB. There is no disk to spill to.
pub(crate) const STAGE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// What one held document or entry costs beside its bytes.
pub(crate) const ENTRY_BYTES: usize = 64;

/// How much a stage holds.
#[derive(Debug)]
pub(crate) struct Memory {
    stage: &'static str,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(stage: &'static str) -> Self {
        Memory { stage, bytes: 0 }
    }

    /// Counts more.
    ///
    /// # Errors
    /// 292 beyond the bound.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= STAGE_BYTES_MAX {
            return Ok(());
        }
        Err(Error::new(
            Code::QueryExceededMemoryLimitNoDiskUseAllowed,
            format!(
                "Exceeded memory limit for {}, but didn't allow external spilling; limit is {STAGE_BYTES_MAX} bytes",
                self.stage
            ),
        ))
    }

    /// Counts less.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
