//! The rule that assigns every collection to a part. It is complete, and checked when it is created.
//!
//! ```text
//! parts: main, orders, logs          *           = main        all that no other route names
//!                                    shop.orders = orders      a collection
//!                                    logs        = logs        a database
//! ```
//!
//! The most specific route applies: that of the collection, else that of its database, else that of the rest.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use handfast_mql::Code;

use crate::aggregation::is_temporary_of;
use crate::request::check_database_name;
use crate::{Error, Namespace, Result};

/// Databases with internal collections of Handfast (clock, unique keys, records of requests) or of a MongoDB server. They stay in
/// the part of the rest.
pub const KEPT_TOGETHER: [&str; 4] = ["handfast", "admin", "config", "local"];
/// The scope of the route for the rest.
const REST: &str = "*";
/// The maximum length of a part's name.
const NAME_BYTES_MAX: usize = 63;

/// The collections that a route applies to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All collections that no other route names.
    Rest,
    /// The collections of a database that have no route themselves.
    Database(String),
    /// A collection.
    Collection(Namespace),
}

/// A route says which part keeps some collections: `shop.orders=orders`, `logs=logs`, `*=main`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The collections.
    pub scope: Scope,
    /// The name of the part.
    pub part: String,
}

impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once('.') {
            _ if text == REST => Ok(Scope::Rest),
            Some((database, collection)) => Ok(Scope::Collection(Namespace::new(database, collection)?)),
            None => check_database_name(text).map(|()| Scope::Database(text.to_owned())),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Rest => f.write_str(REST),
            Scope::Database(database) => f.write_str(database),
            Scope::Collection(namespace) => namespace.fmt(f),
        }
    }
}

impl FromStr for Route {
    type Err = Error;

    /// Parses `NAMESPACE=PART`.
    fn from_str(text: &str) -> Result<Self> {
        // A collection may have '=' in its name, a part may not.
        let Some((scope, part)) = text.rsplit_once('=') else {
            let text = format!(
                "'{text}' is not a route: write NAMESPACE=STORE, such as shop.orders=orders, logs=logs or *=main"
            );
            return Err(bad(text));
        };
        check_part_name(part)?;
        Ok(Route { scope: scope.parse()?, part: part.to_owned() })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.scope, self.part)
    }
}

/// Checks the name of a part: letters, digits, `-` and `_`, at most 63.
///
/// # Errors
/// `BadValue` (2).
pub fn check_part_name(name: &str) -> Result<()> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_good) {
        return Ok(());
    }
    Err(bad(format!(
        "'{name}' is not a valid name of a store: use letters, digits, '-' and '_', at most {NAME_BYTES_MAX}"
    )))
}

/// The rule, which assigns every collection to one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    names: Vec<String>,
    rest: usize,
    databases: BTreeMap<String, usize>,
    collections: BTreeMap<Namespace, usize>,
}

impl Routing {
    /// Creates the rule from the names of the parts and the routes, in any order.
    ///
    /// # Errors
    /// `BadValue` (2) for two parts of one name, a route to an unknown part, two routes for the same collections, no route for
    /// the rest, a part without a route, and a route for a database that stays in the part of the rest.
    pub fn new(names: &[&str], routes: &[Route]) -> Result<Self> {
        for (index, name) in names.iter().enumerate() {
            check_part_name(name)?;
            if names[..index].contains(name) {
                return Err(bad(format!("two stores are named '{name}'")));
            }
        }
        let (mut rest, mut databases, mut collections) = (None, BTreeMap::new(), BTreeMap::new());
        for route in routes {
            let Some(part) = names.iter().position(|name| *name == route.part) else {
                let known = names.join(", ");
                return Err(bad(format!("the route {route} names an unknown store; the stores are {known}")));
            };
            let is_first = match &route.scope {
                Scope::Rest => rest.replace(part).is_none(),
                Scope::Database(database) => put(&mut databases, database.clone(), part),
                Scope::Collection(namespace) => put(&mut collections, namespace.clone(), part),
            };
            if !is_first {
                return Err(bad(format!("there are two routes for {}", route.scope)));
            }
            check_free(route)?;
        }
        let Some(rest) = rest else {
            let example = names.first().copied().unwrap_or_default();
            return Err(bad(format!(
                "no route names the store of all other collections: add one such as {REST}={example}"
            )));
        };
        let used: BTreeSet<usize> = databases.values().chain(collections.values()).copied().chain([rest]).collect();
        match names.iter().enumerate().find(|(part, _)| !used.contains(part)) {
            Some((_, idle)) => Err(bad(format!("no route names the store '{idle}'"))),
            None => {
                let names = names.iter().map(|name| (*name).to_owned()).collect();
                Ok(Routing { names, rest, databases, collections })
            }
        }
    }

