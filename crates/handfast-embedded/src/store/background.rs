//! The background tasks of an open store: they remove expired documents, and the keys of dropped collections and indexes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::write::context::WriteContext;
use crate::write::{expiry, key_removal};

/// The time after which a failed removal of keys is repeated, if nothing is dropped before.
const REMOVAL_RETRY: Duration = Duration::from_secs(60);

/// Starts the tasks, which end with the store.
pub(super) fn start(context: &Arc<WriteContext>) {
    tokio::spawn(remove_keys(Arc::downgrade(context), context.key_removal.clone()));
    if let Some(interval) = context.options.expiry_interval {
        tokio::spawn(expire(Arc::downgrade(context), interval));
    }
}

async fn remove_keys(context: Weak<WriteContext>, key_removal: Arc<Notify>) {
    let mut failed = false;
    loop {
        if failed {
            let _ = tokio::time::timeout(REMOVAL_RETRY, key_removal.notified()).await;
        } else {
            key_removal.notified().await;
        }
        let Some(context) = open_context(&context) else {
            return;
        };
        let removed = key_removal::remove_dropped(&context).await;
        failed = removed.is_err();
        if let Err(error) = removed {
            tracing::warn!(%error, "keys of what was dropped could not be removed; they are tried again later");
        }
    }
}

async fn expire(context: Weak<WriteContext>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(context) = open_context(&context) else {
            return;
        };
        let now = context.sources.clock.now();
        if let Err(error) = expiry::expire(&context, now).await {
            tracing::warn!(%error, "not all expired documents could be removed; they are tried again later");
        }
    }
}

/// Returns the context, unless the store is closed or being closed.
fn open_context(context: &Weak<WriteContext>) -> Option<Arc<WriteContext>> {
    context.upgrade().filter(|context| !context.is_closing())
}
