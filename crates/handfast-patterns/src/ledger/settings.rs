//! The settings that the documents of a ledger depend on, as they are recorded.
//!
//! ```text
//! db.tx.settings   {_id: "ledger", revision: 1, settings: {
//!                     accounts: "account", holds: "hold", singleEntry: false, fields: {ts: "ts", proc: "proc", ..}}}
//! ```
//!
//! What holds for one account (its asset, its minimum) is in the document of the account.

use std::sync::Arc;

use bson::{Document, doc};
use handfast_store::{DocumentStore, Namespace};

use super::{Ledger, LedgerFields, LedgerOptions};
use crate::settings::SettingsRecord;
use crate::steps::Steps;
use crate::{Error, FieldNames, Result};

impl LedgerOptions {
    /// The recorded settings of a ledger, with defaults for what each process chooses for itself; none if nothing is recorded.
    ///
    /// # Errors
    /// Those of the store; a record that cannot be read.
    pub async fn recorded(store: Arc<dyn DocumentStore>, entries: &Namespace) -> Result<Option<Self>> {
        let recorded = record(&Steps::new(store, entries.clone()))?.read().await?;
        recorded.map(|recorded| read(&recorded.settings, entries)).transpose()
    }
}

impl Ledger {
    /// Changes the recorded settings of a ledger to those of `options`; records them, if nothing is recorded. Processes that have
    /// opened it before go on with the settings of before.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other names of fields or collections once there are entries; those of the store: change again.
    pub async fn change_settings(
        store: Arc<dyn DocumentStore>,
        entries: Namespace,
        options: &LedgerOptions,
    ) -> Result<()> {
        let steps = Steps::new(store, entries);
        let (record, new) = (record(&steps)?, written(options));
        let Some(recorded) = record.read().await? else { return record.open(&new).await.map(|_| ()) };
        let old = read(&recorded.settings, steps.namespace())?;
        if lasting(&old) != lasting(options) && steps.count(&Document::new()).await? > 0 {
            return Err(Error::invalid(format!(
                "{} has entries by other names of fields or collections: begin another ledger",
                steps.namespace()
            )));
        }
        record.change(&recorded, &new).await.map(|_| ())
    }

    /// Records the settings if nothing is recorded, and compares them with the record otherwise.
    pub(super) async fn record_settings(&self) -> Result<()> {
        record(&self.entries)?.open(&written(&self.options)).await.map(|_| ())
    }

    /// Compares the settings with the record, if there is one.
    pub(super) async fn compare_settings(&self) -> Result<()> {
        record(&self.entries)?.compare(&written(&self.options)).await.map(|_| ())
    }
}

fn record(entries: &Steps) -> Result<SettingsRecord> {
    SettingsRecord::new(entries, "ledger", doc! { "fields": LedgerFields::default().to_document() })
}

fn written(options: &LedgerOptions) -> Document {
    let LedgerOptions { accounts, holds, single_entry, fields, .. } = options;
    doc! { "accounts": accounts, "holds": holds, "singleEntry": *single_entry, "fields": fields.to_document() }
}

/// What cannot change once there are entries.
fn lasting(options: &LedgerOptions) -> (&str, &str, Document) {
    (&options.accounts, &options.holds, options.fields.to_document())
}

fn read(settings: &Document, entries: &Namespace) -> Result<LedgerOptions> {
    let parsed = || -> std::result::Result<LedgerOptions, Box<dyn std::error::Error>> {
        Ok(LedgerOptions {
            accounts: settings.get_str("accounts")?.to_owned(),
            holds: settings.get_str("holds")?.to_owned(),
            single_entry: settings.get_bool("singleEntry")?,
            fields: LedgerFields::from_document(settings.get_document("fields")?)?,
            ..LedgerOptions::default()
        })
    };
    parsed().map_err(|error| Error::invalid(format!("the recorded settings of {entries} cannot be read: {error}")))
}
