//! The arguments of `handfast config`.

use clap::Args;

use crate::flags::{CommonFlags, SettingFlags};

/// `handfast config`.
#[derive(Args, Debug)]
pub(crate) struct ConfigArguments {
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}
