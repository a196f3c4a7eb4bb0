//! The flags that several commands have in common.

mod settings;
pub(crate) mod values;

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

pub(crate) use self::settings::{LogFlags, RedisFlags, RemoteFlags, SettingFlags, StoreFlags};

/// The flags for the output of a command.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputFlags {
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress and no report, only errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The flags of every command that reads the configuration.
#[derive(Args, Debug)]
pub(crate) struct CommonFlags {
    /// Configuration file (TOML) [default: handfast.toml, if it exists] [env: HANDFAST_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// The flags of every command that opens a data directory.
#[derive(Args, Debug)]
pub(crate) struct OpenFlags {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// The flags of every command that works on the documents of a server.
#[derive(Args, Debug)]
pub(crate) struct ServerStoreFlags {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// The flags of every command that works on documents of any store, one at a time.
#[derive(Args, Debug)]
pub(crate) struct AnyStoreFlags {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,
    #[command(flatten)]
    pub(crate) log: LogFlags,
    /// Database of the collections
    #[arg(long, value_name = "NAME")]
    pub(crate) database: String,
    /// Name of a field in the documents, if it is not the default name; may be repeated
    #[arg(long = "field", value_name = "DEFAULT=NAME", hide_short_help = true)]
    pub(crate) fields: Vec<Renamed>,
}

/// The flags of every command that works on view counters.
#[derive(Args, Debug)]
pub(crate) struct CountersStoreFlags {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,
    #[command(flatten)]
    pub(crate) redis: RedisFlags,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// The flag for the length of a list.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LimitFlags {
    /// Maximum number of items to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

impl LimitFlags {
    /// Returns one more than the limit, so that the caller can tell whether there are more items.
    pub(crate) fn and_one(self) -> u32 {
        self.limit + 1
    }
}

/// A field that has another name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Renamed {
    pub(crate) default: String,
    pub(crate) name: String,
}

impl FromStr for Renamed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((default, name)) if !default.is_empty() && !name.is_empty() && !name.starts_with('$') => {
                Ok(Renamed { default: default.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("expected DEFAULT=NAME, such as state=status, not '{text}'")),
        }
    }
}
