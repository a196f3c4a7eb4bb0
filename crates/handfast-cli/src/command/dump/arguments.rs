//! The arguments of `handfast dump`.

use std::path::PathBuf;

use clap::Args;

use crate::flags::OpenFlags;

/// `handfast dump`.
#[derive(Args, Debug)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    pub(crate) open: OpenFlags,
    /// Directory to write to, which must be missing or empty
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Format of the documents
    #[arg(long, value_name = "FORMAT", default_value = "bson")]
    pub(crate) format: DumpFormat,
    /// Leave out damaged data instead of failing, and report it; exit code 3 if there is any
    #[arg(long)]
    pub(crate) skip_damaged: bool,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// The format of the documents in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DumpFormat {
    /// BSON documents, one after the other (NAME.bson), which mongorestore can read
    Bson,
    /// Canonical Extended JSON, one document per line (NAME.json), which mongoimport can read
    Json,
}

/// The selection of collections of a dump or a restore.
#[derive(Args, Debug, Clone)]
pub(crate) struct Selection {
    /// Only this database
    #[arg(long, value_name = "NAME")]
    pub(crate) database: Option<String>,
    /// Only this collection of --database
    #[arg(long, value_name = "NAME", requires = "database")]
    pub(crate) collection: Option<String>,
}
