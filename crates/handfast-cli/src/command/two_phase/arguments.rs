//! The arguments of `handfast twophase`.

use handfast_patterns::two_phase::State;

use crate::configuration::Span;
use crate::flags::{AnyStoreFlags, LimitFlags};
use crate::id::Id;
use clap::{Args, Subcommand};

/// The commands on two-phase transactions.
#[derive(Debug, Subcommand)]
pub(crate) enum TwoPhaseArguments {
    /// Count the transactions by state, and say what needs somebody
    #[command(after_help = "Example:\n  handfast twophase status --data /srv/handfast --database bank")]
    Status {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
    },
    /// List transactions, those first that came to their state first
    #[command(after_help = "Examples:\n  \
        handfast twophase list --data /srv/handfast --database bank\n  \
        handfast twophase list --state canceled --limit 100 --json --data /srv/handfast --database bank")]
    List {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// Those in this state; may be given several times [default: initial, pending, applied and canceling]
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
        /// Its _id: a text, a number, an ObjectId, or Extended JSON
        id: Id,
    },
    /// Bring transactions to their end that were left alone, and take back what arrived late
    #[command(after_help = "Example:\n  \
        handfast twophase recover --abandoned-after 5m --data /srv/handfast --database bank")]
    Recover {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
    },
    /// Carry out transactions that nobody works on
    #[command(
        visible_alias = "retry",
        after_help = "Examples:\n  \
        handfast twophase run order-7 --data /srv/handfast --database bank\n  \
        handfast twophase run --all --data /srv/handfast --database bank"
    )]
    Run {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// Their _ids
        #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
        ids: Vec<Id>,
        /// All that are initial
        #[arg(long)]
        all: bool,
    },
    /// Roll transactions back that are not applied
    #[command(after_help = "Example:\n  \
        handfast twophase cancel order-7 --reason 'paid twice' --data /srv/handfast --database bank")]
    Cancel {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// Their _ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<Id>,
        /// Why: it is kept with the transaction
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Take back a transaction that is applied, by another one the other way
    #[command(after_help = "Example:\n  \
        handfast twophase compensate order-7 --by order-7-back --data /srv/handfast --database bank")]
    Compensate {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// Its _id
        id: Id,
        /// The _id of the transaction that takes it back; with the same one it is done once
        #[arg(long, value_name = "ID")]
        by: Id,
    },
    /// Look whether participants carry what the transactions say
    #[command(after_help = "Exit code 3 if anything is not as it must be.\n\n\
        Example:\n  handfast twophase verify --data /srv/handfast --database bank")]
    Verify {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
    },
    /// Remove transactions that have been over for long
    #[command(
        after_help = "`recover` needs them to tell what arrived late: keep them for longer than any request can be \
        under way.\n\n\
        Example:\n  handfast twophase purge --older 30d --data /srv/handfast --database bank"
    )]
    Purge {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// Those that were over so long ago
        #[arg(long, value_name = "AGE")]
        older: Span,
    },
    /// Show the recorded settings by which transactions are read, or change them
    #[command(
        after_help = "The application records them when it opens the transactions. `--set` records what the flags say (--accounts,         --balance-field, --overdraft, --pending-credits, --pending-debits, --participants, --finished-max, --field), and leaves the rest         as recorded. It is refused while transactions are under way.\n\n\
        Examples:\n  handfast twophase settings --data /srv/handfast --database bank\n  \
        handfast twophase settings --set --participants stock --data /srv/handfast --database bank"
    )]
    Settings {
        #[command(flatten)]
        transactions: Box<TwoPhaseFlags>,
        /// Record the settings that the flags say
        #[arg(long)]
        set: bool,
    },
}

/// Which transactions.
#[derive(Args, Debug)]
pub(crate) struct TwoPhaseFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// The collection of the transactions
    #[arg(long, value_name = "NAME", default_value = "transactions")]
    pub(crate) collection: String,
    #[command(flatten)]
    pub(crate) accounts: AccountFlags,
    /// A further collection of documents that take part; may be given several times [default: as recorded]
    #[arg(long = "participants", value_name = "NAME")]
    pub(crate) participants: Vec<String>,
    /// The name under which this command works on transactions
    #[arg(long, value_name = "NAME", default_value = "handfast")]
    pub(crate) application: String,
    /// How long a transaction under way must have been left alone to be taken over
    #[arg(long, value_name = "TIME", default_value = "30m")]
    pub(crate) abandoned_after: Span,
    /// Ids of finished transactions that a participant remembers [default: as recorded]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) finished_max: Option<u32>,
}

/// How the accounts of transfers look. What carries out or rolls back two-phase transfers goes by the recorded settings, and refuses
/// others.
#[derive(Args, Debug)]
pub(crate) struct AccountFlags {
    /// The collection of the accounts [default: accounts; of a ledger: account]
    #[arg(long, value_name = "NAME")]
    pub(crate) accounts: Option<String>,
    /// The field of an account that holds its balance [default: balance]
    #[arg(long, value_name = "FIELD")]
    pub(crate) balance_field: Option<String>,
    /// Balances may become negative by transfers
    #[arg(long)]
    pub(crate) overdraft: bool,
    /// The field for credits that are under way, if there is one
    #[arg(long, value_name = "FIELD", requires = "pending_debits")]
    pub(crate) pending_credits: Option<String>,
    /// The field for debits that are under way, if there is one
    #[arg(long, value_name = "FIELD", requires = "pending_credits")]
    pub(crate) pending_debits: Option<String>,
}

/// The state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TwoPhaseState {
    /// Written down; nobody works on it
    Initial,
    /// The updates are being applied
    Pending,
    /// All are applied: there is no way back
    Applied,
    /// Everything is in order
    Done,
    /// Refused: what was applied is being undone
    Canceling,
    /// As if it had never been
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
    /// Which transactions it is about.
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

    /// Whether it reads or changes participants, and so has to know how the application reads them.
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
