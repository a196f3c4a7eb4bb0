//! A user, and its document, which has MongoDB's fields:
//!
//! ```text
//! {_id: "shop.ann", userId: UUID, user: "ann", db: "shop",
//!  credentials: {"SCRAM-SHA-256": {iterationCount: 15000, salt: "..", storedKey: "..", serverKey: ".."}},
//!  roles: [{role: "readWrite", db: "shop"}], customData: {..},
//!  tokens: [{_id: "9f86d081884c7d65", hash: "..", name: "reports", createdAt, expiresAt}]}    MongoDB has none
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{Error, Result, check_database_name};

use super::role::{Action, Role};
use super::scram::{Credentials, MECHANISM};
use super::token::UserToken;
use crate::writer::{Uuid, Writer};

/// The largest user name in bytes, so that it fits into a log line.
pub const USER_NAME_BYTES_MAX: usize = 256;
/// The number of roles of one user. Each command checks all of them.
pub const ROLES_MAX: usize = 100;

/// The id of a user, a UUID. An earlier user of the same name has another one.
pub type UserId = [u8; 16];

/// A name, and the database to which it belongs: the `authSource` of a connection string.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserName {
    database: String,
    name: String,
}

impl UserName {
    /// Checks a name and its database.
    ///
    /// # Errors
    /// `BadValue` (2) for an empty or too long name; `InvalidNamespace` (73) for a database that cannot have users.
    pub fn new(database: &str, name: &str) -> Result<Self> {
        check_database_name(database)?;
        let refused = |text: &str| Err(Error::command(Code::BadValue, text));
        if name.is_empty() {
            return refused("the name of a user must not be empty");
        }
        if name.len() > USER_NAME_BYTES_MAX {
            return refused("the name of a user must not be longer than 256 bytes");
        }
        if name.contains('\0') {
            return refused("the name of a user must not contain the null character");
        }
        if database == "local" {
            return refused("cannot create users in the local database");
        }
        Ok(UserName { database: database.to_owned(), name: name.to_owned() })
    }

    /// Returns the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the name without the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the `_id` of its document. No two users share it, because the name of a database holds no dot.
    pub(crate) fn id(&self) -> String {
        format!("{}.{}", self.database, self.name)
    }
}

impl std::fmt::Display for UserName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.name, self.database)
    }
}

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    /// The name of the user and its database.
    pub name: UserName,
    /// The id that tells it from an earlier user of the same name.
    pub id: UserId,
    /// The credentials that were derived from its password.
    pub credentials: Credentials,
    /// The roles of the user.
    pub roles: Vec<Role>,
    /// Data of the administrator who added it.
    pub custom_data: Option<RawDocumentBuf>,
    /// The tokens that stand for its password.
    pub tokens: Vec<UserToken>,
}

impl User {
    /// Returns whether its roles allow an action on a database.
    pub fn may(&self, action: Action, database: &str) -> bool {
        self.roles.iter().any(|role| role.allows(action, database))
    }

    /// Returns the document that is stored.
    pub(crate) fn to_document(&self) -> RawDocumentBuf {
        let mut writer = Writer::new();
        self.put_name(&mut writer);
        let Credentials { iterations, salt, stored_key, server_key } = &self.credentials;
        writer.begin_document("credentials").begin_document(MECHANISM);
        writer.put("iterationCount", i32::try_from(*iterations).unwrap_or(i32::MAX));
        writer.put("salt", BASE64.encode(salt)).put("storedKey", BASE64.encode(stored_key));
        writer.put("serverKey", BASE64.encode(server_key)).end().end();
        self.put_rest(&mut writer);
        writer.finish()
    }

    /// Returns the document that is shown to clients: everything but the credentials.
    pub(crate) fn to_shown(&self, custom_data: bool) -> RawDocumentBuf {
        let mut writer = Writer::new();
        self.put_name(&mut writer);
        put_roles(&mut writer, "roles", &self.roles);
        if custom_data {
            writer.put_some("customData", self.custom_data.as_ref());
        }
        writer.array("mechanisms", [MECHANISM]);
        writer.finish()
    }

    fn put_name(&self, writer: &mut Writer) {
        writer.put("_id", self.name.id()).put("userId", Uuid(self.id));
        writer.put("user", self.name.name()).put("db", self.name.database());
    }

    fn put_rest(&self, writer: &mut Writer) {
        put_roles(writer, "roles", &self.roles);
        writer.put_some("customData", self.custom_data.as_ref());
        if !self.tokens.is_empty() {
            writer.array("tokens", self.tokens.iter().map(UserToken::to_document));
        }
    }

    /// Reads a stored document.
    ///
    /// # Errors
    /// `UnsupportedFormat` (12) for a document that Handfast has not written.
    pub(crate) fn of_document(document: &RawDocument) -> Result<Self> {
        read(document).ok_or_else(|| {
            let id = document.get_str("_id").unwrap_or_default();
            let text = format!(
                "the document of user '{id}' cannot be read: it needs credentials for SCRAM-SHA-256, and built-in roles only"
            );
            Error::command(Code::UnsupportedFormat, text)
        })
    }
}

/// Writes `[{role, db}, ..]`.
pub(crate) fn put_roles(writer: &mut Writer, key: &str, roles: &[Role]) {
    let roles = roles.iter().map(|role| {
        let mut writer = Writer::new();
        writer.put("role", role.name()).put("db", role.database());
        writer.finish()
    });
    writer.array(key, roles);
}

fn read(document: &RawDocument) -> Option<User> {
    let name = UserName::new(document.get_str("db").ok()?, document.get_str("user").ok()?).ok()?;
    let id = document.get_binary("userId").ok()?.bytes.try_into().ok()?;
    let scram = document.get_document("credentials").ok()?.get_document(MECHANISM).ok()?;
    let bytes = |key: &str| BASE64.decode(scram.get_str(key).ok()?).ok();
    let credentials = Credentials {
        iterations: u32::try_from(scram.get_i32("iterationCount").ok()?).ok()?,
        salt: bytes("salt")?,
        stored_key: bytes("storedKey")?.try_into().ok()?,
        server_key: bytes("serverKey")?.try_into().ok()?,
    };
    let mut roles = Vec::new();
    for role in document.get_array("roles").ok()? {
        let RawBsonRef::Document(role) = role.ok()? else { return None };
        roles.push(Role::new(role.get_str("role").ok()?, role.get_str("db").ok()?).ok()?);
    }
    let custom_data = document.get_document("customData").ok().map(RawDocument::to_owned);
    Some(User { name, id, credentials, roles, custom_data, tokens: UserToken::all_of(document)? })
}
