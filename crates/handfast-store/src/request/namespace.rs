//! The name of a collection: `database.collection`.

use std::cmp::Ordering;
use std::sync::Arc;

use handfast_mql::Code;

use crate::{Error, Result};

/// The name of a database and of a collection in it. It is cheap to clone, and ordered by database, then by collection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// `database.collection`. The name of a database has no dot.
    name: Arc<str>,
    dot: usize,
}

/// MongoDB's limit on `database.collection`, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 255;
/// MongoDB's limit on the name of a database, in bytes.
pub const DATABASE_NAME_BYTES_MAX: usize = 63;

/// The separator between the name of a collection and the number of its generation.
const GENERATION: &str = "~hf";

impl Namespace {
    /// Checks two names against MongoDB's rules and joins them.
    ///
    /// # Errors
    /// `InvalidNamespace` (73), which names the rule.
    pub fn new(database: impl AsRef<str>, collection: impl AsRef<str>) -> Result<Self> {
        let (database, collection) = (database.as_ref(), collection.as_ref());
        check_database_name(database)?;
        let invalid = |why: &str| {
            Err(Error::command(Code::InvalidNamespace, format!("invalid collection name '{collection}': {why}")))
        };
        if collection.is_empty() {
            return invalid("it must not be empty");
        }
        if collection.starts_with('.') || collection.ends_with('.') {
            return invalid("it must not start or end with '.'");
        }
        if collection.contains(['$', '\0']) {
            return invalid("it must not contain '$' or the null character");
        }
        if database.len() + 1 + collection.len() > NAMESPACE_BYTES_MAX {
            return invalid("database and collection name together must not exceed 255 bytes");
        }
        Ok(Namespace { name: format!("{database}.{collection}").into(), dot: database.len() })
    }

    /// Joins names that are known to be valid.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn valid(database: &str, collection: &str) -> Self {
        debug_assert!(Namespace::new(database, collection).is_ok());
        Namespace { name: format!("{database}.{collection}").into(), dot: database.len() }
    }

    /// Returns the stored name of a collection that was created after another one of this name was dropped: `items~hf7` for
    /// generation 7 of `items`.
    ///
    /// # Errors
    /// `InvalidNamespace` (73) if the name is too long.
    pub fn of_generation(&self, generation: u64) -> Result<Self> {
        Namespace::new(self.database(), format!("{}{GENERATION}{generation}", self.collection()))
    }

    /// Returns the name without the number of the generation; `None` if it has none.
    pub fn without_generation(&self) -> Option<Self> {
        let (collection, generation) = self.collection().rsplit_once(GENERATION)?;
        let is_number = !generation.is_empty() && generation.bytes().all(|byte| byte.is_ascii_digit());
        Namespace::new(self.database(), collection).ok().filter(|_| is_number)
    }

    /// Returns the name of the database.
    pub fn database(&self) -> &str {
        &self.name[..self.dot]
    }

    /// Returns the name of the collection.
    pub fn collection(&self) -> &str {
        &self.name[self.dot + 1..]
    }
}

impl std::fmt::Display for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.name, f)
    }
}

impl Ord for Namespace {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.database(), self.collection()).cmp(&(other.database(), other.collection()))
    }
}

impl PartialOrd for Namespace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Checks the name of a database against MongoDB's rules.
///
/// # Errors
/// `InvalidNamespace` (73).
pub fn check_database_name(name: &str) -> Result<()> {
    let invalid =
        |why: &str| Err(Error::command(Code::InvalidNamespace, format!("invalid database name '{name}': {why}")));
    if name.is_empty() {
        return invalid("it must not be empty");
    }
    if name.len() > DATABASE_NAME_BYTES_MAX {
        return invalid("it must not exceed 63 bytes");
    }
    if name.contains(['/', '\\', '.', ' ', '"', '$', '\0']) {
        return invalid("it must not contain any of / \\ . space \" $ or the null character");
    }
    Ok(())
}
