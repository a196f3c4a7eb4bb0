//! `connectionStatus`: who is logged in on this connection. There are no users yet.

use super::{Access, Call, Command};
use crate::error::Outcome;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "connectionStatus",
    aliases: &[],
    help: "says who is logged in",
    access: Access::Server,
    admin_only: false,
    versioned: true,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> Outcome<Answer> {
    let mut arguments = call.arguments("connectionStatus")?;
    let privileges = arguments.lenient_flag("showPrivileges")?.unwrap_or(false);
    arguments.finish()?;
    let none = || std::iter::empty::<&str>();
    let mut writer = Writer::new();
    writer.begin_document("authInfo").array("authenticatedUsers", none()).array("authenticatedUserRoles", none());
    if privileges {
        writer.array("authenticatedUserPrivileges", none());
    }
    writer.end();
    Ok(writer.into())
}
