//! The arguments of `handfast ledger`.

use crate::configuration::Span;
use crate::flags::{AnyStoreFlags, LimitFlags, values};
use crate::id::Id;
use bson::{DateTime, Document};
use clap::{Args, Subcommand};
use handfast_patterns::ledger::HoldState;
use std::path::PathBuf;
use std::str::FromStr;

/// The commands on a ledger.
#[derive(Debug, Subcommand)]
pub(crate) enum LedgerArguments {
    /// Count the entries, and report how long the oldest uncommitted one has waited
    #[command(after_help = "Example:\n  handfast ledger status --data /srv/handfast --database bank")]
    Status {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
    },
    /// List the entries that are not committed, the oldest first
    #[command(after_help = "Example:\n  handfast ledger list --data /srv/handfast --database bank --limit 100")]
    List {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// List the accounts with the balances in their documents
    #[command(after_help = "Example:\n  handfast ledger accounts --data /srv/handfast --database bank")]
    Accounts {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// List the holds with their states, in the order of their ids
    #[command(after_help = "Examples:\n  \
        handfast ledger holds --state open --data /srv/handfast --database bank\n  \
        handfast ledger holds --account ann --json --data /srv/handfast --database bank")]
    Holds {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        #[command(flatten)]
        selection: HoldSelection,
    },
    /// Show an entry with all its fields
    #[command(after_help = "Example:\n  handfast ledger show order-7 --data /srv/handfast --database bank")]
    Show {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// _id of the entry: a text, a number, an ObjectId, or Extended JSON
        id: Id,
    },
    /// Show the balances of accounts, computed from their last final balance
    #[command(after_help = "Examples:\n  \
        handfast ledger balance ann bob --data /srv/handfast --database bank\n  \
        handfast ledger balance ann --at 2026-12-31T23:59:59Z --data /srv/handfast --database bank")]
    Balance {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// _ids of the accounts
        #[arg(id = "named", value_name = "ACCOUNT", required = true)]
        accounts: Vec<Id>,
        /// Count only the entries that were posted at this time or before, by the clocks of their posters
        #[arg(long, value_name = "DATE", value_parser = values::date)]
        at: Option<DateTime>,
    },
    /// Sum up what all entries take and give, by asset
    #[command(after_help = "Exit code 3 if an asset does not balance, unless the ledger has single entries.\n\n\
        Example:\n  handfast ledger totals --data /srv/handfast --database bank")]
    Totals {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// Allow entries that do not add up to zero, in a ledger of a version that did not record this option
        #[arg(long)]
        single_entry: bool,
    },
    /// Show the changes of an account, by default the last page
    #[command(
        after_help = "Example:\n  handfast ledger statement ann --before 481 --data /srv/handfast --database bank"
    )]
    Statement {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// _id of the account
        account: Id,
        /// Show the page before this place
        #[arg(long, value_name = "PLACE", conflicts_with = "after", value_parser = clap::value_parser!(i64).range(1..))]
        before: Option<i64>,
        /// Show the page after this place; 0 is the beginning
        #[arg(long, value_name = "PLACE", value_parser = clap::value_parser!(i64).range(0..))]
        after: Option<i64>,
        /// Number of changes of a page
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// Post an entry: all of its changes, or none
    #[command(after_help = "With the same --id the command can be repeated: the entry is posted once.\n\
        Exit code 1 if an account has too little.\n\n\
        Example:\n  handfast ledger post ann=-30 bob=30 --asset EUR --id 7 --data /srv/handfast --database bank")]
    Post {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// An account, and what it gains or, with a minus sign, loses, in the smallest unit of the asset
        #[arg(value_name = "ACCOUNT=VALUE", required = true)]
        changes: Vec<AccountChange>,
        /// Unit of the values, such as a currency
        #[arg(long, value_name = "TEXT")]
        asset: String,
        /// _id of the entry
        #[arg(long, value_name = "ID")]
        id: Id,
        /// Fields of your own, a document as Extended JSON
        #[arg(long, value_name = "JSON", default_value = "{}", value_parser = values::document)]
        metadata: Document,
        /// Time of the entry, for one that is imported [default: now]
        #[arg(long, value_name = "DATE", value_parser = values::date)]
        at: Option<DateTime>,
    },
    /// Open an account, or create its lost document again with its limits
    #[command(
        after_help = "Example:\n  handfast ledger open ann --asset EUR --minimum 0 --data /srv/handfast --database bank"
    )]
    Open {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// _id of the account
        account: Id,
        #[command(flatten)]
        settings: AccountSettings,
    },
    /// Commit the entries that are due, and release expired authorisations
    #[command(
        visible_alias = "commit",
        after_help = "Example:\n  handfast ledger reconcile --data /srv/handfast --database bank"
    )]
    Reconcile {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// Time after which a place that was drawn from a sequence is given up if its entry is missing
        #[arg(long, value_name = "TIME", default_value = "60s")]
        abandoned_after: Span,
    },
    /// Cancel entries: an uncommitted one is marked as canceled, a committed one gets a reversal
    #[command(after_help = "Example:\n  \
        handfast ledger cancel order-7 --reason 'paid twice' --data /srv/handfast --database bank")]
    Cancel {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// _ids of the entries
        #[arg(value_name = "ID", required = true)]
        ids: Vec<Id>,
        /// Reason, which is kept with the entry
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Compute everything again from the first entry, and compare it with the recorded balances
    #[command(after_help = "Exit code 3 if anything is wrong.\n\n\
        Examples:\n  \
        handfast ledger verify --data /srv/handfast --database bank\n  \
        handfast ledger verify ann --data /srv/handfast --database bank --json")]
    Verify {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// Only these accounts [default: all accounts, all entries, and the sums over the whole ledger]
        #[arg(id = "named", value_name = "ACCOUNT")]
        accounts: Vec<Id>,
        /// Allow entries that do not add up to zero, in a ledger of a version that did not record this option
        #[arg(long)]
        single_entry: bool,
    },
    /// Compute balances again from the first entry, and write those that are missing or wrong; stop at lost or altered entries
    #[command(after_help = "Exit code 3 if lost or altered entries kept it from computing everything.\n\n\
        Examples:\n  \
        handfast ledger rebuild --data /srv/handfast --database bank\n  \
        handfast ledger rebuild ann bob --data /srv/handfast --database bank")]
    Rebuild {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// Only these accounts [default: all]
        #[arg(id = "named", value_name = "ACCOUNT")]
        accounts: Vec<Id>,
    },
    /// Restore lost entries from a file that `ledger export` wrote; existing entries do not change
    #[command(after_help = "Exit code 1 if an entry was not restored.\n\n\
        Examples:\n  \
        handfast ledger restore entries.jsonl --data /srv/handfast --database bank\n  \
        handfast ledger restore entries.jsonl order-7 --data /srv/handfast --database bank")]
    Restore {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// File of the export, in JSON Lines
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// _ids of the entries [default: all that are lost]
        #[arg(value_name = "ID")]
        ids: Vec<Id>,
        /// Allow entries that do not add up to zero, in a ledger of a version that did not record this option
        #[arg(long)]
        single_entry: bool,
    },
    /// Close a gap: declare that its entries are lost for good and do not count
    #[command(after_help = "Example:\n  \
        handfast ledger abandon ann 7 --reason 'in no export' --data /srv/handfast --database bank")]
    Abandon {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// _id of the account
        account: Id,
        /// First place of the gap
        #[arg(value_name = "FIRST", value_parser = clap::value_parser!(i64).range(1..))]
        first: i64,
        /// Last place of the gap [default: the first]
        #[arg(value_name = "LAST", value_parser = clap::value_parser!(i64).range(1..))]
        last: Option<i64>,
        /// Reason, which is kept with the entry that closes the gap
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Write all entries as JSON Lines or CSV, in the order of their times
    #[command(after_help = "Examples:\n  \
        handfast ledger export --data /srv/handfast --database bank > entries.jsonl\n  \
        handfast ledger export --format csv --to entries.csv --data /srv/handfast --database bank")]
    Export {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// Format of the entries
        #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
        format: LedgerFormat,
        /// File to write, which must not exist [default: standard output]
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

/// The ledger of a command.
#[derive(Args, Debug)]
pub(crate) struct LedgerFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// Collection of the entries
    #[arg(long, value_name = "NAME", default_value = "tx")]
    pub(crate) collection: String,
    /// Collection of the accounts [default: as recorded, otherwise account]
    #[arg(long, value_name = "NAME")]
    pub(crate) accounts: Option<String>,
    /// Collection of the authorisations that expire [default: as recorded, otherwise hold]
    #[arg(long, value_name = "NAME")]
    pub(crate) holds: Option<String>,
}

/// The selection of holds.
#[derive(Args, Debug)]
pub(crate) struct HoldSelection {
    /// Only holds in this state; may be repeated [default: all]
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<HoldStateName>,
    /// Only holds of this payer
    #[arg(id = "payer", long = "account", value_name = "ACCOUNT")]
    pub(crate) account: Option<Id>,
    /// Start after the hold with this id, the last one of the previous page
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<Id>,
    #[command(flatten)]
    pub(crate) limit: LimitFlags,
}

/// The state of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HoldStateName {
    /// The amount is held
    Open,
    /// The payee has the amount, or a part of it
    Captured,
    /// The amount is free again
    Released,
    /// The amount is free again, as its time was over
    Expired,
}

impl From<HoldStateName> for HoldState {
    fn from(name: HoldStateName) -> Self {
        match name {
            HoldStateName::Open => HoldState::Open,
            HoldStateName::Captured => HoldState::Captured,
            HoldStateName::Released => HoldState::Released,
            HoldStateName::Expired => HoldState::Expired,
        }
    }
}

/// A change of an account: `ann=-30`.
#[derive(Clone, Debug)]
pub(crate) struct AccountChange {
    pub(crate) account: Id,
    pub(crate) value: i64,
}

impl FromStr for AccountChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The id may have the sign, too.
        let (account, value) = text.rsplit_once('=').ok_or("a change looks like ann=-30")?;
        let value = value.parse().map_err(|_| format!("'{value}' is no whole number of 64 bits"))?;
        Ok(AccountChange { account: account.parse()?, value })
    }
}

