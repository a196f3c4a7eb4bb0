//! Settings: names of fields, and how accounts look.

use std::time::Duration;

use handfast_store::Namespace;

use crate::fields::{field_names, is_path};
use crate::update::is_within;
use crate::{Error, FieldNames, Result};

/// Settings of [`TwoPhase`](super::TwoPhase). All but `application` and `abandoned_after` are recorded in the store when it is opened for
/// the first time, and have to be the same for all who open it.
#[derive(Clone, Debug)]
pub struct TwoPhaseOptions {
    /// The name of this process, which it writes into the transactions that it works on. Each process has its own, and the
    /// same again after a restart.
    pub application: String,
    /// How the accounts of transfers look.
    pub accounts: Accounts,
    /// Further collections that documents of participants are in.
    pub participants: Vec<Namespace>,
    /// How long a transaction that is under way must have been left alone before the recovery takes it; and how far ahead its date may be.
    /// Nothing goes wrong if it is too short: two then do the same work.
    pub abandoned_after: Duration,
    /// Ids of finished transactions that each participant remembers, so that a late copy of a request does nothing. More than
    /// one participant takes part in within the longest time that a request can be under way, at least 1.
    pub finished_max: u32,
    /// Names of fields.
    pub fields: Fields,
}

impl TwoPhaseOptions {
    /// The settings of the seed: balances, a threshold of 30 minutes.
    pub fn new(application: impl Into<String>, accounts: Namespace) -> Self {
        TwoPhaseOptions {
            application: application.into(),
            accounts: Accounts::new(accounts),
            participants: Vec::new(),
            abandoned_after: Duration::from_secs(30 * 60),
            finished_max: 100,
            fields: Fields::default(),
        }
    }
}

impl TwoPhaseOptions {
    /// Checks that the settings have a meaning.
    pub(super) fn check(&self) -> Result<()> {
        if self.application.is_empty() || self.finished_max == 0 {
            return Err(Error::invalid(
                "two-phase commit needs a name for the application, and finished_max of at least 1",
            ));
        }
        self.fields.check()?;
        let mut paths = vec![("balance", &self.accounts.balance)];
        if let Some(PendingFields { credits, debits }) = &self.accounts.pending {
            paths.extend([("pending credits", credits), ("pending debits", debits)]);
        }
        if let Some((field, path)) = paths.iter().find(|(_, path)| !is_path(path)) {
            return Err(Error::invalid(format!("the field of the {field} cannot be named {path:?}")));
        }
        paths.extend([("ids under way", &self.fields.pending), ("finished ids", &self.fields.finished)]);
        for (place, (field, path)) in paths.iter().enumerate() {
            if let Some((other, _)) = paths[..place].iter().find(|(_, other)| is_within(path, other)) {
                return Err(Error::invalid(format!(
                    "the fields of the {other} and of the {field} of an account cannot both be at {path:?}"
                )));
            }
        }
        Ok(())
    }
}

/// How the accounts of transfers look.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Their collection.
    pub namespace: Namespace,
    /// The field of the balance: an integer, in the smallest unit of the currency.
    pub balance: String,
    /// A balance may become negative by a transfer.
    pub overdraft: bool,
    /// Fields for what is under way. With them a credit is in the balance only once the transfer is applied, so that nobody
    /// spends what a rollback would take back.
    pub pending: Option<PendingFields>,
}

impl Accounts {
    /// A field `balance`, which must not become negative.
    pub fn new(namespace: Namespace) -> Self {
        Accounts { namespace, balance: "balance".to_owned(), overdraft: false, pending: None }
    }
}

/// Fields of an account for what is under way.
#[derive(Clone, Debug)]
pub struct PendingFields {
    /// The field of amounts that will be added to the balance.
    pub credits: String,
    /// The field of amounts that were taken from the balance and may be given back.
    pub debits: String,
}

impl Default for PendingFields {
    fn default() -> Self {
        PendingFields { credits: "pendingCredits".to_owned(), debits: "pendingDebits".to_owned() }
    }
}

field_names! {
    /// Names of fields.
    pub struct Fields {
        /// In a transaction: its state.
        state: "state" in "a transaction",
        /// In a transaction: when its state changed, by the store's clock.
        last_modified: "lastModified" in "a transaction",
        /// In a transaction: the application that carries it out.
        application: "application" in "a transaction",
        /// In a transaction: why it was canceled.
        reason: "reason" in "a transaction",
        /// In a transaction: the `_id` of the one that takes it back.
        compensation: "compensation" in "a transaction",
        /// In a transaction: the revision of the recorded settings that it was claimed by, if not the first one.
        settings: "settings" in "a transaction",
        /// In a transfer: the `_id` of the account that pays.
        source: "source" in "a transaction",
        /// In a transfer: the `_id` of the account that is paid.
        destination: "destination" in "a transaction",
        /// In a transfer: how much.
        value: "value" in "a transaction",
        /// In a transaction that is no transfer: what it does.
        participants: "participants" in "a transaction",
        /// In a participant: ids of the transactions that are under way.
        pending: "pendingTransactions" in "a participant",
        /// In a participant: ids of transactions that are finished, the last ones.
        finished: "finishedTransactions" in "a participant",
    }
}
