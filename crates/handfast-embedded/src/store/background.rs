//! What goes on beside requests: expired documents and the keys of what was dropped are removed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::{EmbeddedStore, Inner};

/// When keys that could not be removed are tried again, if nothing is dropped before.
const REMOVAL_RETRY: Duration = Duration::from_secs(60);

/// Starts a task for each; they end with the store.
pub(super) fn start(store: &EmbeddedStore) {
    tokio::spawn(remove(Arc::downgrade(&store.inner), store.inner.removal.clone()));
    if let Some(interval) = store.inner.options.expiry_interval {
        tokio::spawn(expire(Arc::downgrade(&store.inner), interval));
    }
}

async fn remove(inner: Weak<Inner>, removal: Arc<Notify>) {
    let mut failed = false;
    loop {
        if failed {
            // Whichever comes first.
            let _ = tokio::time::timeout(REMOVAL_RETRY, removal.notified()).await;
        } else {
            removal.notified().await;
        }
        let Some(store) = strong(&inner) else {
            return;
        };
        let removed = store.remove_dropped().await;
        failed = removed.is_err();
        if let Err(error) = removed {
            tracing::warn!(%error, "keys of what was dropped could not be removed; they are tried again later");
        }
    }
}

async fn expire(inner: Weak<Inner>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(store) = strong(&inner) else {
            return;
        };
        let now = store.inner.sources.clock.now();
        if let Err(error) = store.expire(now).await {
            tracing::warn!(%error, "not all expired documents could be removed; they are tried again later");
        }
    }
}

fn strong(inner: &Weak<Inner>) -> Option<EmbeddedStore> {
    let inner = inner.upgrade().filter(|inner| !inner.closing.load(Ordering::Relaxed))?;
    Some(EmbeddedStore { inner, handles: Arc::default() })
}
