//! `killOp`: stops a running command.

use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "killOp",
    aliases: &[],
    help: "stops a command",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("killOp");
    let id =
        arguments.integer("op")?.ok_or_else(|| CommandError::new(Code::NoSuchKey, "Did not provide \"op\" field"))?;
    arguments.finish()?;
    if let Ok(id) = i32::try_from(id) {
        call.shared.operations.kill(id);
    }
    let mut writer = Writer::new();
    // The reply does not depend on whether the command was running, because it may end at any moment.
    writer.put("info", "attempting to kill op");
    Ok(writer.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bson::rawdoc;
    use handfast_wire::Flags;

    use crate::lock::lock;
    use crate::options::Options;
    use crate::testing::{AdjustableStore, ReplyFields, TestServer, error_of};

    #[tokio::test(start_paused = true)]
    async fn a_running_command_is_shown_and_can_be_killed() {
        let store = Arc::new(AdjustableStore::default());
        let mut server = TestServer::new(store.clone(), Options::default());
        let (mut client, mut admin) = (server.connect(), server.connect());
        *lock(&store.delay) = Duration::from_secs(1_000);
        client.send(Flags::default(), "d", rawdoc! { "find": "c" }, &[]).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let reply = admin.run("admin", rawdoc! { "currentOp": 1, "ns": "d.c" }).await;
        let running = reply.get_array("inprog").unwrap();
        assert_eq!(running.into_iter().count(), 1);
        let id = running.get_document(0).unwrap().int("opid");
        assert_eq!(admin.run("admin", rawdoc! { "killOp": 1, "op": id }).await.double("ok"), 1.0);
        let (_, _, reply) = client.receive().await.unwrap();
        assert_eq!(error_of(&reply), (11_601, "Interrupted".to_owned(), "operation was interrupted".to_owned()));
        let reply = admin.run("admin", rawdoc! { "currentOp": 1, "ns": "d.c" }).await;
        assert!(reply.get_array("inprog").unwrap().is_empty());
    }
}
