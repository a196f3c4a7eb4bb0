//! The collections of participants, each of which belongs to one collection of transactions.
//!
//! The mark of a transaction in a participant is its `_id` alone. If transactions of two collections with equal ids
//! changed one document, the second one would be taken for made. So the first process that opens a collection of
//! transactions records beside each collection of participants whose they are, in a document that only one can insert:
//!
//! ```text
//! db.accounts.settings   {_id: "participants-of-two-phase", revision: 1, settings: {transactions: {collection: "transactions"}}}
//! ```
//!
//! Transactions whose settings an earlier build has recorded are not refused: they may share participants, with ids
//! that differ.

use std::collections::BTreeSet;

use bson::{Document, doc};
use handfast_store::Namespace;

use crate::settings::{SettingsRecord, written_namespace};
use crate::steps::Steps;
use crate::{Error, Result};

/// Records that these collections have the participants of these transactions.
///
/// # Errors
/// [`Error::Invalid`] if one has those of other transactions.
pub(super) async fn claim(transactions: &Steps, participants: &BTreeSet<&Namespace>) -> Result<()> {
    // If one is refused, none is recorded before.
    for namespace in participants {
        let free = record(transactions, namespace)?.compare(&owner(transactions, namespace)).await;
        free.map_err(|error| taken(transactions, namespace, error))?;
    }
    for namespace in participants {
        let recorded = record(transactions, namespace)?.open(&owner(transactions, namespace)).await;
        recorded.map_err(|error| taken(transactions, namespace, error))?;
    }
    Ok(())
}

/// Returns the error for a collection that has participants of other transactions.
fn taken(transactions: &Steps, namespace: &Namespace, error: Error) -> Error {
    let Error::OtherSettings { differences, .. } = error else { return error };
    let other = differences.iter().find_map(|difference| difference.recorded.as_ref()?.as_str());
    let (ours, other) = (transactions.namespace(), other.unwrap_or("another collection"));
    Error::invalid(format!(
        "{namespace} has participants of the two-phase transactions in {other}, and those in {ours} cannot change them, too: \
         one with an _id of the others would be taken for made. Begin all transactions in {other}; if it is gone, remove \
         the record {{_id: {ID:?}}} from {namespace}.settings"
    ))
}

/// Records the same for transactions that have recorded settings. They may share participants with others since an
/// earlier build.
pub(super) async fn claim_if_free(transactions: &Steps, participants: &BTreeSet<&Namespace>) -> Result<()> {
    match claim(transactions, participants).await {
        Err(error @ Error::Invalid { .. }) => {
            tracing::warn!(%error, "two collections of transactions change the same documents: their ids must differ");
            Ok(())
        }
        claimed => claimed,
    }
}

/// Removes the records of collections that have no participants of these transactions any more.
pub(super) async fn release(transactions: &Steps, participants: &BTreeSet<&Namespace>) -> Result<()> {
    for namespace in participants {
        record(transactions, namespace)?.remove(&owner(transactions, namespace)).await?;
    }
    Ok(())
}

const ID: &str = "participants-of-two-phase";

fn record(transactions: &Steps, participants: &Namespace) -> Result<SettingsRecord> {
    SettingsRecord::new(&transactions.at(participants.clone()), ID, Document::new())
}

fn owner(transactions: &Steps, participants: &Namespace) -> Document {
    doc! { "transactions": written_namespace(transactions.namespace(), participants) }
}
