//! The recorded settings of a ledger, which its documents depend on.
//!
//! ```text
//! db.tx.settings   {_id: "ledger", revision: 1, settings: {
//!                     accounts: "account", holds: "hold", singleEntry: false, fields: {ts: "ts", proc: "proc", ..}}}
//! ```
//!
//! Beside the accounts and the authorisations it is recorded whose they are ([`parts`]). The asset and the minimum of an account are in the account's document.

use std::sync::Arc;

use bson::{Document, doc};
use handfast_store::{DocumentStore, Namespace};

use super::{Ledger, LedgerFields, LedgerOptions, parts};
use crate::settings::SettingsRecord;
use crate::steps::Steps;
use crate::value::{boolean, string, subdocument};
use crate::{Error, FieldNames, Result};

impl LedgerOptions {
    /// Reads the recorded settings of a ledger, with defaults for those that each process chooses for itself; `None`
    /// if nothing is recorded.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a record that cannot be read.
    pub async fn recorded(store: Arc<dyn DocumentStore>, entries: &Namespace) -> Result<Option<Self>> {
        let recorded = record(&Steps::new(store, entries.clone()))?.read().await?;
        recorded.map(|recorded| read(&recorded.settings, entries)).transpose()
    }
}

impl Ledger {
    /// Changes the recorded settings of a ledger to those of `options`; records them if nothing is recorded. Processes
    /// that have opened it before keep the old settings.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other names of fields or collections once there are entries, for a collection of another
    /// ledger, and for requiring entries to balance when some do not. [`Error::Store`] if the store fails: call again.
    pub async fn change_settings(
        store: Arc<dyn DocumentStore>,
        entries: Namespace,
        options: &LedgerOptions,
    ) -> Result<()> {
        options.fields.check()?;
        let steps = Steps::new(store, entries);
        let (record, new) = (record(&steps)?, written(options));
        parts::check(&steps, options).await?;
        let Some(recorded) = record.read().await? else { return record.open(&new).await.map(|_| ()) };
        let old = read(&recorded.settings, steps.namespace())?;
        let has_entries = steps.count(&Document::new()).await? > 0;
        if old.single_entry && !options.single_entry && has_entries {
            return Err(Error::invalid(format!(
                "{} has entries that need not balance: begin another ledger to have all entries balance",
                steps.namespace()
            )));
        }
        if lasting(&old) != lasting(options) && has_entries {
            return Err(Error::invalid(format!(
                "{} has entries by other names of fields or collections: begin another ledger",
                steps.namespace()
            )));
        }
        record.change(&recorded, &new).await?;
        parts::claim(&steps, options).await?;
        parts::release(&steps, &old, options).await
    }

    /// Records the settings if nothing is recorded, and compares them with the record otherwise.
    ///
    /// # Errors
    /// [`Error::Damaged`] if nothing is recorded and the entries or accounts have other field names, and for an
    /// invalid record; [`Error::OtherSettings`] if the record has other settings; [`Error::Invalid`] if the accounts or
    /// the authorisations belong to another ledger.
    pub(super) async fn record_settings(&self) -> Result<()> {
        let (record, ours) = (record(&self.entries)?, written(&self.options));
        let is_recorded = record.compare(&ours).await?.is_some();
        if !is_recorded {
            parts::check(&self.entries, &self.options).await?;
            if let Some(entry) = self.entries.find_one(&Document::new()).await? {
                self.read(&entry)?;
            }
            self.check_names_of_accounts().await?;
        }
        parts::claim(&self.entries, &self.options).await?;
        if !is_recorded {
            record.open(&ours).await?;
        }
        Ok(())
    }

    /// Checks the field names of the accounts: with a misspelt one a minimum would not hold.
    pub(super) async fn check_names_of_accounts(&self) -> Result<()> {
        let (defaults, given) = (LedgerFields::default(), self.fields());
        for (default, name, of_type) in [
            (&defaults.asset, &given.asset, "string"),
            (&defaults.minimum, &given.minimum, "number"),
            (&defaults.last_seq_id, &given.last_seq_id, "number"),
            (&defaults.cache, &given.cache, "object"),
        ] {
            self.accounts.check_given_name(default, name, &doc! { "$type": of_type }).await?;
        }
        Ok(())
    }

    /// Returns whether the settings are recorded.
    pub(super) async fn has_recorded_settings(&self) -> Result<bool> {
        Ok(record(&self.entries)?.read().await?.is_some())
    }

    /// Compares the settings with the record, if there is one, and checks that the collections belong to no other
    /// ledger.
    pub(super) async fn compare_settings(&self) -> Result<()> {
        record(&self.entries)?.compare(&written(&self.options)).await?;
        parts::check(&self.entries, &self.options).await
    }
}

/// Returns the record of a ledger with its entries in this collection.
pub(super) fn record(entries: &Steps) -> Result<SettingsRecord> {
    SettingsRecord::new(entries, "ledger", doc! { "fields": LedgerFields::default().to_document() })
}

fn written(options: &LedgerOptions) -> Document {
    let LedgerOptions { accounts, holds, single_entry, fields, .. } = options;
    doc! { "accounts": accounts, "holds": holds, "singleEntry": *single_entry, "fields": fields.to_document() }
}

/// Returns the settings that cannot change once there are entries.
fn lasting(options: &LedgerOptions) -> (&str, &str, Document) {
    (&options.accounts, &options.holds, options.fields.to_document())
}

fn read(settings: &Document, entries: &Namespace) -> Result<LedgerOptions> {
    let parsed = || -> std::result::Result<LedgerOptions, Box<dyn std::error::Error>> {
        Ok(LedgerOptions {
            accounts: string(settings, "accounts")?.to_owned(),
            holds: string(settings, "holds")?.to_owned(),
            single_entry: boolean(settings, "singleEntry")?,
            fields: LedgerFields::from_document(subdocument(settings, "fields")?)?,
            ..LedgerOptions::default()
        })
    };
    parsed().map_err(|error| Error::invalid(format!("the recorded settings of {entries} cannot be read: {error}")))
}
