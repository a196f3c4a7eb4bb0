//! `logRotate`: has no file to rotate, because the server writes its log to standard error.

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::arguments::as_number;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "logRotate",
    aliases: &[],
    help: "does nothing, as the log is written to standard error",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("logRotate").finish()?;
    match call.request.subject {
        RawBsonRef::String("server") | RawBsonRef::Boolean(_) => Ok(Answer::done()),
        RawBsonRef::String("audit") => {
            Err(CommandError::new(Code::CommandNotSupported, "there is no audit log that could be rotated"))
        }
        RawBsonRef::String(other) => {
            let text = format!("there is no log '{other}': give 1 or \"server\"");
            Err(CommandError::new(Code::BadValue, text))
        }
        number if as_number(number).is_some() => Ok(Answer::done()),
        other => {
            let kind = handfast_mql::bson_type::type_name(other);
            let text = format!(
                "BSON field 'logRotate.logRotate' is the wrong type '{kind}', expected types '[int, long, double, bool, string]'"
            );
            Err(CommandError::new(Code::TypeMismatch, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    #[tokio::test]
    async fn there_is_no_file_to_rotate() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        for command in [rawdoc! { "logRotate": 1 }, rawdoc! { "logRotate": "server", "comment": "x" }] {
            assert_eq!(client.run("admin", command).await, rawdoc! { "ok": 1.0 });
        }
        for (database, command, code) in [
            ("admin", rawdoc! { "logRotate": "audit" }, 115),
            ("admin", rawdoc! { "logRotate": "x" }, 2),
            ("admin", rawdoc! { "logRotate": {} }, 14),
            ("admin", rawdoc! { "logRotate": 1, "x": 1 }, 40_415),
            ("d", rawdoc! { "logRotate": 1 }, 13),
        ] {
            assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
        }
    }
}
