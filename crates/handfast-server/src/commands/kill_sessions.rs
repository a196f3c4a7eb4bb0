//! `killSessions` and `killAllSessions`: ends sessions, and stops what runs in them.

use super::end_sessions::listed;
use super::{Access, Call, Command};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::Outcome;
use crate::reply::Answer;
use crate::request::SessionId;

pub(crate) const COMMAND: Command = Command {
    name: "killSessions",
    aliases: &[],
    help: "ends sessions and stops their commands",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: false,
    confidential: false,
    versioned: true,
    run: |call| Box::pin(run(call)),
};

pub(crate) const ALL: Command = Command {
    name: "killAllSessions",
    aliases: &[],
    help: "ends all sessions and stops their commands",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: false,
    confidential: false,
    versioned: false,
    run: |call| Box::pin(run_all(call)),
};

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    call.arguments("killSessions")?.finish()?;
    let ids = listed(call, "killSessions")?;
    if ids.is_empty() {
        // No list means all of the user's own; there are no users.
        return Ok(kill(call, &call.shared.sessions.end_all()));
    }
    for id in &ids {
        call.shared.sessions.end(*id);
    }
    Ok(kill(call, &ids))
}

/// The list names users, of which there are none yet: the sessions of all are ended.
async fn run_all(call: &Call<'_>) -> Outcome<Answer> {
    call.arguments("killAllSessions")?.finish()?;
    Ok(kill(call, &call.shared.sessions.end_all()))
}

fn kill(call: &Call<'_>, ids: &[SessionId]) -> Answer {
    call.shared.operations.kill_of_sessions(ids, call.operation.id());
    call.shared.cursors.kill_of_sessions(ids);
    Answer::done()
}
