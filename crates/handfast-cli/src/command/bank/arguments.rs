//! The arguments of `handfast bank`.

use std::path::PathBuf;

use clap::Args;

use crate::command::check::arguments::HistoryIsolation;
use crate::configuration::NamedStore;
use crate::flags::OutputFlags;

/// `handfast bank`.
#[derive(Args, Debug)]
pub(crate) struct BankArguments {
    /// Accounts; fewer of them, more conflicts
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) accounts: u32,
    /// Workers at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub(crate) workers: u32,
    /// Transfers that are to be committed at least; with --crash it goes on until the last kill
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) transfers: u64,
    /// How a transfer is made
    #[arg(long, value_name = "HOW", default_value = "transaction")]
    pub(crate) mechanism: BankMechanism,
    /// The isolation of the transactions, which the check requires [default: snapshot]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) isolation: Option<HistoryIsolation>,
    /// Processes that the workers are in, on one server [default: 1; without transactions 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) processes: Option<u16>,
    /// Kill a process with workers so many times, and start it again [without a number: 10]
    #[arg(long, value_name = "KILLS", num_args = 0..=1, default_missing_value = "10")]
    pub(crate) crash: Option<u32>,
    /// Lose so many of a hundred answers to commits, and to the question what became of one, 50 at most
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    pub(crate) lost_replies: f64,
    /// Repeats the choices of a run [default: a random one, reported]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// A data directory to use and to keep; its database handfast_bank is made anew [default: a scratch directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Keep the accounts on this MongoDB-compatible server (mongodb://..); its database handfast_bank is made anew. Several,
    /// with a name each (NAME=mongodb://..), have a part of the accounts each. A password is safer in the variable [env:
    /// HANDFAST_STORE]
    #[arg(long, visible_alias = "uri", value_name = "URI", conflicts_with = "data")]
    pub(crate) store: Vec<NamedStore>,
    /// Nobody else writes to that server: needed where its updates are not atomic, as those of FerretDB 1
    #[arg(long)]
    pub(crate) sole_writer: bool,
    /// Keep the recorded history in this file; `handfast check history` judges it again
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// The directory in which a scratch directory is made, and removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// The part that is killed, and which one it is
    #[arg(long, hide = true)]
    pub(crate) child: Option<u32>,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// How money is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BankMechanism {
    /// One transaction over both accounts, of the library: on any store
    Transaction,
    /// One transaction of the server's own, as drivers use it: on a server that has them (--store)
    ServerSide,
    /// Step by step, as the pattern of two-phase commit
    TwoPhase,
    /// As entries of a ledger
    Ledger,
    /// One update and another one, with nothing around them: to see what is lost then
    Unprotected,
}
