//! The arguments of `handfast transfer`.

use std::path::PathBuf;

use clap::Args;

use crate::command::two_phase::arguments::AccountFlags;
use crate::flags::{AnyStoreFlags, Renamed};

/// `handfast transfer`.
#[derive(Args, Debug)]
pub(crate) struct TransferArguments {
    /// The transfers, one a line, with the columns or fields from, to, amount and id; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) open: AnyStoreFlags,
    /// How the lines are written [default: what the name of the file ends in]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<TransferFormat>,
    /// A column or field that has another name; may be given several times
    #[arg(long = "column", value_name = "DEFAULT=NAME")]
    pub(crate) columns: Vec<Renamed>,
    /// Of CSV: what the _ids of accounts are
    #[arg(long, value_name = "TYPE", default_value = "text")]
    pub(crate) account_ids: AccountIdType,
    /// A name for what this file brings, which no other file ever has. Then rows without an id have one of it, their content and how
    /// often the same content came before: run again, the file is applied once, also if lines were added or moved. A row
    /// that was edited counts as another one
    #[arg(long, value_name = "NAME")]
    pub(crate) batch: Option<String>,
    /// How a transfer is made [default: transaction; with --store it has to be said]
    #[arg(long, value_name = "HOW")]
    pub(crate) mechanism: Option<TransferMechanism>,
    #[command(flatten)]
    pub(crate) accounts: AccountFlags,
    /// The collection that remembers what was applied [default: transfers; two-phase: transactions; ledger: tx]
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
    /// Of a ledger: the asset of rows that do not say one
    #[arg(long, value_name = "CODE")]
    pub(crate) asset: Option<String>,
    /// Of a ledger: the collection that says which authorisations expire [default: hold]
    #[arg(long, value_name = "NAME")]
    pub(crate) holds: Option<String>,
    /// Two-phase and ledger: rows that are worked on at once. With more than one, a row that needs the money of the one before
    /// it may be rejected
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: Option<u16>,
    /// Write rejected rows to this file, too: one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransferFormat {
    /// Cells between commas, the names of the columns first
    Csv,
    /// A JSON object each; ids may be Extended JSON
    Jsonl,
}

/// The type of the cells of a CSV file that name accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AccountIdType {
    /// Texts, as they stand there
    Text,
    /// Whole numbers
    Number,
    /// ObjectIds, 24 hexadecimal digits
    ObjectId,
}

/// How a transfer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransferMechanism {
    /// Both accounts and the row's id in one transaction; with --store everybody who writes to the accounts must do so through
    /// `handfast serve --store`
    Transaction,
    /// Step by step, as the pattern of two-phase commit; others may write to the accounts directly
    TwoPhase,
    /// As an entry of a ledger
    Ledger,
}
