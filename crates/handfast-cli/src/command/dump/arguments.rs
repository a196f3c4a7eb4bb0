//! The arguments of `handfast dump`.

use std::path::PathBuf;

use clap::Args;

use crate::flags::OpenFlags;

/// `handfast dump`.
#[derive(Args, Debug)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    /// Directory to write to; created, and refused if it holds anything
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// How documents are written
    #[arg(long, value_name = "FORMAT", default_value = "bson")]
    pub(crate) format: DumpFormat,
    /// Leave out what is damaged instead of refusing, and say what that is; exit code 3 if there is any
    #[arg(long)]
    pub(crate) skip_damaged: bool,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// How documents are written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DumpFormat {
    /// BSON documents one after the other (NAME.bson), as mongorestore reads them
    Bson,
    /// Canonical Extended JSON, one document a line (NAME.json), as mongoimport reads them
    Json,
}

/// Which documents a dump or a restore is about.
#[derive(Args, Debug, Clone)]
pub(crate) struct Selection {
    /// This database alone
    #[arg(long, value_name = "NAME")]
    pub(crate) database: Option<String>,
    /// This collection alone
    #[arg(long, value_name = "NAME", requires = "database")]
    pub(crate) collection: Option<String>,
}
