//! `killOp`: stops a command that runs.

use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "killOp",
    aliases: &[],
    help: "stops a command",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("killOp");
    let id =
        arguments.integer("op")?.ok_or_else(|| CommandError::new(Code::NoSuchKey, "Did not provide \"op\" field"))?;
    arguments.finish()?;
    if let Ok(id) = i32::try_from(id) {
        call.shared.operations.kill(id);
    }
    let mut writer = Writer::new();
    // The same answer whether it was still there: it may end by itself at any moment.
    writer.put("info", "attempting to kill op");
    Ok(writer.into())
}
