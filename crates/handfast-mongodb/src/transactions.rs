//! Transactions that the server has itself, through sessions of the driver.
//!
//! ```text
//! begin ── read, write ── commit            one snapshot; all or nothing
//!                         commit again      after a lost answer: says the same
//! ```
//!
//! Nothing here is used by the store, which asks no transactions of a server: it is for programs that compare the two, or
//! that are told to use what is there.

use std::fmt;

use bson::{Bson, Document, RawDocumentBuf};
use handfast_store::{Error, Namespace, Result};
use mongodb::error::{Error as DriverError, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::{ReadConcern, WriteConcern};
use mongodb::{Client, ClientSession, Collection};

use crate::connection::contacted;
use crate::error::{Effect, incomplete, of_driver};
use crate::options;

/// A server that has transactions.
#[derive(Clone, Debug)]
pub struct SessionClient {
    client: Client,
}

/// A session, in which one transaction is open at a time. Dropped with an open one, it rolls that back.
pub struct Session {
    client: Client,
    session: ClientSession,
}

/// Why a transaction did not go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransactionError {
    /// It has certainly had no effect, and may be run again: another was in its way, or the server out of reach before the
    /// commit (the label `TransientTransactionError`).
    #[error(transparent)]
    Transient(Error),
    /// The answer to the commit is lost (the label `UnknownTransactionCommitResult`): commit again.
    #[error(transparent)]
    Unknown(Error),
    /// Anything else.
    #[error(transparent)]
    Refused(Error),
}

impl SessionClient {
    /// A client of the servers that a connection string names, one of which has answered.
    ///
    /// # Errors
    /// `BadValue` (2) for a connection string that is not valid, or that changes what is promised; those of the network and of
    /// the login.
    pub async fn new(uri: &str) -> Result<Self> {
        let (client, _) = contacted(options::parse(uri)?, None, options::SELECTION_TIMEOUT).await?;
        Ok(SessionClient { client })
    }

    /// A new session.
    ///
    /// # Errors
    /// Those of the network, and of a server that has no sessions.
    pub async fn session(&self) -> Result<Session> {
        let session = self.client.start_session().await.map_err(|error| of_driver(error, Effect::Nothing))?;
        Ok(Session { client: self.client.clone(), session })
    }

    /// Removes a collection, if it is there.
    ///
    /// # Errors
    /// Those of the network and of the server.
    pub async fn drop_collection(&self, namespace: &Namespace) -> Result<()> {
        let collection = self.client.database(namespace.database()).collection::<Document>(namespace.collection());
        collection.drop().await.map_err(|error| of_driver(error, Effect::One))
    }

    /// Counts the documents of a collection.
    ///
    /// # Errors
    /// Those of the network and of the server.
    pub async fn count(&self, namespace: &Namespace) -> Result<u64> {
        let collection = self.client.database(namespace.database()).collection::<Document>(namespace.collection());
        collection.count_documents(Document::new()).await.map_err(|error| of_driver(error, Effect::Nothing))
    }

    /// Ends sessions of this client's user, whoever began them: what is open in them is rolled back.
    ///
    /// # Errors
    /// Those of the network and of the server.
    pub async fn kill_sessions(&self, ids: &[[u8; 16]]) -> Result<()> {
        let id = |id: &[u8; 16]| {
            let bytes = id.to_vec();
            bson::doc! { "id": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes } }
        };
        let command = bson::doc! { "killSessions": ids.iter().map(id).collect::<Vec<_>>() };
        let killed = self.client.database("admin").run_command(command).await;
        killed.map(drop).map_err(|error| of_driver(error, Effect::Several))
    }
}

impl Session {
    /// By which others may end it.
    ///
    /// # Errors
    /// The driver's id of a session is no UUID.
    pub fn id(&self) -> Result<[u8; 16]> {
        let bytes = match self.session.id().get("id") {
            Some(Bson::Binary(binary)) => binary.bytes.as_slice().try_into().ok(),
            _ => None,
        };
        bytes.ok_or_else(|| incomplete("a session without a UUID", Effect::Nothing))
    }

