//! `currentOp` and the stage `$currentOp`: list the running commands, and on request idle transactions, cursors and connections.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::RawBsonRef;
use bson::{DateTime, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::bson_type::type_name;

use super::list_filter::ListFilter;
use super::{Access, Call, Command, Properties};
use crate::arguments::{GENERIC, as_lenient_flag};
use crate::auth::guard::{self, Needs, Target, Visitor};
use crate::auth::role::Action;
use crate::auth::user::UserId;
use crate::cursors::IdleCursor;
use crate::error::{CommandError, CommandResult};
use crate::operations::Running;
use crate::reply::Answer;
use crate::request::Request;
use crate::sessions::OpenTransaction;
use crate::state::Client;
use crate::writer::{Uuid, Writer, decimal};

pub(crate) const COMMAND: Command = Command {
    name: "currentOp",
    aliases: &[],
    help: "lists the commands that run",
    access: Access::Server,
    needs: Needs::Visited(needs),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

/// The fields that select what to list. All other fields are a filter over the list.
const ALL: &str = "$all";
const OWN_OPS: &str = "$ownOps";

/// The operations that are listed, besides the running commands of the user.
#[derive(Clone, Copy)]
struct Listed {
    all_users: bool,
    idle_connections: bool,
    idle_cursors: bool,
    idle_sessions: bool,
}

fn is_set(request: &Request<'_>, name: &str) -> bool {
    matches!(request.body.get(name), Ok(Some(value)) if as_lenient_flag(value) == Some(true))
}

/// Visits the action for commands of other users, unless the client asks for its own ones.
fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    if is_set(request, OWN_OPS) {
        return Ok(());
    }
    visitor(Action::Monitor, Target { database: "", collection: "" })
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut filter = Writer::new();
    for element in call.request.body.iter().skip(1) {
        let (name, value) = element?;
        if !GENERIC.contains(&name.as_str()) && ![ALL, OWN_OPS].contains(&name.as_str()) {
            filter.put_any(name.as_str(), value);
        }
    }
    let filter = ListFilter::compile(call.shared, &filter.finish())?;
    let listed = Listed {
        all_users: !is_set(call.request, OWN_OPS),
        idle_connections: is_set(call.request, ALL),
        idle_cursors: false,
        idle_sessions: true,
    };
    let mut writer = Writer::new();
    writer.begin_array("inprog");
    let mut digits = [0; 20];
    let mut place = 0;
    for document in list(call, listed) {
        if filter.matches(&document)? {
            writer.put(decimal(place, &mut digits), &document);
            place += 1;
        }
    }
    writer.end();
    Ok(writer.into())
}

/// Returns the documents of the stage `$currentOp`.
///
/// # Errors
/// `TypeMismatch` (14) and `FailedToParse` (9) for its options; `Unauthorized` (13) for the operations of all users without the right to
/// see them.
pub(super) fn stage(call: &Call<'_>, options: RawBsonRef<'_>) -> CommandResult<Vec<RawDocumentBuf>> {
    let RawBsonRef::Document(options) = options else {
        let text = format!("$currentOp options must be specified in an object, but found: {}", type_name(options));
        return Err(CommandError::new(Code::TypeMismatch, text));
    };
    let mut listed = Listed { all_users: false, idle_connections: false, idle_cursors: false, idle_sessions: true };
    for element in options {
        let (name, value) = element?;
        let name = name.as_str();
        // The others choose among the servers of a cluster, of which there is one, and among forms of the same facts: a command is
        // shown up to 1,000 bytes, and there are no latches to wait for.
        let option = match name {
            "allUsers" => Some(&mut listed.all_users),
            "idleConnections" => Some(&mut listed.idle_connections),
            "idleCursors" => Some(&mut listed.idle_cursors),
            "idleSessions" => Some(&mut listed.idle_sessions),
            "localOps" | "truncateOps" | "backtrace" | "targetAllNodes" => None,
            _ => {
                let text = format!("Unrecognized option '{name}' in $currentOp stage.");
                return Err(CommandError::new(Code::FailedToParse, text));
            }
        };
        let Some(flag) = value.as_bool() else {
            let text = format!(
                "The '{name}' parameter of the $currentOp stage must be a boolean value, but found: {}",
                type_name(value)
            );
            // MongoDB reads these two before all others.
            let code = if matches!(name, "allUsers" | "localOps") { Code::TypeMismatch } else { Code::FailedToParse };
            return Err(CommandError::new(code, text));
        };
        if let Some(option) = option {
            *option = flag;
        }
    }
    if listed.all_users {
        guard::require(call.shared, call.client, call.request, Action::Monitor, "")?;
    }
    Ok(list(call, listed))
}

/// Returns the running commands and the other operations that are asked for, as documents. Without `--auth` those of all clients are shown.
fn list(call: &Call<'_>, listed: Listed) -> Vec<RawDocumentBuf> {
    let shared = call.shared;
    let is_shown = |user: Option<UserId>| listed.all_users || !shared.options.authentication || user == call.user_id();
    let transactions = shared.sessions.transactions();
    let operations = shared.operations.list();
    let is_of = |open: &OpenTransaction, running: &Running| {
        Some(open.session) == running.session && Some(open.number) == running.transaction
    };
    let shown = operations.iter().filter(|(client, _)| is_shown(client.user_id()));
    let mut documents: Vec<_> = shown
        .map(|(client, running)| {
            let open = transactions.iter().find(|open| is_of(open, running));
            describe(call, client, running, open.map(|open| &**open))
        })
        .collect();
    if listed.idle_connections {
        let idle = shared.operations.idle();
        documents.extend(idle.iter().filter(|client| is_shown(client.user_id())).map(|client| {
            let mut writer = Writer::new();
            put_client(&mut writer, client, false);
            writer.put("currentOpTime", moment(call, Duration::ZERO));
            writer.finish()
        }));
    }
    if listed.idle_sessions {
        let is_idle = |open: &&Arc<OpenTransaction>| {
            is_shown(open.session.user) && !operations.iter().any(|(_, running)| is_of(open, running))
        };
        documents.extend(transactions.iter().filter(is_idle).map(|open| describe_idle(call, open)));
    }
    if listed.idle_cursors {
        let idle = shared.cursors.idle().into_iter().filter(|(_, cursor)| is_shown(cursor.description.user));
        documents.extend(idle.map(|(id, cursor)| describe_cursor(call, id, &cursor)));
    }
    documents
}

/// Describes a cursor on which no command works.
fn describe_cursor(call: &Call<'_>, id: i64, cursor: &IdleCursor) -> RawDocumentBuf {
    let IdleCursor { description, is_change_stream, since } = cursor;
    let ago = call.shared.now().saturating_sub(*since);
    let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    let used = call.shared.sources.clock.now().timestamp_millis().saturating_sub(ago);
    let mut writer = Writer::new();
    writer.put("type", "idleCursor").put("host", super::host_info::host_name()).put("ns", &description.namespace);
    writer.put("connectionId", i64::try_from(description.connection).unwrap_or(i64::MAX));
    if let Some(session) = description.session {
        writer.begin_document("lsid").put("id", Uuid(session.id)).end();
    }
    writer.begin_document("cursor").put("cursorId", id).put("lastAccessDate", DateTime::from_millis(used));
    writer.put("noCursorTimeout", description.no_timeout).put("tailable", *is_change_stream);
    writer.put("awaitData", *is_change_stream).end();
    writer.finish()
}

/// Describes a transaction that waits for its next request.
fn describe_idle(call: &Call<'_>, open: &OpenTransaction) -> RawDocumentBuf {
    let mut writer = Writer::new();
    writer.put("type", "idleSession").put("host", super::host_info::host_name()).put("desc", "inactive transaction");
    writer.put("active", false).begin_document("lsid").put("id", Uuid(open.session.id)).end();
    put_transaction(call, &mut writer, open);
    writer.finish()
}

fn put_transaction(call: &Call<'_>, writer: &mut Writer, open: &OpenTransaction) {
    let age = call.shared.now().saturating_sub(open.since);
    let lifetime = open.lifetime;
    writer.begin_document("transaction").begin_document("parameters");
    writer.put("txnNumber", open.number).put("autocommit", false);
    if let Some(level) = &open.read_concern {
        writer.begin_document("readConcern").put("level", level).end();
    }
    writer.end().put("startWallClockTime", moment(call, age));
    writer.put("timeOpenMicros", i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
    let ends = call
        .shared
        .sources
        .clock
        .now()
        .timestamp_millis()
        .saturating_add(i64::try_from(lifetime.saturating_sub(age).as_millis()).unwrap_or(i64::MAX));
    let ends = DateTime::from_millis(ends).try_to_rfc3339_string().unwrap_or_default();
    writer.put("expiryTime", ends).end();
}

/// Formats the moment that was so long ago.
fn moment(call: &Call<'_>, ago: Duration) -> String {
    let now = call.shared.sources.clock.now();
    let then = now.timestamp_millis().saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX));
    DateTime::from_millis(then).try_to_rfc3339_string().unwrap_or_default()
}

