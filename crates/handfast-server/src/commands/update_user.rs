//! `updateUser`: changes the password, the roles or the `customData` of a user.

use super::{Call, Command, user_arguments};
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use handfast_mql::Code;

pub(crate) const COMMAND: Command = Command {
    confidential: true,
    ..user_arguments::command("updateUser", "changes a user", |call| Box::pin(run(call)))
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("updateUser");
    let name = user_arguments::name(call)?;
    let change = user_arguments::change(call, &mut arguments)?;
    arguments.finish()?;
    if change.password.is_none() && change.roles.is_none() && change.custom_data.is_none() {
        let text = "Must specify at least one field to update in updateUser";
        return Err(CommandError::new(Code::BadValue, text));
    }
    if let Some(roles) = &change.roles {
        user_arguments::check_grant(call, roles)?;
        // Roles that are not in the list are revoked.
        let before = call.shared.users.find(&name).await?;
        user_arguments::check_grant(call, before.iter().flat_map(|user| &user.roles))?;
    }
    call.shared.users.change(&name, change).await?;
    Ok(Answer::done())
}
