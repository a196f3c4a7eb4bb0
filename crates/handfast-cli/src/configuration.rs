//! The configuration: flags override the environment, which overrides the file, which overrides the defaults.
//!
//! Each source is a table from keys to values. The tables are merged key by key, with the origin of each value, and read as [`Settings`]. So
//! one piece of code serves all settings, and `handfast config` shows the origin of each:
//!
//! ```text
//! default       data = "handfast-data"   listen = "127.0.0.1:27017"   cache-bytes = "64MiB"  ..
//! file, line 3                           listen = "127.0.0.1:27018"   cache-bytes = "1GiB"
//! environment   data = "/srv/db"
//! flag                                   listen = "127.0.0.1:0"
//! ----------------------------------------------------------------------------------------
//! in force      data = "/srv/db"         listen = "127.0.0.1:0"       cache-bytes = "1GiB"
//! ```
//!
//! Mistakes name their key and their source: the flag, the variable, or the line of the file.

mod explicit;
mod file;
mod origins;
mod settings;
mod stores;
#[cfg(test)]
mod tests;
mod unknown;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

pub(crate) use explicit::ExplicitSettings;
pub(crate) use origins::Origin as WebOrigin;
pub(crate) use settings::{OPTIONAL, Settings};
pub(crate) use stores::{NamedStore, Stores};
pub(crate) use value::{
    Bytes, ChangeStreams, ConnectionString, Durability, LogFormat, LogLevel, RedisUrl, Span, Topology,
};

/// The default file, which may be missing.
pub(crate) const DEFAULT_FILE: &str = "handfast.toml";

/// The variable that names the file without a flag.
const FILE_VARIABLE: &str = "HANDFAST_CONFIG";

/// The variable that names a running server without a flag.
pub(crate) const URI_VARIABLE: &str = "HANDFAST_URI";

/// The prefix of all variables.
pub(crate) const PREFIX: &str = "HANDFAST_";

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        path: PathBuf,
        /// Counts from 1.
        line: usize,
    },
    /// The environment variable of this name.
    Environment(String),
    /// The flag of this name, with its dashes.
    Flag(String),
}

impl Origin {
    /// Returns the kind alone, for JSON.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::File { .. } => "file",
            Origin::Environment(_) => "environment",
            Origin::Flag(_) => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "file {}, line {line}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A mistake in the configuration.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(crate) enum Mistake {
    /// A file that cannot be read. It is not a usage error, because the file may be readable the next time.
    #[error("cannot read the configuration file {} (from {origin}): {reason}", path.display())]
    Unreadable { path: PathBuf, origin: Origin, reason: String },
    #[error("{}, line {line}, column {column}: {reason}", path.display())]
    Syntax { path: PathBuf, line: usize, column: usize, reason: String },
    #[error("{}, line {line}: unknown key '{key}'; {advice}", path.display())]
    UnknownKey { path: PathBuf, line: usize, key: String, advice: String },
    #[error("{key} (from {origin}): {reason}")]
    Value { key: String, origin: Origin, reason: String },
    #[error("the command line: {reason}")]
    Flags { reason: String },
}

/// Returns a remark on each variable of the environment that looks like a setting and is none.
pub(crate) fn unknown_variables() -> Vec<String> {
    let variables = std::env::vars_os();
    unknown::remarks(variables.map(|(name, value)| [name, value].map(|text| text.to_string_lossy().into_owned())))
}

/// Returns the environment variable of a key.
pub(crate) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('-', "_").to_uppercase())
}

/// The settings in force, with their origins.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: Settings,
    /// The origin of each key that has a value.
    values: BTreeMap<String, (Value, Origin)>,
}

