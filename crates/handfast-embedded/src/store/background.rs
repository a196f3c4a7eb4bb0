//! What goes on beside requests: expired documents and the keys of what was dropped are removed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{EmbeddedStore, Inner};

/// Without TTL deletion, the task only waits for something to be dropped.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Starts the task; it ends with the store.
pub(super) fn start(store: &EmbeddedStore) {
    let inner = Arc::downgrade(&store.inner);
    let removal = store.inner.removal.clone();
    let interval = store.inner.options.expiry_interval.unwrap_or(NEVER);
    let expires = store.inner.options.expiry_interval.is_some();
    tokio::spawn(async move {
        loop {
            let is_time = tokio::time::timeout(interval, removal.notified()).await.is_err();
            let Some(store) = strong(&inner) else {
                return;
            };
            if let Err(error) = store.remove_dropped().await {
                tracing::warn!(%error, "keys of what was dropped could not be removed; they are tried again later");
            }
            if is_time && expires {
                let now = store.inner.sources.clock.now();
                if let Err(error) = store.expire(now).await {
                    tracing::warn!(%error, "expired documents could not be removed; they are tried again later");
                }
            }
        }
    });
}

fn strong(inner: &Weak<Inner>) -> Option<EmbeddedStore> {
    let inner = inner.upgrade().filter(|inner| !inner.closing.load(Ordering::Relaxed))?;
    Some(EmbeddedStore { inner, handles: Arc::default() })
}
