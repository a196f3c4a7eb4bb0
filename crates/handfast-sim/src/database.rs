//! A client over the transactions of `handfast-txn`, which stores keys as [`documents`].

use std::ops::Range;

use async_trait::async_trait;
use bson::RawDocumentBuf;
use handfast_history::Isolation;
use handfast_store::{Durability, Error as StoreError, ErrorClass, Find, Namespace, StoreExt};
use handfast_txn::{Database, Error, TransactionOptions};

use crate::{Cell, Client, ClientTransaction, Failure, documents};

/// MongoDB's code for a cluster time that is too far ahead.
const TOO_FAR_AHEAD: i32 = 189;

/// A client that uses one collection of a database.
#[derive(Clone, Debug)]
pub struct DatabaseClient {
    database: Database,
    namespace: Namespace,
    options: TransactionOptions,
}

struct OpenTransaction {
    transaction: handfast_txn::Transaction,
    namespace: Namespace,
}

impl DatabaseClient {
    /// Creates a client whose transactions have this isolation and durability.
    pub fn new(database: Database, namespace: Namespace, isolation: Isolation, durability: Durability) -> Self {
        let isolation = match isolation {
            Isolation::Snapshot => handfast_txn::Isolation::Snapshot,
            Isolation::Serializable => handfast_txn::Isolation::Serializable,
        };
        let options = TransactionOptions { isolation, durability, ..TransactionOptions::default() };
        DatabaseClient { database, namespace, options }
    }
}

#[async_trait]
impl Client for DatabaseClient {
    async fn begin(&self) -> Result<Box<dyn ClientTransaction>, Failure> {
        let transaction = self.database.begin_with(self.options.clone()).await.map_err(failure)?;
        Ok(Box::new(OpenTransaction { transaction, namespace: self.namespace.clone() }))
    }
}

#[async_trait]
impl ClientTransaction for OpenTransaction {
    async fn read(&mut self, key: i64) -> Result<Cell, Failure> {
        let found = self.transaction.find_one(&self.namespace, documents::by_key(key)).await.map_err(step_failure)?;
        found.map_or(Ok(Cell::Nothing), |document| documents::cell(&document))
    }

    async fn scan(&mut self, keys: Range<i64>) -> Result<Vec<(i64, Cell)>, Failure> {
        let find = Find::new(self.namespace.clone(), documents::by_range(&keys));
        let found = self.transaction.find_all(find).await.map_err(step_failure)?;
        found.iter().map(|document| documents::key_and_cell(document)).collect()
    }

    async fn append(&mut self, key: i64, value: i64) -> Result<(), Failure> {
        self.upsert(key, documents::append(value)).await
    }

    async fn write(&mut self, key: i64, value: i64, amount: Option<i64>) -> Result<(), Failure> {
        self.upsert(key, documents::write(value, amount)).await
    }

    async fn commit(self: Box<Self>) -> Result<(), Failure> {
        self.transaction.commit().await.map(drop).map_err(failure)
    }

    async fn abort(self: Box<Self>) -> Result<(), Failure> {
        self.transaction.abort();
        Ok(())
    }
}

impl OpenTransaction {
    async fn upsert(&self, key: i64, change: RawDocumentBuf) -> Result<(), Failure> {
        let upsert = self.transaction.upsert_one(&self.namespace, documents::by_key(key), change);
        upsert.await.map(drop).map_err(step_failure)
    }
}

/// Classifies an error of a step before the commit, which therefore has applied nothing.
pub(crate) fn step_failure(error: StoreError) -> Failure {
    failure(Error::of_store(error))
}

pub(crate) fn failure(error: Error) -> Failure {
    match error {
        Error::Conflict(_) => Failure::Conflict(error.to_string()),
        // The store refused a process whose clock is wrong, and applied nothing.
        Error::Store(ref store) if store.code().0 == TOO_FAR_AHEAD => Failure::Conflict(error.to_string()),
        // The store could not be reached, and applied nothing.
        Error::Store(ref store) if store.class() != ErrorClass::Command => Failure::Conflict(error.to_string()),
        Error::CommitUnknown { .. } => Failure::Unknown(error.to_string()),
        Error::Store(_) => Failure::Unexpected(error.to_string()),
    }
}
