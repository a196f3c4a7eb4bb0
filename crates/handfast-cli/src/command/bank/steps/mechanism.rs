//! The patterns that move money step by step.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bson::oid::ObjectId;
use bson::rawdoc;
use handfast_mql::Code;
use handfast_patterns::ledger::{Change, NewAccount, NewEntry, Posting};
use handfast_patterns::two_phase::{State, Transfer, TwoPhaseOutcome};
use handfast_patterns::{CancellationToken, Ledger, Runner, RunnerOptions, TwoPhase, TwoPhaseOptions};
use handfast_store::{DocumentStore, Namespace, Sources, StoreExt};

use super::{Kind, MoneyTransfer};

/// The first balance of each account.
pub(super) const BALANCE: i64 = 100;

const DATABASE: &str = "handfast_bank";
pub(super) const ACCOUNTS: &str = "accounts";
pub(super) const TRANSACTIONS: &str = "transactions";
pub(super) const ENTRIES: &str = "tx";
const ASSET: &str = "EUR";
/// The account that all money of a ledger comes from.
pub(super) const CASH: &str = "cash";
/// Accounts that one entry brings money to.
const FILLED: usize = 50;
/// Items of one round of a recovery, and documents of a page.
pub(super) const BATCH: u32 = 500;
/// The time after which an unfinished transaction is taken over: far less than in production, so that a short run shows it.
pub(super) const ABANDONED: Duration = Duration::from_millis(300);
const INTERVAL: Duration = Duration::from_millis(100);

/// The outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Made,
    /// The balance of the payer is too small.
    Refused,
    /// Another process finishes it: ask again.
    UnderWay,
}

/// Accounts between which a pattern moves money.
#[derive(Clone)]
pub(super) struct PatternBank {
    pub(super) store: Arc<dyn DocumentStore>,
    pub(super) pattern: Pattern,
}

#[derive(Clone)]
pub(super) enum Pattern {
    TwoPhase(TwoPhase),
    Ledger(Ledger),
    /// Two updates without protection.
    Unprotected,
}

impl PatternBank {
    /// Opens a pattern; `application` is the name of this process.
    pub(super) async fn open(
        kind: Kind,
        store: Arc<dyn DocumentStore>,
        sources: Sources,
        application: &str,
        abandoned_after: Duration,
    ) -> Result<Self> {
        let pattern = match kind {
            Kind::TwoPhase => {
                let options =
                    TwoPhaseOptions { abandoned_after, ..TwoPhaseOptions::new(application, namespace(ACCOUNTS)?) };
                Pattern::TwoPhase(TwoPhase::open_with(store.clone(), namespace(TRANSACTIONS)?, sources, options).await?)
            }
            Kind::Ledger => Pattern::Ledger(
                Ledger::open_with(store.clone(), namespace(ENTRIES)?, sources, Default::default()).await?,
            ),
            Kind::Unprotected => Pattern::Unprotected,
        };
        Ok(PatternBank { store, pattern })
    }

    /// Drops the database of an earlier run.
    pub(super) async fn clear(store: &dyn DocumentStore) -> Result<()> {
        store.drop_database(DATABASE).await?;
        Ok(())
    }

    /// Opens the accounts with their first balance.
    pub(super) async fn fill(&self, accounts: u32) -> Result<()> {
        match &self.pattern {
            Pattern::TwoPhase(_) | Pattern::Unprotected => {
                for number in 0..accounts {
                    let account = rawdoc! { "_id": i64::from(number), "balance": BALANCE };
                    self.store.insert_one(&namespace(ACCOUNTS)?, account).await?;
                }
            }
            Pattern::Ledger(ledger) => {
                let numbers: Vec<_> = (0..accounts).map(i64::from).collect();
                for number in &numbers {
                    ledger.open_account(NewAccount::new(*number, ASSET).with_minimum(0)).await?;
                }
                for some in numbers.chunks(FILLED) {
                    let given = some.iter().map(|number| Change::new(*number, BALANCE, ASSET));
                    let taken = Change::new(CASH, -BALANCE * some.len() as i64, ASSET);
                    let entry = NewEntry::new(given.chain([taken])).with_id(format!("opening of {}", some[0]));
                    let _ = ledger.post(entry).await?;
                }
            }
        }
        Ok(())
    }

