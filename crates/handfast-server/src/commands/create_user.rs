//! `createUser`: adds a user to a database.

use super::{Call, Command, user_arguments};
use crate::auth::users::Change;
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const COMMAND: Command =
    Command { confidential: true, ..user_arguments::command("createUser", "adds a user", |call| Box::pin(run(call))) };

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("createUser");
    let name = user_arguments::name(call)?;
    let Change { password, roles, custom_data } = user_arguments::change(call, &mut arguments)?;
    let password = arguments.required("pwd", password)?;
    let roles = arguments.required("roles", roles)?;
    arguments.finish()?;
    user_arguments::check_grant(call, &roles)?;
    call.shared.users.add(name, password, roles, custom_data).await?;
    Ok(Answer::done())
}
