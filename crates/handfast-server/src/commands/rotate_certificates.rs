//! `rotateCertificates`: reads the server's certificate and its key again, for connections that begin later.

use handfast_mql::Code;
use tracing::{info, warn};

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult, INVALID_SSL_CONFIGURATION};
use crate::reply::Answer;

pub(crate) const COMMAND: Command = Command {
    name: "rotateCertificates",
    aliases: &[],
    help: "reads the certificate and its key again",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("rotateCertificates");
    let message = arguments.text("message")?;
    arguments.finish()?;
    let Some(tls) = call.shared.options.tls.clone() else {
        let text = "the server was started without TLS and has no certificate";
        return Err(CommandError::new(Code::IllegalOperation, text));
    };
    match handfast_store::blocking(move || Ok(tls.reload())).await? {
        Ok(()) => {
            info!(reason = message, "the certificate was read again");
            Ok(Answer::done())
        }
        Err(error) => {
            warn!(%error, "the certificate cannot be read again, and the server keeps the one that it has");
            Err(CommandError::new(INVALID_SSL_CONFIGURATION, error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    /// The tests of `tls` rotate a certificate.
    #[tokio::test]
    async fn arguments_are_checked_and_tls_is_needed() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        for (database, command, code) in [
            ("admin", rawdoc! { "rotateCertificates": 1, "message": "new" }, 20),
            ("admin", rawdoc! { "rotateCertificates": 1, "message": 1 }, 14),
            ("admin", rawdoc! { "rotateCertificates": 1, "x": 1 }, 40_415),
            ("d", rawdoc! { "rotateCertificates": 1 }, 13),
        ] {
            assert_eq!(client.refused(database, command.clone()).await.0, code, "{command:?}");
        }
    }
}
