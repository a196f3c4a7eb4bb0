//! The command line: what `handfast --help` shows.
//!
//! The flags of settings have no defaults here: a flag that is not given leaves the value to the next source (see
//! [`configuration`]). A flag's field name is its key there.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use super::backup::arguments::BackupArguments;
use super::bank::arguments::BankArguments;
use super::bench::arguments::BenchArguments;
use super::blackpipe::arguments::BlackpipeArguments;
use super::check::arguments::CheckArguments;
use super::config::arguments::ConfigArguments;
use super::counters::arguments::CountersArguments;
use super::dump::arguments::DumpArguments;
use super::jobs::arguments::JobsArguments;
use super::ledger::arguments::LedgerArguments;
use super::ping::arguments::PingArguments;
use super::restore::arguments::RestoreArguments;
use super::serve::arguments::ServeArguments;
use super::sync::arguments::SyncArguments;
use super::transactions::arguments::TransactionsArguments;
use super::transfer::arguments::TransferArguments;
use super::two_phase::arguments::TwoPhaseArguments;
use super::user::arguments::UserArguments;
use super::versions::arguments::VersionsArguments;
use crate::configuration;

/// A MongoDB-compatible server over an embedded store or another server, with its tools
#[derive(Debug, Parser)]
#[command(
    name = "handfast",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success, 1 the operation failed, 2 usage error, 3 a guarantee did not hold.\n\n\
                  Example:\n  handfast serve --data /srv/handfast"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Returns the definition of the command line. The help texts show the default and the environment variable of each setting.
pub(crate) fn definition() -> clap::Command {
    let defaults: BTreeMap<String, String> = configuration::defaults().collect();
    Arguments::command().mut_subcommands(|command| {
        let command = with_sources(command, &defaults);
        match command.get_name() {
            "jobs" => command.mut_subcommands(|command| match WITHOUT_LEASE.contains(&command.get_name()) {
                true => without(command, &["lease"]),
                false => command,
            }),
            "serve" => without(command, &["redis"]),
            name if WITHOUT_CLIENTS.contains(&name) => without(command, &IDLE),
            "counters" => command.mut_subcommands(|command| rarely(command, &RARE)),
            _ => command,
        }
    })
}

/// The settings that `-h` shows; `--help` shows all.
const SHORT_HELP: [&str; 8] = ["data", "store", "redis", "listen", "auth", "tls-certificate", "tls-key", "insecure"];

/// Commands on a directory that no server has open.
const WITHOUT_CLIENTS: [&str; 4] = ["check", "dump", "backup", "user"];
/// Settings that have no effect on these commands. They are accepted, as in a configuration file, and not shown.
const IDLE: [&str; 10] = [
    "durability",
    "expiry-interval",
    "change-streams",
    "change-log-age",
    "change-log-bytes",
    "snapshot-bytes",
    "sort-bytes",
    "stage-bytes-total",
    "spill-bytes",
    "spill-directory",
];

/// Commands of `jobs` that do not ask whether a worker is silent.
const WITHOUT_LEASE: [&str; 4] = ["retry", "discard", "cancel", "purge"];

/// Flags that `-h` of the commands of `counters` does not show; `--help` does.
const RARE: [&str; 6] = ["database", "config", "quiet", "allow-origin", "client-address-header", "queue-events"];

/// Leaves these flags out of the short help of a command.
fn rarely(command: clap::Command, flags: &[&str]) -> clap::Command {
    let is_rare = |argument: &clap::Arg| argument.get_long().is_some_and(|long| flags.contains(&long));
    command.mut_args(|argument| if is_rare(&argument) { argument.hide_short_help(true) } else { argument })
}

/// Hides these flags in the help of a command and of its subcommands.
fn without(command: clap::Command, flags: &[&str]) -> clap::Command {
    let is_idle = |argument: &clap::Arg| argument.get_long().is_some_and(|long| flags.contains(&long));
    let command = command.mut_args(|argument| if is_idle(&argument) { argument.hide(true) } else { argument });
    command.mut_subcommands(|command| without(command, flags))
}

