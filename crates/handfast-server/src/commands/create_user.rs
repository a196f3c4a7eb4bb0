//! `createUser`: adds a user to a database.

use super::{Access, Call, Command, user_arguments};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::Outcome;
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "createUser",
    aliases: &[],
    help: "adds a user",
    access: Access::Write,
    needs: Needs::Database(Action::ManageUsers),
    admin_only: false,
    confidential: true,
    versioned: false,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    let mut arguments = call.arguments("createUser");
    let name = user_arguments::name(call)?;
    let password = user_arguments::password(&mut arguments)?;
    let password = arguments.required("pwd", password)?;
    let roles = user_arguments::roles(call, &mut arguments, "roles")?;
    let roles = arguments.required("roles", roles)?;
    let custom_data = arguments.document("customData")?.map(ToOwned::to_owned);
    arguments.finish()?;
    user_arguments::check_grant(call, &roles)?;
    call.shared.users.add(name, password, roles, custom_data).await?;
    Ok(Answer::done())
}
