//! `killSessions`, `killAllSessions`, `killAllSessionsByPattern`: end sessions, stop their commands, close their cursors and roll back
//! their transactions.
//!
//! With `--auth`, `killSessions` ends sessions of the client's own user only, as in MongoDB, and needs no role. The other two end those
//! of any user, and need a role that allows it.

use bson::raw::RawDocument;

use super::end_sessions::{documents, listed};
use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::auth::user::{UserId, UserName};
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::request::{SessionId, session_id};

pub(crate) const COMMAND: Command = Command {
    name: "killSessions",
    aliases: &[],
    help: "ends sessions and stops their commands",
    access: Access::Server,
    needs: Needs::Login,
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
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
    properties: Properties::DEFAULT,
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
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run_by_pattern(call)),
};

/// Ends the sessions `[{id: UUID}, ..]`, or all if the list is empty.
async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("killSessions").finish()?;
    let ids = listed(call, "killSessions")?;
    let is_own = |session: &SessionId| !call.shared.options.authentication || session.user == call.user_id();
    let is_named = |session: &SessionId| ids.is_empty() || ids.iter().any(|named| named.id == session.id);
    Ok(kill(call, &call.shared.sessions.end_where(|session| is_own(session) && is_named(session))))
}

/// Ends the sessions of the users `[{user: .., db: ..}, ..]`, or of all if the list is empty.
async fn run_all(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("killAllSessions").finish()?;
    let named = documents(call, "killAllSessions")?;
    if named.is_empty() {
        return Ok(kill(call, &call.shared.sessions.end_all()));
    }
    let mut users = Vec::new();
    for user in named {
        users.extend(user_of(call, "killAllSessions", user).await?);
    }
    let of_them = |id: &SessionId| id.user.is_some_and(|user| users.contains(&user));
    Ok(kill(call, &call.shared.sessions.end_where(of_them)))
}

/// A pattern of sessions. A session matches if it has all fields of the pattern.
struct Pattern {
    id: Option<[u8; 16]>,
    users: Option<Vec<UserId>>,
}

impl Pattern {
    async fn read(call: &Call<'_>, document: &RawDocument) -> CommandResult<Self> {
        let path = "killAllSessionsByPattern";
        let mut arguments = Arguments::of_document(path, document)?;
        let session = arguments.document("lsid")?;
        let named = arguments.documents("users")?;
        arguments.unsupported(&["uid", "roles"])?;
        arguments.finish()?;
        let id = session.map(|session| session_id("killAllSessionsByPattern.lsid", session)).transpose()?;
        let mut users = named.is_some().then(Vec::new);
        for user in named.into_iter().flatten() {
            let found = user_of(call, path, user).await?;
            users.get_or_insert_default().extend(found);
        }
        Ok(Pattern { id: id.map(|session| session.id), users })
    }

    fn means(&self, session: &SessionId) -> bool {
        let is_of = |users: &Vec<UserId>| session.user.is_some_and(|user| users.contains(&user));
        self.id.is_none_or(|id| id == session.id) && self.users.as_ref().is_none_or(is_of)
    }
}

async fn run_by_pattern(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("killAllSessionsByPattern").finish()?;
    let mut patterns = Vec::new();
    for document in documents(call, "killAllSessionsByPattern")? {
        patterns.push(Pattern::read(call, document).await?);
    }
    let sessions = &call.shared.sessions;
    let meant = |id: &SessionId| patterns.iter().any(|pattern| pattern.means(id));
    Ok(kill(call, &if patterns.is_empty() { sessions.end_all() } else { sessions.end_where(meant) }))
}

/// Returns the user that `{user: .., db: ..}` names. A user that does not exist has no sessions.
async fn user_of(call: &Call<'_>, path: &'static str, document: &RawDocument) -> CommandResult<Option<UserId>> {
    let mut arguments = Arguments::of_document(path, document)?;
    let (name, database) = (arguments.text("user")?, arguments.text("db")?);
    let (name, database) = (arguments.required("user", name)?, arguments.required("db", database)?);
    arguments.finish()?;
    let user = call.shared.users.find(&UserName::new(database, name)?).await?;
    Ok(user.map(|user| user.id))
}

fn kill(call: &Call<'_>, ids: &[SessionId]) -> Answer {
    call.shared.operations.kill_of_sessions(ids, call.operation.id());
    call.shared.cursors.kill_of_sessions(ids);
    Answer::done()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bson::rawdoc;
    use handfast_wire::Flags;

    use crate::lock::lock;
    use crate::options::Options;
    use crate::testing::{AdjustableStore, TestServer, error_of, lsid};

    #[tokio::test(start_paused = true)]
    async fn the_running_commands_of_the_session_are_killed() {
        let store = Arc::new(AdjustableStore::default());
        *lock(&store.delay) = Duration::from_secs(1_000);
        let mut server = TestServer::new(store, Options::default());
        let (mut client, mut admin) = (server.connect(), server.connect());
        client.send(Flags::default(), "d", rawdoc! { "find": "c", "lsid": lsid(3) }, &[]).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        admin.run("admin", rawdoc! { "killSessions": [lsid(3)] }).await;
        assert_eq!(error_of(&client.receive().await.unwrap().2).0, 11_601);
    }
}
