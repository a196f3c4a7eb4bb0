//! The settings of a command: the recorded ones, which flags may repeat but not contradict.

use anyhow::{Result, bail, ensure};
use bson::{Bson, Document};
use handfast_patterns::two_phase::{Accounts, PendingFields, TwoPhaseOptions};
use handfast_patterns::{TwoPhase, recorded_settings};
use handfast_store::Namespace;

use super::ACCOUNTS;
use super::arguments::{AccountFlags, TwoPhaseFlags};
use crate::command::pattern::{OpenedCollection, rename};
use crate::console::Console;
use crate::exit::{CannotSee, Exit, Usage};
use crate::id::extended_json;
use crate::store::{ensure_there, namespace};

/// Returns the recorded settings with those of flags, and whether settings are recorded. The library refuses a contradiction.
pub(super) async fn options(collection: &OpenedCollection, flags: &TwoPhaseFlags) -> Result<(TwoPhaseOptions, bool)> {
    ensure!(!flags.application.is_empty(), Usage("--application must not be empty".to_owned()));
    let transactions = &collection.namespace;
    let recorded = TwoPhaseOptions::recorded(collection.store.clone(), transactions, &flags.application).await?;
    let is_recorded = recorded.is_some();
    let default = || Ok::<_, anyhow::Error>(TwoPhaseOptions::new(&flags.application, sibling(transactions, ACCOUNTS)?));
    let mut options = recorded.map_or_else(default, Ok)?;
    if let Some(accounts) = &flags.accounts.accounts {
        collection.sibling(accounts, "--accounts").await?;
    }
    set_accounts(&mut options.accounts, transactions, &flags.accounts)?;
    if !flags.participants.is_empty() {
        options.participants.clear();
        for participant in &flags.participants {
            options.participants.push(collection.sibling(participant, "--participants").await?);
        }
    }
    options.abandoned_after = flags.abandoned_after.0;
    options.finished_max = flags.finished_max.unwrap_or(options.finished_max);
    rename(&mut options.fields, &flags.open.fields)?;
    Ok((options, is_recorded))
}

/// Changes the settings of accounts to what flags say.
pub(crate) fn set_accounts(accounts: &mut Accounts, transactions: &Namespace, flags: &AccountFlags) -> Result<()> {
    let AccountFlags { accounts: collection, balance_field, overdraft, pending_credits, pending_debits } = flags;
    if let Some(collection) = collection {
        accounts.namespace = namespace(transactions.database(), collection, "--accounts")?;
    }
    if let Some(balance) = balance_field {
        accounts.balance.clone_from(balance);
    }
    accounts.overdraft |= overdraft;
    if let Some((credits, debits)) = pending_credits.clone().zip(pending_debits.clone()) {
        accounts.pending = Some(PendingFields { credits, debits });
    }
    Ok(())
}

/// Fails if no settings are recorded, or a collection that they name is missing: it would count as empty.
pub(super) async fn ensure_all_is_seen(
    collection: &OpenedCollection,
    options: &TwoPhaseOptions,
    recorded: bool,
) -> Result<()> {
    if !recorded {
        bail!(not_recorded(&collection.namespace));
    }
    let all = options.participants.iter().chain([&options.accounts.namespace]);
    for place in all {
        ensure_there(&*collection.store, place, "in the recorded settings").await.map_err(|error| {
            CannotSee(format!("the participants of transactions in {} cannot be read: {error}", collection.namespace))
        })?;
    }
    Ok(())
}

/// Returns the error for transactions without recorded settings.
pub(crate) fn not_recorded(transactions: &Namespace) -> CannotSee {
    CannotSee(format!(
        "the settings of {transactions} are not recorded, so the fields and collections of its participants are unknown: let the \
         application open them, or record the settings of the application with `twophase settings --set`"
    ))
}

/// Shows the recorded settings, after a change if `new` is given.
pub(super) async fn settings(
    collection: &OpenedCollection,
    new: Option<&TwoPhaseOptions>,
    console: Console,
) -> Result<Exit> {
    if let Some(options) = new {
        TwoPhase::change_settings(collection.store.clone(), collection.namespace.clone(), options).await?;
    }
    let records = recorded_settings(collection.store.clone(), &collection.namespace).await?;
    let ours = |record: &Document| record.get_str("_id").is_ok_and(|id| id == "two-phase");
    let Some(record) = records.into_iter().find(ours) else { bail!(not_recorded(&collection.namespace)) };
    let json = extended_json(&Bson::Document(record));
    console.report(|| serde_json::to_string_pretty(&json).unwrap_or_else(|_| json.to_string()), &json)?;
    Ok(Exit::Good)
}

fn sibling(transactions: &Namespace, collection: &str) -> Result<Namespace> {
    namespace(transactions.database(), collection, "--accounts")
}
