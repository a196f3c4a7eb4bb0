//! The commands of ledgers: the steps of the pattern, for programs in any language.
//!
//! ```text
//! handfastOpenAccount      {}                                 an account with its asset and its minimum
//! handfastPostEntry        {_id, posted, state}               an entry exists if and only if its transaction commits
//! handfastCancelEntry      {canceled, reversedBy}
//! handfastPostHold         {_id, posted, holdState}           an amount is held, and later captured, released, or it expires
//! handfastCaptureHold      {_id, holdState}
//! handfastReleaseHold      {_id, holdState}
//! handfastBalance          {exists, balance, available, ..}   now, or as of a time, an entry or a place
//! handfastStatement        {lines, before, after}             the changes of an account, a page at a time
//! handfastReconcileLedger  {committed, expired, failed}       makes entries final, and frees holds that have expired
//! ```
//!
//! A program that does not look at a reply takes the step for made. So a step that is not made is an error, which also aborts the transaction that it is part of.

pub(super) mod balance;
pub(super) mod cancel;
pub(super) mod capture;
pub(super) mod open_account;
pub(super) mod post;
pub(super) mod post_hold;
pub(super) mod reconcile;
pub(super) mod release;
pub(super) mod statement;

use bson::{Bson, doc};
use handfast_mql::Code;
use handfast_patterns::Ledger;
use handfast_patterns::ledger::{HoldState, Refusal, Resolution};

use super::Call;
use super::pattern_steps::{missing, put_value, with_info};
use crate::error::{CommandError, CommandResult};
use crate::patterns;
use crate::reply::Answer;
use crate::writer::Writer;

/// Fails in a transaction if the entry that a step has made exists outside of it.
///
/// # Errors
/// `TransactionCommitted` (256): an earlier transaction has made the step together with its other changes, which this one would make again.
async fn ensure_first(call: &Call<'_>, entry: &Bson) -> CommandResult<()> {
    if call.transaction_number().is_none() {
        return Ok(());
    }
    let ledger: Ledger = patterns::outside(call).await?;
    match ledger.show(entry.clone()).await? {
        Some(_) => Err(made_before(entry)),
        None => Ok(()),
    }
}

fn made_before(entry: &Bson) -> CommandError {
    let text = format!(
        "entry {entry} was posted or canceled before this transaction, which was aborted so that its other changes are not made again"
    );
    CommandError::new(Code::TransactionCommitted, text)
}

/// Returns the error of an account that has too little.
fn refused(refusal: Refusal) -> CommandResult<CommandError> {
    let text = refusal.to_string();
    let Refusal { account, available, change, minimum } = refusal;
    let info = doc! { "account": account, "available": available, "change": change, "minimum": minimum };
    with_info(Code::DocumentValidationFailure, text, info)
}

/// Returns the reply to a request to resolve a hold, so that it gets this state.
async fn resolved(call: &Call<'_>, hold: &Bson, requested: HoldState, resolution: Resolution) -> CommandResult<Answer> {
    match resolution {
        Resolution::Done(by) => {
            ensure_first(call, &by.id).await?;
            let mut writer = Writer::new();
            put_value(&mut writer, "_id", &by.id)?;
            writer.put("holdState", requested.to_string());
            Ok(writer.into())
        }
        Resolution::Otherwise { state, by } => {
            let info = doc! { "holdState": state.to_string(), "entry": by.id };
            Err(with_info(Code::IllegalOperation, format!("hold {hold} is {state} already"), info)?)
        }
        Resolution::Missing => Err(missing("hold", hold)),
    }
}

#[cfg(test)]
mod tests;
