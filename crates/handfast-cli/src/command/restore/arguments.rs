//! The arguments of `handfast restore`.

use std::path::PathBuf;

use clap::Args;

use crate::command::dump::arguments::Selection;
use crate::flags::OpenFlags;

/// `handfast restore`.
#[derive(Args, Debug)]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    /// Directory that `dump` wrote
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,
    /// Drop each collection of the dump before it is restored
    #[arg(long)]
    pub(crate) drop: bool,
    #[command(flatten)]
    pub(crate) selection: Selection,
}
