//! The server's own transactions, through sessions of the driver.
//!
//! ```text
//! begin ── read, write ── commit            one snapshot; all or nothing
//!                         commit again      after a lost answer: has the same result
//! ```
//!
//! The store does not use them; they are for programs that compare both kinds of transactions.

use std::fmt;

use bson::{Bson, Document, RawDocumentBuf};
use handfast_store::{Error, Namespace, Result};
use mongodb::error::{Error as DriverError, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::{ReadConcern, WriteConcern};
use mongodb::{Client, ClientSession, Collection};

use crate::connection::connect_client;
use crate::error::{Effect, incomplete, of_driver};
use crate::options;

/// A client of a server with transactions.
///
/// It is here, although only `handfast bank` uses it, because it needs the driver's types and this crate's private conversion of the
/// driver's errors.
#[derive(Clone, Debug)]
pub struct SessionClient {
    client: Client,
}

/// A session with at most one open transaction. Dropping it rolls an open transaction back.
pub struct Session {
    client: Client,
    session: ClientSession,
}

/// The reason why a transaction failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransactionError {
    /// The transaction certainly had no effect and may be repeated: it conflicted with another one, or the server was unreachable
    /// before the commit (the label `TransientTransactionError`).
    #[error(transparent)]
    Transient(Error),
    /// The answer to the commit is lost (the label `UnknownTransactionCommitResult`): commit again.
    #[error(transparent)]
    Unknown(Error),
    /// Any other error.
    #[error(transparent)]
    Refused(Error),
}

impl SessionClient {
    /// Connects to the servers of a connection string, and waits until one of them answers.
    ///
    /// # Errors
    /// `BadValue` (2) for a connection string that is not valid, or sets read or write concerns; errors of the network and of the
    /// authentication.
    pub async fn new(uri: &str) -> Result<Self> {
        let (client, _) = connect_client(options::parse(uri)?, None, options::SELECTION_TIMEOUT).await?;
        Ok(SessionClient { client })
    }

    /// Starts a session.
    ///
    /// # Errors
    /// Errors of the network, and of a server without sessions.
    pub async fn session(&self) -> Result<Session> {
        let session = self.client.start_session().await.map_err(|error| of_driver(error, Effect::Nothing))?;
        Ok(Session { client: self.client.clone(), session })
    }

    /// Drops a collection, if it exists.
    pub async fn drop_collection(&self, namespace: &Namespace) -> Result<()> {
        let collection = self.client.database(namespace.database()).collection::<Document>(namespace.collection());
        collection.drop().await.map_err(|error| of_driver(error, Effect::One))
    }

    /// Counts the documents of a collection.
    pub async fn count(&self, namespace: &Namespace) -> Result<u64> {
        let collection = self.client.database(namespace.database()).collection::<Document>(namespace.collection());
        collection.count_documents(Document::new()).await.map_err(|error| of_driver(error, Effect::Nothing))
    }

    /// Ends sessions of this client's user, also those of other clients, and rolls back their open transactions.
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
    /// Returns the id with which another client may end the session.
    ///
    /// # Errors
    /// Fails if the driver's id is no UUID.
    pub fn id(&self) -> Result<[u8; 16]> {
        let bytes = match self.session.id().get("id") {
            Some(Bson::Binary(binary)) => binary.bytes.as_slice().try_into().ok(),
            _ => None,
        };
        bytes.ok_or_else(|| incomplete("a session without a UUID", Effect::Nothing))
    }

    /// Begins a transaction that reads one snapshot of majority-committed documents. Rolls an open transaction back first.
    ///
    /// # Errors
    /// Returns the error of a server without transactions.
    pub async fn begin(&mut self) -> Result<(), TransactionError> {
        self.abort().await;
        let begun = self.session.start_transaction().read_concern(ReadConcern::snapshot());
        let durable = WriteConcern::builder().w(mongodb::options::Acknowledgment::Majority).journal(true).build();
        begun.write_concern(durable).await.map_err(failure)
    }

    /// Inserts a document.
    ///
    /// # Errors
    /// Returns errors of the server; each ends the transaction.
    pub async fn insert_one(
        &mut self,
        namespace: &Namespace,
        document: RawDocumentBuf,
    ) -> Result<(), TransactionError> {
        let collection = self.collection(namespace);
        collection.insert_one(document).session(&mut self.session).await.map(drop).map_err(failure)
    }

    /// Updates one document. Returns false if none matches.
    ///
    /// # Errors
    /// Returns errors of the server; each ends the transaction.
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

    /// Returns the first matching document.
    ///
    /// # Errors
    /// Returns errors of the server; each ends the transaction.
    pub async fn find_one(
        &mut self,
        namespace: &Namespace,
        filter: Document,
    ) -> Result<Option<RawDocumentBuf>, TransactionError> {
        let collection = self.collection(namespace);
        collection.find_one(filter).session(&mut self.session).await.map_err(failure)
    }

    /// Returns all documents of a collection.
    ///
    /// # Errors
    /// Returns errors of the server; each ends the transaction.
    pub async fn find_all(&mut self, namespace: &Namespace) -> Result<Vec<RawDocumentBuf>, TransactionError> {
        let collection = self.collection(namespace);
        let mut cursor = collection.find(Document::new()).session(&mut self.session).await.map_err(failure)?;
        let mut found = Vec::new();
        while let Some(next) = cursor.next(&mut self.session).await {
            found.push(next.map_err(failure)?);
        }
        Ok(found)
    }

    /// Commits. A repeated commit has the same result.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`] if the outcome is unknown; a repeated commit tells it.
    pub async fn commit(&mut self) -> Result<(), TransactionError> {
        self.session.commit_transaction().await.map_err(failure)
    }

    /// Rolls the open transaction back. If the server is unreachable, it does so itself after the time limit of the transaction.
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
    /// Converts an error of this client.
    fn from(error: Error) -> Self {
        TransactionError::Refused(error)
    }
}

impl TransactionError {
    /// Returns the underlying error.
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
