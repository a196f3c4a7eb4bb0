//! The arguments of `handfast check`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::flags::{OpenFlags, OutputFlags};

/// `handfast check`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CheckArguments {
    #[command(subcommand)]
    pub(crate) subject: Option<CheckSubject>,
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    /// Mend what can be mended (indexes from documents, the journal, the files around it), and say what is lost
    #[arg(long)]
    pub(crate) repair: bool,
}

/// What else than a data directory can be checked.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckSubject {
    /// Judge a history of transactions, as their clients recorded it: which isolation did the store keep?
    #[command(after_help = "Examples:\n  \
        handfast check history run.jsonl\n  \
        handfast check history run.jsonl --isolation serializable --json")]
    History(HistoryArguments),
}

/// `handfast check history`.
#[derive(Args, Debug)]
pub(crate) struct HistoryArguments {
    /// The history: one event a line, as Jepsen writes them in JSON; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What was promised of transactions at the same time [default: what the file says, else snapshot]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) isolation: Option<HistoryIsolation>,
    /// What was promised of transactions one after the other [default: what the file says, else real-time]
    #[arg(long, value_name = "ORDER")]
    pub(crate) order: Option<HistoryOrder>,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// What a history is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HistoryIsolation {
    /// Each transaction reads one snapshot; of two that write the same key, one fails
    Snapshot,
    /// As if one after the other
    Serializable,
}

/// What a history is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HistoryOrder {
    /// Nothing
    None,
    /// A process sees what it did before
    Session,
    /// Whoever begins after an acknowledgement sees what was acknowledged
    RealTime,
}