/// The short form of the setting `listen`, which is shown among the settings.
const SHORT_FORM: &str = "port";

/// Adds the default and the variable of each setting to the help of a command and of its subcommands. Other flags lose their
/// heading: clap would show them under that of the settings before them.
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
        let is_rare = !SHORT_HELP.contains(&key);
        argument.help(help).hide_short_help(is_rare)
    });
    command.mut_subcommands(|command| with_sources(command, defaults))
}

fn is_one_of(key: &str, keys: &[String]) -> bool {
    keys.iter().any(|known| known == key)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve MongoDB drivers over the embedded store, or over another server
    #[command(after_help = "Examples:\n  \
        handfast serve\n  \
        handfast serve --data /srv/handfast --listen 127.0.0.1:27018 --cache-bytes 1GiB\n  \
        handfast serve --temporary --port 0\n  \
        HANDFAST_DURABILITY=memory handfast serve --unix-socket /run/handfast.sock\n  \
        HANDFAST_STORE=mongodb://user:password@db:27017 handfast serve --port 27018\n  \
        handfast serve --store main=mongodb://a --store orders=mongodb://b \\\n    --route '*=main' --route shop.orders=orders")]
    Serve(Box<ServeArguments>),

    /// Check that every record of a data directory is intact and every index agrees with its documents
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

    /// Load a dump into a data directory
    #[command(after_help = "Examples:\n  \
        handfast restore --data /srv/other --from dump\n  \
        handfast restore --data /srv/other --from dump --drop --database shop")]
    Restore(Box<RestoreArguments>),

    /// Demonstrate the guarantees: workers move money during crashes and lost answers, then everything is checked
    #[command(
        after_help = "At the end the sum of all accounts must be the initial sum, no transfer may be half done, and two\n\
        independent checkers examine the recorded history. Exit code 3 if a guarantee did not hold.\n\n\
        Examples:\n  \
        handfast bank\n  \
        handfast bank --crash 10 --workers 16\n  \
        handfast bank --store mongodb://127.0.0.1:27017 --transfers 500\n  \
        handfast bank --store a=mongodb://127.0.0.1:27017 \\\n    --store b=mongodb://127.0.0.1:27018 --crash 5\n  \
        handfast bank --lost-replies 5 --isolation serializable --history run.jsonl --json\n  \
        handfast bank --mechanism server-side --store mongodb://127.0.0.1:27017 --transfers 500\n  \
        handfast bank --mechanism two-phase --crash 5 --lost-replies 5"
    )]
    Bank(Box<BankArguments>),

    /// Apply the transfers of a file, each exactly once, even if the command is killed and repeated
    #[command(
        after_help = "Amounts are whole numbers of the smallest unit of the currency. A rejected row changes nothing, \
        and makes the exit code 1.\n\n\
        Examples:\n  \
        handfast transfer march.csv --data /srv/handfast --database bank\n  \
        handfast transfer march.csv --batch march --rejects rejected.jsonl \\\n    --data /srv/handfast --database bank\n  \
        handfast transfer - --format jsonl --mechanism two-phase \\\n    --database bank --store mongodb://127.0.0.1:27017\n  \
        handfast transfer march.csv --mechanism ledger --asset EUR \\\n    --data /srv/handfast --database bank"
    )]
    Transfer(Box<TransferArguments>),

    /// Inspect a job queue, and repeat or remove failed jobs
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        handfast jobs status --data /srv/handfast --database shop\n  \
        handfast jobs list --database shop --state failed --store mongodb://127.0.0.1:27017\n  \
        handfast jobs retry --all --data /srv/handfast --database shop"
    )]
    Jobs(JobsArguments),

    /// Inspect a ledger, verify its books and repair them
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        handfast ledger status --data /srv/handfast --database bank\n  \
        handfast ledger verify --database bank --store mongodb://127.0.0.1:27017"
    )]
    Ledger(LedgerArguments),

    /// Inspect two-phase transactions, and finish interrupted ones
    #[command(
        subcommand,
        name = "twophase",
        after_help = "Examples:\n  \
        handfast twophase status --data /srv/handfast --database bank\n  \
        handfast twophase recover --database bank --store mongodb://127.0.0.1:27017"
    )]
    TwoPhase(TwoPhaseArguments),

    /// Inspect fields that are copied into other documents, and update the copies
    #[command(
        subcommand,
        after_help = "Example:\n  handfast sync verify --data /srv/handfast --database site --collection users \\\n    \
        --link comments:user:name=userName"
    )]
    Sync(SyncArguments),

    /// Inspect trees of documents that change as a whole, and remove old and abandoned versions
    #[command(
        subcommand,
        after_help = "Example:\n  \
        handfast versions status --data /srv/handfast --database shop --collection items --root catalogue"
    )]
    Versions(VersionsArguments),

    /// Count views over HTTP; check, show, import and export the totals
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        handfast counters serve --data /srv/views\n  \
        handfast counters serve --redis redis://127.0.0.1:6379 --store mongodb://127.0.0.1:27017\n  \
        handfast counters top ads --data /srv/views\n  \
        handfast counters import totals.csv --data /srv/views"
    )]
    Counters(CountersArguments),

    /// Inspect transactions on a server (--store), and finish those of dead processes
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        handfast txns status --store mongodb://127.0.0.1:27018\n  \
        handfast txns resolve --all --store mongodb://127.0.0.1:27018"
    )]
    Txns(TransactionsArguments),

    /// Measure the store or the server against a baseline in the same run
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        handfast bench store\n  \
        handfast bench serve --json"
    )]
    Bench(BenchArguments),

    /// Test how a program of yours behaves when the network or the server fails
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        handfast blackpipe explore --check 'python check.py' -- python app.py\n  \
        handfast blackpipe proxy --upstream mongodb://db:27017 --rules rules.toml"
    )]
    Blackpipe(BlackpipeArguments),

    /// Copy all data of a data directory, or of a running server, as of one moment
    #[command(after_help = "A running server writes the backup itself, to NAME in its --backup-directory.\n\n\
        Examples:\n  \
        handfast backup --data /srv/handfast --to /backup/handfast-monday\n  \
        HANDFAST_URI=mongodb://admin:PASSWORD@db.example.org/ handfast backup monday")]
    Backup(Box<BackupArguments>),

    /// Check that a server answers, for health checks
    #[command(after_help = "Exit code 1 if there is no answer in time.\n\n\
        Examples:\n  \
        handfast ping\n  \
        handfast ping --uri mongodb://127.0.0.1:27018 --timeout 1m")]
    Ping(PingArguments),

    /// Add, change, remove and list the users of a data directory
    #[command(
        subcommand,
        after_help = "The command asks for the password, or reads it from standard input or a file, but never from\n\
        the command line, which other users can see.\n\n\
        Examples:\n  \
        handfast user add admin --data /srv/handfast --role root\n  \
        handfast user add ann --data /srv/handfast --role readWrite@shop --password-file ann.txt\n  \
        handfast user list --data /srv/handfast --json"
    )]
    User(UserArguments),

    /// Print the settings in force, and the source of each value
    #[command(after_help = "Examples:\n  \
        handfast config\n  \
        handfast config --config /etc/handfast.toml --json\n  \
        handfast config > new.toml")]
    Config(Box<ConfigArguments>),

    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  mkdir -p ~/.local/share/bash-completion/completions\n  handfast completions bash \\\n    > ~/.local/share/bash-completion/completions/handfast"
    )]
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },

    /// Write the manual pages into a directory
    #[command(after_help = "Example:\n  handfast man ~/.local/share/man/man1")]
    Man {
        /// Directory to write to; created if it is missing
        directory: PathBuf,
    },
}
