//! `lockInfo`: lists the locks of databases and collections, of which there are none: readers use snapshots, and one thread writes.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "lockInfo",
    aliases: &[],
    help: "lists locks of databases and collections, of which there are none",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("lockInfo");
    arguments.lenient_flag("includeStorageEngineLocks")?;
    arguments.finish()?;
    let mut writer = Writer::new();
    writer.array("lockInfo", std::iter::empty::<&str>());
    Ok(writer.into())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    #[tokio::test]
    async fn there_are_no_locks() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        assert_eq!(client.run("admin", rawdoc! { "lockInfo": 1 }).await, rawdoc! { "lockInfo": [], "ok": 1.0 });
        assert_eq!(client.refused("d", rawdoc! { "lockInfo": 1 }).await.0, 13);
        let wrong = rawdoc! { "lockInfo": 1, "includeStorageEngineLocks": "x" };
        assert_eq!(client.refused("admin", wrong).await.0, 14);
    }
}
