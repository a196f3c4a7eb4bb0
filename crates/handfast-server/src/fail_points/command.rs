//! `failCommand`: commands that fail, are delayed, lose their connection, or report a write concern error.

use std::time::Duration;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use handfast_mql::Code;

use super::FailPoints;
use crate::arguments::Arguments;
use crate::commands::{self, Command};
use crate::dispatch::{self, CommandReply};
use crate::error::{CommandError, CommandResult};
use crate::reply::{labelled_failure, timed};
use crate::request::Request;
use crate::state::{Client, Shared};
use crate::transactions::labels;

/// The commands that fail, and their failure.
#[derive(Debug, Default)]
pub(crate) struct FailCommand {
    /// The commands, by any of their names.
    commands: Vec<String>,
    /// Only the commands of clients with this application name fail.
    app_name: Option<String>,
    /// Only the commands on this collection fail: `database.collection`.
    namespace: Option<String>,
    /// The delay before everything else.
    block: Option<Duration>,
    /// Whether the connection is closed, and the command not run.
    close: bool,
    /// The error of the command, which is not run.
    error: Option<Code>,
    /// The labels of the error, in place of those that the server would add.
    labels: Option<Vec<String>>,
    /// The write concern error in the reply of the command, which is run.
    write_concern_error: Option<RawDocumentBuf>,
}

impl FailCommand {
    pub(super) const NAME: &str = "failCommand";

    /// Reads the fail point's `data`.
    pub(super) fn read(data: &RawDocument) -> CommandResult<Self> {
        let mut arguments = Arguments::of_document("configureFailPoint.data", data)?;
        let blocks = arguments.flag("blockConnection")?.unwrap_or(false);
        let millis = arguments.unsigned("blockTimeMS")?;
        let block = match (blocks, millis) {
            (true, millis) => Some(Duration::from_millis(arguments.required("blockTimeMS", millis)?)),
            (false, _) => None,
        };
        let code = arguments.integer("errorCode")?;
        let error = code.map(|code| i32::try_from(code).map(Code)).transpose().map_err(|_| {
            CommandError::new(Code::BadValue, "BSON field 'configureFailPoint.data.errorCode' is out of range")
        })?;
        let write_concern_error = arguments.document("writeConcernError")?.map(ToOwned::to_owned);
        let data = FailCommand {
            commands: texts(&mut arguments, "failCommands")?.unwrap_or_default(),
            app_name: arguments.text("appName")?.map(str::to_owned),
            namespace: arguments.text("namespace")?.map(str::to_owned),
            block,
            close: arguments.flag("closeConnection")?.unwrap_or(false),
            error,
            labels: texts(&mut arguments, "errorLabels")?,
            write_concern_error,
        };
        // There are no internal commands, which come from other servers.
        arguments.ignored(&["failInternalCommands"])?;
        arguments.finish()?;
        Ok(data)
    }

    /// Returns whether it acts before a command runs.
    fn replaces_command(&self) -> bool {
        self.close || self.block.is_some() || self.error.is_some()
    }

    fn is_about(&self, client: &Client, request: &Request<'_>, command: Option<&Command>) -> bool {
        let is_named = |name: &String| {
            let of_command = |command: &Command| command.name == name || command.aliases.contains(&name.as_str());
            request.name == name || command.is_some_and(of_command)
        };
        let is_of = |asked: &Option<String>, is: &dyn Fn() -> Option<String>| asked.is_none() || *asked == is();
        self.commands.iter().any(is_named)
            && is_of(&self.app_name, &|| client.app_name())
            && is_of(&self.namespace, &|| Some(dispatch::namespace(request)))
    }

    /// Returns the labels of the fail point, or those of the server if the fail point has none.
    fn labels<'a>(&'a self, by_server: &'a [&'a str]) -> Vec<&'a str> {
        match &self.labels {
            Some(labels) => labels.iter().map(String::as_str).collect(),
            None => by_server.to_vec(),
        }
    }
}

/// Reads an array of strings.
fn texts(arguments: &mut Arguments<'_>, name: &'static str) -> CommandResult<Option<Vec<String>>> {
    let Some(array) = arguments.array(name)? else { return Ok(None) };
    let text = |value: Result<RawBsonRef<'_>, _>| match value? {
        RawBsonRef::String(text) => Ok(text.to_owned()),
        _ => {
            let text = format!("BSON field 'configureFailPoint.data.{name}' must be an array of strings");
            Err(CommandError::new(Code::TypeMismatch, text))
        }
    };
    array.into_iter().map(text).collect::<CommandResult<_>>().map(Some)
}

/// Runs a command with the fail points. Returns `None` if the connection is to be closed without a reply.
pub(crate) async fn run(
    points: &FailPoints,
    shared: &Shared,
    client: &Client,
    request: &Request<'_>,
) -> Option<CommandReply> {
    if commands::find_for_tests(request.name).is_some_and(|command| !command.properties.can_fail) {
        return Some(dispatch::execute(shared, client, request).await);
    }
    let command = request.command;
    let in_transaction = request.properties().in_transaction;
    if request.max_time.is_some() && command.is_some() && points.times_out() {
        return Some(CommandReply::from(&dispatch::time_is_over()));
    }
    let is_about = |data: &FailCommand| data.is_about(client, request, command);
    if let Some(data) = points.command.enter(|data| data.replaces_command() && is_about(data)) {
        tokio::time::sleep(data.block.unwrap_or_default()).await;
        if data.close {
            return None;
        }
        if let Some(code) = data.error {
            let error = CommandError::new(code, "Failing command via 'failCommand' failpoint");
            let labels = labels::of_error(request.numbering, in_transaction, &error);
            let document = timed(labelled_failure(&error, &data.labels(&labels)), shared.cluster_time.as_ref(), None);
            return Some(CommandReply { document, ..CommandReply::from(&error) });
        }
    }
    let mut replied = dispatch::execute(shared, client, request).await;
    let is_done = request.access.writes() && replied.document.get_f64("ok").is_ok_and(|ok| ok == 1.0);
    let applies = |data: &FailCommand| data.write_concern_error.is_some() && is_about(data);
    if is_done && let Some(data) = points.command.enter(applies) {
        put_write_concern_error(&mut replied.document, &data, request);
    }
    if client.is_hung_up() { None } else { Some(replied) }
}

fn put_write_concern_error(reply: &mut RawDocumentBuf, data: &FailCommand, request: &Request<'_>) {
    let Some(error) = &data.write_concern_error else { return };
    let code = Code(error.get_i32("code").unwrap_or(0));
    let by_server = labels::of_write_concern(request.numbering, request.properties().in_transaction, code);
    let labels = data.labels(&by_server);
    reply.append(cstr!("writeConcernError"), error.clone());
    if !labels.is_empty() {
        reply.append(cstr!("errorLabels"), labels.into_iter().collect::<bson::RawArrayBuf>());
    }
}
