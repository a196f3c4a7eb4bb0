//! `ping`: is somebody there?

use super::{Access, Call, Command};
use crate::error::Outcome;
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "ping",
    aliases: &[],
    help: "answers, to show that the server does",
    access: Access::Server,
    admin_only: false,
    versioned: true,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    call.arguments("ping")?.finish()?;
    Ok(Answer::done())
}
