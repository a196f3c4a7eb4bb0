//! `connectionStatus`: returns the user who is logged in on this connection.

use bson::RawDocumentBuf;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::{Privileged, Role};
use crate::auth::user::put_roles;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "connectionStatus",
    aliases: &[],
    help: "says who is logged in",
    access: Access::Server,
    needs: Needs::Nothing,
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("connectionStatus");
    let privileges = arguments.lenient_flag("showPrivileges")?.unwrap_or(false);
    arguments.finish()?;
    let user = call.client.login.user();
    let users = user.iter().map(|user| {
        let mut writer = Writer::new();
        writer.put("user", user.user.name.name()).put("db", user.user.name.database());
        writer.finish()
    });
    let mut writer = Writer::new();
    writer.begin_document("authInfo").array("authenticatedUsers", users);
    put_roles(&mut writer, "authenticatedUserRoles", user.as_ref().map_or(&[], |user| &user.user.roles));
    if privileges {
        let roles = user.iter().flat_map(|user| &user.user.roles);
        writer.array("authenticatedUserPrivileges", roles.flat_map(privileges_of));
    }
    writer.end();
    Ok(writer.into())
}

/// Returns a document `{resource: {db, collection}, actions: [..]}` for each resource of a role.
fn privileges_of(role: &Role) -> impl Iterator<Item = RawDocumentBuf> {
    role.privileges().into_iter().filter(|(_, actions)| !actions.is_empty()).map(|(resource, actions)| {
        let mut writer = Writer::new();
        writer.begin_document("resource");
        match resource {
            Privileged::Database(database) => writer.put("db", database).put("collection", ""),
            Privileged::Server => writer.put("cluster", true),
        };
        writer.end().array("actions", actions);
        writer.finish()
    })
}
