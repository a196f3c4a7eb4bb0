//! `currentOp`: lists the running commands.

use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, RawDocumentBuf};

use super::list_filter::ListFilter;
use super::{Access, Call, Command, Properties};
use crate::arguments::GENERIC;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::operations::Running;
use crate::reply::Answer;
use crate::sessions::OpenTransaction;
use crate::state::Client;
use crate::writer::{Uuid, Writer, decimal};

pub(crate) const COMMAND: Command = Command {
    name: "currentOp",
    aliases: &[],
    help: "lists the commands that run",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

/// The fields that select what to list. All other fields are a filter over the list.
const OPTIONS: [&str; 2] = ["$all", "$ownOps"];

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut filter = Writer::new();
    for element in call.request.body.iter().skip(1) {
        let (name, value) = element?;
        if !GENERIC.contains(&name.as_str()) && !OPTIONS.contains(&name.as_str()) {
            filter.put_any(name.as_str(), value);
        }
    }
    let filter = ListFilter::compile(call.shared, &filter.finish())?;
    let mut writer = Writer::new();
    writer.begin_array("inprog");
    let mut digits = [0; 20];
    let mut place = 0;
    for document in running(call) {
        if filter.matches(&document)? {
            writer.put(decimal(place, &mut digits), &document);
            place += 1;
        }
    }
    writer.end();
    Ok(writer.into())
}

/// Returns the running commands, and the open transactions without a running command, as documents.
pub(super) fn running(call: &Call<'_>) -> Vec<RawDocumentBuf> {
    let transactions = call.shared.sessions.transactions();
    let operations = call.shared.operations.list();
    let of = |running: &Running| {
        transactions
            .iter()
            .find(|open| Some(open.session) == running.session && Some(open.number) == running.transaction)
    };
    let mut documents: Vec<_> = operations
        .iter()
        .map(|(client, running)| describe(call, client, running, of(running).map(|open| &**open)).finish())
        .collect();
    let idle = |open: &&Arc<OpenTransaction>| {
        !operations
            .iter()
            .any(|(_, running)| Some(open.session) == running.session && Some(open.number) == running.transaction)
    };
    documents.extend(transactions.iter().filter(idle).map(|open| describe_idle(call, open)));
    documents
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
    let lifetime = call.shared.options.transaction_lifetime;
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

fn describe(call: &Call<'_>, client: &Client, running: &Running, open: Option<&OpenTransaction>) -> Writer {
    let shared = call.shared;
    let ran = shared.now().saturating_sub(running.since);
    let since = moment(call, ran);
    let mut writer = Writer::new();
    writer.put("type", "op").put("host", super::host_info::host_name()).put("desc", format!("conn{}", client.id));
    writer.put("connectionId", i64::try_from(client.id).unwrap_or(i64::MAX)).put("client", &client.remote);
    writer.put_some("appName", client.app_name()).put("active", true).put("currentOpTime", since);
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
    writer
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{ReplyFields, TestServer};

    #[tokio::test]
    async fn a_command_has_the_name_of_its_application() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        client.run("admin", rawdoc! { "hello": 1, "client": { "application": { "name": "app" } } }).await;
        let reply = client.run("admin", rawdoc! { "currentOp": 1 }).await;
        let own = reply.get_array("inprog").unwrap().get_document(0).unwrap();
        assert_eq!(own.text("appName"), "app");
    }
}
