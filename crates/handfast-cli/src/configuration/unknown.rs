//! Remarks on variables that look like settings and are none.
//!
//! They are not refused, because other programs set variables with such names: Kubernetes and Docker describe a service `handfast` with
//! `HANDFAST_PORT=tcp://10.0.0.1:27017`, `HANDFAST_SERVICE_HOST` and the like in the other containers.

use super::{FILE_VARIABLE, PREFIX, URI_VARIABLE, keys, variable};

/// The prefix of variables of this project's tests and tools.
const OF_TESTS: [&str; 10] =
    ["BINARY", "CASES", "FLIPS", "KILL", "MODEL", "ORDERS", "OUTAGE", "SIM_", "TEST_", "WRITE_DOCS"];
/// Variables that describe a service of this name to other containers.
const OF_NEIGHBOURS: [&str; 4] = ["ENV_", "NAME", "PORT_", "SERVICE_"];
/// The short form of a setting, which is a flag of `serve` alone.
const PORT: &str = "PORT";
/// Names that are less alike than this (Jaro-Winkler, 1 is the same) are not suggested.
const ALIKE_MIN: f64 = 0.85;
/// The advice where to find all settings.
const ALL: &str = "`handfast config` prints all settings";

/// Returns a remark on each variable that looks like a setting. A variable is its name and its value.
pub(super) fn remarks(variables: impl Iterator<Item = [String; 2]>) -> Vec<String> {
    let mut known: Vec<String> = keys().iter().map(|key| variable(key)).collect();
    known.extend([FILE_VARIABLE, URI_VARIABLE].map(str::to_owned));
    let mut remarks: Vec<String> = variables.filter_map(|[name, value]| remark(&name, &value, &known)).collect();
    remarks.sort();
    remarks
}

fn remark(name: &str, value: &str, known: &[String]) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    let is_of = |prefixes: &[&str]| prefixes.iter().any(|prefix| rest.starts_with(prefix));
    let is_address = rest == PORT && value.contains("://");
    if known.iter().any(|known| known == name) || is_of(&OF_TESTS) || is_of(&OF_NEIGHBOURS) || is_address {
        return None;
    }
    let advice = match alike(name, known) {
        _ if rest == PORT => "use HANDFAST_LISTEN (HOST:PORT)".to_owned(),
        Some(meant) => format!("did you mean {meant}?"),
        None => ALL.to_owned(),
    };
    Some(format!("the environment variable {name} is not a setting, and has no effect; {advice}"))
}

/// Returns advice on an unknown key of a file.
pub(super) fn advice_on_key(key: &str, known: &[String]) -> String {
    match alike(key, known) {
        _ if key.eq_ignore_ascii_case(PORT) => "listen = \"HOST:PORT\" has the port".to_owned(),
        Some(meant) => format!("did you mean '{meant}'? {ALL}"),
        None => ALL.to_owned(),
    }
}

/// Returns the known name that is most like this one, however its words are joined.
fn alike<'k>(name: &str, known: &'k [String]) -> Option<&'k String> {
    let rest = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).replace('_', "-").to_uppercase();
    let name = rest(name);
    let rated = known.iter().map(|known| (strsim::jaro_winkler(&rest(known), &name), known));
    let best = rated.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(alike, _)| *alike >= ALIKE_MIN).map(|(_, known)| known)
}

#[cfg(test)]
mod tests;
