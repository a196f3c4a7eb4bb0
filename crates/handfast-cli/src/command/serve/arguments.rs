//! The arguments of `handfast serve`.

use clap::Args;

use crate::flags::{CommonFlags, SettingFlags};

/// `handfast serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
    /// For tests: keep the data in a temporary directory, without syncs, and stop and remove it when standard input ends, as it does
    /// when the program that has started the server ends. Only flags count, and neither variables nor a configuration file
    #[arg(long, conflicts_with_all = ["data", "store", "config"])]
    pub(crate) temporary: bool,
}
