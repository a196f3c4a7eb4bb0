//! A request: the name of its command, its database, its own fields, and the fields that every command may have.

mod numbering;

use std::time::Duration;

use bson::Timestamp;
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use handfast_mql::Code;
use handfast_mql::bson_type::type_name;
use handfast_store::{Durability, Namespace, check_database_name};
use handfast_wire::Sequence;

pub(crate) use self::numbering::Numbering;
use crate::arguments::{Arguments, FIELDS_USUAL, Field, GENERIC, as_integer, as_number};
use crate::auth::user::UserId;
use crate::commands::{self, Access, Command, Properties};
use crate::error::{CommandError, CommandResult};

/// The id of a session, which its client has chosen, and the user of the session. No user can use the session of another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SessionId {
    pub(crate) id: [u8; 16],
    pub(crate) user: Option<UserId>,
}

impl SessionId {
    /// Returns the id of a session without a user.
    pub(crate) fn of(id: [u8; 16]) -> Self {
        SessionId { id, user: None }
    }

    /// Returns the id with this user.
    pub(crate) fn of_user(self, user: Option<UserId>) -> Self {
        SessionId { user, ..self }
    }
}

impl std::fmt::Display for SessionId {
    /// Writes the id as a UUID.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, byte) in self.id.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Reads `{id: UUID}`.
pub(crate) fn session_id(path: &'static str, document: &RawDocument) -> CommandResult<SessionId> {
    let mut arguments = Arguments::of_document(path, document)?;
    let id = arguments.any("id")?;
    // `uid` is a digest of the user, which the server knows from the login.
    arguments.ignored(&["uid", "txnNumber", "txnUUID"])?;
    arguments.finish()?;
    match id {
        None => Err(CommandError::new(Code(40_414), format!("BSON field '{path}.id' is missing but a required field"))),
        Some(RawBsonRef::Binary(binary)) if binary.subtype == BinarySubtype::Uuid => match binary.bytes.try_into() {
            Ok(bytes) => Ok(SessionId::of(bytes)),
            Err(_) => {
                Err(CommandError::new(Code::InvalidLength, "uuid must be a 16-byte binary field with UUID (4) subtype"))
            }
        },
        Some(_) => Err(CommandError::new(Code::TypeMismatch, format!("BSON field '{path}.id' must be a UUID"))),
    }
}

/// The write concern of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteConcern {
    /// Whether the client wants a reply: `false` for `w: 0`.
    pub(crate) acknowledged: bool,
    /// Whether the write must be synced, whatever the server's default is: `j: true` or `w: "majority"`.
    pub(crate) synced: bool,
    /// The error with which the write is acknowledged if the concern asks for members that the replica set does not have.
    pub(crate) unsatisfied: Option<Code>,
}

/// The read concern of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadConcern<'a> {
    pub(crate) level: Option<&'a str>,
    /// The `atClusterTime` of the snapshot to read, from an earlier reply.
    pub(crate) at: Option<Timestamp>,
}

/// A command.
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    /// The value of the command's name.
    pub(crate) subject: RawBsonRef<'a>,
    pub(crate) database: &'a str,
    pub(crate) body: &'a RawDocument,
    /// The entry of the command table; `None` if the name is unknown or that of a test command.
    pub(crate) command: Option<&'static Command>,
    pub(crate) access: Access,
    /// The fields of the command itself, without its name and those that every command may have.
    fields: Vec<Field<'a>>,
    pub(crate) sequences: &'a [Sequence<'a>],
    pub(crate) session: Option<SessionId>,
    pub(crate) numbering: Numbering,
    pub(crate) max_time: Option<Duration>,
    pub(crate) write_concern: WriteConcern,
    /// Whether there is a `writeConcern`.
    pub(crate) has_write_concern: bool,
    /// The `readConcern`, if there is one.
    pub(crate) read_concern: Option<ReadConcern<'a>>,
    pub(crate) api_strict: bool,
    /// Whether the client accepts several replies.
    pub(crate) exhaust: bool,
}

/// The fields that are checked once all are read, so that the first error does not depend on their order.
struct Generic<'a> {
    database: Option<RawBsonRef<'a>>,
    numbering: numbering::Fields,
    refused: Option<CommandError>,
    api_version: bool,
}

