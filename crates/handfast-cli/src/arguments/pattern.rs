//! The commands of the patterns: what they have in common, and a file for each pattern.

mod jobs;
mod ledger;
mod sync;
mod two_phase;
mod versions;

use std::str::FromStr;

use super::*;

pub(crate) use self::jobs::{FailedFlags, JobsArguments, JobsFlags};
pub(crate) use self::ledger::{LedgerArguments, LedgerFlags, LedgerFormat};
pub(crate) use self::sync::{LinkOnDelete, LinkText, SyncArguments};
pub(crate) use self::two_phase::{AccountFlags, TwoPhaseArguments, TwoPhaseFlags};
pub(crate) use self::versions::{VersionsArguments, VersionsFlags};
use crate::id::Id;

/// What every command takes that works on documents of any store, one at a time.
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
    /// The database that the collections are in
    #[arg(long, value_name = "NAME")]
    pub(crate) database: String,
    /// A field that has another name than the one by default; may be given several times
    #[arg(long = "field", value_name = "DEFAULT=NAME")]
    pub(crate) fields: Vec<Renamed>,
}

/// How much of a list is shown.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LimitFlags {
    /// Show so many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

impl LimitFlags {
    /// One more, to know whether there is.
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
            _ => Err(format!("a name and another one are expected, such as state=status, not '{text}'")),
        }
    }
}
