//! `buildInfo`: returns the version of Handfast, and the MongoDB version whose commands it supports.

use handfast_wire::limits::DOCUMENT_BYTES_MAX;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "buildInfo",
    aliases: &["buildinfo"],
    help: "says which version this is",
    access: Access::Server,
    needs: Needs::Login,
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

/// The MongoDB version whose commands are supported. Clients choose their commands by it.
pub(super) const MONGODB_VERSION: &str = "8.0.0";
const MONGODB_VERSION_ARRAY: [i32; 4] = [8, 0, 0, 0];
/// The version of Handfast.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("buildInfo").finish()?;
    let mut writer = Writer::new();
    writer.put("version", MONGODB_VERSION).array("versionArray", MONGODB_VERSION_ARRAY);
    writer.begin_document("handfast").put("version", VERSION).end();
    writer.put("gitVersion", format!("handfast-{VERSION}"));
    writer.array("modules", std::iter::empty::<&str>()).array("storageEngines", [call.store().name()]);
    writer.put("javascriptEngine", "none").put("bits", i32::try_from(usize::BITS).unwrap_or(64));
    writer
        .put("debug", cfg!(debug_assertions))
        .put("maxBsonObjectSize", i32::try_from(DOCUMENT_BYTES_MAX).unwrap_or(i32::MAX));
    Ok(writer.into())
}
