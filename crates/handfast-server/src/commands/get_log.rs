//! `getLog`: returns no lines, because the server does not keep its log in memory.

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "getLog",
    aliases: &[],
    help: "shows kept log lines, of which there are none",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("getLog").finish()?;
    let RawBsonRef::String(name) = call.request.subject else {
        return Err(CommandError::new(Code::TypeMismatch, "Argument to getLog must be of type String"));
    };
    let mut writer = Writer::new();
    match name {
        "*" => {
            writer.array("names", ["global", "startupWarnings"]);
        }
        "global" | "startupWarnings" => {
            writer.put("totalLinesWritten", 0).array("log", std::iter::empty::<&str>());
        }
        other => {
            return Err(CommandError::new(Code::OperationFailed, format!("No log named '{other}'")));
        }
    }
    Ok(writer.into())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    #[tokio::test]
    async fn logs_are_listed_and_an_unknown_one_is_refused() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        let reply = client.run("admin", rawdoc! { "getLog": "*" }).await;
        assert_eq!(reply.get_array("names").unwrap().into_iter().count(), 2);
        assert_eq!(client.refused("admin", rawdoc! { "getLog": "x" }).await.0, 96);
    }
}
