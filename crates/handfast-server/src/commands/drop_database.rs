//! `dropDatabase`: removes a database with its collections.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "dropDatabase",
    aliases: &[],
    help: "drops a database",
    access: Access::Write,
    needs: Needs::Database(Action::DropDatabase),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("dropDatabase").finish()?;
    let mut writer = Writer::new();
    let _alone = call.shared.patterns.may_drop_indexes().await;
    let dropped = call.store().drop_database(call.request.database).await?;
    call.shared.patterns.forget();
    if dropped {
        call.shared.metrics.forget_plans_of_database(call.request.database, call.shared.sources.clock.now());
        writer.put("dropped", call.request.database);
    }
    Ok(writer.into())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    #[tokio::test]
    async fn a_database_that_is_not_there_is_no_error() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        client.run("d", rawdoc! { "create": "c" }).await;
        assert_eq!(client.run("d", rawdoc! { "dropDatabase": 1 }).await, rawdoc! { "dropped": "d", "ok": 1.0 });
        assert_eq!(client.run("d", rawdoc! { "dropDatabase": 1 }).await, rawdoc! { "ok": 1.0 });
    }
}
