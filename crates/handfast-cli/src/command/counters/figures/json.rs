//! Figures as lines of JSON.

use std::borrow::Cow;

use handfast_counters::Figure;
use serde::Deserialize;
use serde_json::json;

use super::LineValues;

/// A line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    id: Cow<'a, str>,
    total: Option<u64>,
    #[serde(borrow)]
    day: Option<Cow<'a, str>>,
    views: Option<u64>,
}

/// Reads a line of figures.
pub(super) fn read(line: &str) -> Result<Figure, String> {
    // A list of the values would be read, too.
    if !line.trim_start().starts_with('{') {
        return Err("it is not a JSON object".to_owned());
    }
    let line: Line<'_> = serde_json::from_str(line).map_err(|error| without_line(&error))?;
    let Line { kind, id, total, day, views } = &line;
    LineValues { kind, id, total: *total, day: day.as_deref(), views: *views }.figure()
}

/// Returns the message of an error, without the number of the line in the text, which is always 1.
fn without_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// Returns the line of a figure.
pub(super) fn line(figure: &Figure) -> String {
    let Figure { item, day, views } = figure;
    let (kind, id) = (item.kind.as_str(), item.id.as_str());
    let line = match day {
        None => json!({ "kind": kind, "id": id, "total": views }),
        Some(day) => json!({ "kind": kind, "id": id, "day": day.to_string(), "views": views }),
    };
    format!("{line}\n")
}
