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
    /// Repair what can be repaired (indexes from documents, the journal, the other files), and report what is lost
    #[arg(long)]
    pub(crate) repair: bool,
}

/// The commands that check something else than a data directory.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckSubject {
    /// Check which isolation a history of transactions shows, as their clients recorded it
    #[command(after_help = "Examples:\n  \
        handfast check history run.jsonl\n  \
        handfast check history run.jsonl --isolation serializable --json")]
    History(HistoryArguments),
}

/// `handfast check history`.
#[derive(Args, Debug)]
pub(crate) struct HistoryArguments {
    /// File of the history, with one event per line as Jepsen writes them in JSON; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Isolation that the history must show [default: the one in the file, otherwise snapshot]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) isolation: Option<HistoryIsolation>,
    /// Order that the history must show [default: the one in the file, otherwise real-time]
    #[arg(long, value_name = "ORDER")]
    pub(crate) order: Option<HistoryOrder>,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// The isolation that a history must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HistoryIsolation {
    /// Each transaction reads one snapshot; of two that write the same key, one fails
    Snapshot,
    /// Some serial order of the transactions has the same results
    Serializable,
}

/// The order that a history must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HistoryOrder {
    /// Processes may see writes in any order
    None,
    /// A process sees its own earlier writes
    Session,
    /// A transaction that begins after an acknowledgement sees the acknowledged writes
    RealTime,
}
