//! The built-in roles and the actions that they allow.
//!
//! A role is a name and the database for which it is granted: `readWrite` on `shop`. These are MongoDB's built-in roles, as far as there
//! are commands that need them; user-defined roles are not supported. MongoDB's actions that every built-in role has together
//! (`insert`, `update`, `remove`) are one action here.

use handfast_mql::Code;
use handfast_store::{Error, Result};

use Action::*;

/// An action that a role allows or does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads documents, and their changes.
    Find,
    /// Inserts, updates, deletes documents.
    Write,
    /// Creates, changes, drops, renames collections and indexes.
    Structure,
    /// Lists collections and indexes.
    List,
    /// Counts and sizes.
    Statistics,
    /// Counts the uses of indexes.
    IndexStatistics,
    /// Shows cached plans.
    ReadPlans,
    /// Checks and maintains a collection.
    Validate,
    /// Writes documents without applying the validator of their collection.
    BypassValidation,
    /// Drops a database.
    DropDatabase,
    /// Shows the users of a database.
    ViewUsers,
    /// Adds and changes users of a database, and grants roles on it.
    ManageUsers,
    /// Lists all databases.
    ListDatabases,
    /// Shows the state and the statistics of the server, including the commands of other users.
    Monitor,
    /// Stops commands and sessions of other users, and changes settings of the server.
    Control,
    /// Reads `admin.system.users`.
    ReadUsers,
    /// Makes backups.
    BackUp,
}

impl Action {
    /// Returns whether the action is about the server, not about a database.
    fn is_of_server(self) -> bool {
        matches!(self, ListDatabases | Monitor | Control | ReadUsers | BackUp)
    }
}

impl Action {
    /// Returns MongoDB's names of the actions that it covers.
    fn mongodb_names(self) -> &'static [&'static str] {
        match self {
            Find => &["find", "killCursors", "changeStream", "dbHash"],
            Write => &["insert", "update", "remove"],
            Structure => {
                &["createCollection", "dropCollection", "createIndex", "dropIndex", "collMod", "renameCollectionSameDB"]
            }
            List => &["listCollections", "listIndexes"],
            Statistics => &["collStats", "dbStats"],
            IndexStatistics => &["indexStats"],
            ReadPlans => &["planCacheRead"],
            Validate => &["validate", "compact", "planCacheIndexFilter", "planCacheWrite"],
            BypassValidation => &["bypassDocumentValidation"],
            DropDatabase => &["dropDatabase"],
            ViewUsers => &["viewUser"],
            ManageUsers => &["createUser", "dropUser", "grantRole", "revokeRole", "changePassword", "changeCustomData"],
            ListDatabases => &["listDatabases"],
            Monitor => &[
                "serverStatus",
                "top",
                "hostInfo",
                "getCmdLineOpts",
                "getLog",
                "getParameter",
                "inprog",
                "connPoolStats",
                "getClusterParameter",
                "getDefaultRWConcern",
                "listSessions",
                "replSetGetConfig",
                "replSetGetStatus",
            ],
            Control => &[
                "killop",
                "killAnySession",
                "setParameter",
                "setClusterParameter",
                "setDefaultRWConcern",
                "querySettings",
                "fsync",
                "unlock",
                "logRotate",
                "dropConnections",
                "rotateCertificates",
                "compact",
            ],
            ReadUsers => &["find"],
            // MongoDB requires `fsync` for a backup cursor, which `Control` has for the command `fsync`.
            BackUp => &[],
        }
    }
}

/// The databases on which a role is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The database for which it is granted.
    Own,
    /// All databases but `local` and `config`. The role is granted on `admin`.
    Any,
    /// All databases. The role is granted on `admin`.
    All,
}

/// The resource of a privilege.
pub(crate) enum Privileged<'a> {
    /// The collections of a database; of all databases if it is empty.
    Database(&'a str),
    /// The server.
    Server,
}

struct BuiltInRole {
    name: &'static str,
    reach: Reach,
    actions: &'static [Action],
}

