//! `configureFailPoint`: sets a fail point. It needs `--test-commands`.

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::fail_points::{FailPoints, Mode};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "configureFailPoint",
    aliases: &[],
    help: "sets what is to go wrong, for tests",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties { can_fail: false, ..Properties::DEFAULT },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let name = name(call)?;
    let mut arguments = call.arguments("configureFailPoint");
    let Some(mode) = arguments.any("mode")? else {
        return Err(CommandError::new(Code::IllegalOperation, "When setting a failpoint, you must supply a 'mode'"));
    };
    let mode = Mode::read(mode)?;
    let data = arguments.document_or_empty("data")?;
    arguments.finish()?;
    let before = points(call)?.configure(name, mode, &data)?;
    let mut writer = Writer::new();
    writer.put("count", i64::try_from(before).unwrap_or(i64::MAX));
    Ok(writer.into())
}

/// Returns the name of the fail point.
pub(super) fn name<'a>(call: &Call<'a>) -> CommandResult<&'a str> {
    match call.request.subject {
        RawBsonRef::String(name) => Ok(name),
        _ => Err(CommandError::new(Code::TypeMismatch, "the name of a fail point must be a string")),
    }
}

/// Returns the server's fail points, without which this command is unknown.
pub(super) fn points<'a>(call: &Call<'a>) -> CommandResult<&'a FailPoints> {
    let missing = || CommandError::new(Code::CommandNotFound, "the server was started without --test-commands");
    call.shared.fail_points.as_ref().ok_or_else(missing)
}
