//! `hostInfo`: describes the machine, as far as the program can tell.

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::CommandResult;
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "hostInfo",
    aliases: &[],
    help: "describes the machine",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

/// Returns the machine's name, if the system keeps it in a file.
pub(super) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("hostInfo").finish()?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut writer = Writer::new();
    writer.begin_document("system").put("currentTime", call.shared.sources.clock.now());
    writer.put("hostname", host_name()).put("cpuAddrSize", i32::try_from(usize::BITS).unwrap_or(64));
    writer.put("numCores", i32::try_from(cores).unwrap_or(i32::MAX)).put("cpuArch", std::env::consts::ARCH).end();
    writer.begin_document("os").put("type", std::env::consts::OS).put("name", std::env::consts::FAMILY).end();
    writer.begin_document("extra").end();
    Ok(writer.into())
}
