//! The name of a collection: `database.collection`.

use handfast_mql::Code;

use crate::{Error, Result};

/// A database and a collection in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace {
    database: String,
    collection: String,
}

/// MongoDB's bound on `database.collection`, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 255;
/// MongoDB's bound on a database name, in bytes.
pub const DATABASE_NAME_BYTES_MAX: usize = 63;

impl Namespace {
    /// Checks the names against MongoDB's rules.
    ///
    /// # Errors
    /// `InvalidNamespace` (73) that says which rule is broken.
    pub fn new(database: impl Into<String>, collection: impl Into<String>) -> Result<Self> {
        let (database, collection) = (database.into(), collection.into());
        check_database_name(&database)?;
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
        Ok(Namespace { database, collection })
    }

    /// Names that are known to be valid.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn valid(database: &str, collection: &str) -> Self {
        debug_assert!(Namespace::new(database, collection).is_ok());
        Namespace { database: database.to_owned(), collection: collection.to_owned() }
    }

    /// The database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The collection.
    pub fn collection(&self) -> &str {
        &self.collection
    }
}

impl std::fmt::Display for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.database, self.collection)
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