impl<'a> Request<'a> {
    /// Reads the command's name and the fields that every command may have.
    pub(crate) fn new(
        body: &'a RawDocument,
        sequences: &'a [Sequence<'a>],
        database: Option<&'a str>,
        exhaust: bool,
    ) -> CommandResult<Self> {
        let mut elements = body.iter();
        let (name, subject) = match elements.next().transpose()? {
            Some((name, subject)) => (name.as_str(), subject),
            None => return Err(CommandError::new(Code::CommandNotFound, "no such command: ''")),
        };
        let mut generic = Generic { database: None, numbering: Default::default(), refused: None, api_version: false };
        let mut request = Request {
            name,
            subject,
            database: "",
            body,
            command: commands::find(name),
            access: Access::Server,
            fields: Vec::with_capacity(FIELDS_USUAL),
            sequences,
            session: None,
            numbering: Numbering::None,
            max_time: None,
            write_concern: WriteConcern { acknowledged: true, synced: false, unsatisfied: None },
            has_write_concern: false,
            read_concern: None,
            api_strict: false,
            exhaust,
        };
        if name == "$db" {
            generic.database = Some(subject);
        }
        for element in elements {
            let (name, value) = element?;
            let name = name.as_str();
            if !GENERIC.contains(&name) {
                request.fields.push(Field { name, value });
            } else if let Err(error) = request.read_generic(&mut generic, name, value) {
                generic.refused.get_or_insert(error);
            }
        }
        request.database = match (database, generic.database) {
            (Some(database), _) | (None, Some(RawBsonRef::String(database))) => database,
            (None, None) => {
                return Err(CommandError::new(Code(40_571), "OP_MSG requests require a $db argument"));
            }
            (None, Some(_)) => {
                return Err(CommandError::new(Code::TypeMismatch, "the $db argument must be a string"));
            }
        };
        // Logins may name this database. They get the error that no mechanism is enabled there.
        if !(request.database == EXTERNAL && request.properties().external_database) {
            check_database_name(request.database)?;
        }
        if let Some(error) = generic.refused {
            return Err(error);
        }
        request.numbering = generic.numbering.validate(request.session.is_some())?;
        if request.api_strict && !generic.api_version {
            let text = "Provided apiStrict without passing apiVersion";
            return Err(CommandError::new(Code::InvalidOptions, text));
        }
        if let Some(command) = request.command {
            request.access = command.properties.access_of.map_or(command.access, |access_of| access_of(&request));
        }
        Ok(request)
    }

    /// Returns the properties of its command, or the default ones if the command is unknown.
    pub(crate) fn properties(&self) -> &'static Properties {
        self.command.map_or(&Properties::DEFAULT, |command| &command.properties)
    }

    /// Returns the request with its session belonging to this user.
    pub(crate) fn of_user(mut self, user: Option<UserId>) -> Self {
        self.session = self.session.map(|session| session.of_user(user));
        self
    }

    fn read_generic(&mut self, generic: &mut Generic<'a>, name: &str, value: RawBsonRef<'a>) -> CommandResult<()> {
        if name == "$db" {
            generic.database.get_or_insert(value);
            return Ok(());
        }
        if matches!(value, RawBsonRef::Null) {
            return Ok(());
        }
        match name {
            "lsid" => self.session = Some(session_id("lsid", document("lsid", value)?)?),
            "maxTimeMS" => self.max_time = max_time(value)?,
            "writeConcern" => {
                self.write_concern = write_concern(document("writeConcern", value)?)?;
                self.has_write_concern = true;
            }
            "readConcern" => self.read_concern = Some(read_concern(document("readConcern", value)?)?),
            "txnNumber" => generic.numbering.read_number(value)?,
            "autocommit" => generic.numbering.read_autocommit(value)?,
            "startTransaction" => generic.numbering.read_start(value)?,
            "apiVersion" => {
                if value.as_str() != Some("1") {
                    return Err(CommandError::new(Code::APIVersionError, "API version must be \"1\""));
                }
                generic.api_version = true;
            }
            "apiStrict" => self.api_strict = boolean("apiStrict", value)?,
            "apiDeprecationErrors" => {
                boolean("apiDeprecationErrors", value)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the command's own fields.
    pub(crate) fn arguments(&self, path: &'static str) -> Arguments<'_> {
        Arguments::of_command(path, &self.fields, self.sequences)
    }

    /// Returns the collection that the command creates or writes to.
    ///
    /// # Errors
    /// `InvalidNamespace` (73) for a system collection.
    pub(crate) fn written_namespace(&self) -> CommandResult<Namespace> {
        let namespace = self.namespace()?;
        check_written(&namespace)?;
        Ok(namespace)
    }

    /// Returns the collection that the command names.
    pub(crate) fn namespace(&self) -> CommandResult<Namespace> {
        match self.subject {
            RawBsonRef::String(collection) => Ok(Namespace::new(self.database, collection)?),
            other => {
                let kind = type_name(other);
                let text = format!("collection name has invalid type {kind}");
                Err(CommandError::new(Code::InvalidNamespace, text))
            }
        }
    }

    /// Returns the durability that the store has to reach before it acknowledges, given the server's default.
    ///
    /// A client can ask for more than the default and not for less. With `Journaled` as the default, writes with `j: false` and `w: 0`
    /// are synced as well, which costs little: they share the sync of other writes.
    pub(crate) fn durability(&self, default: Durability) -> Durability {
        match default {
            Durability::Memory if !self.write_concern.synced => Durability::Memory,
            _ => Durability::Journaled,
        }
    }
}

/// Refuses writes to system collections, as MongoDB does. They can be read and dropped.
///
/// # Errors
/// `InvalidNamespace` (73).
pub(crate) fn check_written(namespace: &Namespace) -> CommandResult<()> {
    let collection = namespace.collection();
    let is_open = match namespace.database() {
        // The roles decide who may write to these.
        "admin" => matches!(collection, "system.users" | "system.keys"),
        _ => false,
    };
    if !collection.starts_with("system.") || collection == "system.js" || is_open {
        return Ok(());
    }
    Err(CommandError::new(Code::InvalidNamespace, format!("Invalid system namespace: {namespace}")))
}

fn document<'a>(name: &str, value: RawBsonRef<'a>) -> CommandResult<&'a RawDocument> {
    value.as_document().ok_or_else(|| mismatch(name, value, "type 'object'"))
}

fn boolean(name: &str, value: RawBsonRef<'_>) -> CommandResult<bool> {
    value.as_bool().ok_or_else(|| mismatch(name, value, "type 'bool'"))
}

fn mismatch(name: &str, value: RawBsonRef<'_>, expected: &str) -> CommandError {
    let kind = type_name(value);
    CommandError::new(
        Code::TypeMismatch,
        format!("BSON field '{name}' is the wrong type '{kind}', expected {expected}"),
    )
}

/// Reads `maxTimeMS`, of which 0 means no limit.
fn max_time(value: RawBsonRef<'_>) -> CommandResult<Option<Duration>> {
    let Some(millis) = as_integer(value) else {
        return Err(mismatch("maxTimeMS", value, "types '[long, int, decimal, double']"));
    };
    // NaN has no fraction that is 0.
    if as_number(value).is_some_and(|number| number.is_finite() && number.fract() != 0.0 || number.is_nan()) {
        return Err(CommandError::new(Code::BadValue, "maxTimeMS has non-integral value"));
    }
    match u32::try_from(millis) {
        Ok(0) => Ok(None),
        Ok(millis) if i32::try_from(millis).is_ok() => Ok(Some(Duration::from_millis(u64::from(millis)))),
        _ => {
            let text = format!("{millis} value for maxTimeMS is out of range [0, {}]", i32::MAX);
            Err(CommandError::new(Code::BadValue, text))
        }
    }
}

pub(crate) fn write_concern(document: &RawDocument) -> CommandResult<WriteConcern> {
    let mut arguments = Arguments::of_document("writeConcern", document)?;
    let journaled = arguments.lenient_flag("j")?.unwrap_or(false);
    let synced = arguments.lenient_flag("fsync")?.unwrap_or(false);
    arguments.integer("wtimeout")?;
    arguments.ignored(&["provenance"])?;
    let mut concern = WriteConcern { acknowledged: true, synced: journaled || synced, unsatisfied: None };
    match arguments.any("w")? {
        None => {}
        Some(RawBsonRef::String("majority")) => concern.synced = true,
        Some(RawBsonRef::String(_)) => concern.unsatisfied = Some(Code::UnknownReplWriteConcern),
        Some(value) => match as_integer(value) {
            Some(0) => concern.acknowledged = false,
            Some(1) => {}
            Some(2..=50) => concern.unsatisfied = Some(Code::CannotSatisfyWriteConcern),
            Some(_) => {
                return Err(CommandError::new(
                    Code::FailedToParse,
                    "w has to be a non-negative number and not greater than 50",
                ));
            }
            None => return Err(CommandError::new(Code::FailedToParse, "w has to be a number or a string")),
        },
    }
    // As MongoDB documents, j: true takes precedence over w: 0.
    concern.acknowledged |= concern.synced;
    arguments.finish()?;
    Ok(concern)
}

/// The read concern level of a read of a snapshot, whose time the reply names.
pub(crate) const SNAPSHOT: &str = "snapshot";

/// MongoDB's database of users whose passwords are kept elsewhere. This server has no such users.
pub(crate) const EXTERNAL: &str = "$external";

/// Reads the read concern. There is one copy of the data, and reads see committed writes only, so every level is fulfilled, and so is
/// every `afterClusterTime` that a client has received.
pub(crate) fn read_concern(document: &RawDocument) -> CommandResult<ReadConcern<'_>> {
    let mut arguments = Arguments::of_document("readConcern", document)?;
    let level = arguments.text("level")?;
    arguments.ignored(&["provenance"])?;
    let mut moment = |name: &str| match arguments.any(name)? {
        None => Ok(None),
        Some(RawBsonRef::Timestamp(moment)) => Ok(Some(moment)),
        Some(other) => Err(mismatch(&format!("readConcern.{name}"), other, "type 'timestamp'")),
    };
    let (after, at) = (moment("afterClusterTime")?, moment("atClusterTime")?);
    arguments.finish()?;
    if at.is_some() && (after.is_some() || level != Some(SNAPSHOT)) {
        let text = "'atClusterTime' needs the read concern level 'snapshot', and no 'afterClusterTime'";
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    match level {
        None | Some("local" | "available" | "majority" | "linearizable" | SNAPSHOT) => Ok(ReadConcern { level, at }),
        Some(other) => {
            let text = format!("Enumeration value '{other}' for field 'readConcern.level' is not a valid value.");
            Err(CommandError::new(Code::BadValue, text))
        }
    }
}

#[cfg(test)]
mod tests;
