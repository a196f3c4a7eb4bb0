//! The batches that an instance has begun to save, until they are acknowledged.
//!
//! # The problem
//! A pass gives up a store that does not answer, and what it has asked for may go on. So a batch may be saved later, and the buffer may have lost it by then: a Redis
//! without an append-only file that has started again. Nobody would acknowledge the batch, and a total that was read before it was saved would stay in the cache:
//!
//! ```text
//!   instance A             Redis                            another instance              store
//!   claim          ->      batch 104: ad 7, 100 views                                     ad 7: 5
//!   save           ------------------------------------------------------------------>    no answer
//!   gives up               starts again, empty
//!                          ad 7: stored 5           <-      find, fill            ---->   ad 7: 5
//!                                                                                         ad 7: 105, batch 104
//!   claim          ->      no batch
//!                          ad 7: 5 (a whole total)  <-      read(ad 7)
//! ```
//!
//! # The idea
//! The instance keeps the batch. The next pass saves it before it claims another one; a batch that is saved twice is added once. Then it acknowledges the batch, and if the buffer has
//! lost it, the totals of its items are corrected. An acknowledgement that fails is repeated in the same way.
//!
//! The views of a batch are in the metrics of the instance whose save has added them. If the store has a batch whose save had no result, it was that save: another
//! instance saves the batch only after [`CountersOptions::idle`](super::CountersOptions::idle).
//!
//! A process that dies forgets its batches. Totals in the cache of a Redis that has lost one are then too low until they leave the cache.

use std::collections::BTreeMap;

use handfast_store::Applied;
use tokio::sync::Mutex;

use super::{Counters, Flushed};
use crate::{Batch, Kind, Result};

/// The batch of each kind that this instance has begun to save and has not acknowledged. It is locked while views of any kind are saved.
pub(super) type BegunBatches = Mutex<BTreeMap<Kind, BegunBatch>>;

/// A batch that is not acknowledged.
#[derive(Debug)]
pub(super) struct BegunBatch {
    pub(super) batch: Batch,
    progress: Progress,
}

/// The knowledge about a batch that is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No save of this instance has added it.
    Unsaved,
    /// A save had no result, and may have added it or add it later.
    InDoubt,
    /// The store has it, and its views are in the metrics.
    Saved,
}

impl BegunBatch {
    pub(super) fn new(batch: Batch) -> Self {
        BegunBatch { batch, progress: Progress::Unsaved }
    }
}

impl Counters {
    /// Saves and acknowledges the batch of a kind that was begun, if there is one.
    pub(super) async fn finish_begun(
        &self,
        begun: &mut BTreeMap<Kind, BegunBatch>,
        kind: &Kind,
        flushed: &mut Flushed,
    ) -> Result<()> {
        let Some(BegunBatch { batch, progress }) = begun.get_mut(kind) else { return Ok(()) };
        if *progress != Progress::Saved {
            self.save_begun(batch, progress).await?;
        }
        // Also one that was saved before: an earlier pass may not have got the answer of the store.
        if !self.buffer.acknowledge(batch).await? {
            self.correct_after_loss(batch).await?;
        }
        flushed.batches += 1;
        flushed.views += batch.views();
        tracing::debug!(%kind, batch = batch.number(), views = batch.views(), "a batch was saved");
        begun.remove(kind);
        Ok(())
    }

    async fn save_begun(&self, batch: &Batch, progress: &mut Progress) -> Result<()> {
        // Before the save, which may be dropped.
        let before = std::mem::replace(progress, Progress::InDoubt);
        let saved = match self.in_pass(async { Ok(self.storage.save(batch).await) }).await? {
            Ok(saved) => saved,
            Err(error) => {
                if error.applied() == Applied::No {
                    *progress = before;
                }
                return Err(error);
            }
        };
        *progress = Progress::Saved;
        if saved.is_new() || before == Progress::InDoubt {
            self.last_pass.saved(batch.views());
        }
        Ok(())
    }
}
