//! The kinds of values that settings have, written the same on the command line, in the environment and in the file.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A size: `67108864`, `64MiB`, `64 MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) u64);

/// The units a size is shown in, largest first.
const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("a size such as 256MiB or 1GB is expected, not '{text}'");
        // The library reads a minus sign as a very large number, and rounds fractions of a byte down.
        if text.contains(['-', '+']) {
            return Err(wrong());
        }
        text.parse::<bytesize::ByteSize>().map(|size| Bytes(size.as_u64())).map_err(|_| wrong())
    }
}

impl fmt::Display for Bytes {
    /// Writes the exact size in the largest unit of which it is a multiple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// A length of time: `30m`, `10s`, `1h 30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("a duration such as 10s, 30m or 1h is expected, not '{text}'");
        humantime::parse_duration(text).map(Span).map_err(wrong)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"256MiB\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Bytes, E> {
                u64::try_from(number).map(Bytes).map_err(|_| E::custom("a size is not negative"))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Bytes, E> {
                Ok(Bytes(number))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The address of a server, with its login: `mongodb://user:password@host:27017/?tls=true`. It is shown without user, password and options.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ConnectionString(String);

impl ConnectionString {
    /// Returns the text with its secrets.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// Returns whether it contains a user and a password, which are not shown.
    pub(crate) fn has_login(&self) -> bool {
        let after = self.0.split_once("://").map_or(self.0.as_str(), |(_, after)| after);
        after.split(['/', '?']).next().is_some_and(|hosts| hosts.contains('@'))
    }

    /// Checks that the text is a connection string.
    pub(crate) fn check(&self) -> Result<(), String> {
        handfast_mongodb::shown(&self.0).map(|_| ()).map_err(|error| error.to_string())
    }
}

impl FromStr for ConnectionString {
    type Err = std::convert::Infallible;

    /// Accepts any text: the parser of flags would print what it refuses, with its secrets.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(ConnectionString(text.to_owned()))
    }
}

impl fmt::Display for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&handfast_mongodb::shown(&self.0).unwrap_or_else(|_| "mongodb://..".to_owned()))
    }
}

impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The URL of Redis, with its logins: `redis://user:password@host:6379/0`, or of sentinels or a cluster. It is shown without them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RedisUrl(String);

impl RedisUrl {
    /// Returns the text with its secrets.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// Returns whether it contains a user or a password, which are not shown.
    pub(crate) fn has_login(&self) -> bool {
        self.0.contains('@') || self.0.contains("sentinel_")
    }

    /// Checks that the text is a URL of a form that is supported.
    pub(crate) fn check(&self) -> Result<(), String> {
        handfast_counters::RedisBuffer::shown(&self.0).map(|_| ()).map_err(|error| error.to_string())
    }
}

impl FromStr for RedisUrl {
    type Err = std::convert::Infallible;

    /// Accepts any text: the parser of flags would print what it refuses, with its secrets.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(RedisUrl(text.to_owned()))
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&handfast_counters::RedisBuffer::shown(&self.0).unwrap_or_else(|_| "redis://..".to_owned()))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The point at which a write without a write concern of its own is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// After it is synced to disk; concurrent writers share one sync
    Journaled,
    /// After it is applied, before its sync; a crash may lose the last moments
    Memory,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Journaled => "journaled",
            Durability::Memory => "memory",
        })
    }
}

impl From<Durability> for handfast_store::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Journaled => handfast_store::Durability::Journaled,
            Durability::Memory => handfast_store::Durability::Memory,
        }
    }
}

/// The kind of deployment that the server presents to its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Topology {
    /// A server on its own
    Standalone,
    /// The only member of a replica set
    ReplicaSet,
    /// A router, for servers behind a proxy: clients do not compare its address
    Mongos,
}

/// Whether the store logs its changes for change streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ChangeStreams {
    /// Never: change streams are refused
    Off,
    /// From the first change stream on, until none is read for change-log-age
    OnDemand,
    /// Always
    On,
}

impl From<ChangeStreams> for handfast_embedded::ChangeLog {
    fn from(change_streams: ChangeStreams) -> Self {
        match change_streams {
            ChangeStreams::Off => handfast_embedded::ChangeLog::Off,
            ChangeStreams::OnDemand => handfast_embedded::ChangeLog::OnDemand,
            ChangeStreams::On => handfast_embedded::ChangeLog::On,
        }
    }
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Plain text
    Text,
    /// One JSON object per line
    Json,
}

/// The lowest level that the log contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// The log stays empty
    Off,
    /// Failures
    Error,
    /// Failures, and events that need attention
    Warn,
    /// Also start, stop and similar events
    Info,
    /// Also each connection and command
    Debug,
    /// Everything
    Trace,
}

impl From<LogLevel> for tracing_subscriber::filter::LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}
