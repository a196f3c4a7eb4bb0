//! Deletes the documents that TTL indexes let expire.
//!
//! Nothing here runs by itself: the owner of a store calls [`expire`] periodically (MongoDB: every 60 seconds). It uses only the
//! contract, so it works with every backend. Each deletion checks the date of its document again, so that a document whose date was
//! moved in the meantime stays.

use bson::raw::{CString, cstr};
use bson::{DateTime, RawArrayBuf, RawBson, RawDocumentBuf};
use handfast_mql::Code;

use crate::{Delete, DeleteStatement, DocumentStore, Durability, IndexSpec, Namespace, Result};

#[cfg(test)]
mod tests;

/// Deletes all documents that have expired by `now`; returns how many. An error or a cancellation leaves some documents deleted.
pub async fn expire(store: &dyn DocumentStore, now: DateTime) -> Result<u64> {
    let mut expired = 0;
    for database in store.list_databases().await? {
        let infos = store.list_collections(&database).await?;
        for info in infos.into_iter().filter(|info| info.options.view.is_none()) {
            let namespace = Namespace::new(database.clone(), info.name)?;
            let indexes = match store.list_indexes(&namespace).await {
                // The collection was dropped meanwhile, and a view may have its name.
                Err(error) if matches!(error.code(), Code::NamespaceNotFound | Code::CommandNotSupportedOnView) => {
                    continue;
                }
                indexes => indexes?,
            };
            for filter in indexes.iter().filter_map(|index| expired_by(&index.spec, now)) {
                expired += delete(store, &namespace, filter).await?;
            }
        }
    }
    Ok(expired)
}

async fn delete(store: &dyn DocumentStore, namespace: &Namespace, filter: RawDocumentBuf) -> Result<u64> {
    let statement = DeleteStatement { filter, multi: true, hint: None };
    // The next run repeats deletions that a crash undoes.
    let delete = Delete { durability: Durability::Memory, ..Delete::new(namespace.clone(), vec![statement]) };
    let outcome = store.delete(delete).await?;
    match outcome.errors.into_iter().next() {
        Some(refused) => Err(refused.error),
        None => Ok(outcome.deleted),
    }
}

/// Returns the filter for the documents that a TTL index lets expire by `now`. An array expires with its earliest date, and a
/// field without a date never, as comparisons are within a type.
fn expired_by(index: &IndexSpec, now: DateTime) -> Option<RawDocumentBuf> {
    let lifetime_millis = index.expire_after_seconds?.checked_mul(1000)?;
    let (field, _) = index.key.iter().flatten().next()?;
    let before = DateTime::from_millis(now.timestamp_millis().checked_sub(lifetime_millis)?);
    let mut date = RawDocumentBuf::new();
    date.append(cstr!("$lte"), before);
    let mut filter = RawDocumentBuf::new();
    let name: CString = field.into();
    filter.append(name, date);
    Some(match &index.partial_filter {
        None => filter,
        Some(partial) => {
            let both: RawArrayBuf = [filter, partial.clone()].map(RawBson::from).into_iter().collect();
            let mut filter = RawDocumentBuf::new();
            filter.append(cstr!("$and"), both);
            filter
        }
    })
}
