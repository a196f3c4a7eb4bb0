//! The documents of counters on servers, with the transactions that the flag names, or those that the data were begun with.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use handfast_counters::{Error, Storage, StorageForm};
use handfast_store::{DocumentStore, Sources};
use serde_json::Value;

use super::flags::{CountersFlags, Transactions};
use crate::configuration::Configuration;
use crate::store::{OpenedDatabase, SingleDocumentStore};

/// Servers that are connected.
pub(super) enum ServerDocuments {
    /// With transactions that Handfast makes.
    Transactions(Box<OpenedDatabase>),
    /// Without transactions.
    SingleDocuments(SingleDocumentStore),
}

impl ServerDocuments {
    pub(super) async fn open(configuration: &Configuration, flags: &CountersFlags, sources: &Sources) -> Result<Self> {
        let single = async || {
            let store = SingleDocumentStore::open_unchecked(configuration, sources.clone()).await?;
            anyhow::Ok(ServerDocuments::SingleDocuments(store))
        };
        if flags.transactions == Some(Transactions::None) {
            return single().await;
        }
        let opened = OpenedDatabase::open(configuration, sources.clone()).await?;
        let recorded = StorageForm::recorded(&opened.database, &flags.database).await?;
        if flags.transactions.is_none() && recorded == StorageForm::SingleDocuments {
            opened.close().await?;
            return single().await;
        }
        Ok(ServerDocuments::Transactions(Box::new(opened)))
    }

    /// Returns the documents as a store.
    pub(super) fn store(&self) -> &dyn DocumentStore {
        match self {
            ServerDocuments::Transactions(opened) => &opened.database,
            ServerDocuments::SingleDocuments(opened) => &*opened.store,
        }
    }

    pub(super) async fn storage(&self, name: &str, sources: &Sources) -> Result<Storage> {
        let storage = match self {
            ServerDocuments::Transactions(opened) => Storage::open(opened.database.clone(), name).await,
            ServerDocuments::SingleDocuments(opened) => {
                Storage::open_single_documents(Arc::clone(&opened.store), sources.clone(), name).await
            }
        };
        storage.map_err(|error| match error {
            Error::Invalid { what } => anyhow!("--transactions: {what}"),
            error => error.into(),
        })
    }

    /// Returns where the documents are and how they are saved, for people.
    pub(super) fn location_text(&self) -> String {
        match self {
            ServerDocuments::Transactions(opened) => {
                format!("{} with transactions made by Handfast", opened.location_text())
            }
            ServerDocuments::SingleDocuments(opened) => {
                format!("{} without transactions, each document by itself", opened.location_text())
            }
        }
    }

    /// Returns where the documents are, as fields for programs.
    pub(super) fn location_fields(&self) -> Vec<(&'static str, Value)> {
        match self {
            ServerDocuments::Transactions(opened) => opened.location_fields(),
            ServerDocuments::SingleDocuments(opened) => opened.location_fields(),
        }
    }

    pub(super) async fn close(self) -> Result<()> {
        match self {
            ServerDocuments::Transactions(opened) => opened.close().await,
            ServerDocuments::SingleDocuments(opened) => opened.close().await,
        }
    }
}
