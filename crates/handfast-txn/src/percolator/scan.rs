//! Reads rows in pages, and lists the collections that have rows.

use bson::{RawDocument, RawDocumentBuf};
use handfast_store::{BatchLimit, Cursor, Error as StoreError, Find, Namespace, Result as StoreResult};

use super::core::Core;
use super::row::{Key, Row, Timestamp, lock_start};

/// The bounds of a page of rows.
pub(super) const PAGE: BatchLimit = BatchLimit { documents: 1000, bytes: 4 * 1024 * 1024 };

/// A document that was found, which may be damaged.
#[allow(clippy::large_enum_variant, reason = "matched as soon as it is returned")]
pub(super) enum Found {
    Row(Key, Row),
    /// A document whose field is not what Handfast writes.
    Damaged {
        /// The start of the transaction that may have locked it; zero if that cannot be read.
        start: Timestamp,
        /// The error, which names the document.
        error: StoreError,
    },
}

/// Returns the next documents of a cursor over a collection.
pub(super) async fn next_found(cursor: &mut dyn Cursor, namespace: &Namespace) -> StoreResult<Option<Vec<Found>>> {
    let documents = cursor.next_page(PAGE).await?.documents;
    if documents.is_empty() {
        return Ok(None);
    }
    let found = |document: &RawDocumentBuf| match Row::from_document(document) {
        Ok(row) => Found::Row(Key { namespace: namespace.clone(), id: row.id.clone() }, row),
        Err(error) => Found::Damaged { start: lock_start(document).unwrap_or_default(), error },
    };
    Ok(Some(documents.iter().map(found).collect()))
}

/// Returns the next rows of a cursor over a collection.
///
/// # Errors
/// `InternalError` (1) for a damaged document.
pub(super) async fn next_rows(cursor: &mut dyn Cursor, namespace: &Namespace) -> StoreResult<Option<Vec<(Key, Row)>>> {
    let Some(found) = next_found(cursor, namespace).await? else { return Ok(None) };
    let row = |found| match found {
        Found::Row(key, row) => Ok((key, row)),
        Found::Damaged { error, .. } => Err(error),
    };
    found.into_iter().map(row).collect::<StoreResult<_>>().map(Some)
}

impl Core {
    /// Returns all collections that may have rows.
    pub(super) async fn namespaces(&self) -> StoreResult<Vec<Namespace>> {
        let mut namespaces = Vec::new();
        for database in self.rows.store.list_databases().await? {
            let is_own = database == super::DATABASE;
            for collection in self.rows.store.list_collections(&database).await? {
                if is_own && collection.name != super::unique::COLLECTION {
                    continue;
                }
                namespaces.push(Namespace::new(database.clone(), collection.name)?);
            }
        }
        Ok(namespaces)
    }

    /// Opens a cursor over the documents of a collection that match.
    pub(super) async fn scan(&self, namespace: &Namespace, filter: &RawDocument) -> StoreResult<Box<dyn Cursor>> {
        self.rows.store.find(Find::new(namespace.clone(), filter.to_owned())).await
    }
}
