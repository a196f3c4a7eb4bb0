//! The operations inside a transaction, of the library or of the server through a session of its driver.

use async_trait::async_trait;
use bson::{RawDocumentBuf, doc, rawdoc};
use handfast_mongodb::TransactionError;
use handfast_store::{Error as StoreError, Find, Namespace, StoreExt};
use handfast_txn::{Error, Transaction};

use super::server_side::ServerTransaction;

/// An open transaction, which is rolled back when it is dropped.
#[async_trait]
pub(super) trait OpenTransaction: Send + Sync {
    type Error: From<StoreError> + Into<anyhow::Error> + Send;

    async fn insert_account(&mut self, accounts: &Namespace, account: RawDocumentBuf) -> Result<(), Self::Error>;

    async fn find_account(&mut self, accounts: &Namespace, number: u32) -> Result<Option<RawDocumentBuf>, Self::Error>;

    async fn find_all_accounts(&mut self, accounts: &Namespace) -> Result<Vec<RawDocumentBuf>, Self::Error>;

    /// Sets the balance of an account, and the mark of the write.
    async fn set_balance(
        &mut self,
        accounts: &Namespace,
        number: u32,
        balance: i64,
        mark: i64,
    ) -> Result<(), Self::Error>;

    async fn commit(self) -> Result<(), Self::Error>
    where
        Self: Sized;

    /// Returns the conflict with another transaction, if the error is one; otherwise the error.
    fn conflict(error: Self::Error) -> Result<StoreError, Self::Error>;
}

#[async_trait]
impl OpenTransaction for Transaction {
    type Error = Error;

    async fn insert_account(&mut self, accounts: &Namespace, account: RawDocumentBuf) -> Result<(), Error> {
        self.insert_one(accounts, account).await?;
        Ok(())
    }

    async fn find_account(&mut self, accounts: &Namespace, number: u32) -> Result<Option<RawDocumentBuf>, Error> {
        Ok(self.find_one(accounts, rawdoc! { "_id": i64::from(number) }).await?)
    }

    async fn find_all_accounts(&mut self, accounts: &Namespace) -> Result<Vec<RawDocumentBuf>, Error> {
        Ok(self.find_all(Find::new(accounts.clone(), rawdoc! {})).await?)
    }

    async fn set_balance(&mut self, accounts: &Namespace, number: u32, balance: i64, mark: i64) -> Result<(), Error> {
        let change = rawdoc! { "$set": { "balance": balance, "mark": mark } };
        self.update_one(accounts, rawdoc! { "_id": i64::from(number) }, change).await?;
        Ok(())
    }

    async fn commit(self) -> Result<(), Error> {
        Transaction::commit(self).await.map(drop)
    }

    fn conflict(error: Error) -> Result<StoreError, Error> {
        match error {
            Error::Conflict(error) => Ok(error),
            other => Err(other),
        }
    }
}

#[async_trait]
impl OpenTransaction for ServerTransaction {
    type Error = TransactionError;

    async fn insert_account(&mut self, accounts: &Namespace, account: RawDocumentBuf) -> Result<(), TransactionError> {
        self.session.insert_one(accounts, account).await
    }

    async fn find_account(
        &mut self,
        accounts: &Namespace,
        number: u32,
    ) -> Result<Option<RawDocumentBuf>, TransactionError> {
        self.session.find_one(accounts, doc! { "_id": i64::from(number) }).await
    }

    async fn find_all_accounts(&mut self, accounts: &Namespace) -> Result<Vec<RawDocumentBuf>, TransactionError> {
        self.session.find_all(accounts).await
    }

    async fn set_balance(
        &mut self,
        accounts: &Namespace,
        number: u32,
        balance: i64,
        mark: i64,
    ) -> Result<(), TransactionError> {
        let change = doc! { "$set": { "balance": balance, "mark": mark } };
        self.session.update_one(accounts, doc! { "_id": i64::from(number) }, change).await.map(drop)
    }

    async fn commit(self) -> Result<(), TransactionError> {
        ServerTransaction::commit(self).await
    }

    fn conflict(error: TransactionError) -> Result<StoreError, TransactionError> {
        match error {
            TransactionError::Transient(error) => Ok(error),
            other => Err(other),
        }
    }
}
