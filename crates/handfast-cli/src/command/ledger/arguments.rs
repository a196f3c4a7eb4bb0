//! The arguments of `handfast ledger`.

use crate::configuration::Span;
use crate::flags::{AnyStoreFlags, LimitFlags};
use crate::id::Id;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The commands on a ledger.
#[derive(Debug, Subcommand)]
pub(crate) enum LedgerArguments {
    /// Count the entries, and say how long the oldest one waits to be committed
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
    /// Show an entry with all its fields
    #[command(after_help = "Example:\n  handfast ledger show order-7 --data /srv/handfast --database bank")]
    Show {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// Its _id: a text, a number, an ObjectId, or Extended JSON
        id: Id,
    },
    /// Show what accounts have, counted from their last final balance
    #[command(after_help = "Example:\n  handfast ledger balance ann bob --data /srv/handfast --database bank")]
    Balance {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// The _ids of the accounts
        #[arg(id = "named", value_name = "ACCOUNT", required = true)]
        accounts: Vec<Id>,
    },
    /// Show the changes of an account, the last page of them
    #[command(
        after_help = "Example:\n  handfast ledger statement ann --before 481 --data /srv/handfast --database bank"
    )]
    Statement {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// The _id of the account
        account: Id,
        /// The page before this place instead
        #[arg(long, value_name = "PLACE", conflicts_with = "after", value_parser = clap::value_parser!(i64).range(1..))]
        before: Option<i64>,
        /// The page after this place instead; 0 is the beginning
        #[arg(long, value_name = "PLACE", value_parser = clap::value_parser!(i64).range(0..))]
        after: Option<i64>,
        /// Changes of a page
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// Open an account; again with its limits, if its document is lost
    #[command(
        after_help = "Example:\n  handfast ledger open ann --asset EUR --minimum 0 --data /srv/handfast --database bank"
    )]
    Open {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// The _id of the account
        account: Id,
        /// The unit of its balance: a currency, or another thing that is counted
        #[arg(long, value_name = "TEXT")]
        asset: String,
        /// The amount that must stay available in it, in the smallest unit of the asset [default: no limit]
        #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "sequence")]
        minimum: Option<i64>,
        /// Its places come from a sequence: it is one that all post to
        #[arg(long)]
        sequence: bool,
    },
    /// Commit entries whose turn it is, and free authorisations whose time is over
    #[command(
        visible_alias = "commit",
        after_help = "Example:\n  handfast ledger reconcile --data /srv/handfast --database bank"
    )]
    Reconcile {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// How long a place that was drawn from a sequence waits for its entry
        #[arg(long, value_name = "TIME", default_value = "60s")]
        abandoned_after: Span,
    },
    /// Take entries back: one that is not committed counts for nothing, a committed one gets a reversal
    #[command(after_help = "Example:\n  \
        handfast ledger cancel order-7 --reason 'paid twice' --data /srv/handfast --database bank")]
    Cancel {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// Their _ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<Id>,
        /// Why: it is kept with the entry
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Count everything again from the first entry on, and compare it with what is written
    #[command(after_help = "Exit code 3 if anything is not as it must be.\n\n\
        Examples:\n  \
        handfast ledger verify --data /srv/handfast --database bank\n  \
        handfast ledger verify ann --data /srv/handfast --database bank --json")]
    Verify {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// These accounts alone [default: all, every entry, and the sums over the whole ledger]
        #[arg(id = "named", value_name = "ACCOUNT")]
        accounts: Vec<Id>,
        /// Entries need not add up to zero: the ledger was opened so by a version that did not record it
        #[arg(long)]
        single_entry: bool,
    },
    /// Count balances again from the first entry on, and write those that are missing or wrong; stop at lost and altered entries
    #[command(after_help = "Exit code 3 if it could not count everything, as entries are lost or altered.\n\n\
        Examples:\n  \
        handfast ledger rebuild --data /srv/handfast --database bank\n  \
        handfast ledger rebuild ann bob --data /srv/handfast --database bank")]
    Rebuild {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// These accounts alone [default: all]
        #[arg(id = "named", value_name = "ACCOUNT")]
        accounts: Vec<Id>,
    },
    /// Put lost entries back from a file that `ledger export` wrote; those that are there stay as they are
    #[command(after_help = "Exit code 1 if an entry was not put back.\n\n\
        Examples:\n  \
        handfast ledger restore entries.jsonl --data /srv/handfast --database bank\n  \
        handfast ledger restore entries.jsonl order-7 --data /srv/handfast --database bank")]
    Restore {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// The export, in JSON Lines
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The _ids of the entries [default: all that are lost]
        #[arg(value_name = "ID")]
        ids: Vec<Id>,
        /// Entries need not add up to zero: the ledger was opened so by a version that did not record it
        #[arg(long)]
        single_entry: bool,
    },
    /// Close a gap: say that its entries are gone for good, and count for nothing
    #[command(after_help = "Example:\n  \
        handfast ledger abandon ann 7 --reason 'in no export' --data /srv/handfast --database bank")]
    Abandon {
        #[command(flatten)]
        ledger: Box<LedgerFlags>,
        /// The _id of the account
        account: Id,
        /// The first place of the gap
        #[arg(value_name = "FIRST", value_parser = clap::value_parser!(i64).range(1..))]
        first: i64,
        /// The last place of the gap [default: the first]
        #[arg(value_name = "LAST", value_parser = clap::value_parser!(i64).range(1..))]
        last: Option<i64>,
        /// Why: it is kept with the entry that closes the gap
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
        /// How they are written
        #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
        format: LedgerFormat,
        /// Into this file, which must not be there [default: standard output]
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

/// Which ledger.
#[derive(Args, Debug)]
pub(crate) struct LedgerFlags {
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// The collection of the entries
    #[arg(long, value_name = "NAME", default_value = "tx")]
    pub(crate) collection: String,
    /// The collection of the accounts [default: the recorded one, or account]
    #[arg(long, value_name = "NAME")]
    pub(crate) accounts: Option<String>,
    /// The collection that says which authorisations expire [default: the recorded one, or hold]
    #[arg(long, value_name = "NAME")]
    pub(crate) holds: Option<String>,
}

/// How entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LedgerFormat {
    /// The document of each entry as relaxed Extended JSON, one a line
    Jsonl,
    /// Each change of each entry, one a line, with a header
    Csv,
}

impl LedgerArguments {
    /// Which ledger it is about.
    pub(crate) fn ledger(&self) -> &LedgerFlags {
        match self {
            LedgerArguments::Status { ledger }
            | LedgerArguments::List { ledger, .. }
            | LedgerArguments::Accounts { ledger, .. }
            | LedgerArguments::Show { ledger, .. }
            | LedgerArguments::Balance { ledger, .. }
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
