//! `fsync`: returns once everything that was acknowledged is on the disk. `fsyncUnlock` has no lock to release.
//!
//! With `lock` MongoDB blocks writes so that the files can be copied. That is refused: `handfastBackup` copies a snapshot while clients
//! write.

use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const FSYNC: Command = Command {
    name: "fsync",
    aliases: &[],
    help: "writes everything that was acknowledged to the disk",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(fsync(call)),
};

pub(crate) const UNLOCK: Command = Command {
    name: "fsyncUnlock",
    help: "refuses to allow writes, because nothing blocks them",
    run: |call| Box::pin(unlock(call)),
    ..FSYNC
};

async fn fsync(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("fsync");
    let lock = arguments.lenient_flag("lock")?.unwrap_or(false);
    // The reply always comes after the sync.
    arguments.lenient_flag("async")?;
    arguments.integer("fsyncLockAcquisitionTimeoutMillis")?;
    arguments.finish()?;
    if lock {
        let text = "fsync with lock: true is not supported: handfastBackup makes a copy while clients write";
        return Err(CommandError::new(Code::CommandNotSupported, text));
    }
    call.store().flush().await?;
    let mut writer = Writer::new();
    writer.put("numFiles", 1);
    Ok(writer.into())
}

async fn unlock(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("fsyncUnlock").finish()?;
    Err(CommandError::new(Code::IllegalOperation, "fsyncUnlock called when not locked"))
}

#[cfg(test)]
mod tests;
