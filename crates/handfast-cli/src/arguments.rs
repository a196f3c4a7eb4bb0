//! The command line: what `handfast --help` shows.
//!
//! Settings have no defaults here: whoever is silent leaves the word to the next source (see
//! [`configuration`]). A flag's field name is its key there.

mod measure;
mod pattern;
#[cfg(test)]
mod tests;
mod transfer;
mod users;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use serde::Serialize;

pub(crate) use self::measure::{BankArguments, BenchArguments, BenchFlags, ProcessFlags, SubjectFlags, TransferFlags};
pub(crate) use self::pattern::*;
pub(crate) use self::transfer::{AccountIdType, TransferArguments, TransferFormat, TransferMechanism};
pub(crate) use self::users::{PasswordFlags, UserArguments, UserFlags};
use crate::configuration::{self, Bytes, ConnectionString, Durability, LogFormat, LogLevel, Span, Topology};

/// A MongoDB-compatible server over an embedded store or another server, and what belongs to it
#[derive(Debug, Parser)]
#[command(
    name = "handfast",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 good, 1 the operation failed, 2 usage, 3 a guarantee did not hold.\n\n\
                  Example:\n  handfast serve --data /srv/handfast"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The definition of the command line with the defaults and the environment variables of all settings in the help texts,
/// where people look for them.
pub(crate) fn definition() -> clap::Command {
    let defaults: BTreeMap<String, String> = configuration::defaults().collect();
    Arguments::command().mut_subcommands(|command| with_sources(command, &defaults))
}

/// The short form of a setting, which stands among them.
const SHORT_FORM: &str = "port";

/// A command with the sources of settings, and the commands in it. What a command takes itself would stand under the heading of
/// the settings that come before it in its definition: it gets none.
fn with_sources(command: clap::Command, defaults: &BTreeMap<String, String>) -> clap::Command {
    let keys = configuration::keys();
    let command = command.mut_args(|argument| {
        // A flag of that name without a heading is no setting.
        if argument.get_help_heading().is_none() || argument.get_long() == Some(SHORT_FORM) {
            return argument;
        }
        let key = argument.get_long().filter(|key| is_one_of(key, &keys));
        let (Some(key), Some(help)) = (key, argument.get_help()) else { return argument.help_heading(None) };
        let default = match defaults.get(key) {
            Some(default) => format!(" [default: {default}]"),
            None => String::new(),
        };
        let help = format!("{help}{default} [env: {}]", configuration::variable(key));
        argument.help(help)
    });
    command.mut_subcommands(|command| with_sources(command, defaults))
}