/// The settings of an account.
#[derive(Args, Debug)]
pub(crate) struct AccountSettings {
    /// Unit of the balance, such as a currency
    #[arg(long, value_name = "TEXT")]
    pub(crate) asset: String,
    /// Amount that must stay available, in the smallest unit of the asset [default: no limit]
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "sequence")]
    pub(crate) minimum: Option<i64>,
    /// Draw the places of its changes from a sequence, for an account that many post to at once
    #[arg(long)]
    pub(crate) sequence: bool,
}

/// The format of exported entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LedgerFormat {
    /// The document of each entry as relaxed Extended JSON, one per line
    Jsonl,
    /// Each change of each entry, one per line, with a header
    Csv,
}

impl LedgerArguments {
    /// Returns the ledger of a command.
    pub(crate) fn ledger(&self) -> &LedgerFlags {
        match self {
            LedgerArguments::Status { ledger }
            | LedgerArguments::List { ledger, .. }
            | LedgerArguments::Accounts { ledger, .. }
            | LedgerArguments::Holds { ledger, .. }
            | LedgerArguments::Show { ledger, .. }
            | LedgerArguments::Balance { ledger, .. }
            | LedgerArguments::Totals { ledger, .. }
            | LedgerArguments::Post { ledger, .. }
            | LedgerArguments::Statement { ledger, .. }
            | LedgerArguments::Open { ledger, .. }
            | LedgerArguments::Reconcile { ledger, .. }
            | LedgerArguments::Cancel { ledger, .. }
            | LedgerArguments::Verify { ledger, .. }
            | LedgerArguments::Rebuild { ledger, .. }
            | LedgerArguments::Restore { ledger, .. }
            | LedgerArguments::Abandon { ledger, .. }
            | LedgerArguments::Export { ledger, .. } => ledger,
        }
    }
}
