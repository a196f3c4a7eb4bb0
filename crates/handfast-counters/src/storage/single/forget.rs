//! Finishing the batches that a process has left, and forgetting those that cannot come again.

use bson::rawdoc;
use handfast_store::StoreExt as _;

use super::super::{Storage, int};
use crate::{Kind, Result, SequenceNumber};

impl Storage {
    /// Returns whether batches of a kind may be admitted that nobody finishes, as far as this process knows.
    pub(in crate::storage) fn is_finished_single(&self, kind: &Kind) -> bool {
        self.finished_kinds.change(|kinds| kinds.contains(kind))
    }

    /// Finishes the batches below `oldest` that are still admitted: the queue does not have them any more, as it lost them, or as a late request admitted
    /// a batch again. Then raises the bound, up to a batch that is being saved, and removes what is not needed below it.
    pub(in crate::storage) async fn forget_single(&self, kind: &Kind, oldest: SequenceNumber) -> Result<()> {
        let Some(bound) = self.bound_of(kind).await? else {
            self.keep_finished(kind);
            return Ok(());
        };
        let left: Vec<_> = bound.saving.iter().filter(|range| range.last < oldest).copied().collect();
        for range in &left {
            let range = *range;
            match self.recorded_batch(kind, range).await? {
                Some(batch) => {
                    tracing::warn!(%kind, batch = range.last, "a batch that was saved in part is finished");
                    self.save_admitted(&batch).await?;
                }
                // The record goes last.
                None => self.finish(kind, range).await?,
            }
        }
        let bound = match left.is_empty() {
            true => Some(bound),
            false => self.bound_of(kind).await?,
        };
        let Some(bound) = bound else { return Ok(()) };
        let below = bound.saving.iter().map(|range| range.first).fold(oldest, SequenceNumber::min);
        if below > bound.below && !self.raise_bound(kind, below).await? {
            // Another process has begun a batch. The next pass raises the bound.
            return Ok(());
        }
        self.remove_below(kind, below.max(bound.below)).await?;
        if bound.saving.iter().all(|range| range.last >= oldest) {
            self.keep_finished(kind);
        }
        Ok(())
    }

    fn keep_finished(&self, kind: &Kind) {
        self.finished_kinds.change(|kinds| kinds.insert(kind.clone()));
    }

    /// Removes what was kept for events below the bound: records, documents that a deletion has left without views, and the numbers of deletions.
    async fn remove_below(&self, kind: &Kind, below: SequenceNumber) -> Result<()> {
        self.remove_records(kind, below).await?;
        let old = rawdoc! { "$gt": 0_i64, "$lt": int(below) };
        let of_kind = || rawdoc! { "_id.kind": kind.as_str(), "deleted": old.clone() };
        let mut without_views = of_kind();
        without_views.append(bson::raw::cstr!("total"), 0_i64);
        self.store.delete_many(&self.totals, without_views).await?;
        let mut without_views = of_kind();
        without_views.append(bson::raw::cstr!("days"), rawdoc! { "$not": { "$gt": 0_i64 } });
        self.store.delete_many(&self.days, without_views).await?;
        let forgotten = rawdoc! { "$unset": { "deleted": "" } };
        for namespace in [&self.days, &self.totals] {
            self.store.update_many(namespace, of_kind(), forgotten.clone()).await?;
        }
        Ok(())
    }
}