fn is_one_of(key: &str, keys: &[String]) -> bool {
    keys.iter().any(|known| known == key)
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve MongoDB drivers over the embedded store, or over another server
    #[command(after_help = "Examples:\n  \
        handfast serve\n  \
        handfast serve --data /srv/handfast --listen 127.0.0.1:27018 --cache-bytes 1GiB\n  \
        HANDFAST_DURABILITY=memory handfast serve --unix-socket /run/handfast.sock\n  \
        HANDFAST_STORE=mongodb://user:password@db:27017 handfast serve --port 27018")]
    Serve(Box<ServeArguments>),

    /// Check that every record of a data directory is whole and every index agrees with its documents
    #[command(after_help = "Examples:\n  \
        handfast check --data /srv/handfast\n  \
        handfast check --data /srv/handfast --repair --json\n  \
        handfast check history run.jsonl --isolation serializable")]
    Check(Box<CheckArguments>),

    /// Write documents and index definitions of a data directory to files
    #[command(after_help = "Examples:\n  \
        handfast dump --data /srv/handfast --to dump\n  \
        handfast dump --data /srv/handfast --to dump --format json --database shop\n  \
        handfast dump --data /srv/damaged --to rest --skip-damaged")]
    Dump(Box<DumpArguments>),

    /// Read files that dump wrote into a data directory
    #[command(after_help = "Examples:\n  \
        handfast restore --data /srv/other --from dump\n  \
        handfast restore --data /srv/other --from dump --drop --database shop")]
    Restore(Box<RestoreArguments>),

    /// Show the guarantee: workers move money while things go wrong, then everything is counted and judged
    #[command(
        after_help = "At the end: money in = money out, nothing half done, the recorded history judged by two judges.\n\
        Exit code 3 if a guarantee did not hold. A seed repeats the choices of a run.\n\n\
        Examples:\n  \
        handfast bank\n  \
        handfast bank --crash 10 --workers 16\n  \
        handfast bank --store mongodb://127.0.0.1:27017 --transfers 500\n  \
        handfast bank --lost-replies 5 --isolation serializable --history run.jsonl --json"
    )]
    Bank(Box<BankArguments>),

    /// Apply the transfers of a file, each exactly once, however often this is killed and run again
    #[command(
        after_help = "Amounts are whole numbers of the smallest unit of the currency. A row that is rejected changes nothing; \
        exit code 1 if there is one.\n\n\
        Examples:\n  \
        handfast transfer march.csv --data /srv/handfast --database bank\n  \
        handfast transfer march.csv --batch march --rejects rejected.jsonl --data /srv/handfast --database bank\n  \
        handfast transfer - --format jsonl --mechanism two-phase --database bank --store mongodb://127.0.0.1:27017\n  \
        handfast transfer march.csv --mechanism ledger --asset EUR --data /srv/handfast --database bank"
    )]
    Transfer(Box<TransferArguments>),

    /// Look at a queue of jobs, and put right what went wrong in it
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        handfast jobs status --data /srv/handfast --database shop\n  \
        handfast jobs list --database shop --state failed --store mongodb://127.0.0.1:27017\n  \
        handfast jobs retry --all --data /srv/handfast --database shop"
    )]
    Jobs(JobsArguments),

    /// Look at a ledger, count its books again, and put right what went wrong in it
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        handfast ledger status --data /srv/handfast --database bank\n  \
        handfast ledger verify --database bank --store mongodb://127.0.0.1:27017"
    )]
    Ledger(LedgerArguments),

    /// Look at two-phase transactions, and bring to their end what was left behind
    #[command(
        subcommand,
        name = "twophase",
        after_help = "Examples:\n  \
        handfast twophase status --data /srv/handfast --database bank\n  \
        handfast twophase recover --database bank --store mongodb://127.0.0.1:27017"
    )]
    TwoPhase(TwoPhaseArguments),

    /// Look at fields that are copied into other documents, and bring them up to date
    #[command(
        subcommand,
        after_help = "Example:\n  handfast sync verify --data /srv/handfast --database site --collection users \\\n    \
        --link comments:user:name=userName"
    )]
    Sync(SyncArguments),

    /// Look at trees of documents that change as a whole, and remove what was left behind
    #[command(
        subcommand,
        after_help = "Example:\n  \
        handfast versions status --data /srv/handfast --database shop --collection items --root catalogue"
    )]
    Versions(VersionsArguments),

    /// Measure the store or the server against a baseline in the same run
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        handfast bench store\n  \
        handfast bench serve --json"
    )]
    Bench(BenchArguments),

    /// Copy all data, as it is at one moment: of a data directory, or of a server while it runs
    #[command(after_help = "A running server makes the backup itself, under NAME in its --backup-directory.\n\n\
        Examples:\n  \
        handfast backup --data /srv/handfast --to /backup/handfast-monday\n  \
        handfast backup --uri mongodb://admin@db.example.org/ monday")]
    Backup(Box<BackupArguments>),

    /// Add, change, remove and list the users of a data directory
    #[command(
        subcommand,
        after_help = "The password is asked for, or read from standard input or a file: never from the command line,\n\
        which others can see.\n\n\
        Examples:\n  \
        handfast user add admin --data /srv/handfast --role root\n  \
        handfast user add ann --data /srv/handfast --role readWrite@shop --password-file ann.txt\n  \
        handfast user list --data /srv/handfast --json"
    )]
    User(UserArguments),

    /// Print the configuration in force, and where each value is from
    #[command(after_help = "Examples:\n  \
        handfast config\n  \
        handfast config --config /etc/handfast.toml --json\n  \
        handfast config > new.toml")]
    Config(Box<ConfigArguments>),

    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  mkdir -p ~/.local/share/bash-completion/completions\n  handfast completions bash > ~/.local/share/bash-completion/completions/handfast"
    )]
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },

    /// Write the manual pages into a directory
    #[command(after_help = "Example:\n  handfast man ~/.local/share/man/man1")]
    Man {
        /// Where to; made if it is not there
        directory: PathBuf,
    },
}

