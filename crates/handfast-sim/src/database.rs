//! The transactions of `handfast-txn` as a client.
//!
//! A key is a document of one collection, `{ _id: key, list: [..] }` or `{ _id: key, value: .., amount: .. }`. The
//! operations are those of users: a find, an update with upsert, a find over a range.

use std::ops::Range;

use async_trait::async_trait;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_history::Isolation;
use handfast_store::{Durability, Error as StoreError, Find, Namespace, StoreExt};
use handfast_txn::{Database, Error, TransactionOptions};

use crate::{Cell, Client, Failure, Transaction};

/// A database, in which a collection is used.
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
    /// Transactions of this isolation, acknowledged with this durability.
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
    async fn begin(&self) -> Result<Box<dyn Transaction>, Failure> {
        let transaction = self.database.begin_with(self.options.clone()).await.map_err(failure)?;
        Ok(Box::new(OpenTransaction { transaction, namespace: self.namespace.clone() }))
    }
}

#[async_trait]
impl Transaction for OpenTransaction {
    async fn read(&mut self, key: i64) -> Result<Cell, Failure> {
        let found = self.transaction.find_one(&self.namespace, rawdoc! { "_id": key }).await.map_err(step_failure)?;
        found.map_or(Ok(Cell::Nothing), |document| cell(&document))
    }

    async fn scan(&mut self, keys: Range<i64>) -> Result<Vec<(i64, Cell)>, Failure> {
        let filter = rawdoc! { "_id": { "$gte": keys.start, "$lt": keys.end } };
        let find = Find::new(self.namespace.clone(), filter);
        let found = self.transaction.find_all(find).await.map_err(step_failure)?;
        found.iter().map(|document| Ok((integer(document, "_id")?, cell(document)?))).collect()
    }

    async fn append(&mut self, key: i64, value: i64) -> Result<(), Failure> {
        self.upsert(key, rawdoc! { "$push": { "list": value } }).await
    }

    async fn write(&mut self, key: i64, value: i64, amount: Option<i64>) -> Result<(), Failure> {
        let fields = match amount {
            Some(amount) => rawdoc! { "value": value, "amount": amount },
            None => rawdoc! { "value": value },
        };
        self.upsert(key, rawdoc! { "$set": fields }).await
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
        let upsert = self.transaction.upsert_one(&self.namespace, rawdoc! { "_id": key }, change);
        upsert.await.map(drop).map_err(step_failure)
    }
}

/// What a document holds.
fn cell(document: &RawDocument) -> Result<Cell, Failure> {
    if let Ok(Some(RawBsonRef::Array(list))) = document.get("list") {
        let value = |element: bson::error::Result<RawBsonRef<'_>>| element.ok().and_then(RawBsonRef::as_i64);
        let values: Option<Vec<i64>> = list.into_iter().map(value).collect();
        return values.map(Cell::List).ok_or_else(|| strange(document));
    }
    let amount = document.get("amount").ok().flatten().and_then(RawBsonRef::as_i64);
    Ok(Cell::Value { value: integer(document, "value")?, amount })
}

fn integer(document: &RawDocument, field: &str) -> Result<i64, Failure> {
    document.get_i64(field).map_err(|_| strange(document))
}

fn strange(document: &RawDocument) -> Failure {
    Failure::Unexpected(format!("a document that nobody wrote: {document:?}"))
}

/// What an error of a step means: nothing has been applied, so long as nobody has asked for a commit.
fn step_failure(error: StoreError) -> Failure {
    failure(Error::of_store(error))
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Conflict(_) => Failure::Conflict(error.to_string()),
        Error::CommitUnknown { .. } => Failure::Unknown(error.to_string()),
        Error::Store(_) => Failure::Unexpected(error.to_string()),
    }
}
