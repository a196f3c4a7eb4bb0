//! `logout`: ends the login of the connection.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "logout",
    aliases: &[],
    help: "logs out",
    access: Access::Server,
    needs: Needs::Nothing,
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties { external_database: true, ..Properties::DEFAULT },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("logout").finish()?;
    call.client.login.set(None);
    Ok(Answer::done())
}
