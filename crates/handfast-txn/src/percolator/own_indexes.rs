//! The engine's own indexes on the hidden field, by which it finds rows without scanning a collection.
//!
//! | index | serves |
//! | --- | --- |
//! | `_hf.lock.s` | all locks, for a cleaner; those from before a time, for a query or a check of what was read |
//! | `_hf.c` | what was committed since a time, for the same two; records that are old, for a cleaner |
//! | `_hf.d` | what may be forgotten, for a cleaner |
//!
//! They are sparse: a document that no transaction has touched is in none of them, and one that nobody is changing or has
//! changed lately only in the second. A store that knows no sparse indexes gets plain ones.
//!
//! Only speed depends on them. They are made in the background when a process first reads a collection's indexes, and by a cleaner in a
//! collection where it found something and they were missing. A store that cannot make them gets the same queries.
//!
//! They are not listed for users, who can neither drop nor name them: docs/decisions/0017-own-indexes.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{CreateIndexes, Error as StoreError, IndexInfo, IndexSpec, Namespace, Result as StoreResult};

use super::core::Core;
use super::row::FIELD;
use super::rows::Rows;

fn keys() -> [RawDocumentBuf; 3] {
    [rawdoc! { "_hf.lock.s": 1 }, rawdoc! { "_hf.c": 1 }, rawdoc! { "_hf.d": 1 }]
}

/// Returns whether an index is on the hidden field.
pub(super) fn is_own(spec: &IndexSpec) -> bool {
    is_on_field(&spec.key)
}

fn is_on_field(key: &RawDocument) -> bool {
    let is_below = |name: &str| name.strip_prefix(FIELD).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    key.iter().flatten().any(|(name, _)| is_below(name.as_str()))
}

/// Refuses an index of users on the hidden field.
///
/// # Errors
/// `CannotCreateIndex` (67) for such an index.
pub(super) fn check_not_own(spec: &IndexSpec) -> StoreResult<()> {
    if !is_own(spec) {
        return Ok(());
    }
    let text = format!("the field '{FIELD}' is kept for transactions, and so are indexes on it: choose another field");
    Err(StoreError::command(Code::CannotCreateIndex, text))
}

/// Returns the engine's own indexes that a collection does not have.
fn missing(stored: &[IndexInfo]) -> Vec<IndexSpec> {
    let is_there = |key: &RawDocumentBuf| stored.iter().any(|info| info.spec.key == *key);
    let missing = keys().into_iter().filter(|key| !is_there(key));
    missing.map(|key| IndexSpec { sparse: true, ..IndexSpec::new(key) }).collect()
}

impl Core {
    /// Makes the missing ones in the background.
    pub(super) fn make_own_indexes(&self, namespace: &Namespace, stored: &[IndexInfo]) {
        let missing = missing(stored);
        if !missing.is_empty() {
            let (rows, namespace) = (self.rows.clone(), namespace.clone());
            let was_logged = Arc::clone(&self.missing_index_was_logged);
            self.background.spawn(async move { make(&rows, &namespace, missing, &was_logged).await });
        }
    }

    /// Makes the missing ones of a collection.
    pub(super) async fn ensure_own_indexes(&self, namespace: &Namespace) -> StoreResult<()> {
        let stored = match self.rows.store.list_indexes(namespace).await {
            Err(error) if error.code() == Code::NamespaceNotFound => return Ok(()),
            stored => stored?,
        };
        make(&self.rows, namespace, missing(&stored), &self.missing_index_was_logged).await;
        Ok(())
    }
}

/// Makes indexes as well as the store can. The first failure is logged as a warning.
async fn make(rows: &Rows, namespace: &Namespace, specs: Vec<IndexSpec>, was_logged: &AtomicBool) {
    for spec in specs {
        let name = spec.name.clone();
        let made = match create(rows, namespace, spec.clone()).await {
            Err(error) if error.code() == Code::CommandNotSupported => {
                create(rows, namespace, IndexSpec { sparse: false, ..spec }).await
            }
            made => made,
        };
        let Err(error) = made else { continue };
        if was_logged.swap(true, Ordering::Relaxed) {
            tracing::debug!(%namespace, name, %error, "an index on the hidden field of transactions was not made");
        } else {
            tracing::warn!(
                %namespace, name, %error,
                "an index on the hidden field of transactions was not made: until it is, rows are found by scanning the collection"
            );
        }
    }
}

async fn create(rows: &Rows, namespace: &Namespace, spec: IndexSpec) -> StoreResult<()> {
    let request = CreateIndexes { namespace: namespace.clone(), indexes: vec![spec] };
    rows.store.create_indexes(request).await.map(drop)
}
