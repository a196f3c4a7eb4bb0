//! The arguments of `handfast twophase`.

use handfast_patterns::two_phase::State;

use crate::configuration::Span;
use crate::flags::{AnyStoreFlags, LimitFlags};
use crate::id::Id;
use clap::{Args, Subcommand};

/// The commands on two-phase transactions.
#[derive(Debug, Subcommand)]
pub(crate) enum TwoPhaseArguments {
    /// Count the transactions by state, and report what needs attention
    #[command(after_help = "Example:\n  handfast twophase status --data /srv/handfast --database bank")]
    Status {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
    },
    /// List transactions, by the time at which they entered their state
    #[command(after_help = "Examples:\n  \
        handfast twophase list --data /srv/handfast --database bank\n  \
        handfast twophase list --state canceled --limit 100 --json --data /srv/handfast --database bank")]
    List {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// Only transactions in this state; may be repeated [default: initial, pending, applied and canceling]
        #[arg(long = "state", value_name = "STATE")]
        states: Vec<TwoPhaseState>,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Show a transaction with all its fields
    #[command(after_help = "Example:\n  handfast twophase show order-7 --data /srv/handfast --database bank")]
    Show {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// _id of the transaction: a text, a number, an ObjectId, or Extended JSON
        id: Id,
    },
    /// Finish abandoned transactions, and undo updates that arrived late
    #[command(after_help = "Example:\n  \
        handfast twophase recover --abandoned-after 5m --data /srv/handfast --database bank")]
    Recover {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
    },
    /// Run transactions that no process is working on
    #[command(
        visible_alias = "retry",
        after_help = "Examples:\n  \
        handfast twophase run order-7 --data /srv/handfast --database bank\n  \
        handfast twophase run --all --data /srv/handfast --database bank"
    )]
    Run {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// _ids of the transactions
        #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
        ids: Vec<Id>,
        /// All transactions in the state initial
        #[arg(long)]
        all: bool,
    },
    /// Roll back transactions that are not applied yet
    #[command(after_help = "Example:\n  \
        handfast twophase cancel order-7 --reason 'paid twice' --data /srv/handfast --database bank")]
    Cancel {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// _ids of the transactions
        #[arg(value_name = "ID", required = true)]
        ids: Vec<Id>,
        /// Reason, which is kept with the transaction
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Reverse an applied transaction with a second one in the other direction
    #[command(after_help = "Example:\n  \
        handfast twophase compensate order-7 --by order-7-back --data /srv/handfast --database bank")]
    Compensate {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// _id of the transaction
        id: Id,
        /// _id of the reversing transaction; a repetition with the same _id has no further effect
        #[arg(long, value_name = "ID")]
        by: Id,
    },
    /// Check that the participants agree with the transactions
    #[command(after_help = "Exit code 3 if anything is wrong.\n\n\
        Example:\n  handfast twophase verify --data /srv/handfast --database bank")]
    Verify {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
    },
    /// Remove old transactions that are done or canceled
    #[command(
        after_help = "`recover` recognises late updates by these transactions: keep them for longer than a request may be \
        delayed.\n\n\
        Example:\n  handfast twophase purge --older 30d --data /srv/handfast --database bank"
    )]
    Purge {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// Remove transactions that ended at least this long ago
        #[arg(long, value_name = "AGE")]
        older: Span,
    },
    /// Show or change the recorded settings of the transactions
    #[command(
        after_help = "The application records them when it opens the transactions. `--set` records the values of the flags \
        --accounts, --balance-field, --overdraft, --pending-credits, --pending-debits, --participants, --finished-max \
        and --field, and leaves the others as recorded. It fails while transactions are unfinished.\n\n\
        Examples:\n  handfast twophase settings --data /srv/handfast --database bank\n  \
        handfast twophase settings --set --participants stock --data /srv/handfast --database bank"
    )]
    Settings {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// Record the settings that the flags name
        #[arg(long)]
        set: bool,
    },
}