impl Configuration {
    /// Reads the environment and the file, and merges them under the flags.
    ///
    /// # Errors
    /// Fails if a named file cannot be read, a key is unknown, or a value has the wrong type or is out of range.
    pub(crate) fn load(file: Option<&Path>, mut given: ExplicitSettings) -> Result<Self, Mistake> {
        given.add_environment(|name| std::env::var_os(name))?;
        let flag = file.map(|path| (path.to_owned(), Origin::Flag("--config".to_owned())));
        let named = flag.or_else(|| {
            let path = std::env::var_os(FILE_VARIABLE)?;
            Some((PathBuf::from(path), Origin::Environment(FILE_VARIABLE.to_owned())))
        });
        let is_named = named.is_some();
        let (path, origin) = named.unwrap_or_else(|| (PathBuf::from(DEFAULT_FILE), Origin::Default));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => None,
            Err(error) => return Err(Mistake::Unreadable { path, origin, reason: error.to_string() }),
        };
        Configuration::lay(text.as_deref().map(|text| (path.as_path(), text)), given)
    }

    /// Takes the settings of the flags alone.
    ///
    /// # Errors
    /// Fails if a value has the wrong type or is out of range.
    pub(crate) fn of_flags(given: ExplicitSettings) -> Result<Self, Mistake> {
        Configuration::lay(None, given)
    }

    /// Merges the sources. It is the part of [`Configuration::load`] without input.
    fn lay(file: Option<(&Path, &str)>, given: ExplicitSettings) -> Result<Self, Mistake> {
        let defaults = table(&Settings::default());
        let mut values: BTreeMap<String, (Value, Origin)> =
            defaults.iter().map(|(key, value)| (key.clone(), (value.clone(), Origin::Default))).collect();
        if let Some((path, text)) = file {
            values.extend(file::read(path, text)?);
        }
        values.extend(given.into_values());

        // Each value alone over the defaults, so that an error names its key and origin.
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

    /// Keeps the data in this directory, without syncs unless a setting asks for them.
    #[must_use]
    pub(crate) fn with_temporary_data(mut self, data: PathBuf) -> Self {
        let origin = || Origin::Flag("--temporary".to_owned());
        if *self.origin("durability") == Origin::Default {
            self.settings.durability = Durability::Memory;
            self.values.insert("durability".to_owned(), (Value::String(Durability::Memory.to_string()), origin()));
        }
        self.values.insert("data".to_owned(), (Value::String(data.display().to_string()), origin()));
        self.settings.data = data;
        self
    }

    /// Replaces the port of the address to listen at.
    #[must_use]
    pub(crate) fn with_port(mut self, port: u16) -> Self {
        let listen = &self.settings.listen;
        let host = listen.rsplit_once(':').map_or(listen.as_str(), |(host, _)| host);
        let listen = format!("{host}:{port}");
        let origin = Origin::Flag("--port".to_owned());
        self.values.insert("listen".to_owned(), (Value::String(listen.clone()), origin));
        self.settings.listen = listen;
        self
    }

    /// Fails without a host and a port to listen at; `--port` may have added the port.
    pub(crate) fn with_address(self) -> Result<Self, Mistake> {
        match settings::check_listen(&self.settings.listen) {
            Ok(()) => Ok(self),
            Err(reason) => Err(self.mistake("listen", reason)),
        }
    }

    /// Returns the error for a value that proved wrong in its use.
    pub(crate) fn mistake(&self, key: &str, reason: impl Into<String>) -> Mistake {
        Mistake::Value { key: key.to_owned(), origin: self.origin(key).clone(), reason: reason.into() }
    }

    /// Returns each key with its value, if it has one, and its origin, by name. Values are without secrets.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (String, Option<Value>, &Origin)> {
        keys().into_iter().map(|key| {
            let entry = self.values.get(&key);
            let settings = &self.settings;
            let shown = match key.as_str() {
                "store" => settings.store.as_ref().map(ToString::to_string),
                "route" => settings.route.as_ref().map(ToString::to_string),
                "http-allow-origin" => settings.http_allow_origin.as_ref().map(ToString::to_string),
                "redis" => settings.redis.as_ref().map(ToString::to_string),
                _ => None,
            };
            let value = match shown {
                Some(shown) => Some(Value::String(shown)),
                None => entry.map(|(value, _)| value.clone()),
            };
            (key, value, entry.map_or(&Origin::Default, |(_, origin)| origin))
        })
    }

    pub(crate) fn origin(&self, key: &str) -> &Origin {
        self.values.get(key).map_or(&Origin::Default, |(_, origin)| origin)
    }
}

impl Settings {
    fn deserialize_from(table: Table) -> Result<Self, String> {
        table.try_into().map_err(|error: toml::de::Error| one_line(error.message()))
    }
}

/// Returns all keys, by name.
pub(crate) fn keys() -> Vec<String> {
    let mut keys: Vec<String> = table(&Settings::default()).into_iter().map(|(key, _)| key).collect();
    keys.extend(OPTIONAL.map(str::to_owned));
    keys.sort();
    keys
}

/// Returns the keys with a default, and the default as it is written on the command line.
pub(crate) fn defaults() -> impl Iterator<Item = (String, String)> {
    table(&Settings::default()).into_iter().map(|(key, value)| match value {
        Value::String(text) => (key, text),
        other => (key, other.to_string()),
    })
}

/// Returns the settings as a table; defaults are strings and numbers, which a table can hold.
fn table(settings: &Settings) -> Table {
    Table::try_from(settings).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
