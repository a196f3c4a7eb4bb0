//! Batches as a chain: each holds its own number, and what the engine calls the one before it.
//!
//! The engine numbers a batch in the moment in which it is applied, and replays its journal under these numbers; they stand
//! before the batches there, and no checksum covers them. Nobody knows such a number beforehand, so the *next* batch has it
//! under its checksum, and the witness has that of the last batch that was synced:
//!
//! ```text
//! journal    41  batch 7, before it 40     42  batch 8, before it 41     44  batch 9, before it 42
//! witness    batch 9 is 44
//! ```

use handfast_store::CommitTimestamp;

use crate::engine::{Engine, Keyspace, Write};
use crate::error::Result;
use crate::format::{LastBatch, MetadataKey};

/// What a batch is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchNumbers {
    /// Ours: 1, 2, 3, without a gap. 0 is the state before the first batch.
    pub(crate) number: u64,
    /// The engine's; 0 if its journal does not have the batch.
    pub(crate) sequence: u64,
}

/// The end of the chain, to which batches are added.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) last: LastBatch,
    /// The number that the engine gave it; 0 if its journal does not have it.
    pub(crate) sequence: u64,
}

impl Chain {
    /// What the last batch is called.
    pub(crate) fn numbers(&self) -> BatchNumbers {
        BatchNumbers { number: self.last.number, sequence: self.sequence }
    }

    /// Applies writes as the next batch. `timestamp` is that of the last commit in it.
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
