//! `dropUser` and `dropAllUsersFromDatabase`: remove users.

use super::{Access, Call, Command, user_arguments};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::Outcome;
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "dropUser",
    aliases: &[],
    help: "removes a user",
    access: Access::Write,
    needs: Needs::Database(Action::ManageUsers),
    admin_only: false,
    confidential: false,
    versioned: false,
    run: |call| Box::pin(run(call)),
};

pub(crate) const ALL: Command = Command {
    name: "dropAllUsersFromDatabase",
    aliases: &[],
    help: "removes the users of a database",
    access: Access::Write,
    needs: Needs::Database(Action::ManageUsers),
    admin_only: false,
    confidential: false,
    versioned: false,
    run: |call| Box::pin(run_all(call)),
};

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    call.arguments("dropUser").finish()?;
    call.shared.users.remove(&user_arguments::name(call)?).await?;
    Ok(Answer::done())
}

async fn run_all(call: &Call<'_>) -> Outcome<Answer> {
    call.arguments("dropAllUsersFromDatabase").finish()?;
    let removed = call.shared.users.remove_all(call.request.database).await?;
    let mut writer = Writer::new();
    put_count(&mut writer, "n", removed);
    Ok(writer.into())
}
