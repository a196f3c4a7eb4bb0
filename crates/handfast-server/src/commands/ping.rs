//! `ping`: answers that the server runs.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "ping",
    aliases: &[],
    help: "answers, to show that the server does",
    access: Access::Server,
    needs: Needs::Nothing,
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("ping").finish()?;
    Ok(Answer::done())
}
