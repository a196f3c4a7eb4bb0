//! Compares what a command needs with the roles of its user.
//!
//! The table of commands has the needs of each command ([`Needs`]). A command that uses more than the collection that it names has
//! a function that visits every collection with its actions. The visitor refuses what no user may do, such as to write to the
//! collection of users, and with `--auth` also what no role of the user allows.
//!
//! ```text
//! {aggregate: "orders", pipeline: [{$lookup: {from: "people", ..}}, {$out: "report"}]}
//!     Find shop.orders, Find shop.people, Write shop.report, Structure shop.report
//! ```

use std::sync::Arc;

use bson::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_store::Namespace;
use handfast_store::ticket::{TICKETS_COLLECTION, TICKETS_DATABASE};

use super::login::Authenticated;
use super::role::Action;
use super::user::User;
use super::users::{KEYS, USERS};
use crate::arguments::as_lenient_flag;
use crate::commands::Command;
use crate::error::{CommandError, CommandResult};
use crate::request::Request;
use crate::state::{Client, Shared};

/// The authorization that a command needs.
#[derive(Clone, Copy)]
pub(crate) enum Needs {
    /// The command belongs to the handshake, before the login.
    Nothing,
    /// A login. The command uses only what its user has opened (cursors, sessions), or shows nothing secret.
    Login,
    /// Actions on the collection that the command names.
    Collection(&'static [Action]),
    /// An action on the command's database.
    Database(Action),
    /// An action that is about the server.
    Server(Action),
    /// All actions and targets that the function visits.
    Visited(fn(&Request<'_>, &mut Visitor<'_>) -> CommandResult<()>),
}

/// The collection or database of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub(crate) database: &'a str,
    /// The collection, or an empty string for a whole database.
    pub(crate) collection: &'a str,
}

impl Target<'_> {
    /// Returns whether it holds users or secrets.
    fn is_protected(self) -> bool {
        [USERS, KEYS].contains(&self)
    }

    /// Returns whether it holds the outcomes of transactions and retryable writes. A change there would let the server apply writes twice
    /// or not at all.
    fn holds_outcomes(self) -> bool {
        (self.database, self.collection) == (TICKETS_DATABASE, TICKETS_COLLECTION)
    }
}

/// A function that refuses an action on a target, or allows it.
pub(crate) type Visitor<'v> = dyn FnMut(Action, Target<'_>) -> CommandResult<()> + 'v;

/// Refuses a request that no client may send, or that this client may not send.
pub(crate) async fn check(
    shared: &Shared,
    client: &Client,
    request: &Request<'_>,
    command: &Command,
) -> CommandResult<()> {
    if matches!(command.needs, Needs::Nothing) {
        return Ok(());
    }
    if !shared.options.authentication {
        return visit(command, request, &mut |action, target| check_protected(request, action, target));
    }
    let Some(user) = current(shared, client).await? else {
        let text = format!("Command {} requires authentication", command.name);
        return Err(CommandError::new(Code::Unauthorized, text));
    };
    let bypasses = bypasses_validation(request.body);
    visit(command, request, &mut |action, target| {
        check_protected(request, action, target)?;
        if action == Action::Write && bypasses && !user.user.may(Action::BypassValidation, target.database) {
            return Err(refusal(request, target));
        }
        let action = if target.is_protected() && action == Action::Find { Action::ReadUsers } else { action };
        if user.user.may(action, target.database) { Ok(()) } else { Err(refusal(request, target)) }
    })
}

/// Returns whether a command writes without applying validators. The command itself refuses a value of a wrong type.
fn bypasses_validation(command: &RawDocument) -> bool {
    let mut fields = command.iter().flatten();
    fields.any(|(name, value)| {
        name.as_str() == "bypassDocumentValidation"
            && !matches!(value, RawBsonRef::Null)
            && as_lenient_flag(value) != Some(false)
    })
}

/// Refuses an action that no role of the client's user allows. Without `--auth` every client may do everything.
pub(crate) fn require(
    shared: &Shared,
    client: &Client,
    request: &Request<'_>,
    action: Action,
    database: &str,
) -> CommandResult<()> {
    if !shared.options.authentication || client.login.user().is_some_and(|user| user.user.may(action, database)) {
        return Ok(());
    }
    Err(refusal(request, Target { database, collection: "" }))
}

/// Returns the user of the connection, with its roles as they are now.
async fn current(shared: &Shared, client: &Client) -> CommandResult<Option<Arc<Authenticated>>> {
    let Some(known) = client.login.user() else { return Ok(None) };
    if known.token.as_ref().is_some_and(|token| token.has_expired(shared.sources.clock.now())) {
        client.login.set(None);
        return Ok(None);
    }
    let generation = shared.users.generation();
    if known.generation == generation {
        return Ok(Some(known));
    }
    let user = shared.users.find(&known.user.name).await?;
    // A user that was removed and added again has another id. A token may have been revoked.
    let holds =
        |user: &User| known.token.as_ref().is_none_or(|token| user.tokens.iter().any(|kept| kept.id == token.id));
    let user = user.filter(|user| user.id == known.user.id && holds(user));
    let user = user.map(|user| Arc::new(Authenticated { user, generation, token: known.token.clone() }));
    client.login.set(user.clone());
    Ok(user)
}

