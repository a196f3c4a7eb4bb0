//! The name of a collection: `database.collection`.

use std::cmp::Ordering;
use std::sync::Arc;

use handfast_mql::Code;

use crate::{Error, Result};

/// A database and a collection in it. Cheap to clone; in order of the database, then of the collection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// `database.collection`; there is no dot in the name of a database.
    name: Arc<str>,
    dot: usize,
}

/// MongoDB's bound on `database.collection`, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 255;
/// MongoDB's bound on a database name, in bytes.
pub const DATABASE_NAME_BYTES_MAX: usize = 63;

/// What stands between the name of a collection and the number of its generation.
const GENERATION: &str = "~hf";

impl Namespace {
    /// Checks the names against MongoDB's rules.
    ///
    /// # Errors
    /// `InvalidNamespace` (73) that says which rule is broken.
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

    /// Names that are known to be valid.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn valid(database: &str, collection: &str) -> Self {
        debug_assert!(Namespace::new(database, collection).is_ok());
        Namespace { name: format!("{database}.{collection}").into(), dot: database.len() }
    }

    /// The name under which a store keeps a collection that was made after another one of this name was dropped:
    /// `items~hf7` for generation 7 of `items`.
    ///
    /// # Errors
    /// `InvalidNamespace` (73) if that is longer than a name may be.
    pub fn of_generation(&self, generation: u64) -> Result<Self> {
        Namespace::new(self.database(), format!("{}{GENERATION}{generation}", self.collection()))
    }

    /// The name without the number of a generation; none if it has none.
    pub fn without_generation(&self) -> Option<Self> {
        let (collection, generation) = self.collection().rsplit_once(GENERATION)?;
        let is_number = !generation.is_empty() && generation.bytes().all(|byte| byte.is_ascii_digit());
        Namespace::new(self.database(), collection).ok().filter(|_| is_number)
    }

    /// The database.
    pub fn database(&self) -> &str {
        &self.name[..self.dot]
    }

    /// The collection.
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

/// Checks a database name against MongoDB's rules.
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
