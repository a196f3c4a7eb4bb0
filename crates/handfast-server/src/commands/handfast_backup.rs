//! `handfastBackup`: copies all data while the server runs.

use bson::raw::RawBsonRef;
use handfast_mql::Code;
use tracing::{info, warn};

use super::{Access, Call, Command, Properties};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::backup::{BackedUp, BackupName};
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::{Writer, put_count};

pub(crate) const COMMAND: Command = Command {
    name: "handfastBackup",
    aliases: &[],
    help: "copies everything, as it is at one moment, into the directory for backups, under this name",
    // A backup that has begun is completed, even if its client disconnects.
    access: Access::Write,
    needs: Needs::Server(Action::BackUp),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    call.arguments("handfastBackup").finish()?;
    let Some(backup) = &call.shared.options.backup else {
        let text = "the server makes no backups: it was started without --backup-directory (or with --store, where the server \
                    behind it makes them)";
        return Err(CommandError::new(Code::IllegalOperation, text));
    };
    let RawBsonRef::String(name) = call.request.subject else {
        return Err(CommandError::new(Code::TypeMismatch, "the name of a backup must be a string"));
    };
    let name = BackupName::new(name)?;
    info!(%name, connection = call.client.id, "a backup begins");
    let began = call.shared.now();
    let BackedUp { path, documents, entries, bytes } = match backup.back_up(&name).await {
        Ok(done) => done,
        Err(error) => {
            warn!(%name, %error, "a backup failed");
            return Err(error.into());
        }
    };
    let took = call.shared.now().saturating_sub(began);
    info!(%name, documents, entries, bytes, seconds = took.as_secs_f64(), "a backup is complete");
    let mut writer = Writer::new();
    writer.put("path", path);
    put_count(&mut writer, "documents", documents);
    put_count(&mut writer, "indexEntries", entries);
    put_count(&mut writer, "bytes", bytes);
    Ok(writer.into())
}

#[cfg(test)]
mod tests;