    /// Begins a transaction that reads one snapshot, of what is not taken back any more. One that is open is rolled back first.
    ///
    /// # Errors
    /// Of a server that has no transactions.
    pub async fn begin(&mut self) -> Result<(), TransactionError> {
        self.abort().await;
        let begun = self.session.start_transaction().read_concern(ReadConcern::snapshot());
        let durable = WriteConcern::builder().w(mongodb::options::Acknowledgment::Majority).journal(true).build();
        begun.write_concern(durable).await.map_err(failure)
    }

    /// Inserts a document.
    ///
    /// # Errors
    /// Those of the server; after any, the transaction is over.
    pub async fn insert_one(
        &mut self,
        namespace: &Namespace,
        document: RawDocumentBuf,
    ) -> Result<(), TransactionError> {
        let collection = self.collection(namespace);
        collection.insert_one(document).session(&mut self.session).await.map(drop).map_err(failure)
    }

    /// Updates one document; false if there is none that matches.
    ///
    /// # Errors
    /// Those of the server; after any, the transaction is over.
    pub async fn update_one(
        &mut self,
        namespace: &Namespace,
        filter: Document,
        change: Document,
    ) -> Result<bool, TransactionError> {
        let collection = self.collection(namespace);
        let updated = collection.update_one(filter, change).session(&mut self.session).await.map_err(failure)?;
        Ok(updated.matched_count > 0)
    }

    /// The first document that matches.
    ///
    /// # Errors
    /// Those of the server; after any, the transaction is over.
    pub async fn find_one(
        &mut self,
        namespace: &Namespace,
        filter: Document,
    ) -> Result<Option<RawDocumentBuf>, TransactionError> {
        let collection = self.collection(namespace);
        collection.find_one(filter).session(&mut self.session).await.map_err(failure)
    }

    /// All documents of a collection.
    ///
    /// # Errors
    /// Those of the server; after any, the transaction is over.
    pub async fn find_all(&mut self, namespace: &Namespace) -> Result<Vec<RawDocumentBuf>, TransactionError> {
        let collection = self.collection(namespace);
        let mut cursor = collection.find(Document::new()).session(&mut self.session).await.map_err(failure)?;
        let mut found = Vec::new();
        while let Some(next) = cursor.next(&mut self.session).await {
            found.push(next.map_err(failure)?);
        }
        Ok(found)
    }

    /// Commits; after a commit, commits once more, which says the same.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`]: nobody knows, unless it is asked again.
    pub async fn commit(&mut self) -> Result<(), TransactionError> {
        self.session.commit_transaction().await.map_err(failure)
    }

    /// Rolls back what is open, if anything is. Where the server does not hear of it, it does so when the time of the
    /// transaction is over.
    pub async fn abort(&mut self) {
        if let Err(error) = self.session.abort_transaction().await {
            tracing::debug!(%error, "no transaction to roll back");
        }
    }

    fn collection(&self, namespace: &Namespace) -> Collection<RawDocumentBuf> {
        self.client.database(namespace.database()).collection(namespace.collection())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.session.id()).finish_non_exhaustive()
    }
}

impl From<Error> for TransactionError {
    /// What was refused on this side.
    fn from(error: Error) -> Self {
        TransactionError::Refused(error)
    }
}

impl TransactionError {
    /// What went wrong.
    pub fn into_error(self) -> Error {
        let (TransactionError::Transient(error) | TransactionError::Unknown(error) | TransactionError::Refused(error)) =
            self;
        error
    }
}

fn failure(error: DriverError) -> TransactionError {
    let is_unknown = error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT);
    let is_transient = error.contains_label(TRANSIENT_TRANSACTION_ERROR);
    let error = of_driver(error, Effect::One);
    match (is_unknown, is_transient) {
        (true, _) => TransactionError::Unknown(error.in_doubt()),
        (false, true) => TransactionError::Transient(error),
        (false, false) => TransactionError::Refused(error),
    }
}
