//! The arguments of `handfast transfer`.

use std::path::PathBuf;

use clap::Args;

use crate::command::two_phase::arguments::AccountFlags;
use crate::flags::{AnyStoreFlags, Renamed};

/// `handfast transfer`.
#[derive(Args, Debug)]
pub(crate) struct TransferArguments {
    /// File of transfers, one per line, with the columns or fields from, to, amount and id; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// Format of the lines [default: the ending of the file name]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<TransferFormat>,
    /// Name of a column or field in the file, if it is not the default name; may be repeated
    #[arg(long = "column", value_name = "DEFAULT=NAME", hide_short_help = true)]
    pub(crate) columns: Vec<Renamed>,
    /// Type of the _ids of accounts in CSV
    #[arg(long, value_name = "TYPE", default_value = "text", hide_short_help = true)]
    pub(crate) account_ids: AccountIdType,
    /// Unique name of this file's content, which gives ids to rows without one. If the file is applied again, also with lines
    /// added or moved, each row is still applied once; an edited row counts as another transfer
    #[arg(long, value_name = "NAME")]
    pub(crate) batch: Option<String>,
    /// Mechanism of the transfers; required with --store [default: transaction]
    #[arg(long, value_name = "HOW")]
    pub(crate) mechanism: Option<TransferMechanism>,
    #[command(flatten)]
    pub(crate) accounts: AccountFlags,
    /// Collection that records the applied transfers [default: transfers; two-phase: transactions; ledger: tx]
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
    /// Only ledger: asset of rows that name none
    #[arg(long, value_name = "CODE")]
    pub(crate) asset: Option<String>,
    /// Only ledger: collection of the authorisations that expire [default: hold]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) holds: Option<String>,
    /// Only two-phase and ledger: number of rows that are applied at once. With more than 1, a row that needs the money of an
    /// earlier row may be rejected
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: Option<u16>,
    /// Write rejected rows to this file, too, as one JSON object per line
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) rejects: Option<PathBuf>,
}

/// The format of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransferFormat {
    /// Comma-separated values, with a header
    Csv,
    /// One JSON object per line; ids may be Extended JSON
    Jsonl,
}

/// The type of the cells of a CSV file that name accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AccountIdType {
    /// Texts
    Text,
    /// Whole numbers
    Number,
    /// ObjectIds, 24 hexadecimal digits
    ObjectId,
}

/// The mechanism of the transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransferMechanism {
    /// One transaction over both accounts and the row's id; with --store all other writers of the accounts must use `handfast
    /// serve --store`
    Transaction,
    /// Two-phase commit, step by step; other programs may write to the accounts directly
    TwoPhase,
    /// An entry of a ledger
    Ledger,
}

impl TransferMechanism {
    /// Returns the name that the flag uses.
    pub(super) fn name(self) -> &'static str {
        match self {
            TransferMechanism::Transaction => "transaction",
            TransferMechanism::TwoPhase => "two-phase",
            TransferMechanism::Ledger => "ledger",
        }
    }
}
