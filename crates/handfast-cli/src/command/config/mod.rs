//! `handfast config`: shows the configuration in force, and the origin of each value. The text is a configuration file itself.

pub(super) mod arguments;

use serde_json::{Map, Value, json};

use crate::configuration::{Configuration, Origin, RedisUrl};
use crate::console::Console;
use crate::exit::Exit;

pub(super) fn run(configuration: &Configuration, console: Console) -> anyhow::Result<Exit> {
    console.report(|| text(configuration), &json(configuration))?;
    Ok(Exit::Good)
}

fn text(configuration: &Configuration) -> String {
    let assignments: Vec<(String, String)> = configuration
        .entries()
        .map(|(key, value, origin)| match value {
            Some(value) => (format!("{key} = {value}"), remark(configuration, &key, origin)),
            None => (format!("# {key} is not set"), origin.to_string()),
        })
        .collect();
    let width = assignments.iter().map(|(assignment, _)| assignment.chars().count()).max().unwrap_or(0);
    let lines: Vec<String> =
        assignments.iter().map(|(assignment, remark)| format!("{assignment:width$}  # {remark}")).collect();
    lines.join("\n")
}

/// Returns the origin of a value, and whether secrets are left out.
fn remark(configuration: &Configuration, key: &str, origin: &Origin) -> String {
    let settings = &configuration.settings;
    let has_login = match key {
        "store" => settings.store.as_ref().is_some_and(|stores| stores.0.iter().any(|store| store.uri.has_login())),
        "redis" => settings.redis.as_ref().is_some_and(RedisUrl::has_login),
        _ => false,
    };
    match has_login {
        true => format!("{origin}; user and password not shown"),
        false => origin.to_string(),
    }
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
