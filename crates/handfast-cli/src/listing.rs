//! Lists: a table for people, a line of JSON for each row for programs.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::Value;

/// Characters of a cell before the last one; the rest is cut. JSON and `show` have all of it.
const CELL_CHARACTERS_MAX: usize = 60;

/// Names that an error lists.
const NAMES_SHOWN_MAX: usize = 20;

/// A list under construction.
#[derive(Debug)]
pub(crate) struct Listing {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    lines: Vec<Value>,
    more: bool,
}

impl Listing {
    pub(crate) fn new(heading: &[&str]) -> Self {
        let heading = heading.iter().map(|cell| (*cell).to_owned()).collect();
        Listing { heading, rows: Vec::new(), lines: Vec::new(), more: false }
    }

    /// Adds a row for people, and its line for programs.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>, line: Value) {
        let mut cells: Vec<String> = cells.into_iter().map(|cell| one_line(&cell)).collect();
        let before_last = cells.len().saturating_sub(1);
        cells.iter_mut().take(before_last).for_each(cut);
        self.rows.push(cells);
        self.lines.push(line);
    }

    /// Keeps `limit` rows, and notes whether there were more.
    #[must_use]
    pub(crate) fn bounded(mut self, limit: u32) -> Self {
        let limit = limit as usize;
        self.more = self.rows.len() > limit;
        self.rows.truncate(limit);
        self.lines.truncate(limit);
        self
    }

    /// Returns whether there were more rows than the limit.
    pub(crate) fn has_more(&self) -> bool {
        self.more
    }

    pub(crate) fn lines(&self) -> &[Value] {
        &self.lines
    }

    /// Returns the table; `none` if it is empty.
    pub(crate) fn table(&self) -> String {
        if self.rows.is_empty() {
            return "none".to_owned();
        }
        let all = || std::iter::once(&self.heading).chain(&self.rows);
        let mut widths = vec![0; self.heading.len()];
        for row in all() {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |row: &Vec<String>| {
            // A width of a format is at most 65,535.
            let padded = |(cell, width): (&String, &usize)| cell.clone() + &" ".repeat(width - cell.chars().count());
            let cells: Vec<String> = row.iter().zip(&widths).map(padded).collect();
            cells.join("  ").trim_end().to_owned()
        };
        all().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn one_line(cell: &str) -> String {
    cell.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cut(cell: &mut String) {
    if let Some((end, _)) = cell.char_indices().nth(CELL_CHARACTERS_MAX) {
        cell.truncate(end);
        cell.push_str("..");
    }
}

/// Returns a duration in its two largest units.
pub(crate) fn age(age: Duration) -> String {
    let rounded = match age.as_secs() {
        0 => Duration::from_millis(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        seconds => Duration::from_secs(seconds),
    };
    let text = humantime::format_duration(rounded).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Returns a count with its noun: `1 document`, `2 documents`.
pub(crate) fn counted(count: impl Into<u64>, plural: &str) -> String {
    let count = count.into();
    match (count, plural.strip_suffix("ies"), plural.strip_suffix("xes").or(plural.strip_suffix("sses"))) {
        (1, Some(stem), _) => format!("1 {stem}y"),
        (1, None, Some(_)) => format!("1 {}", &plural[..plural.len() - 2]),
        (1, None, None) => format!("1 {}", plural.strip_suffix('s').unwrap_or(plural)),
        _ => format!("{count} {plural}"),
    }
}

/// Returns the names that exist, for an error about a missing one.
pub(crate) fn listed(names: &[String]) -> String {
    match names.len() {
        0 => "there is none".to_owned(),
        1 => format!("there is {}", names[0]),
        2..=NAMES_SHOWN_MAX => format!("there are {}", names.join(", ")),
        all => format!("there are {} and {} more", names[..NAMES_SHOWN_MAX].join(", "), all - NAMES_SHOWN_MAX),
    }
}
