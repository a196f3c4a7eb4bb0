//! The arguments of `handfast backup`.

use std::path::PathBuf;

use clap::Args;

use crate::configuration::ConnectionString;
use crate::flags::OpenFlags;

/// `handfast backup`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("target").args(["to", "name"]).required(true))]
pub(crate) struct BackupArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    /// Directory to write to; created, and refused if it holds anything
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// The name that a running server gives its backup
    #[arg(value_name = "NAME", conflicts_with = "StoreFlags")]
    pub(crate) name: Option<String>,
    /// The running server (mongodb://..). A password is safer in the variable: others can see a command line [env: HANDFAST_URI]
    #[arg(long, value_name = "URI", requires = "name", conflicts_with = "to")]
    pub(crate) uri: Option<ConnectionString>,
}
