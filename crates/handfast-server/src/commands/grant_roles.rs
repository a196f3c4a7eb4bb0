//! `grantRolesToUser` and `revokeRolesFromUser`: grant and revoke roles of a user.

use super::{Call, Command, user_arguments};
use crate::auth::role::Role;
use crate::error::CommandResult;
use crate::reply::Answer;

pub(crate) const GRANT: Command =
    user_arguments::command("grantRolesToUser", "gives a user more roles", |call| Box::pin(run_grant(call)));

pub(crate) const REVOKE: Command =
    user_arguments::command("revokeRolesFromUser", "takes roles from a user", |call| Box::pin(run_revoke(call)));

async fn run_grant(call: &Call<'_>) -> CommandResult<Answer> {
    let roles = roles(call, "grantRolesToUser")?;
    call.shared.users.grant(&user_arguments::name(call)?, roles).await?;
    Ok(Answer::done())
}

async fn run_revoke(call: &Call<'_>) -> CommandResult<Answer> {
    let roles = roles(call, "revokeRolesFromUser")?;
    call.shared.users.revoke(&user_arguments::name(call)?, &roles).await?;
    Ok(Answer::done())
}

fn roles(call: &Call<'_>, path: &'static str) -> CommandResult<Vec<Role>> {
    let mut arguments = call.arguments(path);
    let roles = user_arguments::roles(call, &mut arguments, "roles")?;
    let roles = arguments.required("roles", roles)?;
    arguments.finish()?;
    user_arguments::check_grant(call, &roles)?;
    Ok(roles)
}
