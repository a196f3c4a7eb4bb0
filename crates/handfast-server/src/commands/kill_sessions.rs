//! `killSessions`, `killAllSessions`, `killAllSessionsByPattern`: ends sessions, stops what runs in them, rolls back what
//! is open in them.

use super::end_sessions::{documents, listed};
use super::{Access, Call, Command};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::Outcome;
use crate::reply::Answer;
use crate::request::{SessionId, session_id};

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

pub(crate) const BY_PATTERN: Command = Command {
    name: "killAllSessionsByPattern",
    aliases: &[],
    help: "ends the sessions that fit a pattern and stops their commands",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: false,
    confidential: false,
    versioned: false,
    run: |call| Box::pin(run_by_pattern(call)),
};

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    call.arguments("killSessions").finish()?;
    let ids = listed(call, "killSessions")?;
    if ids.is_empty() {
        return Ok(kill(call, &call.shared.sessions.end_all()));
    }
    Ok(kill(call, &call.shared.sessions.end_named(&ids)))
}

/// Who may do this may do it to all: the list of users is not looked at.
async fn run_all(call: &Call<'_>) -> Outcome<Answer> {
    call.arguments("killAllSessions").finish()?;
    Ok(kill(call, &call.shared.sessions.end_all()))
}

/// A pattern names a session; one that names users or roles, or nothing, means all sessions.
async fn run_by_pattern(call: &Call<'_>) -> Outcome<Answer> {
    call.arguments("killAllSessionsByPattern").finish()?;
    let mut ids = Vec::new();
    let patterns = documents(call, "killAllSessionsByPattern")?;
    let mut all = patterns.is_empty();
    for pattern in patterns {
        let mut arguments = Arguments::of_document("killAllSessionsByPattern", pattern)?;
        let session = arguments.document("lsid")?;
        arguments.ignored(&["uid", "users", "roles"])?;
        arguments.finish()?;
        match session {
            Some(session) => ids.push(session_id("killAllSessionsByPattern.lsid", session)?),
            None => all = true,
        }
    }
    let sessions = &call.shared.sessions;
    Ok(kill(call, &if all { sessions.end_all() } else { sessions.end_named(&ids) }))
}

fn kill(call: &Call<'_>, ids: &[SessionId]) -> Answer {
    call.shared.operations.kill_of_sessions(ids, call.operation.id());
    call.shared.cursors.kill_of_sessions(ids);
    Answer::done()
}