/// How a command tells what it did.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputFlags {
    /// Report as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress and no report, only errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What every command that reads the configuration takes.
#[derive(Args, Debug)]
pub(crate) struct CommonFlags {
    /// Configuration file (TOML) [default: handfast.toml, if it is there] [env: HANDFAST_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// The settings of the embedded store.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreFlags {
    /// The data directory; created if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// When a write that does not say itself is acknowledged
    #[arg(long, value_name = "WHEN")]
    pub(crate) durability: Option<Durability>,
    /// Bound of the cache of data blocks
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_bytes: Option<Bytes>,
    /// A write buffer of this size goes to a data file; there are two, each with up to two full ones waiting
    #[arg(long, value_name = "SIZE")]
    pub(crate) write_buffer_bytes: Option<Bytes>,
    /// Bound of all journal files; a store that was killed reads as much when it is opened
    #[arg(long, value_name = "SIZE")]
    pub(crate) journal_bytes: Option<Bytes>,
    /// Bound of the write buffers that cursors and snapshots in use keep in memory; beyond it the oldest ends
    #[arg(long, value_name = "SIZE")]
    pub(crate) snapshot_bytes: Option<Bytes>,
    /// Bound of what one sort, group or other stage of a query holds in memory; more is refused
    #[arg(long, value_name = "SIZE")]
    pub(crate) sort_bytes: Option<Bytes>,
    /// How often documents that a TTL index lets expire are looked for
    #[arg(long, value_name = "TIME")]
    pub(crate) expiry_interval: Option<Span>,
}

/// Another store than the embedded one.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Store on a server")]
pub(crate) struct RemoteFlags {
    /// Keep documents on this MongoDB-compatible server instead of in a directory (mongodb://..). A password is safer in the
    /// variable or the file: others can see a command line
    #[arg(long, value_name = "URI")]
    pub(crate) store: Option<ConnectionString>,
    /// Nobody else writes to that server: needed where its updates are not atomic, as those of FerretDB 1
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) sole_writer: Option<bool>,
}

