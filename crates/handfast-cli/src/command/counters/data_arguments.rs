//! The arguments of the commands that write figures: `import`, `rebuild` and `trim`, and of `export`.

use std::path::PathBuf;

use clap::Args;
use handfast_counters::jiff::civil::Date;
use handfast_counters::{Error, ImportName, Kind};

use super::figures::FigureFormat;
use super::flags::{CountersFlags, Parsed, TimeZoneFlag};

/// `handfast counters import`.
#[derive(Args, Debug)]
pub(crate) struct ImportArguments {
    /// File of figures, one per line: kind, id and total, or kind, id, day and views; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Format of the lines [default: the ending of the file name]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<FigureFormat>,
    /// Name of the import, under which each line is added once; - needs one [default: sha256: and the hash of the file]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<Parsed<ImportName>>,
    /// Check the lines, not the stored totals, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) counters: CountersFlags,
}

/// `handfast counters export`.
#[derive(Args, Debug)]
pub(crate) struct ExportArguments {
    /// Export only the items of this kind
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<Parsed<Kind>>,
    /// Format of the lines [default: the ending of --output, otherwise jsonl]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<FigureFormat>,
    /// File to write, which must not exist [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) counters: CountersFlags,
}

/// `handfast counters rebuild`.
#[derive(Args, Debug)]
pub(crate) struct RebuildArguments {
    /// Rebuild only the totals of this kind
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<Parsed<Kind>>,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) counters: CountersFlags,
}

/// `handfast counters trim`.
#[derive(Args, Debug)]
pub(crate) struct TrimArguments {
    /// First day to keep. Whole months are removed: those that end before this day
    #[arg(long, value_name = "DAY")]
    pub(crate) before: Parsed<Date>,
    /// Count what would be removed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) days: TimeZoneFlag,
    #[command(flatten)]
    pub(crate) counters: CountersFlags,
}

impl std::str::FromStr for Parsed<ImportName> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        ImportName::new(text).map(Parsed)
    }
}
