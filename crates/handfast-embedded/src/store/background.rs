//! The background tasks of an open store: they remove expired documents, the keys of dropped collections and indexes, and the oldest
//! records of the log of changes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::ChangeLog;
use crate::write::context::WriteContext;
use crate::write::{expiry, key_removal, log_trimming};

/// The time after which a failed removal of keys is repeated, if nothing is dropped before.
const REMOVAL_RETRY: Duration = Duration::from_secs(60);

/// The time after which records of the log of changes are removed that have become too old.
const LOG_TRIM_INTERVAL: Duration = Duration::from_secs(10);

/// Starts the tasks, which end with the store.
pub(super) fn start(context: &Arc<WriteContext>) {
    tokio::spawn(remove_keys(Arc::downgrade(context), context.key_removal.clone()));
    if context.options.change_log != ChangeLog::AsItIs {
        tokio::spawn(trim_log(Arc::downgrade(context), context.shared().log_is_full.clone()));
    }
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

async fn trim_log(context: Weak<WriteContext>, log_is_full: Arc<Notify>) {
    loop {
        let Some(open) = open_context(&context) else {
            return;
        };
        if let Err(error) = log_trimming::trim(&open).await {
            tracing::warn!(%error, "old records of the log of changes could not be removed; they are tried again later");
        }
        drop(open);
        let _ = tokio::time::timeout(LOG_TRIM_INTERVAL, log_is_full.notified()).await;
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
