//! `listCommands`: lists all commands.

use super::{Access, COMMANDS, Call, Command, Properties, TEST_COMMANDS};
use crate::auth::guard::Needs;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "listCommands",
    aliases: &[],
    help: "lists all commands",
    access: Access::Server,
    needs: Needs::Login,
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("listCommands").finish()?;
    let mut writer = Writer::new();
    writer.begin_document("commands");
    let for_tests = call.shared.fail_points.iter().flat_map(|_| TEST_COMMANDS);
    for command in COMMANDS.iter().chain(for_tests) {
        writer.begin_document(command.name).put("help", command.help);
        writer.put("requiresAuth", false).put("secondaryOk", false).put("adminOnly", command.admin_only);
        writer.array("apiVersions", command.versioned.then_some("1"));
        writer.array("deprecatedApiVersions", std::iter::empty::<&str>()).end();
    }
    writer.end();
    Ok(writer.into())
}