    /// Returns the part of a collection. A temporary collection of `$out` is in the part of its target, and all generations of a
    /// name ([`Namespace::of_generation`]) are in one part.
    pub fn part(&self, namespace: &Namespace) -> usize {
        if let Some(part) = self.collections.get(namespace) {
            return *part;
        }
        if let Some(name) = namespace.without_generation() {
            return self.part(&name);
        }
        let mut same_database = self.collections.iter().filter(|(target, _)| target.database() == namespace.database());
        match same_database.find(|(target, _)| is_temporary_of(namespace, target)) {
            Some((_, part)) => *part,
            None => self.part_of_database(namespace.database()),
        }
    }

    /// Returns the part of the collections of a database that have no route of their own.
    pub fn part_of_database(&self, database: &str) -> usize {
        self.databases.get(database).copied().unwrap_or(self.rest)
    }

    /// Returns the parts that may have collections of a database.
    pub fn parts(&self, database: &str) -> BTreeSet<usize> {
        let of = self.collections.iter().filter(|(namespace, _)| namespace.database() == database);
        of.map(|(_, part)| *part).chain([self.part_of_database(database)]).collect()
    }

    /// Returns the part of the rest.
    pub fn rest(&self) -> usize {
        self.rest
    }

    /// Returns the names of the parts, in the order given.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the name of a part.
    pub fn name(&self, part: usize) -> &str {
        self.names.get(part).map_or("", String::as_str)
    }

    /// Checks that a collection stays in its part when it is renamed.
    ///
    /// # Errors
    /// `CommandNotSupported` (115) if the new name belongs to another part.
    pub fn check_rename(&self, from: &Namespace, to: &Namespace) -> Result<()> {
        let [old, new] = [from, to].map(|namespace| self.part(namespace));
        if old == new {
            return Ok(());
        }
        let text = format!(
            "{from} is in the store '{}' and {to} in '{}': a routed store has no renaming across stores",
            self.name(old),
            self.name(new)
        );
        Err(Error::command(Code::CommandNotSupported, text))
    }

    /// Returns the routes in a canonical order.
    pub fn routes(&self) -> Vec<Route> {
        let route = |scope, part: usize| Route { scope, part: self.name(part).to_owned() };
        let databases = self.databases.iter().map(|(name, part)| route(Scope::Database(name.clone()), *part));
        let collections = self.collections.iter().map(|(name, part)| route(Scope::Collection(name.clone()), *part));
        std::iter::once(route(Scope::Rest, self.rest)).chain(databases).chain(collections).collect()
    }
}

fn put<K: Ord>(routes: &mut BTreeMap<K, usize>, scope: K, part: usize) -> bool {
    match routes.entry(scope) {
        Entry::Vacant(free) => {
            free.insert(part);
            true
        }
        Entry::Occupied(_) => false,
    }
}

/// Checks that a route does not name a database that stays in the part of the rest.
fn check_free(route: &Route) -> Result<()> {
    let database = match &route.scope {
        Scope::Rest => return Ok(()),
        Scope::Database(database) => database.as_str(),
        Scope::Collection(namespace) => namespace.database(),
    };
    if !KEPT_TOGETHER.contains(&database) {
        return Ok(());
    }
    Err(bad(format!(
        "the route {route} is not allowed: the database '{database}' stays in the store of the route {REST}"
    )))
}

fn bad(text: String) -> Error {
    Error::command(Code::BadValue, text)
}