/// Writes the connection of an operation, and the user who has logged in on it.
fn put_client(writer: &mut Writer, client: &Client, active: bool) {
    writer.put("type", "op").put("host", super::host_info::host_name()).put("desc", format!("conn{}", client.id));
    writer.put("connectionId", i64::try_from(client.id).unwrap_or(i64::MAX)).put("client", &client.remote);
    writer.put_some("appName", client.app_name());
    writer.put_some("clientMetadata", client.metadata().as_deref());
    writer.put("active", active);
    if let Some(user) = client.login.user() {
        let name = &user.user.name;
        writer.begin_array("effectiveUsers").begin_document("0");
        writer.put("user", name.name()).put("db", name.database()).end().end();
    }
}

fn describe(call: &Call<'_>, client: &Client, running: &Running, open: Option<&OpenTransaction>) -> RawDocumentBuf {
    let ran = call.shared.now().saturating_sub(running.since);
    let mut writer = Writer::new();
    put_client(&mut writer, client, true);
    writer.put("currentOpTime", moment(call, ran));
    writer.put("opid", running.id).put("secs_running", i64::try_from(ran.as_secs()).unwrap_or(i64::MAX));
    writer.put("microsecs_running", i64::try_from(ran.as_micros()).unwrap_or(i64::MAX)).put("op", "command");
    let collection = running.document.as_ref().and_then(|document| document.get_str(running.command).ok());
    let namespace = format!("{}.{}", running.database, collection.unwrap_or("$cmd"));
    writer.put("ns", namespace);
    if let Some(session) = running.session {
        writer.begin_document("lsid").put("id", Uuid(session.id)).end();
    }
    if let Some(open) = open {
        put_transaction(call, &mut writer, open);
    }
    match &running.document {
        Some(document) => writer.put("command", document),
        None => writer.begin_document("command").put("$truncated", running.command).end(),
    };
    writer.finish()
}

#[cfg(test)]
mod tests;
