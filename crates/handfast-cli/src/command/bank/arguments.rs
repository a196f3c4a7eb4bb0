//! The arguments of `handfast bank`.

use std::path::PathBuf;

use clap::Args;

use crate::command::check::arguments::HistoryIsolation;
use crate::configuration::NamedStore;
use crate::flags::OutputFlags;

/// `handfast bank`.
#[derive(Args, Debug)]
pub(crate) struct BankArguments {
    /// Number of accounts; fewer accounts cause more conflicts
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) accounts: u32,
    /// Number of concurrent workers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub(crate) workers: u32,
    /// Minimum number of committed transfers; with --crash the run continues until the last kill
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) transfers: u64,
    /// Mechanism that moves the money
    #[arg(long, value_name = "HOW", default_value = "transaction")]
    pub(crate) mechanism: BankMechanism,
    /// Isolation of the transactions, which the recorded history is checked against [default: snapshot]
    #[arg(long, value_name = "LEVEL", hide_short_help = true)]
    pub(crate) isolation: Option<HistoryIsolation>,
    /// Number of processes that share the workers [default: 1; 3 for two-phase, ledger and unprotected]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), hide_short_help = true)]
    pub(crate) processes: Option<u16>,
    /// Kill a process of workers this many times, and restart it each time [without a number: 10]
    #[arg(long, value_name = "KILLS", num_args = 0..=1, default_missing_value = "10")]
    pub(crate) crash: Option<u32>,
    /// Percentage of lost answers, of commits and of queries for their outcomes; at most 50
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    pub(crate) lost_replies: f64,
    /// Seed of the random choices; a report names the seed of its run [default: random]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Data directory to use and keep; its database handfast_bank is dropped first [default: a scratch directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Keep the accounts on this MongoDB-compatible server (mongodb://..); its database handfast_bank is dropped first. Several
    /// servers, each with a name (NAME=mongodb://..), share the accounts. A password is safer in the variable [env:
    /// HANDFAST_STORE]
    #[arg(long, visible_alias = "uri", value_name = "URI", conflicts_with = "data")]
    pub(crate) store: Vec<NamedStore>,
    /// Declare that no other process writes to that server; required where its updates are not atomic (FerretDB 1)
    #[arg(long)]
    pub(crate) sole_writer: bool,
    /// File to keep the recorded history in; `handfast check history` checks it again
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Directory in which a scratch directory is created, and removed at the end
    #[arg(long, value_name = "DIR", default_value = ".", hide_short_help = true)]
    pub(crate) directory: PathBuf,
    /// The number of this process among the worker processes that are killed
    #[arg(long, hide = true)]
    pub(crate) child: Option<u32>,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// The mechanism that moves the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BankMechanism {
    /// A transaction of Handfast's library over both accounts, on any store
    Transaction,
    /// A transaction of the server itself, as drivers use it; --store names a server that has transactions
    ServerSide,
    /// Two-phase commit, step by step
    TwoPhase,
    /// Entries of a ledger
    Ledger,
    /// Two separate updates without protection, which shows what gets lost then
    Unprotected,
}
