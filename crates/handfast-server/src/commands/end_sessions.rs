//! `endSessions`: ends sessions that their client no longer needs, with their cursors and transactions.

use bson::raw::{RawBsonRef, RawDocument};
use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::request::{SessionId, session_id};

pub(crate) const COMMAND: Command = Command {
    name: "endSessions",
    aliases: &[],
    help: "ends sessions",
    access: Access::Server,
    needs: Needs::Login,
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("endSessions").finish()?;
    let ids = listed(call, "endSessions")?;
    for id in &ids {
        call.shared.sessions.end(*id);
    }
    call.shared.cursors.kill_of_sessions(&ids);
    Ok(Answer::done())
}

/// The number of sessions in one command, which drivers do not exceed.
const SESSIONS_MAX: usize = 10_000;

/// Returns the user's sessions that the command lists: `[{id: UUID}, ..]`.
pub(super) fn listed(call: &Call<'_>, path: &'static str) -> CommandResult<Vec<SessionId>> {
    let read = |document| Ok(session_id(path, document)?.of_user(call.user_id()));
    documents(call, path)?.into_iter().map(read).collect()
}

/// Returns the documents that the command lists.
pub(super) fn documents<'a>(call: &Call<'a>, path: &'static str) -> CommandResult<Vec<&'a RawDocument>> {
    let RawBsonRef::Array(list) = call.request.subject else {
        let text = format!("BSON field '{path}.{path}' is the wrong type, expected type 'array'");
        return Err(CommandError::new(Code::TypeMismatch, text));
    };
    let mut documents = Vec::new();
    for element in list {
        let document: &RawDocument = element?.as_document().ok_or_else(|| {
            let text = format!("BSON field '{path}.{path}' holds the wrong type, expected type 'object'");
            CommandError::new(Code::TypeMismatch, text)
        })?;
        if documents.len() == SESSIONS_MAX {
            let text = format!("{path} takes at most {SESSIONS_MAX} sessions");
            return Err(CommandError::new(Code::InvalidLength, text));
        }
        documents.push(document);
    }
    Ok(documents)
}
