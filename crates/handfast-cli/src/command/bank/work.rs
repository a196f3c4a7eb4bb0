//! What is done inside of a transaction, whoever runs it: the library, or the server through a session of its driver.

use async_trait::async_trait;
use bson::{RawDocumentBuf, doc, rawdoc};
use handfast_mongodb::TransactionError;
use handfast_store::{Error as StoreError, Find, Namespace, StoreExt};
use handfast_txn::{Error, Transaction};

use super::server_side::OnServer;

/// An open transaction. Dropped, it is rolled back.
#[async_trait]
pub(super) trait Work: Send + Sync {
    /// Why it does not go on.
    type Error: From<StoreError> + Into<anyhow::Error> + Send;

    /// A new account.
    async fn open(&mut self, accounts: &Namespace, account: RawDocumentBuf) -> Result<(), Self::Error>;

    /// An account, if it is there.
    async fn look(&mut self, accounts: &Namespace, number: u32) -> Result<Option<RawDocumentBuf>, Self::Error>;

    /// All accounts.
    async fn look_at_all(&mut self, accounts: &Namespace) -> Result<Vec<RawDocumentBuf>, Self::Error>;

    /// What an account holds from now on, and by which write.
    async fn set(&mut self, accounts: &Namespace, number: u32, balance: i64, mark: i64) -> Result<(), Self::Error>;

    /// Commits what was done.
    async fn commit(self) -> Result<(), Self::Error>
    where
        Self: Sized;

    /// Why another transaction was in the way, if that is what an error says.
    fn conflict(error: Self::Error) -> Result<StoreError, Self::Error>;
}

#[async_trait]
impl Work for Transaction {
    type Error = Error;

    async fn open(&mut self, accounts: &Namespace, account: RawDocumentBuf) -> Result<(), Error> {
        self.insert_one(accounts, account).await?;
        Ok(())
    }

    async fn look(&mut self, accounts: &Namespace, number: u32) -> Result<Option<RawDocumentBuf>, Error> {
        Ok(self.find_one(accounts, rawdoc! { "_id": i64::from(number) }).await?)
    }

    async fn look_at_all(&mut self, accounts: &Namespace) -> Result<Vec<RawDocumentBuf>, Error> {
        Ok(self.find_all(Find::new(accounts.clone(), rawdoc! {})).await?)
    }

    async fn set(&mut self, accounts: &Namespace, number: u32, balance: i64, mark: i64) -> Result<(), Error> {
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
impl Work for OnServer {
    type Error = TransactionError;

    async fn open(&mut self, accounts: &Namespace, account: RawDocumentBuf) -> Result<(), TransactionError> {
        self.session.insert_one(accounts, account).await
    }

    async fn look(&mut self, accounts: &Namespace, number: u32) -> Result<Option<RawDocumentBuf>, TransactionError> {
        self.session.find_one(accounts, doc! { "_id": i64::from(number) }).await
    }

    async fn look_at_all(&mut self, accounts: &Namespace) -> Result<Vec<RawDocumentBuf>, TransactionError> {
        self.session.find_all(accounts).await
    }

    async fn set(
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
        OnServer::commit(self).await
    }

    fn conflict(error: TransactionError) -> Result<StoreError, TransactionError> {
        match error {
            TransactionError::Transient(error) => Ok(error),
            other => Err(other),
        }
    }
}
