//! `grantRolesToUser` and `revokeRolesFromUser`.

use super::{Access, Call, Command, user_arguments};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::auth::role::Role;
use crate::error::Outcome;
use crate::reply::Answer;

pub(crate) const GRANT: Command = Command {
    name: "grantRolesToUser",
    aliases: &[],
    help: "gives a user more roles",
    access: Access::Write,
    needs: Needs::Database(Action::ManageUsers),
    admin_only: false,
    confidential: false,
    versioned: false,
    run: |call| Box::pin(run_grant(call)),
};

pub(crate) const REVOKE: Command = Command {
    name: "revokeRolesFromUser",
    aliases: &[],
    help: "takes roles from a user",
    access: Access::Write,
    needs: Needs::Database(Action::ManageUsers),
    admin_only: false,
    confidential: false,
    versioned: false,
    run: |call| Box::pin(run_revoke(call)),
};

async fn run_grant(call: &Call<'_>) -> Outcome<Answer> {
    let roles = roles(call, "grantRolesToUser")?;
    call.shared.users.grant(&user_arguments::name(call)?, roles).await?;
    Ok(Answer::done())
}

async fn run_revoke(call: &Call<'_>) -> Outcome<Answer> {
    let roles = roles(call, "revokeRolesFromUser")?;
    call.shared.users.revoke(&user_arguments::name(call)?, &roles).await?;
    Ok(Answer::done())
}

fn roles(call: &Call<'_>, path: &'static str) -> Outcome<Vec<Role>> {
    let mut arguments = call.arguments(path);
    let roles = user_arguments::roles(call, &mut arguments, "roles")?;
    let roles = arguments.required("roles", roles)?;
    arguments.finish()?;
    user_arguments::check_grant(call, &roles)?;
    Ok(roles)
}