/// The roles, by MongoDB's names.
const BUILT_IN_ROLES: &[BuiltInRole] = &[
    BuiltInRole { name: "read", reach: Reach::Own, actions: &[Find, List, Statistics, ReadPlans] },
    BuiltInRole {
        name: "readWrite",
        reach: Reach::Own,
        actions: &[Find, List, Statistics, ReadPlans, Write, Structure],
    },
    BuiltInRole {
        name: "dbAdmin",
        reach: Reach::Own,
        actions: &[List, Statistics, ReadPlans, Structure, Validate, BypassValidation, DropDatabase],
    },
    BuiltInRole { name: "userAdmin", reach: Reach::Own, actions: &[ViewUsers, ManageUsers] },
    BuiltInRole {
        name: "dbOwner",
        reach: Reach::Own,
        actions: &[
            Find,
            List,
            Statistics,
            ReadPlans,
            Write,
            Structure,
            Validate,
            BypassValidation,
            DropDatabase,
            ViewUsers,
            ManageUsers,
        ],
    },
    BuiltInRole {
        name: "readAnyDatabase",
        reach: Reach::Any,
        actions: &[Find, List, Statistics, ReadPlans, ListDatabases],
    },
    BuiltInRole {
        name: "readWriteAnyDatabase",
        reach: Reach::Any,
        actions: &[Find, List, Statistics, ReadPlans, Write, Structure, ListDatabases],
    },
    BuiltInRole {
        name: "dbAdminAnyDatabase",
        reach: Reach::Any,
        actions: &[List, Statistics, ReadPlans, Structure, Validate, BypassValidation, DropDatabase, ListDatabases],
    },
    BuiltInRole { name: "userAdminAnyDatabase", reach: Reach::Any, actions: &[ViewUsers, ManageUsers, ListDatabases] },
    BuiltInRole {
        name: "clusterMonitor",
        reach: Reach::All,
        actions: &[List, Statistics, IndexStatistics, ListDatabases, Monitor],
    },
    BuiltInRole {
        name: "clusterAdmin",
        reach: Reach::All,
        actions: &[List, Statistics, IndexStatistics, DropDatabase, ListDatabases, Monitor, Control],
    },
    BuiltInRole {
        name: "root",
        reach: Reach::All,
        actions: &[
            Find,
            List,
            Statistics,
            IndexStatistics,
            ReadPlans,
            Write,
            Structure,
            Validate,
            BypassValidation,
            DropDatabase,
            ViewUsers,
            ManageUsers,
            ListDatabases,
            Monitor,
            Control,
            ReadUsers,
            BackUp,
        ],
    },
];

/// A role on a database.
#[derive(Clone)]
pub struct Role {
    kind: &'static BuiltInRole,
    database: String,
}

impl PartialEq for Role {
    fn eq(&self, other: &Self) -> bool {
        (self.kind.name, &self.database) == (other.kind.name, &other.database)
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.kind.name, self.database)
    }
}

impl std::fmt::Debug for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Role {
    /// Returns the role of this name on this database.
    ///
    /// # Errors
    /// `RoleNotFound` (31) for an unknown name, and for a role that can be granted on `admin` only.
    pub fn new(name: &str, database: &str) -> Result<Self> {
        handfast_store::check_database_name(database)?;
        let kind = BUILT_IN_ROLES.iter().find(|kind| kind.name == name);
        let kind = kind.filter(|kind| kind.reach == Reach::Own || database == "admin");
        let kind =
            kind.ok_or_else(|| Error::command(Code::RoleNotFound, format!("Could not find role: {name}@{database}")))?;
        Ok(Role { kind, database: database.to_owned() })
    }

    /// Returns its name without the database.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Returns the database for which it is granted.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns whether it allows an action on a database. For an action about the server the database is ignored.
    pub fn allows(&self, action: Action, database: &str) -> bool {
        let reaches = match self.kind.reach {
            Reach::Own => database == self.database,
            Reach::Any => !matches!(database, "local" | "config"),
            Reach::All => true,
        };
        self.kind.actions.contains(&action) && (reaches || action.is_of_server())
    }

    /// Returns the actions that it allows, by MongoDB's names: those on databases first, then those about the server.
    pub(crate) fn privileges(&self) -> [(Privileged<'_>, Vec<&'static str>); 2] {
        let database = if self.kind.reach == Reach::Own { &self.database } else { "" };
        let names = |of_server| {
            let actions = self.kind.actions.iter().filter(|action| action.is_of_server() == of_server);
            actions.flat_map(|action| action.mongodb_names()).copied().collect()
        };
        [(Privileged::Database(database), names(false)), (Privileged::Server, names(true))]
    }

    /// Returns the names of all roles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN_ROLES.iter().map(|kind| kind.name)
    }
}

#[cfg(test)]
mod tests;
