//! Restores the records of sessions, which make retried writes happen once.
//!
//! A store that is restored from a dump may take the place of the one that was dumped, and a client whose answer got lost
//! may send its write again to the new one. So a dump of everything holds the records (see
//! [`handfast_store::ticket`]), and they are restored: without them that write would be done twice.
//!
//! If the store has a record of the session already (a dump is restored a second time, or into a store that went on), the
//! restore keeps the record of the later request or, of two records of one request, the one with more statements:
//!
//! ```text
//! in the store     in the dump      stays
//! request 12       request 12       either: they are the same
//! request 50       request 12       50: the session has gone on, it never asks for 12 again
//! request 12       request 50       50: what it did is in the dump, and must not be done once more
//! ```
//!
//! No other process writes meanwhile: a restore has the directory for itself.

use anyhow::Result;
use bson::{RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    DocumentStore, Durability, Namespace, StoreExt, Ticket, Update, UpdateSpec, UpdateStatement, WriteError, insertion,
    ticket,
};

/// Replaces records in the store by newer ones of the dump, which were refused as duplicates. Returns the other errors.
pub(super) async fn replace_older(
    store: &dyn DocumentStore,
    records: &[RawDocumentBuf],
    refused: Vec<WriteError>,
) -> Result<Vec<WriteError>> {
    let mut rest = Vec::new();
    for error in refused {
        match records.get(error.index).filter(|_| error.error.code() == Code::DuplicateKey) {
            Some(record) => rest.extend(replace_if_older(store, record, error.index).await?),
            None => rest.push(error),
        }
    }
    Ok(rest)
}

async fn replace_if_older(store: &dyn DocumentStore, record: &RawDocument, index: usize) -> Result<Vec<WriteError>> {
    let namespace = Ticket::namespace()?;
    let filter = rawdoc! { "_id": RawBson::from(insertion::id(record)?) };
    let there = store.find_one(&namespace, filter.clone()).await?.unwrap_or_default();
    match ticket::tells_more(record, &there) {
        Ok(false) => Ok(Vec::new()),
        Ok(true) => replace(store, namespace, filter, record).await,
        Err(error) => Ok(vec![WriteError { index, error }]),
    }
}

async fn replace(
    store: &dyn DocumentStore,
    namespace: Namespace,
    filter: RawDocumentBuf,
    record: &RawDocument,
) -> Result<Vec<WriteError>> {
    let statement = UpdateStatement::one(filter, UpdateSpec::Document(record.to_owned()));
    // Synced with everything else at the end.
    let update = Update { durability: Durability::Memory, ..Update::new(namespace, vec![statement]) };
    Ok(store.update(update).await?.errors)
}
