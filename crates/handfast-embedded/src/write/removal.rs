//! Removes the keys of what was dropped, in the background.
//!
//! Dropping a collection or an index is one small change of the catalog, after which nobody can see it. Its keys are
//! removed afterwards, some at a time, between the operations of others; a note in the metadata map says what is left
//! to do, so that a restart goes on with it. Numbers are never given again, so no new key gets in between.

use handfast_store::Result as StoreResult;

use crate::committer::Answer;
use crate::engine::{Direction, Keyspace, prefix_range};
use crate::format::{MetadataKey, collection_prefix, index_prefix};
use crate::store::EmbeddedStore;

impl EmbeddedStore {
    /// Wakes the task that removes.
    pub(crate) fn removal_is_due(&self) {
        self.inner.removal.notify_one();
    }

    /// Removes all keys of everything that was dropped before the call.
    ///
    /// # Errors
    /// Those of a write.
    pub async fn remove_dropped(&self) -> StoreResult<()> {
        loop {
            let dropped = self.snapshot_now().catalog().dropped.first().copied();
            match dropped {
                Some(dropped) if !self.inner.closing.load(std::sync::atomic::Ordering::Relaxed) => {
                    self.remove_keys_of(dropped).await?;
                }
                _ => return Ok(()),
            }
        }
    }

    async fn remove_keys_of(&self, dropped: MetadataKey) -> StoreResult<()> {
        let prefixes = match dropped {
            MetadataKey::Dropped(id) => {
                vec![
                    (Keyspace::Documents, collection_prefix(id).to_vec()),
                    (Keyspace::Indexes, collection_prefix(id).to_vec()),
                ]
            }
            MetadataKey::DroppedIndex(id, index) => vec![(Keyspace::Indexes, index_prefix(id, index).to_vec())],
            _ => Vec::new(),
        };
        for (keyspace, prefix) in prefixes {
            loop {
                // The newest view, not a snapshot: it must not see again what the step before removed.
                let keys = self.some_keys(keyspace, prefix.clone()).await?;
                if keys.is_empty() {
                    break;
                }
                if self.inner.closing.load(std::sync::atomic::Ordering::Relaxed) {
                    // The note in the catalog stays: the next opening goes on.
                    return Ok(());
                }
                let bytes = keys.iter().map(Vec::len).sum();
                let remove = move |writer: &mut crate::committer::Writer<'_>| {
                    writer.remove_keys(keyspace, keys);
                    Ok(())
                };
                self.inner.committer.submit(Answer::Applied, bytes, remove).await?;
            }
        }
        let forget = move |writer: &mut crate::committer::Writer<'_>| {
            writer.forget_dropped(dropped);
            Ok(())
        };
        self.inner.committer.submit(Answer::Synced, 0, forget).await
    }

    async fn some_keys(&self, keyspace: Keyspace, prefix: Vec<u8>) -> StoreResult<Vec<Vec<u8>>> {
        let view = self.latest().view;
        let count = self.inner.options.step_documents_max.max(1);
        let keys = tokio::task::spawn_blocking(move || {
            let rows = view.range(keyspace, prefix_range(&prefix), Direction::Forward);
            rows.take(count).map(|row| row.map(|(key, _)| key.to_vec())).collect::<crate::Result<Vec<_>>>()
        });
        let keys = keys.await.map_err(|error| crate::Error::Engine(error.to_string()))?;
        Ok(keys?)
    }
}
