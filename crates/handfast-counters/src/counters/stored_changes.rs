//! Changes of stored totals that are no views: an import and a repair. Instances that run beside them have totals in their cache, which must follow.
//!
//! ```text
//!   save_import   entries for the items of the batch    a transaction      refresh of all items that were read
//!   rebuild                                             one for each item  refresh of each page of items
//! ```
//!
//! A refresh is repeated by the same command, so a process that dies in between leaves totals that are too old for a while and no wrong ones: an
//! import refreshes the items of the lines that an earlier run has added, and a repair those of all items that it sees.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use handfast_store::Applied;

use super::{Counters, Flushed, IDS_MAX};
use crate::buffer::{Fence, Stored};
use crate::storage::Repaired;
use crate::{Batch, Difference, Error, Event, Import, ImportSaved, Item, ItemId, Kind, Result};

/// How often a step that needs a moment without changes of the queue is tried. With the pauses this is half a minute: longer than an instance needs to save a
/// batch, and than [`CountersOptions::idle`](crate::CountersOptions::idle) should be for a program that imports.
const ATTEMPTS: usize = 600;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

impl Counters {
    /// Adds the batch of an import ([`Import::add`]) to the stored totals and days, once, and sets the cached totals of its items and of those that an
    /// earlier run has added ([`Import::add_known`]). Instances may count meanwhile: no reader sees a total go back.
    ///
    /// # Errors
    /// Those of [`Storage`](crate::Storage) and the buffer. The batch and its items are kept: it may be saved again, which adds it once in all.
    pub async fn save_import(&self, import: &mut Import) -> Result<ImportSaved> {
        for (kind, ids) in pages(import.batch_items()) {
            self.ensure_cached(&kind, &ids).await?;
        }
        let saved = import.save().await?;
        for (kind, ids) in pages(import.items().iter().cloned()) {
            self.refresh(&kind, &ids).await?;
        }
        import.forget_items();
        Ok(saved)
    }

    /// Sets each stored total that differs to its base and the sum of its days, in a transaction for each item, and returns the number of items. Cached
    /// totals follow. `progress` is called with the number of items so far, and `rebuilt` with the figures of each item that had another total before, or
    /// with what is wrong with an item that cannot be read, which is left as it is.
    ///
    /// # Errors
    /// Those of [`Storage`](crate::Storage) and the buffer. Repeat it then: it also sets the cached totals of items that were changed before.
    pub async fn rebuild(
        &self,
        kind: Option<&Kind>,
        mut progress: impl FnMut(u64),
        mut rebuilt: impl FnMut(Result<Difference, String>),
    ) -> Result<u64> {
        let mut repair = self.storage.repair(kind).await?;
        let (mut items, mut seen) = (0, Vec::new());
        while let Some(repaired) = repair.next().await? {
            items += 1;
            match repaired {
                Repaired::Right(item) => seen.push(item),
                Repaired::Changed(difference) => {
                    seen.push(difference.item.clone());
                    rebuilt(Ok(difference));
                }
                Repaired::Unreadable(what) => rebuilt(Err(what)),
            }
            if seen.len() >= IDS_MAX {
                self.refresh_all(std::mem::take(&mut seen)).await?;
            }
            progress(items);
        }
        self.refresh_all(seen).await?;
        Ok(items)
    }

    /// Saves what waits in the queue of a kind.
    async fn flush_waiting(&self, kind: &Kind, flushed: &mut Flushed) -> Result<()> {
        let pending = self.buffer.depth(kind).await?.pending;
        self.flush_kind(kind, pending, flushed).await
    }

    /// Saves what is in the queues when it is called, also what other instances have claimed: after that, no earlier deletion drops what is added.
    ///
    /// # Errors
    /// Those of [`Counters::flush`]; [`Error::Buffer`] if other instances do not save in time what they have claimed.
    pub async fn flush_all(&self) -> Result<Flushed> {
        let mut all = Flushed::default();
        for kind in self.buffer.kinds().await? {
            let mut attempts = ATTEMPTS;
            let end = self.buffer.depth(&kind).await?.next;
            loop {
                self.flush_waiting(&kind, &mut all).await?;
                if self.buffer.depth(&kind).await?.oldest >= end {
                    break;
                }
                attempts = self.pause_after(attempts, &kind, Applied::No).await?;
            }
        }
        Ok(all)
    }

