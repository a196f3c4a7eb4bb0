//! A check of a collection that reads its documents.

#[cfg(test)]
mod tests;

use bson::rawdoc;
use handfast_mql::Code;

use super::DocumentStore;
use crate::index::{ID_INDEX_NAME, Index};
use crate::{BatchLimit, CollectionCheck, Error, ErrorClass, Find, IndexCheck, Namespace, Result};

const PAGE: BatchLimit = BatchLimit { documents: 1_000, bytes: 1024 * 1024 };

/// Reads a whole collection, checks that every document can be read, and counts the keys that each index should hold.
///
/// # Errors
/// `NamespaceNotFound` (26), and errors of the store that are not about documents, such as an outage or a time limit. A page
/// with a damaged document ends the check and is reported in the result.
pub async fn check_by_reading<S: DocumentStore + ?Sized>(store: &S, namespace: &Namespace) -> Result<CollectionCheck> {
    let mut indexes = Vec::new();
    let mut check = CollectionCheck::default();
    for info in store.list_indexes(namespace).await? {
        check.indexes.push(IndexCheck { name: info.spec.name.clone(), keys: 0, valid: true });
        indexes.push(if info.spec.name == ID_INDEX_NAME { None } else { Some(Index::compile(info.spec)?) });
    }
    let mut cursor = store.find(Find::new(namespace.clone(), rawdoc! {})).await?;
    loop {
        // A damaged document ends the scan, and the number of documents after it is unknown.
        let page = match cursor.next_page(PAGE).await {
            Ok(page) => page,
            Err(error) if !is_damage(&error) => return Err(error),
            Err(error) => {
                check.errors.push(error.message().to_owned());
                check.documents_damaged += 1;
                return Ok(check);
            }
        };
        for document in &page.documents {
            check.documents += 1;
            for (index, check) in indexes.iter().zip(&mut check.indexes) {
                check.keys += match index {
                    Some(index) => index.keys(document)?.keys.len() as u64,
                    None => 1,
                };
            }
        }
        if page.exhausted || page.documents.is_empty() {
            return Ok(check);
        }
    }
}

/// Returns whether an error is about the documents: backends report damage as `DataCorruptionDetected` (354), and the engine for
/// single documents a hidden field that it cannot read as `InternalError` (1).
fn is_damage(error: &Error) -> bool {
    error.class() == ErrorClass::Command && matches!(error.code(), Code::DataCorruptionDetected | Code::InternalError)
}
