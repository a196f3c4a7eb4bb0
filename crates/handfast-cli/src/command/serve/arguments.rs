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
}