    /// Corrects the cached totals of a batch that was saved and that the buffer has lost: one that came into the cache before lacks its views.
    pub(super) async fn correct_after_loss(&self, batch: &Batch) -> Result<()> {
        let item = |event: &Event| Item { kind: batch.kind.clone(), id: event.id.clone() };
        for (kind, ids) in pages(batch.events.iter().map(item)) {
            self.buffer.make_partial(&kind, &ids).await?;
        }
        Ok(())
    }

    async fn refresh_all(&self, items: Vec<Item>) -> Result<()> {
        for (kind, ids) in pages(items) {
            self.refresh(&kind, &ids).await?;
        }
        Ok(())
    }

    /// Sets the cached totals of items to what the store has and what waits in the queue, at the first moment without a claimed batch. It saves
    /// what waits itself, so that such a moment comes.
    async fn refresh(&self, kind: &Kind, ids: &[ItemId]) -> Result<()> {
        let mut attempts = ATTEMPTS;
        loop {
            let fence = self.buffer.read(kind, &[]).await?.fence;
            let totals = self.storage.totals(kind, ids).await?;
            let totals: Vec<(ItemId, u64)> = ids.iter().cloned().zip(totals).collect();
            if self.buffer.refresh(kind, &totals, fence).await? {
                return Ok(());
            }
            attempts = self.pause_after(attempts, kind, Applied::Maybe).await?;
            self.flush_waiting(kind, &mut Flushed::default()).await?;
        }
    }

    /// Gives items an entry with a whole total in the cache, which stays for a while, if they have none and the buffer makes one: it makes none for a kind that nobody has counted, or
    /// if it has no place, and completes no partial one while a batch is claimed.
    async fn ensure_cached(&self, kind: &Kind, ids: &[ItemId]) -> Result<()> {
        let mut attempts = ATTEMPTS;
        let mut last: Option<Fence> = None;
        self.buffer.renew(kind, ids).await?;
        loop {
            let reading = self.buffer.read(kind, ids).await?;
            let of_items = ids.iter().zip(&reading.totals);
            let unknown = of_items.filter(|(_, total)| total.is_none_or(|total| total.partial));
            let unknown: Vec<ItemId> = unknown.map(|(id, _)| id.clone()).collect();
            // Nothing has changed since the last attempt, so that another one would be in vain.
            if unknown.is_empty() || last == Some(reading.fence) {
                return Ok(());
            }
            let totals = self.storage.totals(kind, &unknown).await?;
            for (id, total) in unknown.into_iter().zip(totals) {
                let item = Item { kind: kind.clone(), id };
                self.buffer.fill(&item, Stored { fence: reading.fence, total }).await?;
            }
            if last.replace(reading.fence).is_some() {
                attempts = self.pause_after(attempts, kind, Applied::No).await?;
            }
        }
    }

    /// Waits before the next attempt, and returns how many are left.
    async fn pause_after(&self, attempts: usize, kind: &Kind, applied: Applied) -> Result<usize> {
        if attempts <= 1 {
            let what = format!(
                "for {} s there was always a batch of {kind} that another instance was saving",
                (PAUSE * u32::try_from(ATTEMPTS).unwrap_or(u32::MAX)).as_secs()
            );
            return Err(Error::Buffer { what, applied });
        }
        tokio::time::sleep(PAUSE).await;
        Ok(attempts - 1)
    }
}

/// Returns the items by their kinds, in pages of [`IDS_MAX`] ids.
fn pages(items: impl IntoIterator<Item = Item>) -> Vec<(Kind, Vec<ItemId>)> {
    let mut by_kind: BTreeMap<Kind, BTreeSet<ItemId>> = BTreeMap::new();
    for Item { kind, id } in items {
        by_kind.entry(kind).or_default().insert(id);
    }
    let mut pages = Vec::new();
    for (kind, ids) in by_kind {
        let ids: Vec<ItemId> = ids.into_iter().collect();
        pages.extend(ids.chunks(IDS_MAX).map(|page| (kind.clone(), page.to_vec())));
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::pages;
    use crate::Item;
    use crate::counters::IDS_MAX;

    #[test]
    fn pages_have_one_kind_and_a_limit() {
        let item = |kind: &str, id: usize| Item::new(kind, &id.to_string()).expect("an item");
        let items = (0..IDS_MAX + 2).flat_map(|id| [item("ads", id), item("news", id % 2), item("ads", id)]);
        let sizes: Vec<(String, usize)> =
            pages(items).into_iter().map(|(kind, ids)| (kind.to_string(), ids.len())).collect();
        assert_eq!(sizes, [("ads".into(), IDS_MAX), ("ads".into(), 2), ("news".into(), 2)]);
    }
}
