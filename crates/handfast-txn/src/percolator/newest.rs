//! A read of one document outside of a transaction: its newest committed version, without a timestamp.
//!
//! A snapshot costs a timestamp: a write to the oracle's document, and a second round trip. A single document always shows one moment, so
//! a find of one `_id` needs no snapshot: it reads the row, once. If the row has a lock, the find also reads the primary of the lock:
//!
//! ```text
//! the row has                          the newest committed version is
//! no lock                              the visible one
//! a lock, and is the primary           the visible one: the commit takes the lock away in the same write
//! a lock, and the primary says
//!   committed                          the one in the lock
//!   locked, or rolled back             the visible one
//!   nothing                            read in a snapshot: the primary may not be locked yet, or have forgotten
//! ```
//!
//! *A find sees every acknowledged write.* A transaction that was acknowledged before the read had its locks in all its rows before.
//! So the row has the transaction's version or still its lock; in the second case the primary, which is read after the row, says that it has
//! committed. The primary removes that record only when no row has a lock of the transaction any more. *A find waits for no
//! transaction.* A transaction that had not committed when its primary was read had not committed when the row was read either: the
//! visible version was the newest one then. A snapshot has to wait here, because such a transaction may commit at a timestamp below
//! the snapshot's.
//!
//! # Names of collections
//!
//! Without a timestamp, a process does not learn that another one has dropped or renamed a collection. So a drop and a rename
//! leave a *notice* in the collection of the store before they are answered. The notice is no document of a user, and a find reads it
//! together with its own document:
//!
//! ```text
//! { _id: { _hf: "notice" }, _hf: { v: 0, c: 0, s: 0, del: true, n: <version of the catalog> } }
//! ```
//!
//! If the notice has a version that this process does not know, the find takes a snapshot. Without such a notice, a found document
//! belongs to the collection's name, since a collection of the store is never used for the documents of another name. A document that
//! is not found may be in another collection of the store: then the find takes a snapshot, too, unless this process has seen the collection
//! with this catalog, and has read the catalog so recently that no dropped collection can have been removed since.
//!
//! Source: spec: transactions, "Reading one document outside of a transaction"; docs/decisions/0027-one-document.md.

use std::sync::Arc;

use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_store::selection::{Selection, named_ids};
use handfast_store::{Cursor, Find, Result as StoreResult, StoreExt, insertion};

use super::core::Core;
use super::query;
use super::row::{Body, FIELD, Key, Row, Status, status_of};
use super::versioned_document::signed;

/// Opens a cursor over the one document that a find names by its `_id`. Returns `None` if it does not name one, or if the read takes a
/// snapshot.
pub(super) async fn find(core: &Arc<Core>, request: &Find) -> StoreResult<Option<Box<dyn Cursor>>> {
    // Bounds need a hint.
    if request.hint.is_some() || request.min.is_some() || request.max.is_some() {
        return Ok(None);
    }
    if request.return_key || request.show_record_id {
        return Ok(None);
    }
    let selection = Arc::new(Selection::compile(request, &core.sources)?);
    let id = match named_ids(&selection.necessary_conditions()).as_deref() {
        // The store would take a value that no `_id` can have for an operator or a pattern.
        Some([id]) if insertion::check_id(*id).is_ok() => RawBson::from(*id),
        _ => return Ok(None),
    };
    let Some((catalog, version)) = core.catalog_at_hand() else { return Ok(None) };
    let Some(namespace) = catalog.mapping.collection(&request.namespace, version) else { return Ok(None) };
    match core.newest(&Key { namespace, id }, version).await? {
        NewestVersion::Version(document) => query::one(document, selection, request).await.map(Some),
        NewestVersion::Unclear => Ok(None),
    }
}

/// The newest committed version of a document, if it is known.
enum NewestVersion {
    /// The document, or `None` if there is none.
    Version(Option<RawDocumentBuf>),
    /// The primary of the row's lock has no trace of the transaction, or the catalog may have changed.
    Unclear,
}

impl Core {
    /// Reads the newest committed version of a document, for a process that knows this version of the catalog.
    async fn newest(&self, key: &Key, version: u64) -> StoreResult<NewestVersion> {
        let ids: RawArrayBuf = [key.id.clone(), RawBson::Document(notice_id())].into_iter().collect();
        let find = Find::new(key.namespace.clone(), rawdoc! { "_id": { "$in": ids } });
        let mut row = None;
        for document in self.rows.store.find_all(find).await? {
            match noticed(&document) {
                Some(noticed) if noticed > version => return Ok(NewestVersion::Unclear),
                Some(_) => {}
                None => row = Some(Row::from_document(&document)?),
            }
        }
        let row = match row {
            Some(row) => row,
            None if self.is_checked(&key.namespace) && self.has_recent_catalog() => {
                return Ok(NewestVersion::Version(None));
            }
            None => return Ok(NewestVersion::Unclear),
        };
        let status = match &row.lock {
            Some(lock) if !lock.primary.is_same(key) => status_of(&self.rows.read(&lock.primary).await?, lock.start),
            _ => Status::Locked,
        };
        let body = match (status, row.lock) {
            (Status::Unknown, _) => return Ok(NewestVersion::Unclear),
            (Status::Committed(_), Some(lock)) => lock.body,
            (Status::Committed(_) | Status::Locked | Status::RolledBack, _) => row.visible.body,
        };
        Ok(NewestVersion::Version(match body {
            Body::Document(document) => Some(document),
            Body::Deleted | Body::Cut => None,
        }))
    }
}

pub(super) fn notice_id() -> RawDocumentBuf {
    rawdoc! { "_hf": "notice" }
}

/// Returns the update that writes a notice of a version of the catalog, or keeps a newer one.
pub(super) fn notice(version: u64) -> RawDocumentBuf {
    let row = rawdoc! { "_hf.v": 0_i64, "_hf.c": 0_i64, "_hf.s": 0_i64, "_hf.del": true };
    rawdoc! { "$setOnInsert": row, "$max": { "_hf.n": signed(version) } }
}

/// Returns the version of the catalog in a notice; `None` for another document.
fn noticed(document: &RawDocument) -> Option<u64> {
    let is_notice = document.get_document("_id").is_ok_and(|id| id.as_bytes() == notice_id().as_bytes());
    let version = || document.get_document(FIELD).ok()?.get_i64("n").ok();
    is_notice.then(|| version().and_then(|version| u64::try_from(version).ok()).unwrap_or(u64::MAX))
}
