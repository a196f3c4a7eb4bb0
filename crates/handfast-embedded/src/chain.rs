//! The chain of batches: each holds its own number, and the engine's sequence number of the previous batch.
//!
//! The engine gives a batch a sequence number when it applies it, and replays its journal with these numbers, which no checksum
//! covers. The number is not known beforehand, so the *next* batch has it under its checksum, and the witness has the one of
//! the last synced batch:
//!
//! ```text
//! journal    41  batch 7, previous 40      42  batch 8, previous 41      44  batch 9, previous 42
//! witness    batch 9 is 44
//! ```

use handfast_store::CommitTimestamp;

use crate::engine::{Engine, Keyspace, Write};
use crate::error::Result;
use crate::format::{LastBatch, MetadataKey};

/// The numbers of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchNumbers {
    /// The store's number: 1, 2, 3, without a gap. 0 is the state before the first batch.
    pub(crate) number: u64,
    /// The engine's sequence number; 0 if its journal does not have the batch.
    pub(crate) sequence: u64,
}

/// The end of the chain, to which batches are added.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) last: LastBatch,
    /// The engine's sequence number of the last batch; 0 if its journal does not have the batch.
    pub(crate) sequence: u64,
}

impl Chain {
    /// Returns the numbers of the last batch.
    pub(crate) fn numbers(&self) -> BatchNumbers {
        BatchNumbers { number: self.last.number, sequence: self.sequence }
    }

    /// Applies writes as the next batch. `timestamp` is the one of the last commit in it.
    pub(crate) fn apply(
        &mut self,
        engine: &dyn Engine,
        timestamp: CommitTimestamp,
        mut writes: Vec<Write>,
    ) -> Result<()> {
        let batch = LastBatch {
            number: self.last.number + 1,
            timestamp,
            sequence: engine.next_sequence(),
            before: self.sequence,
        };
        writes.push(Write {
            keyspace: Keyspace::Metadata,
            key: MetadataKey::LastBatch.encode(),
            value: Some(batch.encode()),
        });
        let sequence = engine.apply(writes)?;
        *self = Chain { last: batch, sequence };
        Ok(())
    }
}