/// Calls the visitor with each action and target that a command needs.
pub(crate) fn visit(command: &Command, request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let database = request.database;
    match command.needs {
        Needs::Nothing | Needs::Login => Ok(()),
        Needs::Server(action) => visitor(action, Target { database: "", collection: "" }),
        Needs::Database(action) => visitor(action, Target { database, collection: "" }),
        Needs::Collection(actions) => {
            let collection = match request.subject {
                RawBsonRef::String(collection) => collection,
                // The command itself refuses this, with a better message.
                _ => "",
            };
            actions.iter().try_for_each(|action| visitor(*action, Target { database, collection }))
        }
        Needs::Visited(function) => function(request, visitor),
    }
}

/// Refuses changes by which a client could bypass the roles. No role allows them.
fn check_protected(request: &Request<'_>, action: Action, target: Target<'_>) -> CommandResult<()> {
    if action == Action::DropDatabase && [USERS.database, TICKETS_DATABASE].contains(&target.database) {
        let text = format!("Dropping the '{}' database is prohibited.", target.database);
        return Err(CommandError::new(Code::IllegalOperation, text));
    }
    let harmless = matches!(
        action,
        Action::Find
            | Action::List
            | Action::Statistics
            | Action::IndexStatistics
            | Action::ReadPlans
            | Action::Validate
    );
    if (target.is_protected() || target.holds_outcomes()) && !harmless {
        return Err(refusal(request, target));
    }
    Ok(())
}

/// Returns whether no client may use a collection by a command that does not name it.
pub fn is_protected(namespace: &Namespace) -> bool {
    let target = Target { database: namespace.database(), collection: namespace.collection() };
    target.is_protected() || target.holds_outcomes()
}

/// Returns the error of a missing role. MongoDB's message has the whole command; this one does not, because commands hold private data.
fn refusal(request: &Request<'_>, target: Target<'_>) -> CommandError {
    let database = if target.database.is_empty() { "admin" } else { target.database };
    let text = match target.collection {
        "" => format!("not authorized on {database} to execute command {}", request.name),
        collection => format!("not authorized on {database} to execute command {} on {collection}", request.name),
    };
    CommandError::new(Code::Unauthorized, text)
}

/// Visits the collections that a pipeline reads or writes, besides the one that it starts from.
///
/// It visits every field of every document in it, at any depth, so that no stage is missed. The language refuses a stage in a wrong
/// place later.
pub(crate) fn visit_pipeline(database: &str, value: RawBsonRef<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    match value {
        RawBsonRef::Array(array) => {
            for element in array {
                visit_pipeline(database, element?, visitor)?;
            }
        }
        RawBsonRef::Document(document) => {
            for element in document {
                let (name, value) = element?;
                visit_stage(database, name.as_str(), value, visitor)?;
                visit_pipeline(database, value, visitor)?;
            }
        }
        _ => {}
    }
    Ok(())
}

const READS: &[Action] = &[Action::Find];
/// A stage that writes creates the collection if it does not exist.
const WRITES: &[Action] = &[Action::Write, Action::Structure];

fn visit_stage(database: &str, name: &str, value: RawBsonRef<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let (fields, actions): (&[&str], _) = match name {
        "$lookup" | "$graphLookup" => (&["from"], READS),
        "$unionWith" => (&["coll"], READS),
        "$out" => (&[], WRITES),
        "$merge" => (&["into"], WRITES),
        _ => return Ok(()),
    };
    match value {
        RawBsonRef::String(collection) => visit_target(actions, Target { database, collection }, visitor),
        RawBsonRef::Document(options) if fields.is_empty() => visit_named(database, actions, options, visitor),
        RawBsonRef::Document(options) => {
            // If there are two fields of this name, both are visited.
            for element in options {
                let (name, value) = element?;
                match value {
                    _ if !fields.contains(&name.as_str()) => {}
                    RawBsonRef::String(collection) => visit_target(actions, Target { database, collection }, visitor)?,
                    RawBsonRef::Document(named) => visit_named(database, actions, named, visitor)?,
                    _ => {}
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Visits `{db, coll}`.
fn visit_named(
    database: &str,
    actions: &[Action],
    named: &RawDocument,
    visitor: &mut Visitor<'_>,
) -> CommandResult<()> {
    let (mut databases, mut collections) = (Vec::new(), Vec::new());
    for element in named {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("db", RawBsonRef::String(database)) => databases.push(database),
            ("coll", RawBsonRef::String(collection)) => collections.push(collection),
            _ => {}
        }
    }
    if databases.is_empty() {
        databases.push(database);
    }
    for database in databases {
        for collection in &collections {
            visit_target(actions, Target { database, collection }, visitor)?;
        }
    }
    Ok(())
}

fn visit_target(actions: &[Action], target: Target<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    actions.iter().try_for_each(|action| visitor(*action, target))
}

/// Visits the collection of a full name such as `database.collection`.
pub(crate) fn visit_full_name(full: &str, actions: &[Action], visitor: &mut Visitor<'_>) -> CommandResult<()> {
    match full.split_once('.') {
        Some((database, collection)) => visit_target(actions, Target { database, collection }, visitor),
        // The command itself refuses this.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
