//! `dropConnections`: closes connections of the server to other members of a cluster, of which there are none.

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "dropConnections",
    aliases: &[],
    help: "closes connections to other members of a cluster, of which there are none",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("dropConnections");
    let hosts = arguments.array("hostAndPort")?;
    arguments.finish()?;
    let hosts = hosts.ok_or_else(|| call.arguments("dropConnections").missing("hostAndPort"))?;
    for host in hosts {
        let RawBsonRef::String(host) = host? else {
            let text = "BSON field 'dropConnections.hostAndPort' has elements of a wrong type, expected type 'string'";
            return Err(CommandError::new(Code::TypeMismatch, text));
        };
        let (name, port) = host.rsplit_once(':').unwrap_or((host, "27017"));
        if name.is_empty() || !port.parse::<u16>().is_ok_and(|port| port > 0) {
            let text = format!("'{host}' is not a host and a port, such as \"db.example.org:27017\"");
            return Err(CommandError::new(Code::FailedToParse, text));
        }
    }
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    #[tokio::test]
    async fn hosts_are_checked_and_there_are_no_connections_to_them() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        for hosts in [bson::rawbson!([]), bson::rawbson!(["a:27017", "[::1]:1", "b"])] {
            let reply = client.run("admin", rawdoc! { "dropConnections": 1, "hostAndPort": hosts }).await;
            assert_eq!(reply, rawdoc! { "ok": 1.0 });
        }
        for (database, command, code) in [
            ("admin", rawdoc! { "dropConnections": 1 }, 40_414),
            ("admin", rawdoc! { "dropConnections": 1, "hostAndPort": "a:1" }, 14),
            ("admin", rawdoc! { "dropConnections": 1, "hostAndPort": [1] }, 14),
            ("admin", rawdoc! { "dropConnections": 1, "hostAndPort": ["a:x"] }, 9),
            ("admin", rawdoc! { "dropConnections": 1, "hostAndPort": [":1"] }, 9),
            ("admin", rawdoc! { "dropConnections": 1, "hostAndPort": [], "x": 1 }, 40_415),
            ("d", rawdoc! { "dropConnections": 1, "hostAndPort": [] }, 13),
        ] {
            assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
        }
    }
}
