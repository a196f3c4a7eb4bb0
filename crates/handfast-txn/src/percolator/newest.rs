//! One document outside of a transaction: its newest committed version, without a timestamp.
//!
//! A document by itself is always of one moment, so a find of one `_id` needs no snapshot: it reads the row, once.
//!
//! ```text
//! the row has                          the newest committed version is
//! no lock                              the visible one
//! a lock, and is the primary           the visible one: the commit takes the lock away in the same write
//! a lock, and the primary says
//!   committed                          the one in the lock
//!   locked, or rolled back             the visible one
//!   nothing                            for a snapshot to say: the primary may not be locked yet, or have forgotten
//! ```
//!
//! *What was acknowledged is seen.* A transaction that was acknowledged before the read had its locks in all its rows before.
//! So the row has its version, or its lock still; and then its primary, which is read after the row, says that it has
//! committed. A primary forgets that only when no row has a lock of the transaction any more, so one that says `locked` has
//! not been asked too late. *Nothing is waited for.* A lock of a transaction that had not committed when its primary was
//! read, had not committed when the row was read: the visible version was the newest one then. A snapshot has to wait here,
//! because such a transaction may commit at a timestamp below the snapshot's.
//!
//! Source: spec: transactions, "Reading one document outside of a transaction"; docs/decisions/0027-one-document.md.

use std::sync::Arc;

use bson::{RawBson, RawDocumentBuf};
use handfast_store::selection::{Selection, named_ids};
use handfast_store::{Cursor, Find, Result as StoreResult};

use super::core::Core;
use super::query;
use super::row::{Body, Key, Status, status_of};

/// Opens a cursor over the one document that a find names by its `_id`; none if it does not name one, or if it takes a snapshot
/// to tell what the document is.
pub(super) async fn find(core: &Arc<Core>, request: &Find) -> StoreResult<Option<Box<dyn Cursor>>> {
    // Bounds need a hint.
    if request.hint.is_some() || request.min.is_some() || request.max.is_some() {
        return Ok(None);
    }
    if request.return_key || request.show_record_id {
        return Ok(None);
    }
    let selection = Arc::new(Selection::compile(request, &core.sources)?);
    let id = match named_ids(selection.filter()).as_deref() {
        Some([id]) => RawBson::from(*id),
        _ => return Ok(None),
    };
    match core.newest(&Key { namespace: request.namespace.clone(), id }).await? {
        Newest::Version(document) => query::one(document, selection, request).await.map(Some),
        Newest::Unclear => Ok(None),
    }
}

/// What is known of the newest committed version of a document.
enum Newest {
    /// It is this; none if there is no document.
    Version(Option<RawDocumentBuf>),
    /// The primary of the row's lock knows nothing of the transaction.
    Unclear,
}

impl Core {
    async fn newest(&self, key: &Key) -> StoreResult<Newest> {
        let row = self.rows.read(key).await?;
        let status = match &row.lock {
            Some(lock) if !lock.primary.is_same(key) => status_of(&self.rows.read(&lock.primary).await?, lock.start),
            _ => Status::Locked,
        };
        let body = match (status, row.lock) {
            (Status::Unheard, _) => return Ok(Newest::Unclear),
            (Status::Committed(_), Some(lock)) => lock.body,
            (Status::Committed(_) | Status::Locked | Status::RolledBack, _) => row.visible.body,
        };
        Ok(Newest::Version(match body {
            Body::Document(document) => Some(document),
            Body::Deleted | Body::Cut => None,
        }))
    }
}
