//! `startSession`: begins a session whose id the server chooses. Drivers choose ids of their own.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::request::SessionId;
use crate::sessions::SESSION_TIMEOUT_MINUTES;
use crate::writer::{Uuid, Writer};

pub(crate) const COMMAND: Command = Command {
    name: "startSession",
    aliases: &[],
    help: "starts a session",
    access: Access::Server,
    needs: Needs::Login,
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("startSession").finish()?;
    let random = &call.shared.sources.random;
    let bits = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
    let mut id = bits.to_be_bytes();
    // Version 4 (random), variant 1 (RFC 9562).
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    call.shared.sessions.touch(SessionId::of(id).of_user(call.user_id()), call.shared.now())?;
    let mut writer = Writer::new();
    writer.begin_document("id").put("id", Uuid(id)).end().put("timeoutMinutes", SESSION_TIMEOUT_MINUTES);
    Ok(writer.into())
}
