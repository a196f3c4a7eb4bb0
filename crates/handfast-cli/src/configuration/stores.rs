//! Servers that documents are on, and routes between several: each a text, or a list of texts.
//!
//! ```text
//! --store main=mongodb://a --store orders=mongodb://b   --route '*=main' --route shop.orders=orders
//! HANDFAST_STORE="main=mongodb://a orders=mongodb://b"  HANDFAST_ROUTE="*=main shop.orders=orders"
//! store = ["main=mongodb://a", "orders=mongodb://b"]    route = ["*=main", "shop.orders=orders"]
//! ```

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use handfast_store::routed::{Route, check_part_name};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::ConnectionString;

/// A server that documents are on, with its name in routes if there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedStore {
    pub(crate) name: Option<String>,
    pub(crate) uri: ConnectionString,
}

impl NamedStore {
    /// Returns the text with its secrets.
    fn secret(&self) -> String {
        match &self.name {
            Some(name) => format!("{name}={}", self.uri.secret()),
            None => self.uri.secret().to_owned(),
        }
    }
}

impl FromStr for NamedStore {
    type Err = Infallible;

    /// Accepts any text: the parser of flags would print what it refuses, with its secrets. The part before the first `=` is the name, if it
    /// is a valid one.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let named = text.split_once('=').filter(|(name, _)| check_part_name(name).is_ok());
        let (name, uri) = named.map_or((None, text), |(name, uri)| (Some(name.to_owned()), uri));
        Ok(NamedStore { name, uri: uri.parse()? })
    }
}

impl Serialize for NamedStore {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.secret())
    }
}

impl fmt::Display for NamedStore {
    /// Writes the text without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}={}", self.uri),
            None => self.uri.fmt(f),
        }
    }
}

/// The servers that documents are on: one, or several with a name each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Stores(pub(crate) Vec<NamedStore>);

impl Stores {
    /// Parses the text of a variable: servers with spaces between them.
    pub(crate) fn of_text(text: &str) -> Self {
        let Ok(stores) = text.split_whitespace().map(str::parse).collect::<Result<_, Infallible>>();
        Stores(stores)
    }

    /// Returns all servers as one text with secrets.
    pub(crate) fn secret(&self) -> String {
        self.0.iter().map(NamedStore::secret).collect::<Vec<_>>().join(" ")
    }

    /// Checks that each is a connection string, and has a name if there are several.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.0.is_empty() {
            return Err("must not be empty".to_owned());
        }
        self.0.iter().try_for_each(|store| store.uri.check())?;
        match self.0.iter().find(|store| store.name.is_none()) {
            Some(nameless) if self.0.len() > 1 => {
                Err(format!("several stores need a name each: NAME={}", nameless.uri))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Stores {
    /// Writes the text without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }
}

/// The assignment of collections to several stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Routes(pub(crate) Vec<Route>);

impl Serialize for Routes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(ToString::to_string))
    }
}

impl fmt::Display for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }
}

/// A text with several parts, or a list of texts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text is expected, or a list of texts")]
pub(super) enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Texts {
    pub(super) fn into_parts(self) -> Vec<String> {
        match self {
            Texts::One(text) => text.split_whitespace().map(str::to_owned).collect(),
            Texts::Several(texts) => texts,
        }
    }
}

impl<'de> Deserialize<'de> for Stores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = Texts::deserialize(deserializer)?.into_parts();
        let Ok(stores) = parts.iter().map(|part| part.parse()).collect::<Result<_, Infallible>>();
        Ok(Stores(stores))
    }
}

impl<'de> Deserialize<'de> for Routes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = Texts::deserialize(deserializer)?.into_parts();
        let routes = parts.iter().map(|part| part.parse()).collect::<Result<_, handfast_store::Error>>();
        routes.map(Routes).map_err(de::Error::custom)
    }
}
