//! The arguments of `handfast bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::configuration::{Bytes, ConnectionString, Span};
use crate::flags::OutputFlags;

/// The subjects of a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchArguments {
    /// The embedded store against the bare key-value engine under it
    #[command(after_help = "Example:\n  handfast bench store --clients 64 --seconds 5 --rounds 5")]
    Store(BenchFlags),
    /// The server against an echo of the same messages
    #[command(after_help = "Example:\n  handfast bench serve --seconds 5 --strict")]
    Serve(BenchFlags),
    /// Transfers in transactions: against the engine, between few accounts, through the server, against SQLite
    #[command(after_help = "SQLite is measured if the program was built with --features sqlite.\n\n\
        Example:\n  handfast bench transactions --clients 64 --seconds 5")]
    Transactions(BenchFlags),
    /// Transfers over a store of single documents: in transactions, by two-phase commit, unprotected
    #[command(
        after_help = "The store is in memory, and each of its operations takes the time of --delay; with --store it is a server.\n\n\
        Examples:\n  handfast bench transfers --clients 32 --documents 10000 --delay 1ms\n  \
        handfast bench transfers --clients 32 --documents 10000 --store mongodb://127.0.0.1:27018"
    )]
    Transfers(TransferFlags),
    /// The building blocks against the same writes without them, with the store operations of each
    #[command(after_help = "Example:\n  handfast bench patterns --documents 10000 --directory /srv")]
    Patterns(BenchFlags),
    /// View counters over HTTP against a route that answers a constant; with --redis, their cache against bare commands
    #[command(after_help = "Examples:\n  handfast bench counters --directory /srv\n  \
        handfast bench counters --redis redis://127.0.0.1:6379")]
    Counters(CountersFlags),
    /// The proxy of `handfast blackpipe` against a relay that copies bytes
    #[command(after_help = "Example:\n  handfast bench proxy --seconds 5 --strict")]
    Proxy(BenchFlags),
    /// The program as a process: its start, and its memory, idle and after loading
    #[command(after_help = "Example:\n  handfast bench process --documents 1000000 --directory /srv")]
    Process(ProcessFlags),
}

/// The flags for the extent of a measurement.
#[derive(Args, Debug)]
pub(crate) struct BenchFlags {
    /// Number of concurrent tasks or connections; promises apply to the default only [default: 64; 16 for the server and the proxy]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) clients: Option<u16>,
    /// Number of documents that are read and updated
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) documents: u64,
    /// Duration of one round of one case
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Number of rounds of each case, in turns with its baseline; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,
    /// Ratio to the baseline that every case must reach, instead of the promised one; of store, serve, transactions and proxy
    #[arg(long, value_name = "RATIO")]
    pub(crate) demand: Option<f64>,
    #[command(flatten)]
    pub(crate) subject: SubjectFlags,
}

/// The flags of the measurement of transfers.
#[derive(Args, Debug)]
pub(crate) struct TransferFlags {
    /// Minimum duration of each operation of the store in memory
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    pub(crate) delay: Span,
    /// Move money on this MongoDB-compatible server (mongodb://..) instead of in memory; its database handfast_bench is dropped
    /// before and after. Only the round trips of a transfer are still counted in memory
    #[arg(long, visible_alias = "uri", value_name = "URI")]
    pub(crate) store: Option<ConnectionString>,
    /// Declare that no other process writes to that server; required where its updates are not atomic (FerretDB 1)
    #[arg(long, requires = "store")]
    pub(crate) sole_writer: bool,
    #[command(flatten)]
    pub(crate) bench: BenchFlags,
}

/// The flags of the measurement of view counters.
#[derive(Args, Debug)]
pub(crate) struct CountersFlags {
    /// Measure the cache and the queue in this Redis, too (redis://HOST:PORT, or another form of `counters serve --redis`); keys of the kind handfast-bench are removed before and after
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,
    #[command(flatten)]
    pub(crate) bench: BenchFlags,
}

/// The flags of measured starts of the program.
#[derive(Args, Debug)]
pub(crate) struct ProcessFlags {
    /// Number of documents that are loaded
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) documents: u64,
    /// Number of starts on an empty directory; the median counts
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) subject: SubjectFlags,
}

/// The flags of every measurement.
#[derive(Args, Debug)]
pub(crate) struct SubjectFlags {
    /// Size of a document
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub(crate) document_bytes: usize,
    /// Maximum size of the cache of data blocks, of the subject and of its baseline
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) cache_bytes: Bytes,
    /// Directory on the disk to measure; a scratch directory is created in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// End with exit code 3 if a promise is missed
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}
