//! `profile`: shows and sets the time from which commands are logged as slow (`slowms`), for the whole server, as in MongoDB.
//!
//! Levels above 0 would record commands in `system.profile`, which does not exist.

use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::arguments::as_integer;
use crate::auth::guard::{self, Needs};
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "profile",
    aliases: &[],
    help: "shows and sets the time from which commands are logged as slow",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("profile");
    let millis = arguments.integer("slowms")?;
    arguments.unsupported(&["sampleRate", "filter"])?;
    arguments.finish()?;
    let level = as_integer(call.request.subject);
    match level {
        Some(-1 | 0) => {}
        Some(1 | 2) => {
            let text = "profiling levels 1 and 2 are not supported, as there is no system.profile: {profile: 0, slowms: 20} sets the time from which commands are logged";
            return Err(CommandError::new(Code::CommandNotSupported, text));
        }
        _ => return Err(CommandError::new(Code::BadValue, "the profiling level must be -1, 0, 1 or 2")),
    }
    let before = call.shared.slow_millis();
    if level == Some(0)
        && let Some(millis) = millis
    {
        guard::require(call.shared, call.client, call.request, Action::Control, "")?;
        // MongoDB takes a negative one as "all", too.
        call.shared.set_slow_millis(u64::try_from(millis).unwrap_or(0));
    }
    let mut writer = Writer::new();
    writer.put("was", 0).put("slowms", i32::try_from(before).unwrap_or(i32::MAX)).put("sampleRate", 1.0);
    Ok(writer.into())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    #[tokio::test]
    async fn the_time_of_slow_commands_is_set_while_the_server_runs() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        for (command, shown) in [
            (rawdoc! { "profile": -1 }, 100),
            (rawdoc! { "profile": 0, "slowms": 7 }, 100),
            (rawdoc! { "profile": -1, "slowms": 9 }, 7),
            (rawdoc! { "profile": 0 }, 7),
            (rawdoc! { "profile": 0, "slowms": -1 }, 7),
            (rawdoc! { "profile": -1 }, 0),
        ] {
            let reply = client.run("d", command.clone()).await;
            assert_eq!(
                (reply.get_i32("slowms").ok(), reply.get_i32("was").ok()),
                (Some(shown), Some(0)),
                "{command:?}"
            );
        }
        let parameter = client.run("admin", rawdoc! { "getParameter": 1, "slowOpThresholdMs": 1 }).await;
        assert_eq!(parameter.get_i32("slowOpThresholdMs").unwrap(), 0);
        for (level, code) in [(rawdoc! { "profile": 1 }, 115), (rawdoc! { "profile": 3 }, 2)] {
            assert_eq!(client.run("d", level).await.get_i32("code").unwrap(), code);
        }
    }
}
