//! `connPoolStats`: counts the connections of the server to other members of a cluster, of which there are none.
//!
//! In front of another server (`--store`) the driver keeps connections to it; these are not counted here.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "connPoolStats",
    aliases: &[],
    help: "counts connections to other members of a cluster, of which there are none",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

const COUNTS: [&str; 7] = [
    "numClientConnections",
    "numAScopedConnections",
    "totalInUse",
    "totalAvailable",
    "totalLeased",
    "totalCreated",
    "totalRefreshing",
];

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("connPoolStats").finish()?;
    let mut writer = Writer::new();
    for name in COUNTS {
        writer.put(name, 0);
    }
    for name in ["pools", "hosts", "replicaSets"] {
        writer.begin_document(name).end();
    }
    Ok(writer.into())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    #[tokio::test]
    async fn there_are_no_connections_to_other_members() {
        let mut server = TestServer::adjustable();
        let reply = server.connect().run("d", rawdoc! { "connPoolStats": 1 }).await;
        let expected = rawdoc! {
            "numClientConnections": 0, "numAScopedConnections": 0, "totalInUse": 0, "totalAvailable": 0,
            "totalLeased": 0, "totalCreated": 0, "totalRefreshing": 0, "pools": {}, "hosts": {}, "replicaSets": {}, "ok": 1.0,
        };
        assert_eq!(reply, expected);
    }
}
