//! The built-in roles and the actions that they allow.
//!
//! A role is a name and the database that it is given on: `readWrite` on `shop`. MongoDB's built-in roles are here, as
//! far as there are commands that need them; roles of one's own are not. What MongoDB tells apart further (`insert`,
//! `update`, `remove`) no built-in role separates, so it is one action here.

use handfast_mql::Code;
use handfast_store::{Error, Result};

use Action::*;

/// An action that a role allows or does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads documents.
    Find,
    /// Inserts, updates, deletes documents.
    Write,
    /// Creates, changes, drops, renames collections and indexes.
    Structure,
    /// Lists collections and indexes.
    List,
    /// Counts and sizes.
    Statistics,
    /// Checks a collection.
    Validate,
    /// Drops a database.
    DropDatabase,
    /// Sees the users of a database.
    ViewUsers,
    /// Makes and changes users of a database, and grants roles on it.
    ManageUsers,
    /// Lists all databases.
    ListDatabases,
    /// Sees how the server is and what it does, commands of others included.
    Monitor,
    /// Stops commands and sessions of others, and changes how the server behaves.
    Control,
    /// Reads `admin.system.users`.
    ReadUsers,
    /// Makes backups.
    BackUp,
}

impl Action {
    /// It is about the server, not about a database.
    fn is_of_server(self) -> bool {
        matches!(self, ListDatabases | Monitor | Control | ReadUsers | BackUp)
    }
}

impl Action {
    /// MongoDB's names of what it covers.
    fn mongodb_names(self) -> &'static [&'static str] {
        match self {
            Find => &["find", "killCursors"],
            Write => &["insert", "update", "remove"],
            Structure => {
                &["createCollection", "dropCollection", "createIndex", "dropIndex", "collMod", "renameCollectionSameDB"]
            }
            List => &["listCollections", "listIndexes"],
            Statistics => &["collStats", "dbStats"],
            Validate => &["validate"],
            DropDatabase => &["dropDatabase"],
            ViewUsers => &["viewUser"],
            ManageUsers => &["createUser", "dropUser", "grantRole", "revokeRole", "changePassword", "changeCustomData"],
            ListDatabases => &["listDatabases"],
            Monitor => &["serverStatus", "top", "hostInfo", "getCmdLineOpts", "getLog", "getParameter", "inprog"],
            Control => &["killop", "killAnySession"],
            ReadUsers => &["find"],
            // What MongoDB asks of who opens a backup cursor.
            BackUp => &["fsync"],
        }
    }
}

/// The databases on which a role is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The one that it is given on.
    Own,
    /// All but `local` and `config`; given on `admin`.
    Any,
    /// All; given on `admin`.
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
    BuiltInRole { name: "read", reach: Reach::Own, actions: &[Find, List, Statistics] },
    BuiltInRole { name: "readWrite", reach: Reach::Own, actions: &[Find, List, Statistics, Write, Structure] },
    BuiltInRole { name: "dbAdmin", reach: Reach::Own, actions: &[List, Statistics, Structure, Validate, DropDatabase] },
    BuiltInRole { name: "userAdmin", reach: Reach::Own, actions: &[ViewUsers, ManageUsers] },
    BuiltInRole {
        name: "dbOwner",
        reach: Reach::Own,
        actions: &[Find, List, Statistics, Write, Structure, Validate, DropDatabase, ViewUsers, ManageUsers],
    },
    BuiltInRole { name: "readAnyDatabase", reach: Reach::Any, actions: &[Find, List, Statistics, ListDatabases] },
    BuiltInRole {
        name: "readWriteAnyDatabase",
        reach: Reach::Any,
        actions: &[Find, List, Statistics, Write, Structure, ListDatabases],
    },
    BuiltInRole {
        name: "dbAdminAnyDatabase",
        reach: Reach::Any,
        actions: &[List, Statistics, Structure, Validate, DropDatabase, ListDatabases],
    },
    BuiltInRole { name: "userAdminAnyDatabase", reach: Reach::Any, actions: &[ViewUsers, ManageUsers, ListDatabases] },
    BuiltInRole { name: "clusterMonitor", reach: Reach::All, actions: &[List, Statistics, ListDatabases, Monitor] },
    BuiltInRole {
        name: "clusterAdmin",
        reach: Reach::All,
        actions: &[List, Statistics, DropDatabase, ListDatabases, Monitor, Control],
    },
    BuiltInRole {
        name: "root",
        reach: Reach::All,
        actions: &[
            Find,
            List,
            Statistics,
            Write,
            Structure,
            Validate,
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
    /// The role of this name on this database.
    ///
    /// # Errors
    /// `RoleNotFound` (31): there is none, or only on `admin`.
    pub fn new(name: &str, database: &str) -> Result<Self> {
        handfast_store::check_database_name(database)?;
        let kind = BUILT_IN_ROLES.iter().find(|kind| kind.name == name);
        let kind = kind.filter(|kind| kind.reach == Reach::Own || database == "admin");
        let kind =
            kind.ok_or_else(|| Error::command(Code::RoleNotFound, format!("Could not find role: {name}@{database}")))?;
        Ok(Role { kind, database: database.to_owned() })
    }

    /// Its name without the database.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// The database that it is given on.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Whether it allows an action on a database; for an action that is about the server, any will do.
    pub fn allows(&self, action: Action, database: &str) -> bool {
        let reaches = match self.kind.reach {
            Reach::Own => database == self.database,
            Reach::Any => !matches!(database, "local" | "config"),
            Reach::All => true,
        };
        self.kind.actions.contains(&action) && (reaches || action.is_of_server())
    }

    /// On which database, if not on all, it allows what, by MongoDB's names: first about databases, then about the server.
    pub(crate) fn privileges(&self) -> [(Privileged<'_>, Vec<&'static str>); 2] {
        let database = if self.kind.reach == Reach::Own { &self.database } else { "" };
        let names = |of_server| {
            let actions = self.kind.actions.iter().filter(|action| action.is_of_server() == of_server);
            actions.flat_map(|action| action.mongodb_names()).copied().collect()
        };
        [(Privileged::Database(database), names(false)), (Privileged::Server, names(true))]
    }

    /// The names of all roles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN_ROLES.iter().map(|kind| kind.name)
    }
}

#[cfg(test)]
mod tests;
