//! The arguments of `handfast txns`.

use clap::Subcommand;

use crate::flags::{LimitFlags, ServerStoreFlags};

/// The commands on transactions over a server's documents.
#[derive(Debug, Subcommand)]
pub(crate) enum TransactionsArguments {
    /// Count the locks, and report up to which time old versions may be removed
    #[command(after_help = "Example:\n  handfast txns status --store mongodb://127.0.0.1:27018")]
    Status {
        #[command(flatten)]
        store: ServerStoreFlags,
    },
    /// List the transactions that hold locks, oldest first
    #[command(after_help = "Example:\n  handfast txns list --json --store mongodb://127.0.0.1:27018")]
    List {
        #[command(flatten)]
        store: ServerStoreFlags,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Show the outcome of a transaction, and its locks
    #[command(after_help = "Example:\n  handfast txns show 466880316178923520 --store mongodb://127.0.0.1:27018")]
    Show {
        #[command(flatten)]
        store: ServerStoreFlags,
        /// Start of the transaction, as `txns list` shows it
        start: u64,
        #[command(flatten)]
        limit: LimitFlags,
    },
    /// Finish transactions that are decided or abandoned; a transaction that may still commit is skipped
    #[command(after_help = "Examples:\n  \
        handfast txns resolve 466880316178923520 --store mongodb://127.0.0.1:27018\n  \
        handfast txns resolve --all --store mongodb://127.0.0.1:27018")]
    Resolve {
        #[command(flatten)]
        store: ServerStoreFlags,
        /// Starts of the transactions, as `txns list` shows them
        #[arg(value_name = "START", required_unless_present = "all", conflicts_with = "all")]
        starts: Vec<u64>,
        /// All transactions
        #[arg(long)]
        all: bool,
    },
    /// List the collections that have another name in the store: created again after a drop, renamed, or dropped
    #[command(after_help = "Example:\n  handfast txns collections --store mongodb://127.0.0.1:27018")]
    Collections {
        #[command(flatten)]
        store: ServerStoreFlags,
    },
    /// Finish abandoned transactions, and remove old versions that no process reads, as servers do every 30 seconds
    #[command(after_help = "Example:\n  handfast txns gc --store mongodb://127.0.0.1:27018")]
    Gc {
        #[command(flatten)]
        store: ServerStoreFlags,
    },
}

impl TransactionsArguments {
    /// Returns the store of the documents.
    pub(crate) fn store(&self) -> &ServerStoreFlags {
        match self {
            TransactionsArguments::Status { store }
            | TransactionsArguments::List { store, .. }
            | TransactionsArguments::Show { store, .. }
            | TransactionsArguments::Resolve { store, .. }
            | TransactionsArguments::Collections { store }
            | TransactionsArguments::Gc { store } => store,
        }
    }
}
