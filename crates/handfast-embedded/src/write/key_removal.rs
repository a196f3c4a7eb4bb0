//! Removes the keys of dropped collections and indexes, in the background.
//!
//! A drop is one small change of the catalog, after which no reader finds the collection or index. Its keys are removed
//! afterwards in steps, between which other operations run. A record in the metadata map says which removals are not complete,
//! so that a restart continues them. Ids are not used again, so no new key lies between the removed ones.

use handfast_store::Result as StoreResult;

use super::context::WriteContext;
use crate::committer::{AnswerAfter, Writer};
use crate::engine::{Direction, Keyspace, prefix_range};
use crate::format::{MetadataKey, collection_prefix, index_prefix};

/// Removes all keys of everything that was dropped before the call.
pub(crate) async fn remove_dropped(context: &WriteContext) -> StoreResult<()> {
    loop {
        let dropped = context.snapshot().catalog().dropped.first().copied();
        match dropped {
            Some(dropped) if !context.is_closing() => remove_keys_of(context, dropped).await?,
            _ => return Ok(()),
        }
    }
}

async fn remove_keys_of(context: &WriteContext, dropped: MetadataKey) -> StoreResult<()> {
    let prefixes = match dropped {
        MetadataKey::Dropped(id) => vec![
            (Keyspace::Documents, collection_prefix(id).to_vec()),
            (Keyspace::Indexes, collection_prefix(id).to_vec()),
        ],
        MetadataKey::DroppedIndex(id, index) => vec![(Keyspace::Indexes, index_prefix(id, index).to_vec())],
        _ => Vec::new(),
    };
    for (keyspace, prefix) in prefixes {
        loop {
            let keys = some_keys(context, keyspace, prefix.clone()).await?;
            if keys.is_empty() {
                break;
            }
            if context.is_closing() {
                // The record in the catalog stays: the next opening continues.
                return Ok(());
            }
            let bytes = keys.iter().map(Vec::len).sum();
            let remove = move |writer: &mut Writer<'_>| {
                writer.remove_keys(keyspace, keys);
                Ok(())
            };
            context.committer.submit(AnswerAfter::Applied, bytes, remove).await?;
        }
    }
    let end = move |writer: &mut Writer<'_>| {
        writer.end_key_removal(dropped);
        Ok(())
    };
    context.committer.submit(AnswerAfter::Synced, 0, end).await
}

/// Returns the first keys with a prefix in the newest state, in which the keys of earlier steps are removed.
async fn some_keys(context: &WriteContext, keyspace: Keyspace, prefix: Vec<u8>) -> StoreResult<Vec<Vec<u8>>> {
    let view = context.latest().view;
    let count = context.options.step_documents_max.max(1);
    let keys = tokio::task::spawn_blocking(move || {
        let rows = view.range(keyspace, prefix_range(&prefix), Direction::Forward);
        rows.take(count).map(|row| row.map(|(key, _)| key.to_vec())).collect::<crate::Result<Vec<_>>>()
    });
    let keys = keys.await.map_err(|error| crate::Error::Engine(error.to_string()))?;
    Ok(keys?)
}
