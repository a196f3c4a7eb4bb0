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
    /// Directory to write to, which must be missing or empty
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Name of the backup in the --backup-directory of a running server
    #[arg(value_name = "NAME", conflicts_with = "StoreFlags")]
    pub(crate) name: Option<String>,
    /// The running server (mongodb://..). A password is safer in the variable, because other users can see a command line [env:
    /// HANDFAST_URI]
    #[arg(long, value_name = "URI", requires = "name", conflicts_with = "to")]
    pub(crate) uri: Option<ConnectionString>,
}
