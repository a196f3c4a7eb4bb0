//! `whatsmyuri`: returns the address of the client as the server sees it.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "whatsmyuri",
    aliases: &[],
    help: "tells a client its own address",
    access: Access::Server,
    needs: Needs::Nothing,
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("whatsmyuri").finish()?;
    let mut writer = Writer::new();
    writer.put("you", &call.client.remote);
    Ok(writer.into())
}
