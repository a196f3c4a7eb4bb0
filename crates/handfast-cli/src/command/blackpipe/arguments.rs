//! The arguments of `handfast blackpipe`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use handfast_blackpipe::{ErrorReply, Pair};

use super::checks::DataChecks;
use super::selection::{self, Selection};
use super::shell_word::flag;
use crate::configuration::{ConnectionString, Span};
use crate::flags::OutputFlags;

/// The commands of the black pipe.
#[derive(Debug, Subcommand)]
pub(crate) enum BlackpipeArguments {
    /// Run a program once for each of its operations and each fault, and check the data after each run
    ///
    /// Each run has an empty server of its own, and MONGODB_URI names it. The first run has no faults and lists the operations: find:3 is
    /// the third find. Each further run loses one request (lose-request) or one reply (lose-reply). It is a finding if a check fails
    /// afterwards, or if the program does not end. --check is a program that ends with exit code 0 if the data are right; --sum, --unique
    /// and --count-equals need none.
    ///
    /// Other faults are injected if --only names them: cut (the connection breaks in the middle of the reply), delay (the request arrives
    /// later), error (the server refuses the request), duplicate (the server gets the request once more when the program has ended),
    /// half-open (no answer, and the connection stays open), reorder (a later request of another connection arrives first), all.
    ///
    /// Drivers repeat many operations once by themselves, so that the program sees no error. With --times 2 the retry is lost, too.
    #[command(
        after_help = "Exit codes: 0 no finding, 1 the program or a check fails without a fault, 2 usage error, 3 a finding, or an \
        operation that did not occur again.\n\n\
        Examples:\n  \
        handfast blackpipe explore --check 'python check.py' -- python app.py\n  \
        handfast blackpipe explore --setup 'python setup.py' --check 'python check.py' --times 2 \\\n    -- python app.py\n  \
        handfast blackpipe explore --sum accounts.balance --unique orders.number -- python app.py\n  \
        handfast blackpipe explore --check 'python check.py' --replay update:1/lose-reply -- python app.py"
    )]
    Explore(Box<ExploreArguments>),

    /// Inject faults between programs and a MongoDB-compatible server that is already running
    #[command(
        after_help = "Programs connect to the address that is printed. Rules say which operations meet which fault; docs/blackpipe.md \
        describes the file. Without rules everything is forwarded, and --log shows the operations.\n\n\
        Examples:\n  \
        handfast blackpipe proxy --upstream mongodb://db:27017 --rules rules.toml --port 27018\n  \
        handfast blackpipe proxy --upstream mongodb://db --rules rules.toml --seed 7 --log run.jsonl\n  \
        handfast blackpipe proxy --upstream mongodb://db --record run.jsonl\n  \
        handfast blackpipe proxy --upstream 'mongodb://db/?tls=true' \\\n    --tls-certificate chain.pem --tls-key key.pem"
    )]
    Proxy(Box<ProxyArguments>),

    /// Answer a program from a recording, without a server
    ///
    /// `handfast blackpipe proxy --record` makes the recording. A request is answered if the recording has it: with the same command and the same
    /// fields, without those of sessions, clocks and the stable API. Each recorded request is answered once. Others get an error that
    /// shows the nearest recorded request.
    #[command(
        after_help = "Exit codes: 0 all requests of the recording arrived and no others, 1 the file cannot be read, 2 it is no recording, \
        3 a request did not arrive, or arrived and was not recorded.\n\n\
        Examples:\n  \
        handfast blackpipe play run.jsonl --port 27018\n  \
        handfast blackpipe play run.jsonl --ignore _id,updates.u.$set.changed"
    )]
    Play(Box<PlayArguments>),

    /// Check a rules file, or print the schema of such files
    #[command(
        subcommand,
        after_help = "Examples:\n  handfast blackpipe rules check rules.toml\n  handfast blackpipe rules schema >rules.schema.json"
    )]
    Rules(RulesArguments),
}

/// `handfast blackpipe proxy`.
#[derive(Args, Debug)]
pub(crate) struct ProxyArguments {
    /// Server behind the proxy, as mongodb://host:port, or with TLS as mongodb://host/?tls=true, with tlsCAFile and tlsCertificateKeyFile if it
    /// needs them; the hosts that it names to drivers are replaced by the proxy
    #[arg(long, value_name = "URI")]
    pub(super) upstream: ConnectionString,
    /// File with rules
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,
    /// Port on 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "PORT")]
    pub(super) port: Option<u16>,
    /// Seed of the decisions by chance: the same operations in the same order meet the same faults
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) seed: u64,
    /// New file to which each operation is written with its decision, a line of JSON each
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
    /// New file to which each request and reply is written, a line of Extended JSON each, for `handfast blackpipe play`
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
    #[command(flatten)]
    pub(super) tls: TlsFlags,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

