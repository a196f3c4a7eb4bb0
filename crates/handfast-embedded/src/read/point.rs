//! A find that asks for one `_id` and nothing else: the read that applications do most.
//!
//! One key is read at once: no filter is compiled, no plan chosen, no other thread asked. It answers what the long way
//! would: values that a filter compares by equality alone have equal keys exactly if they are equal, and no other document
//! can have that `_id`.

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocumentBuf};
use handfast_store::{BatchLimit, Cursor, Find, Page, Result as StoreResult};

use super::scan::Reader;
use crate::catalog::Collection;
use crate::format::document_key;
use crate::keys;

/// The `_id` that a find asks for, if it asks for nothing else.
pub(super) fn id_alone(request: &Find) -> Option<RawBsonRef<'_>> {
    let plain = request.projection.is_empty()
        && request.sort.is_empty()
        && request.variables.is_empty()
        && request.skip == 0
        && request.limit != Some(0)
        && request.hint.is_none()
        && request.min.is_none()
        && request.max.is_none()
        && !request.return_key
        && !request.show_record_id;
    let mut fields = request.filter.iter().filter(|_| plain);
    let (name, value) = fields.next()?.ok()?;
    (name == "_id" && is_compared_whole(value) && fields.next().is_none()).then_some(value)
}

/// Whether a filter compares a value of this type for equality and does nothing else with it: a document may hold
/// operators, an array is also looked for among elements, a pattern is matched, null also means missing.
fn is_compared_whole(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::ObjectId(_)
            | RawBsonRef::String(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_)
            | RawBsonRef::Binary(_)
            | RawBsonRef::DateTime(_)
            | RawBsonRef::Boolean(_)
    )
}

/// Reads the document.
pub(super) fn read(
    reader: &Reader,
    collection: &Collection,
    id: RawBsonRef<'_>,
) -> StoreResult<Option<RawDocumentBuf>> {
    let Some(key) = document_key(collection.id, &keys::of_id(id)) else { return Ok(None) };
    let stored = reader.get(&collection.namespace, &key)?;
    Ok(stored.map(|stored| stored.document().map(ToOwned::to_owned)).transpose()?)
}

/// The answer: one document, or none.
pub(super) struct PointCursor(pub(super) Option<RawDocumentBuf>);

#[async_trait]
impl Cursor for PointCursor {
    async fn next_page(&mut self, _limit: BatchLimit) -> StoreResult<Page> {
        // A page holds one document whatever its limit is.
        Ok(Page { documents: self.0.take().into_iter().collect(), exhausted: true })
    }
}
