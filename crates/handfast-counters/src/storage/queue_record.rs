//! The record of the Redis that has the queue of a store, so that no second one gets it without a word.
//!
//! `settings` has the document `{_id: "queue", store, queue, candidate}`: a random id of these documents, the id of the Redis with their queue, and
//! that of one which would take its place. The buffer in Redis decides what follows; each change here names what it replaces, so one of several
//! processes makes it.

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::StoreExt as _;

use super::{Storage, unreadable};
use crate::document_name::document_name;
use crate::{Error, Result, hex};

/// The ids of a store and of its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueRecord {
    /// The id of the store.
    pub(crate) store: String,
    /// The id of the Redis with its queue; `None` before the first one.
    pub(crate) queue: Option<String>,
    /// The id of a Redis that takes the place of that one if no instance is there that uses it; that of the queue itself, until its kinds are begun anew.
    pub(crate) candidate: Option<String>,
}

fn record_id() -> RawDocumentBuf {
    rawdoc! { "_id": "queue" }
}

impl Storage {
    /// Returns the record if there is one.
    pub(crate) async fn find_queue_record(&self) -> Result<Option<QueueRecord>> {
        let found = self.store.find_one(&self.settings, record_id()).await?;
        found.as_deref().map(record_of).transpose()
    }

    /// Returns the record, and makes it with a new id of the store if there is none.
    pub(crate) async fn queue_record(&self) -> Result<QueueRecord> {
        if let Some(record) = self.find_queue_record().await? {
            return Ok(record);
        }
        let record = rawdoc! { "_id": "queue", "store": hex::encode(&self.sources.uuid()) };
        match self.store.insert_one(&self.settings, record).await {
            // Another process has made it.
            Err(error) if error.code() == Code::DuplicateKey => {}
            other => other?,
        }
        let found = self.find_queue_record().await?;
        found.ok_or_else(|| Error::damaged(format!("the document \"queue\" of {} gets lost", self.settings)))
    }

    /// Records that `queue` takes the place of `replaced`, if that one is recorded, and that its kinds are to begin anew.
    pub(crate) async fn replace_queue(&self, replaced: Option<&str>, queue: &str) -> Result<()> {
        let change = match replaced {
            Some(_) => rawdoc! { "$set": { "queue": queue, "candidate": queue } },
            None => rawdoc! { "$set": { "queue": queue } },
        };
        self.change_queue_record(replaced, change).await
    }

    /// Records that a Redis would take the place of `queue`, if that one is recorded.
    pub(crate) async fn set_candidate(&self, queue: &str, candidate: &str) -> Result<()> {
        self.change_queue_record(Some(queue), rawdoc! { "$set": { "candidate": candidate } }).await
    }

    /// Removes a Redis that would take the place of `queue`, if that one is recorded.
    pub(crate) async fn remove_candidate(&self, queue: &str) -> Result<()> {
        self.change_queue_record(Some(queue), rawdoc! { "$unset": { "candidate": "" } }).await
    }

    async fn change_queue_record(&self, queue: Option<&str>, change: RawDocumentBuf) -> Result<()> {
        let filter = match queue {
            Some(queue) => rawdoc! { "_id": "queue", "queue": queue },
            None => rawdoc! { "_id": "queue", "queue": { "$exists": false } },
        };
        Ok(self.store.update_one(&self.settings, filter, change).await.map(drop)?)
    }

    /// Returns the name of the database.
    pub(crate) fn database_name(&self) -> &str {
        self.settings.database()
    }
}

fn record_of(document: &RawDocument) -> Result<QueueRecord> {
    let id = |field: &str| match document.get(field).map_err(unreadable)? {
        None => Ok(None),
        Some(value) => value.as_str().map(|id| Some(id.to_owned())).ok_or_else(|| unnamed(document)),
    };
    let store = id("store")?.ok_or_else(|| unnamed(document))?;
    Ok(QueueRecord { store, queue: id("queue")?, candidate: id("candidate")? })
}

fn unnamed(document: &RawDocument) -> Error {
    Error::damaged(format!("{} of the settings does not name a store and its queue", document_name(document)))
}
