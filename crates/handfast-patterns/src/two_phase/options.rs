//! Settings: accounts, participants, field names.

use std::time::Duration;

use handfast_store::Namespace;

use crate::fields::{field_names, is_path};
use crate::update::is_within;
use crate::{Error, FieldNames, Result};

/// Settings of [`TwoPhase`](super::TwoPhase). All but `application` and `abandoned_after` are recorded in the store
/// when it is opened for the first time, and must be the same in all processes that open it.
#[derive(Clone, Debug)]
pub struct TwoPhaseOptions {
    /// The name of this process, which it writes into the transactions that it works on. Each process needs a name of
    /// its own, and must keep it after a restart.
    pub application: String,
    /// The form of the accounts of transfers.
    pub accounts: Accounts,
    /// The further collections that have documents of participants.
    pub participants: Vec<Namespace>,
    /// The age at which the recovery takes a transaction over that is under way; also the distance at which it does so
    /// if the date is in the future. If it is too short, two processes do the same work, which does no harm.
    pub abandoned_after: Duration,
    /// The number of ids of finished transactions that each participant keeps, so that a late copy of a request does
    /// nothing. It must be at least 1, and greater than the number of transactions of one participant within the
    /// longest time that a request can be under way.
    pub finished_max: u32,
    /// The names of the fields.
    pub fields: Fields,
}

impl TwoPhaseOptions {
    /// Creates the settings of the seed: balances, and a threshold of 30 minutes.
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
    /// Checks that the settings are within their ranges.
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

/// The form of the accounts of transfers.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// The collection of the accounts.
    pub namespace: Namespace,
    /// The field of the balance, an integer in the smallest unit of the currency.
    pub balance: String,
    /// Whether a transfer may make a balance negative.
    pub overdraft: bool,
    /// The fields for amounts under way. With them the balance includes a credit only once the transfer is applied, so
    /// that nobody spends what a rollback would take back.
    pub pending: Option<PendingFields>,
}

impl Accounts {
    /// Creates the default form: a field `balance`, which must not become negative.
    pub fn new(namespace: Namespace) -> Self {
        Accounts { namespace, balance: "balance".to_owned(), overdraft: false, pending: None }
    }
}

/// The fields of an account for amounts under way.
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
    /// The names of the fields.
    pub struct Fields {
        /// The state of a transaction.
        state: "state" in "a transaction",
        /// The time of the last change of the state, by the store's clock.
        last_modified: "lastModified" in "a transaction",
        /// The application that carries out a transaction.
        application: "application" in "a transaction",
        /// The reason why a transaction was canceled.
        reason: "reason" in "a transaction",
        /// The `_id` of the transaction that takes a transaction back.
        compensation: "compensation" in "a transaction",
        /// The `_id` of the transaction that a compensation takes back.
        compensates: "compensates" in "a transaction",
        /// The revision of the recorded settings that a transaction was claimed by, unless that is the first one.
        settings: "settings" in "a transaction",
        /// The `_id` of the account that pays in a transfer.
        source: "source" in "a transaction",
        /// The `_id` of the account that is paid in a transfer.
        destination: "destination" in "a transaction",
        /// The amount of a transfer.
        value: "value" in "a transaction",
        /// The participants with their updates, in a transaction that is no transfer.
        participants: "participants" in "a transaction",
        /// The ids of the transactions that are under way in a participant.
        pending: "pendingTransactions" in "a participant",
        /// The ids of the last finished transactions of a participant.
        finished: "finishedTransactions" in "a participant",
    }
}
