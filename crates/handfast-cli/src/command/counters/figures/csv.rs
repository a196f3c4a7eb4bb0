//! Figures as CSV.

use handfast_counters::Figure;

use super::LineValues;
use crate::command::transfer::cells;

/// The header of a file that is written.
pub(super) const HEADER: &str = "kind,id,total,day,views\n";

/// The columns of a file that is read, by the index of their cell.
#[derive(Debug)]
pub(in super::super) struct Header {
    columns: usize,
    kind: usize,
    id: usize,
    total: Option<usize>,
    day: Option<usize>,
    views: Option<usize>,
}

impl Header {
    /// Reads the first line of a file.
    pub(super) fn new(line: &str) -> Result<Self, String> {
        let names = cells::split(line)?;
        let names: Vec<&str> = names.iter().map(|name| name.trim()).collect();
        let known = ["kind", "id", "total", "day", "views"];
        if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
            return Err(format!("the column '{unknown}' is unknown: the header has {}", known.join(", ")));
        }
        let index = |name: &str| names.iter().position(|other| *other == name);
        if let Some(twice) = known.iter().find(|name| names.iter().filter(|other| other == name).count() > 1) {
            return Err(format!("the column '{twice}' is there twice"));
        }
        let needed = |name: &str| index(name).ok_or_else(|| format!("the header has no column '{name}'"));
        let header = Header {
            columns: names.len(),
            kind: needed("kind")?,
            id: needed("id")?,
            total: index("total"),
            day: index("day"),
            views: index("views"),
        };
        match (header.total, header.day, header.views) {
            (_, Some(_), None) => Err("the header has a column 'day' and no column 'views'".to_owned()),
            (_, None, Some(_)) => Err("the header has a column 'views' and no column 'day'".to_owned()),
            (None, None, None) => Err("the header has no column 'total', and no columns 'day' and 'views'".to_owned()),
            _ => Ok(header),
        }
    }

    /// Reads a line of figures.
    pub(super) fn read(&self, line: &str) -> Result<Figure, String> {
        let cells = cells::split(line)?;
        if cells.len() != self.columns {
            return Err(format!("it has {} cells, and the header {}", cells.len(), self.columns));
        }
        let cell = |index: usize| cells.get(index).map_or("", |cell| cell.trim());
        let optional = |index: Option<usize>| index.map(cell).filter(|cell| !cell.is_empty());
        let count = |index: Option<usize>, name: &str| optional(index).map(|cell| count(cell, name)).transpose();
        let values = LineValues {
            kind: cell(self.kind),
            id: cell(self.id),
            total: count(self.total, "total")?,
            day: optional(self.day),
            views: count(self.views, "views")?,
        };
        values.figure()
    }
}

/// Reads a number of views. A sign would be read, too.
fn count(cell: &str, name: &str) -> Result<u64, String> {
    let digits = cell.bytes().all(|byte| byte.is_ascii_digit());
    cell.parse().ok().filter(|_| digits).ok_or_else(|| format!("{name} is '{cell}', not a number of views"))
}

/// Returns the line of a figure. Neither kinds nor ids have characters that need quotes.
pub(super) fn line(figure: &Figure) -> String {
    let Figure { item, day, views } = figure;
    match day {
        None => format!("{},{},{views},,\n", item.kind, item.id),
        Some(day) => format!("{},{},,{day},{views}\n", item.kind, item.id),
    }
}
