//! The collections of accounts and of authorisations, each of which belongs to one ledger.
//!
//! Two ledgers that share accounts would each compute balances without the entries of the other, and overwrite what
//! the other has cached. So a ledger records beside each of its collections whose it is, in a document that only one
//! ledger can insert, as its `_id` is unique:
//!
//! ```text
//! db.account.settings   {_id: "part-of-ledger", revision: 1, settings: {entries: "tx", as: "accounts"}}
//! db.hold.settings      {_id: "part-of-ledger", revision: 1, settings: {entries: "tx", as: "authorisations"}}
//! ```

use bson::{Document, doc};
use handfast_store::Namespace;

use super::{LedgerOptions, settings};
use crate::settings::{Recorded, SettingsRecord};
use crate::steps::Steps;
use crate::{Error, Result};

/// A collection of a ledger beside that of its entries.
struct Part {
    steps: Steps,
    /// The name of what it has, in its record and in messages.
    content: &'static str,
}

impl Part {
    fn record(&self) -> Result<SettingsRecord> {
        record(&self.steps)
    }

    fn settings(&self, entries: &Namespace) -> Document {
        doc! { "entries": entries.collection(), "as": self.content }
    }
}

/// Checks that the collections of a ledger with these options belong to no other ledger.
///
/// # Errors
/// [`Error::Invalid`] if one does; the message names both ledgers, and says how to go on.
pub(super) async fn check(entries: &Steps, options: &LedgerOptions) -> Result<()> {
    let ours = entries.namespace();
    if let Some(recorded) = record(entries)?.read().await? {
        return Err(taken(entries, &recorded, ours));
    }
    for part in parts(entries, options)? {
        match part.record()?.read().await? {
            Some(recorded) if is_of(&recorded, ours) => {}
            Some(recorded) => return Err(taken(&part.steps, &recorded, ours)),
            None if settings::record(&part.steps)?.read().await?.is_some() => {
                let place = part.steps.namespace();
                return Err(Error::invalid(format!(
                    "{place} has the entries of the ledger {place}, and cannot have the {} of the ledger {ours}: name another collection for them",
                    part.content
                )));
            }
            None => {}
        }
    }
    Ok(())
}

/// Records whose the collections of a ledger with these options are, unless it is recorded.
///
/// # Errors
/// [`Error::Invalid`] if one belongs to another ledger.
pub(super) async fn claim(entries: &Steps, options: &LedgerOptions) -> Result<()> {
    let ours = entries.namespace();
    for part in parts(entries, options)? {
        let record = part.record()?;
        match record.read().await? {
            Some(recorded) if is_of(&recorded, ours) => {}
            Some(recorded) => return Err(taken(&part.steps, &recorded, ours)),
            None => match record.open(&part.settings(ours)).await {
                // Another ledger has recorded it meanwhile.
                Err(Error::OtherSettings { .. }) => check(entries, options).await?,
                opened => opened.map(|_| ())?,
            },
        }
    }
    Ok(())
}

/// Removes the records of collections that a ledger had by its old options, and does not have by the new ones.
pub(super) async fn release(entries: &Steps, old: &LedgerOptions, new: &LedgerOptions) -> Result<()> {
    for part in parts(entries, old)? {
        if [&new.accounts, &new.holds].iter().all(|kept| *kept != part.steps.namespace().collection()) {
            part.record()?.remove(&part.settings(entries.namespace())).await?;
        }
    }
    Ok(())
}

/// Checks that a collection is none of a ledger's, for a pattern whose documents a ledger would take for its own.
///
/// # Errors
/// [`Error::Invalid`] if it is.
pub(crate) async fn ensure_no_ledger(pattern: &Steps) -> Result<()> {
    if record(pattern)?.read().await?.is_none() && settings::record(pattern)?.read().await?.is_none() {
        return Ok(());
    }
    let place = pattern.namespace();
    Err(Error::invalid(format!("{place} belongs to a ledger, and can hold nothing else: name another collection")))
}

fn parts(entries: &Steps, options: &LedgerOptions) -> Result<[Part; 2]> {
    let part = |collection: &str, content| {
        let namespace = Namespace::new(entries.namespace().database(), collection)?;
        Ok::<_, Error>(Part { steps: entries.at(namespace), content })
    };
    Ok([part(&options.accounts, "accounts")?, part(&options.holds, "authorisations")?])
}

fn record(collection: &Steps) -> Result<SettingsRecord> {
    SettingsRecord::new(collection, "part-of-ledger", Document::new())
}

fn is_of(recorded: &Recorded, entries: &Namespace) -> bool {
    recorded.settings.get_str("entries").is_ok_and(|name| name == entries.collection())
}

/// Returns the error of a collection that belongs to another ledger.
fn taken(collection: &Steps, recorded: &Recorded, ours: &Namespace) -> Error {
    let place = collection.namespace();
    let text = |field: &str| recorded.settings.get_str(field).unwrap_or_default();
    let other = format!("{}.{}", place.database(), text("entries"));
    Error::invalid(format!(
        "{place} has the {content} of the ledger {other}, and the ledger {ours} cannot use it, too: each would count without \
         the entries of the other. Name other collections in the options of {ours}, or in the record {{_id: \"ledger\"}} of \
         {ours}.settings before its first entry; if {other} is gone, remove the record {{_id: \"part-of-ledger\"}} from \
         {place}.settings",
        content = text("as"),
    ))
}
