//! Where a setting comes from: flags before environment before file before defaults.
//!
//! Each source is a table from keys to values, of any of which a source may say nothing. The tables are laid over each
//! other key by key, the origin of each value kept, and the result read as [`Settings`]. So one piece of code serves all
//! settings, and `handfast config` can say of each where it is from:
//!
//! ```text
//! default   data = "handfast-data"   listen = "127.0.0.1:27017"   cache-bytes = "64MiB"  ..
//! file                               listen = "127.0.0.1:27018"   cache-bytes = "1GiB"
//! flag      data = "/srv/db"         listen = "127.0.0.1:0"
//! ------------------------------------------------------------------------------------
//! in force  data = "/srv/db"         listen = "127.0.0.1:0"       cache-bytes = "1GiB"
//! ```
//!
//! Mistakes name their key and their source, and are usage errors.

mod settings;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::{Table, Value};

pub(crate) use settings::{OPTIONAL, Settings};
pub(crate) use value::{Bytes, Durability, LogFormat, LogLevel, Span, Topology};

/// The file that is read, if it is there, when none is named.
pub(crate) const DEFAULT_FILE: &str = "handfast.toml";

/// Who set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    /// The variable's name.
    Environment(String),
    /// The flag with its dashes.
    Flag(String),
}

impl Origin {
    /// The kind alone, for JSON.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::File(_) => "file",
            Origin::Environment(_) => "environment",
            Origin::Flag(_) => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A mistake in the configuration: exit code 2.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(crate) enum Mistake {
    #[error("cannot read configuration file {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("{}: {reason}", path.display())]
    Syntax { path: PathBuf, reason: String },
    #[error("{}: unknown key '{key}'; `handfast config` prints all there are", path.display())]
    UnknownKey { path: PathBuf, key: String },
    #[error("{key} (from {origin}): {reason}")]
    Value { key: String, origin: Origin, reason: String },
}

/// What the command line and the environment say: for each key a value and who gave it.
#[derive(Debug, Default)]
pub(crate) struct Given(BTreeMap<String, (Value, Origin)>);

impl Given {
    /// Adds the flags of a group (those that have a value), with the origins that the parser recorded.
    ///
    /// # Errors
    /// A value that TOML cannot hold, such as a path that is not UTF-8.
    pub(crate) fn add(&mut self, flags: &impl Serialize, matches: &clap::ArgMatches) -> Result<(), Mistake> {
        let table = Table::try_from(flags).map_err(|error| Mistake::Value {
            key: "command line".to_owned(),
            origin: Origin::Flag("arguments".to_owned()),
            reason: error.to_string(),
        })?;
        for (key, value) in table {
            let origin = match matches.value_source(&key.replace('-', "_")) {
                Some(clap::parser::ValueSource::EnvVariable) => Origin::Environment(variable(&key)),
                _ => Origin::Flag(format!("--{key}")),
            };
            self.0.insert(key, (value, origin));
        }
        Ok(())
    }
}

/// The environment variable of a key.
pub(crate) fn variable(key: &str) -> String {
    format!("HANDFAST_{}", key.replace('-', "_").to_uppercase())
}

/// What is in force, and why.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: Settings,
    /// Of each key that has a value.
    values: BTreeMap<String, (Value, Origin)>,
}

impl Configuration {
    /// Reads the file and lays what is given over it.
    ///
    /// # Errors
    /// A named file that cannot be read; an unknown key; a value of the wrong kind or out of range.
    pub(crate) fn load(file: Option<&Path>, given: Given) -> Result<Self, Mistake> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file.is_none() => None,
            Err(error) => return Err(Mistake::Unreadable { path: path.to_owned(), reason: error.to_string() }),
        };
        Configuration::lay(text.map(|text| (path, text)), given)
    }

    /// The pure part of [`Configuration::load`].
    fn lay(file: Option<(&Path, String)>, given: Given) -> Result<Self, Mistake> {
        let defaults = table(&Settings::default());
        let mut values: BTreeMap<String, (Value, Origin)> =
            defaults.iter().map(|(key, value)| (key.clone(), (value.clone(), Origin::Default))).collect();
        if let Some((path, text)) = file {
            let parsed: Table = text.parse().map_err(|error: toml::de::Error| Mistake::Syntax {
                path: path.to_owned(),
                reason: one_line(error.to_string().trim_start_matches("TOML parse error ")),
            })?;
            for (key, value) in parsed {
                if !defaults.contains_key(&key) && !OPTIONAL.contains(&key.as_str()) {
                    return Err(Mistake::UnknownKey { path: path.to_owned(), key });
                }
                values.insert(key, (value, Origin::File(path.to_owned())));
            }
        }
        values.extend(given.0);

        // One by one over the defaults, so that a mistake is told with its key and origin.
        for (key, (value, origin)) in &values {
            let mut one = defaults.clone();
            one.insert(key.clone(), value.clone());
            let wrong = |reason: String| Mistake::Value { key: key.clone(), origin: origin.clone(), reason };
            let settings = Settings::deserialize_from(one).map_err(wrong)?;
            settings.check().map_err(wrong)?;
        }
        let merged = values.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect();
        let settings = Settings::deserialize_from(merged).map_err(|reason| Mistake::Value {
            key: "configuration".to_owned(),
            origin: Origin::Default,
            reason,
        })?;
        Ok(Configuration { settings, values })
    }

    /// Each key with its value, if it has one, and its origin, by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (String, Option<&Value>, &Origin)> {
        keys().into_iter().map(|key| {
            let entry = self.values.get(&key);
            (key, entry.map(|(value, _)| value), entry.map_or(&Origin::Default, |(_, origin)| origin))
        })
    }

    /// Who set a key.
    pub(crate) fn origin(&self, key: &str) -> &Origin {
        self.values.get(key).map_or(&Origin::Default, |(_, origin)| origin)
    }
}

impl Settings {
    fn deserialize_from(table: Table) -> Result<Self, String> {
        table.try_into().map_err(|error: toml::de::Error| one_line(error.message()))
    }
}

/// All keys, by name.
pub(crate) fn keys() -> Vec<String> {
    let mut keys: Vec<String> = table(&Settings::default()).into_iter().map(|(key, _)| key).collect();
    keys.extend(OPTIONAL.map(str::to_owned));
    keys.sort();
    keys
}

/// The keys that have a default, with it as people write it on the command line.
pub(crate) fn defaults() -> impl Iterator<Item = (String, String)> {
    table(&Settings::default()).into_iter().map(|(key, value)| match value {
        Value::String(text) => (key, text),
        other => (key, other.to_string()),
    })
}

/// The settings as a table. The defaults are plain strings and numbers, which a table always holds.
fn table(settings: &Settings) -> Table {
    Table::try_from(settings).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
