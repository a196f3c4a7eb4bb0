//! `refreshSessions`: restarts the time-out of sessions.

use super::end_sessions::listed;
use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "refreshSessions",
    aliases: &[],
    help: "keeps sessions from timing out",
    access: Access::Server,
    needs: Needs::Login,
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("refreshSessions").finish()?;
    let now = call.shared.now();
    for id in listed(call, "refreshSessions")? {
        call.shared.sessions.touch(id, now)?;
    }
    Ok(Answer::done())
}
