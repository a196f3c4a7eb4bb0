//! `getCmdLineOpts`: returns the command line of the program.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "getCmdLineOpts",
    aliases: &[],
    help: "tells how the program was started",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("getCmdLineOpts").finish()?;
    let mut writer = Writer::new();
    writer.array("argv", &call.shared.options.command_line).begin_document("parsed");
    if call.shared.fail_points.is_some() {
        writer.begin_document("setParameter").put("enableTestCommands", "1").end();
    }
    writer.end();
    Ok(writer.into())
}
