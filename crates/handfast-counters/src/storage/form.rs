//! The form of a storage: with transactions or without. The two leave different documents, so data of one form are not opened in the other.
//!
//! A storage without transactions writes `{_id: "counters", transactions: "none"}` into the collection `settings` before its first document. The
//! transactions of Handfast on single documents leave a field in each document and indexes on it, which the other form finds
//! ([`ensure_unmanaged`]). Each looks for the other's sign after it has left its own. So of two processes that begin at once, at least one is refused.

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{DocumentStore, Namespace, StoreExt as _};
use handfast_txn::percolator::ensure_unmanaged;

use super::Storage;
use crate::{Error, Result};

/// The way in which a storage saves a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageForm {
    /// In one transaction.
    Transactions,
    /// Each document by itself, exactly once.
    SingleDocuments,
}

impl StorageForm {
    /// Returns whose transactions save a batch, for messages and metrics: `handfast` or `none`.
    pub fn transactions(self) -> &'static str {
        match self {
            StorageForm::Transactions => "handfast",
            StorageForm::SingleDocuments => "none",
        }
    }

    /// Returns the form in which the counters in the database of this name were begun; [`StorageForm::Transactions`] if there are none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that no database can have; [`Error::Store`]; [`Error::Damaged`] for a record that cannot be read.
    pub async fn recorded(store: &dyn DocumentStore, name: &str) -> Result<Self> {
        let settings = Namespace::new(name, "settings").map_err(|error| Error::invalid(error.to_string()))?;
        let found = store.find_one(&settings, record_id()).await?;
        let Some(record) = found else { return Ok(StorageForm::Transactions) };
        match record.get_str("transactions") {
            Ok("none") => Ok(StorageForm::SingleDocuments),
            _ => Err(Error::damaged(format!("{record:?} of {settings} names no form"))),
        }
    }
}

fn record_id() -> RawDocumentBuf {
    rawdoc! { "_id": "counters" }
}

impl Storage {
    /// Returns the form.
    pub fn form(&self) -> StorageForm {
        match self.database {
            Some(_) => StorageForm::Transactions,
            None => StorageForm::SingleDocuments,
        }
    }

    fn recorded(&self, recorded: StorageForm) -> Error {
        let (database, recorded, given) = (self.totals.database(), recorded.transactions(), self.form().transactions());
        Error::invalid(format!(
            "the database {database} has views that were saved with transactions `{recorded}`: they cannot be saved with `{given}`"
        ))
    }

    /// Returns whether the data say that they are saved without transactions.
    async fn is_recorded_single(&self) -> Result<bool> {
        let recorded = StorageForm::recorded(&self.store, self.settings.database()).await?;
        Ok(recorded == StorageForm::SingleDocuments)
    }

    /// Fails if the data are saved without transactions.
    pub(super) async fn ensure_transactions_recorded(&self) -> Result<()> {
        match self.is_recorded_single().await? {
            true => Err(self.recorded(StorageForm::SingleDocuments)),
            false => Ok(()),
        }
    }

    /// Records that the data are saved without transactions. Documents that were copied from a directory are taken over.
    pub(super) async fn record_single_documents(&self) -> Result<()> {
        if self.is_recorded_single().await? {
            return self.ensure_no_transactions().await;
        }
        self.ensure_no_transactions().await?;
        // Their documents do not say that they have these batches.
        let names = rawdoc! { "_id.number": { "$gt": 0_i64 } };
        if self.store.find_one(&self.batches, names).await?.is_some() {
            return Err(Error::invalid(format!(
                "{} has batches that a service with transactions has saved and not forgotten: start that service and stop it, \
                 and copy the data again",
                self.batches
            )));
        }
        let none = rawdoc! { "$set": { "transactions": StorageForm::SingleDocuments.transactions() } };
        match self.store.upsert_one(&self.settings, record_id(), none).await {
            Err(error) if error.code() == Code::DuplicateKey => {}
            other => drop(other?),
        }
        match self.ensure_no_transactions().await {
            // Another process has begun with transactions meanwhile.
            Err(error @ Error::Invalid { .. }) => {
                self.store.delete_one(&self.settings, record_id()).await?;
                Err(error)
            }
            other => other,
        }
    }

    /// Fails if the transactions of Handfast write to the collections.
    async fn ensure_no_transactions(&self) -> Result<()> {
        for namespace in [&self.totals, &self.days, &self.batches] {
            match ensure_unmanaged(&*self.store, namespace).await {
                Err(error) if error.code() == Code::IllegalOperation => {
                    return Err(self.recorded(StorageForm::Transactions));
                }
                other => other?,
            }
        }
        Ok(())
    }
}