/// The settings of the server.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// Address and port; port 0 takes a free one. Other than loopback needs --auth or --insecure
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Ask clients to log in, and let each do what its roles allow. `handfast user` adds users
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) auth: Option<bool>,
    /// Speak TLS over TCP with this certificate, and those between it and an authority (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The private key of --tls-certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Let only clients connect whose certificate one of these authorities signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Listen on addresses that others can reach although nobody has to log in
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) insecure: Option<bool>,
    /// Let clients with the role root make backups in this directory while the server runs (`handfast backup --uri`);
    /// created if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) backup_directory: Option<PathBuf>,
    /// Listen on a Unix socket too
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// What the server says it is. To a standalone server drivers send no transactions and no retryable writes
    #[arg(long, value_name = "KIND")]
    pub(crate) topology: Option<Topology>,
    /// Name of the replica set
    #[arg(long, value_name = "NAME")]
    pub(crate) replica_set: Option<String>,
    /// Address that a replica set gives its clients [default: the one they dialled]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
    /// Connections at once; one more gets an error and is closed
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<u32>,
    /// Cursors open at once
    #[arg(long, value_name = "N")]
    pub(crate) max_cursors: Option<u32>,
    /// Bound of large requests in memory at once, over all connections
    #[arg(long, value_name = "SIZE")]
    pub(crate) request_bytes: Option<Bytes>,
    /// Bound of large replies in memory at once, over all connections
    #[arg(long, value_name = "SIZE")]
    pub(crate) reply_bytes: Option<Bytes>,
    /// How long a connection may be silent before it is closed
    #[arg(long, value_name = "TIME")]
    pub(crate) connection_timeout: Option<Span>,
    /// How long a cursor may be idle before it is closed
    #[arg(long, value_name = "TIME")]
    pub(crate) cursor_timeout: Option<Span>,
    /// How long a transaction may be open before it is rolled back
    #[arg(long, value_name = "TIME")]
    pub(crate) transaction_lifetime: Option<Span>,
    /// What all open transactions together may have written; beyond that writes in them are refused
    #[arg(long, value_name = "SIZE")]
    pub(crate) transaction_bytes: Option<Bytes>,
    /// How long outcomes of transactions and results of retryable writes are kept for clients that ask again, 5m at least
    #[arg(long, value_name = "TIME")]
    pub(crate) outcome_retention: Option<Span>,
    /// How long commands in progress may take to finish at a graceful stop
    #[arg(long, value_name = "TIME")]
    pub(crate) shutdown_timeout: Option<Span>,
    /// Commands that take longer are logged
    #[arg(long, value_name = "TIME")]
    pub(crate) slow_operation: Option<Span>,
    /// Let clients make commands fail with configureFailPoint, as suites of tests do. Never for data that matters
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) test_commands: Option<bool>,
}

/// The settings of the log, which goes to standard error.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Log")]
pub(crate) struct LogFlags {
    /// What a line looks like
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// From which level on
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
}

/// All settings.
#[derive(Args, Debug)]
pub(crate) struct SettingFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// Another port than the one of --listen, at the same host
    #[arg(long, value_name = "N", conflicts_with = "listen", help_heading = "Server")]
    pub(crate) port: Option<u16>,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// `handfast serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// `handfast config`.
#[derive(Args, Debug)]
pub(crate) struct ConfigArguments {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// What every command takes that opens a data directory.
#[derive(Args, Debug)]
pub(crate) struct OpenFlags {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

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

/// Which documents a dump or a restore is about.
#[derive(Args, Debug, Clone)]
pub(crate) struct Selection {
    /// This database alone
    #[arg(long, value_name = "NAME")]
    pub(crate) database: Option<String>,
    /// This collection alone
    #[arg(long, value_name = "NAME", requires = "database")]
    pub(crate) collection: Option<String>,
}

/// How documents are written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DumpFormat {
    /// BSON documents one after the other (NAME.bson), as mongorestore reads them
    Bson,
    /// Canonical Extended JSON, one document a line (NAME.json), as mongoimport reads them
    Json,
}

/// `handfast dump`.
#[derive(Args, Debug)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    /// Directory to write to; created, and refused if it holds anything
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// How documents are written
    #[arg(long, value_name = "FORMAT", default_value = "bson")]
    pub(crate) format: DumpFormat,
    /// Leave out what is damaged instead of refusing, and say what that is; exit code 3 if there is any
    #[arg(long)]
    pub(crate) skip_damaged: bool,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// `handfast restore`.
#[derive(Args, Debug)]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    /// Directory that dump wrote
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,
    /// Drop each collection of the dump before it is restored
    #[arg(long)]
    pub(crate) drop: bool,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// `handfast backup`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("target").args(["to", "name"]).required(true))]
pub(crate) struct BackupArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    /// Directory to write to; created, and refused if it holds anything
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// What a running server is to call its backup
    #[arg(value_name = "NAME", conflicts_with = "StoreFlags")]
    pub(crate) name: Option<String>,
    /// The running server (mongodb://..). A password is safer in the variable: others can see a command line [env: HANDFAST_URI]
    #[arg(long, value_name = "URI", requires = "name", conflicts_with = "to")]
    pub(crate) uri: Option<ConnectionString>,
}