/// `handfast blackpipe play`.
#[derive(Args, Debug)]
pub(crate) struct PlayArguments {
    /// Recording of `handfast blackpipe proxy --record`
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Fields that differ from run to run, and are not compared: a name such as _id, wherever it is, or a path such as documents._id
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(super) ignore: Vec<String>,
    /// Port on 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "PORT")]
    pub(super) port: Option<u16>,
    #[command(flatten)]
    pub(super) tls: TlsFlags,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

/// The encryption of connections from programs, with the flags of `handfast serve`.
#[derive(Args, Debug)]
pub(crate) struct TlsFlags {
    /// Encrypt the connections of programs (TLS) with this certificate; the file may also hold intermediate certificates (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_certificate: Option<PathBuf>,
    /// Private key of --tls-certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(super) tls_key: Option<PathBuf>,
    /// Accept only programs whose certificate one of these authorities has signed (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(super) tls_client_ca: Option<PathBuf>,
}

/// `handfast blackpipe rules`.
#[derive(Debug, Subcommand)]
pub(crate) enum RulesArguments {
    /// Check a rules file, and show what each rule does
    #[command(
        after_help = "Exit codes: 0 the file is right, 1 it cannot be read, 2 it has a mistake, which is named with its line.\n\n\
        Example:\n  handfast blackpipe rules check rules.toml"
    )]
    Check(RulesCheckArguments),

    /// Print the JSON Schema of rules files, for editors
    #[command(
        after_help = "Editors that know JSON Schema for TOML show the keys and mark mistakes if the file begins with #:schema and the path.\n\n\
        Example:\n  handfast blackpipe rules schema >rules.schema.json"
    )]
    Schema,
}

/// `handfast blackpipe rules check`.
#[derive(Args, Debug)]
pub(crate) struct RulesCheckArguments {
    /// File with rules
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

/// The reply of the fault `error`.
#[derive(Args, Debug)]
pub(crate) struct ErrorFlags {
    /// Code of the fault error; the default is that of a server that is no longer the primary
    #[arg(long, value_name = "CODE", default_value_t = ErrorReply::default().code, allow_negative_numbers = true, hide_short_help = true)]
    error_code: i32,
    /// Labels of the fault error; none if it is empty
    #[arg(long, value_name = "LABEL", value_delimiter = ',', default_values_t = ErrorReply::default().labels, hide_short_help = true)]
    error_label: Vec<String>,
}

impl ErrorFlags {
    /// Returns the reply.
    pub(super) fn reply(&self) -> ErrorReply {
        let default = ErrorReply::default();
        let labels = self.error_label.iter().filter(|label| !label.is_empty()).cloned().collect();
        match self.error_code == default.code {
            true => ErrorReply { labels, ..default },
            false => ErrorReply { labels, ..ErrorReply::of_code(self.error_code) },
        }
    }

    /// Returns the flags as words of a command line, without those that have their defaults.
    pub(super) fn words(&self) -> Vec<String> {
        let (reply, default) = (self.reply(), ErrorReply::default());
        let mut words = Vec::new();
        if reply.code != default.code {
            words.push(flag("--error-code", &reply.code.to_string()));
        }
        if reply.labels != default.labels {
            words.push(flag("--error-label", &reply.labels.join(",")));
        }
        words
    }
}

/// The checks after each run; at least one of them.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("checks").required(true).multiple(true).args(["check", "sum", "unique", "count_equals"]))]
pub(crate) struct CheckFlags {
    /// Shell command that ends with exit code 0 if the data is right; MONGODB_URI names the server, without faults
    #[arg(long, value_name = "COMMAND")]
    pub(super) check: Option<String>,
    #[command(flatten)]
    pub(super) data: DataChecks,
}

/// `handfast blackpipe explore`.
#[derive(Args, Debug)]
pub(crate) struct ExploreArguments {
    #[command(flatten)]
    pub(super) checks: CheckFlags,
    /// Shell command that prepares the data before each run of the program, without faults
    #[arg(long, value_name = "COMMAND")]
    pub(crate) setup: Option<String>,
    /// Number of operations of a command in a row that meet the fault, from the one of the pair on
    #[arg(long, value_name = "N", default_value = "1", hide_short_help = true)]
    pub(crate) times: NonZeroU32,
    /// Explore only these operations, such as update or update:2, and these faults, such as cut or all
    #[arg(long, value_name = "OPERATION|FAULT", value_delimiter = ',', conflicts_with = "replay")]
    pub(super) only: Vec<Selection>,
    /// Time by which the fault delay holds a request back, and reorder at most
    #[arg(long, value_name = "TIME", default_value = "1s", hide_short_help = true)]
    pub(crate) delay: Span,
    #[command(flatten)]
    pub(crate) error: ErrorFlags,
    /// Time that a program, --setup or --check may take
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(crate) timeout: Span,
    /// Number of runs at the same time [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Run only this pair of an operation and a fault, such as find:3/lose-reply, and show the output of the program
    #[arg(long, value_name = "PAIR", value_parser = selection::explored_pair)]
    pub(crate) replay: Option<Pair>,
    /// File to which the report is written as JUnit XML, too; one that is there is replaced at the end
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) junit: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Program with its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<String>,
}
