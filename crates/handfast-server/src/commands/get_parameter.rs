//! `getParameter`: returns settings of the server.

use bson::raw::RawBsonRef;
use handfast_mql::Code;
use handfast_wire::Compressor;

use super::{Access, Call, Command, Properties};
use crate::arguments::GENERIC;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::auth::users::SCHEMA_VERSION;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "getParameter",
    aliases: &[],
    help: "returns parameters of the server",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

type Show = fn(&Call<'_>, &mut Writer);

const PARAMETERS: &[(&str, Show)] = &[
    ("authSchemaVersion", |_, writer| {
        writer.put("authSchemaVersion", SCHEMA_VERSION);
    }),
    ("authenticationMechanisms", |_, writer| {
        writer.array("authenticationMechanisms", std::iter::empty::<&str>());
    }),
    ("cursorTimeoutMillis", |call, writer| {
        let millis = call.shared.options.cursors.idle_timeout.as_millis();
        writer.put("cursorTimeoutMillis", i64::try_from(millis).unwrap_or(i64::MAX));
    }),
    ("enableTestCommands", |call, writer| {
        writer.put("enableTestCommands", call.shared.fail_points.is_some());
    }),
    ("featureCompatibilityVersion", |_, writer| {
        writer.begin_document("featureCompatibilityVersion").put("version", "8.0").end();
    }),
    ("localLogicalSessionTimeoutMinutes", |_, writer| {
        writer.put("localLogicalSessionTimeoutMinutes", crate::sessions::SESSION_TIMEOUT_MINUTES);
    }),
    ("networkMessageCompressors", |call, writer| {
        writer
            .array("networkMessageCompressors", call.shared.options.compressors.iter().copied().map(Compressor::name));
    }),
    ("requireApiVersion", |_, writer| {
        writer.put("requireApiVersion", false);
    }),
    ("slowOpThresholdMs", |call, writer| {
        writer.put("slowOpThresholdMs", i32::try_from(call.shared.slow_millis()).unwrap_or(i32::MAX));
    }),
];

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let all = match call.request.subject {
        RawBsonRef::String("*") => true,
        RawBsonRef::Document(document) => {
            matches!(document.get("allParameters")?, Some(RawBsonRef::Boolean(true)))
        }
        _ => false,
    };
    let mut writer = Writer::new();
    let mut shown = 0;
    for (name, show) in PARAMETERS {
        if all || matches!(call.request.body.get(name), Ok(Some(_))) {
            show(call, &mut writer);
            shown += 1;
        }
    }
    if shown == 0 {
        let asked = call.request.body.iter().skip(1).flatten().map(|(name, _)| name.as_str());
        let asked: Vec<_> = asked.filter(|name| !GENERIC.contains(name)).take(3).collect();
        let text = format!("no option found to get: {}", asked.join(", "));
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    Ok(writer.into())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::TestServer;

    #[tokio::test]
    async fn one_parameter_or_all_are_returned() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        let reply = client.run("admin", rawdoc! { "getParameter": 1, "featureCompatibilityVersion": 1 }).await;
        assert_eq!(reply, rawdoc! { "featureCompatibilityVersion": { "version": "8.0" }, "ok": 1.0 });
        let reply = client.run("admin", rawdoc! { "getParameter": 1, "authSchemaVersion": 1 }).await;
        assert_eq!(reply, rawdoc! { "authSchemaVersion": 5, "ok": 1.0 });
        assert_eq!(client.refused("admin", rawdoc! { "getParameter": 1, "nothing": 1 }).await.0, 72);
        assert!(client.run("admin", rawdoc! { "getParameter": "*" }).await.get_bool("requireApiVersion").is_ok());
    }
}
