//! Runs a two-phase transaction for each row, under its name. The next run, or the recovery, continues what a killed run has begun.

use std::time::Duration;

use anyhow::Result;
use bson::{Bson, Document};
use handfast_patterns::Error;
use handfast_patterns::two_phase::{
    Accounts, ParticipantDocument, Plan, Record, State, Transfer, TwoPhase, TwoPhaseOutcome,
};

use super::transaction::{balance_of, no_account, taken, too_little};
use super::{NamedRow, RowOutcome};
use crate::command::transfer::row::is_same_account;

/// Looks at a transaction that another process is finishing, before the row counts as undecided.
const LOOKS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

pub(in crate::command::transfer) struct ByTwoPhase {
    pub(super) two_phase: TwoPhase,
    pub(super) accounts: Accounts,
}

impl ByTwoPhase {
    pub(super) async fn apply(&self, NamedRow { name, row }: &NamedRow) -> Result<RowOutcome> {
        let transfer = Transfer::new(row.from.clone(), row.to.clone(), row.amount);
        let (mut begun, mut is_taken) = (None, false);
        for recorded in name.recorded() {
            let Some(there) = self.two_phase.show(recorded.clone()).await? else { continue };
            match there.state {
                _ if !is_of(&there, &transfer) => {}
                State::Done => return Ok(RowOutcome::AlreadyApplied),
                _ => begun = Some(recorded),
            }
            is_taken = true;
        }
        let id = match begun {
            Some(id) => id,
            None if is_taken => return Ok(RowOutcome::Rejected(taken(name))),
            None => {
                // A canceled transaction uses up its name: one that is seen to fail is not begun.
                if let Some(why) = self.hindrance(&transfer).await? {
                    return Ok(RowOutcome::Rejected(why));
                }
                match self.two_phase.begin(name.id().clone(), transfer).await {
                    Ok(()) => name.id().clone(),
                    Err(Error::Invalid { what }) => return Ok(RowOutcome::Rejected(what)),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let mut outcome = self.two_phase.run(id.clone()).await?;
        for _ in 0..LOOKS_MAX {
            match outcome {
                TwoPhaseOutcome::Done => return Ok(RowOutcome::Applied),
                TwoPhaseOutcome::Canceled { reason } => {
                    return Ok(RowOutcome::Rejected(format!(
                        "its transaction was canceled: {reason}; give the row a new id to repeat it"
                    )));
                }
                TwoPhaseOutcome::Missing => {
                    return Ok(RowOutcome::Undecided("another process has removed its transaction".to_owned()));
                }
                TwoPhaseOutcome::TakenOver { .. } => tokio::time::sleep(PAUSE).await,
            }
            outcome = self.two_phase.run(id.clone()).await?;
        }
        let by = match outcome {
            TwoPhaseOutcome::TakenOver { by: Some(by) } => by,
            _ => "another application".to_owned(),
        };
        Ok(RowOutcome::Undecided(format!("{by} works on its transaction")))
    }

    /// Returns why the transfer would fail, as far as that can be seen.
    async fn hindrance(&self, transfer: &Transfer) -> Result<Option<String>> {
        let Transfer { source, destination, value } = transfer;
        let Some(payer) = self.account(source).await? else { return Ok(Some(no_account(source))) };
        let Some(payee) = self.account(destination).await? else { return Ok(Some(no_account(destination))) };
        let field = &self.accounts.balance;
        Ok(match (balance_of(&payer, field), balance_of(&payee, field)) {
            (Err(why), _) | (_, Err(why)) => Some(why),
            (Ok(has), _) if has < *value && !self.accounts.overdraft => Some(too_little(source, has, *value)),
            (Ok(_), Ok(_)) => None,
        })
    }

    async fn account(&self, id: &Bson) -> Result<Option<Document>> {
        let seen = self.two_phase.read(&self.accounts.namespace, id.clone()).await?;
        Ok(seen.map(|seen| match seen {
            ParticipantDocument::Settled(document) | ParticipantDocument::UnderWay { document, .. } => document,
        }))
    }
}

/// Returns whether a transaction is the transfer of the row.
fn is_of(there: &Record, transfer: &Transfer) -> bool {
    let Ok(Plan::Transfer(Transfer { source, destination, value })) = &there.plan else { return false };
    is_same_account(source, &transfer.source)
        && is_same_account(destination, &transfer.destination)
        && *value == transfer.value
}
