//! `dropUser` and `dropAllUsersFromDatabase`: remove users.

use super::{Call, Command, user_arguments};
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = user_arguments::command("dropUser", "removes a user", |call| Box::pin(run(call)));

pub(crate) const ALL: Command =
    user_arguments::command("dropAllUsersFromDatabase", "removes the users of a database", |call| {
        Box::pin(run_all(call))
    });

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("dropUser").finish()?;
    call.shared.users.remove(&user_arguments::name(call)?).await?;
    Ok(Answer::done())
}

async fn run_all(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("dropAllUsersFromDatabase").finish()?;
    let removed = call.shared.users.remove_all(call.request.database).await?;
    let mut writer = Writer::new();
    put_count(&mut writer, "n", removed);
    Ok(writer.into())
}