/// The transactions of a command.
#[derive(Args, Debug)]
pub(crate) struct TwoPhaseFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// Collection of the transactions
    #[arg(long, value_name = "NAME", default_value = "transactions")]
    pub(crate) collection: String,
    #[command(flatten)]
    pub(crate) accounts: AccountFlags,
    /// Further collection of participating documents; may be repeated [default: as recorded]
    #[arg(long = "participants", value_name = "NAME")]
    pub(crate) participants: Vec<String>,
    /// Name of the application that this command works as
    #[arg(long, value_name = "NAME", default_value = "handfast", hide_short_help = true)]
    pub(crate) application: String,
    /// Time after which an unfinished transaction counts as abandoned, and is taken over
    #[arg(long, value_name = "TIME", default_value = "30m")]
    pub(crate) abandoned_after: Span,
    /// Number of finished transactions whose ids a participant keeps [default: as recorded]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub(crate) finished_max: Option<u32>,
}

/// The settings of the accounts of transfers. A command that runs or rolls back two-phase transfers uses the recorded settings,
/// and refuses flags that contradict them.
#[derive(Args, Debug)]
pub(crate) struct AccountFlags {
    /// Collection of the accounts [default: accounts; of a ledger: account]
    #[arg(long, value_name = "NAME")]
    pub(crate) accounts: Option<String>,
    /// Field of an account that holds its balance [default: balance]
    #[arg(long, value_name = "FIELD", hide_short_help = true)]
    pub(crate) balance_field: Option<String>,
    /// Allow transfers that make a balance negative
    #[arg(long, hide_short_help = true)]
    pub(crate) overdraft: bool,
    /// Field for pending credits, if accounts have one
    #[arg(long, value_name = "FIELD", requires = "pending_debits", hide_short_help = true)]
    pub(crate) pending_credits: Option<String>,
    /// Field for pending debits, if accounts have one
    #[arg(long, value_name = "FIELD", requires = "pending_credits", hide_short_help = true)]
    pub(crate) pending_debits: Option<String>,
}

/// The state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TwoPhaseState {
    /// Recorded; no process is working on it
    Initial,
    /// The updates are being applied
    Pending,
    /// All updates are applied: it cannot be canceled any more
    Applied,
    /// Finished
    Done,
    /// Refused; the applied updates are being undone
    Canceling,
    /// Undone completely
    Canceled,
}

impl From<TwoPhaseState> for State {
    fn from(state: TwoPhaseState) -> Self {
        match state {
            TwoPhaseState::Initial => State::Initial,
            TwoPhaseState::Pending => State::Pending,
            TwoPhaseState::Applied => State::Applied,
            TwoPhaseState::Done => State::Done,
            TwoPhaseState::Canceling => State::Canceling,
            TwoPhaseState::Canceled => State::Canceled,
        }
    }
}

impl TwoPhaseArguments {
    /// Returns the transactions of a command.
    pub(crate) fn transactions(&self) -> &TwoPhaseFlags {
        match self {
            TwoPhaseArguments::Status { transactions }
            | TwoPhaseArguments::List { transactions, .. }
            | TwoPhaseArguments::Show { transactions, .. }
            | TwoPhaseArguments::Recover { transactions }
            | TwoPhaseArguments::Run { transactions, .. }
            | TwoPhaseArguments::Cancel { transactions, .. }
            | TwoPhaseArguments::Compensate { transactions, .. }
            | TwoPhaseArguments::Verify { transactions }
            | TwoPhaseArguments::Purge { transactions, .. }
            | TwoPhaseArguments::Settings { transactions, .. } => transactions,
        }
    }

    /// Returns whether a command reads or changes participants, and so needs the settings of the application.
    pub(crate) fn needs_settings(&self) -> bool {
        match self {
            TwoPhaseArguments::Recover { .. }
            | TwoPhaseArguments::Run { .. }
            | TwoPhaseArguments::Cancel { .. }
            | TwoPhaseArguments::Compensate { .. }
            | TwoPhaseArguments::Verify { .. } => true,
            TwoPhaseArguments::Status { .. }
            | TwoPhaseArguments::List { .. }
            | TwoPhaseArguments::Show { .. }
            | TwoPhaseArguments::Purge { .. }
            | TwoPhaseArguments::Settings { .. } => false,
        }
    }
}
