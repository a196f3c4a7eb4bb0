//! `handfast config`: what is in force, and from where. The text is a configuration file itself.

use serde_json::{Map, Value, json};

use crate::configuration::{Configuration, Origin};
use crate::console::Console;
use crate::exit::Exit;

pub(super) fn run(configuration: &Configuration, console: Console) -> anyhow::Result<Exit> {
    console.report(|| text(configuration), &json(configuration))?;
    Ok(Exit::Good)
}

fn text(configuration: &Configuration) -> String {
    let assignments: Vec<(String, &Origin)> = configuration
        .entries()
        .map(|(key, value, origin)| match value {
            Some(value) => (format!("{key} = {value}"), origin),
            None => (format!("# {key} is not set"), origin),
        })
        .collect();
    let width = assignments.iter().map(|(assignment, _)| assignment.chars().count()).max().unwrap_or(0);
    let lines: Vec<String> =
        assignments.iter().map(|(assignment, origin)| format!("{assignment:width$}  # {origin}")).collect();
    lines.join("\n")
}

fn json(configuration: &Configuration) -> Value {
    let entries: Map<String, Value> = configuration
        .entries()
        .map(|(key, value, origin)| {
            (key, json!({ "value": value, "from": origin.kind(), "origin": origin.to_string() }))
        })
        .collect();
    Value::Object(entries)
}
