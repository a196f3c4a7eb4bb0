//! The lines of files with figures, which `import` reads and `export` writes.
//!
//! A line adds views of an item: either `total`, views without a day, or `views` of a `day`.
//!
//! ```text
//! kind,id,total,day,views          {"kind":"ads","id":"4711","total":1200}
//! ads,4711,1200,,                  {"kind":"ads","id":"4711","day":"2026-11-30","views":5}
//! ads,4711,,2026-11-30,5
//! ```
//!
//! A CSV file that is read needs only the columns that it uses, in any order.

mod csv;
mod json;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Result;
use handfast_counters::{Figure, Item, TOTAL_MAX, parse_day};
use handfast_http::counters::check_reserved;

pub(super) use self::csv::Header;
use crate::exit::Usage;

/// The format of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FigureFormat {
    /// Comma-separated values with the header kind,id,total,day,views
    Csv,
    /// One JSON object per line
    Jsonl,
}

/// The values of a line, before they are checked.
struct LineValues<'a> {
    kind: &'a str,
    id: &'a str,
    total: Option<u64>,
    day: Option<&'a str>,
    views: Option<u64>,
}

impl FigureFormat {
    /// Returns the format that the ending of a file's name says.
    pub(super) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "csv" => Some(FigureFormat::Csv),
            "jsonl" | "ndjson" | "json" => Some(FigureFormat::Jsonl),
            _ => None,
        }
    }

    /// Returns the format of a file to read, which a flag or its name says.
    pub(super) fn of_input(flag: Option<Self>, path: &Path) -> Result<Self> {
        flag.or_else(|| FigureFormat::of(path)).ok_or_else(|| {
            let file = path.display();
            let text =
                format!("--format csv or --format jsonl is missing: the name '{file}' does not end in .csv or .jsonl");
            Usage(text).into()
        })
    }

    /// Returns the first line of a file; empty if it has no header.
    pub(super) fn header(self) -> &'static str {
        match self {
            FigureFormat::Csv => csv::HEADER,
            FigureFormat::Jsonl => "",
        }
    }

    /// Returns the line of a figure, with its end.
    pub(super) fn line(self, figure: &Figure) -> String {
        match self {
            FigureFormat::Csv => csv::line(figure),
            FigureFormat::Jsonl => json::line(figure),
        }
    }
}

/// Reads lines of figures.
pub(super) enum FigureReader {
    /// CSV, whose header is the first line.
    Csv(Option<Header>),
    Jsonl,
}

impl FigureReader {
    pub(super) fn new(format: FigureFormat) -> Self {
        match format {
            FigureFormat::Csv => FigureReader::Csv(None),
            FigureFormat::Jsonl => FigureReader::Jsonl,
        }
    }

    /// Reads the next line; the header of CSV has no figure.
    ///
    /// # Errors
    /// The text says what is wrong with the line.
    pub(super) fn read(&mut self, line: &str) -> Result<Option<Figure>, String> {
        match self {
            FigureReader::Jsonl => json::read(line).map(Some),
            FigureReader::Csv(Some(header)) => header.read(line).map(Some),
            FigureReader::Csv(header) => {
                *header = Some(Header::new(line)?);
                Ok(None)
            }
        }
    }

    /// Returns whether no line can be read, because the header is wrong.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, FigureReader::Csv(None))
    }
}

impl LineValues<'_> {
    fn figure(self) -> Result<Figure, String> {
        let LineValues { kind, id, total, day, views } = self;
        let item = Item::new(kind, id).map_err(|error| error.to_string())?;
        check_reserved(id)?;
        let (day, views) = match (total, day, views) {
            (Some(total), None, None) => (None, total),
            (None, Some(text), Some(views)) => {
                let wrong = || format!("day is '{text}', not a day such as 2026-11-30");
                (Some(parse_day(text).ok_or_else(wrong)?), views)
            }
            (None, Some(_), None) => return Err("views is missing beside day".to_owned()),
            (None, None, Some(_)) => return Err("day is missing beside views".to_owned()),
            (None, None, None) => return Err("total, or day and views, are missing".to_owned()),
            (Some(_), ..) => {
                return Err(
                    "there is a total beside day or views: views without a day need a line of their own".to_owned()
                );
            }
        };
        if views > TOTAL_MAX {
            let name = if day.is_some() { "views" } else { "total" };
            return Err(format!("{name} is {views}, above {TOTAL_MAX}, the largest total of an item"));
        }
        Ok(Figure { item, day, views })
    }
}