    /// Moves money once for each id.
    pub(super) async fn transfer(&self, id: ObjectId, transfer: MoneyTransfer) -> handfast_patterns::Result<Moved> {
        let (from, to, amount) = (i64::from(transfer.from), i64::from(transfer.to), transfer.amount);
        match &self.pattern {
            Pattern::TwoPhase(two_phase) => {
                two_phase.begin(id, Transfer::new(from, to, amount)).await?;
                Ok(match two_phase.run(id).await? {
                    TwoPhaseOutcome::Done => Moved::Made,
                    TwoPhaseOutcome::Canceled { .. } => Moved::Refused,
                    TwoPhaseOutcome::TakenOver { .. } | TwoPhaseOutcome::Missing => Moved::UnderWay,
                })
            }
            Pattern::Ledger(ledger) => {
                Ok(match ledger.post(NewEntry::transfer(from, to, amount, ASSET).with_id(id)).await? {
                    Posting::Posted(_) | Posting::AlreadyPosted(_) => Moved::Made,
                    Posting::Refused(_) => Moved::Refused,
                })
            }
            Pattern::Unprotected => Ok(self.transfer_unprotected(id, from, to, amount).await?),
        }
    }

    /// Updates the payer, then the payee, then notes the transfer; nothing records how far it came.
    async fn transfer_unprotected(
        &self,
        id: ObjectId,
        from: i64,
        to: i64,
        amount: i64,
    ) -> handfast_store::Result<Moved> {
        let accounts = Namespace::new(DATABASE, ACCOUNTS)?;
        let has_enough = rawdoc! { "_id": from, "balance": { "$gte": amount } };
        let taken = self.store.update_one(&accounts, has_enough, rawdoc! { "$inc": { "balance": -amount } }).await?;
        if taken.matched == 0 {
            return Ok(Moved::Refused);
        }
        self.store.update_one(&accounts, rawdoc! { "_id": to }, rawdoc! { "$inc": { "balance": amount } }).await?;
        let note =
            rawdoc! { "_id": id, "state": State::Done.name(), "source": from, "destination": to, "value": amount };
        match self.store.insert_one(&Namespace::new(DATABASE, TRANSACTIONS)?, note).await {
            Err(error) if error.code() != Code::DuplicateKey => Err(error),
            Ok(()) | Err(_) => Ok(Moved::Made),
        }
    }

    /// Starts the task that finishes in the background what other processes have left.
    pub(super) fn spawn(&self, cancel: &CancellationToken) -> Result<Option<Runner>> {
        let options = RunnerOptions { interval: INTERVAL, ..RunnerOptions::default() };
        Ok(match &self.pattern {
            Pattern::TwoPhase(two_phase) => Some(two_phase.spawn_recovery(options, cancel)?),
            Pattern::Ledger(ledger) => Some(ledger.spawn_committer(options, cancel)?),
            Pattern::Unprotected => None,
        })
    }

    /// Finishes all transfers that were begun; no worker may work meanwhile.
    pub(super) async fn finish_begun(&self) -> Result<()> {
        match &self.pattern {
            Pattern::TwoPhase(two_phase) => {
                while two_phase.recover(BATCH).await?.done > 0 {}
                while two_phase.run_next().await?.is_some() {}
                two_phase.repair(BATCH).await?;
            }
            Pattern::Ledger(ledger) => while ledger.commit(BATCH).await?.done > 0 {},
            Pattern::Unprotected => {}
        }
        Ok(())
    }
}

pub(super) fn namespace(collection: &str) -> Result<Namespace> {
    Ok(Namespace::new(DATABASE, collection)?)
}
