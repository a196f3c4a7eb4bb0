//! `compact` and `autoCompact`: the store reclaims the space of removed data by itself, while it runs.
//!
//! So `compact` has nothing to do and frees no bytes, and `autoCompact`, which would turn this on or off, is refused.

use handfast_mql::Code;

use super::{Access, Call, Command, Properties};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMPACT: Command = Command {
    name: "compact",
    aliases: &[],
    help: "frees no bytes, as the store reclaims space by itself",
    access: Access::Read,
    needs: Needs::Collection(&[Action::Validate]),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(compact(call)),
};

pub(crate) const AUTO: Command = Command {
    name: "autoCompact",
    help: "refuses to change how the store reclaims space",
    access: Access::Server,
    needs: Needs::Server(Action::Control),
    admin_only: true,
    run: |call| Box::pin(auto(call)),
    ..COMPACT
};

/// Reads the megabytes of free space from which on there is something to do.
fn read_target(arguments: &mut Arguments<'_>) -> CommandResult<()> {
    match arguments.integer("freeSpaceTargetMB")? {
        Some(megabytes) if megabytes < 1 => {
            let text = format!("BSON field 'freeSpaceTargetMB' value must be >= 1, actual value '{megabytes}'");
            Err(CommandError::new(TOO_SMALL, text))
        }
        _ => Ok(()),
    }
}

async fn compact(call: &Call<'_>) -> CommandResult<Answer> {
    let namespace = call.request.namespace()?;
    let mut arguments = call.arguments("compact");
    arguments.lenient_flag("force")?;
    let is_dry = arguments.lenient_flag("dryRun")?.unwrap_or(false);
    read_target(&mut arguments)?;
    arguments.finish()?;
    call.store().list_indexes(&namespace).await.map_err(|error| match error.code() {
        Code::NamespaceNotFound => CommandError::new(Code::NamespaceNotFound, "collection does not exist"),
        Code::CommandNotSupportedOnView => CommandError::new(error.code(), "can't compact a view"),
        _ => error.into(),
    })?;
    let mut writer = Writer::new();
    writer.put(if is_dry { "estimatedBytesFreed" } else { "bytesFreed" }, 0_i64);
    Ok(writer.into())
}

async fn auto(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("autoCompact");
    arguments.lenient_flag("runOnce")?;
    read_target(&mut arguments)?;
    arguments.finish()?;
    if call.request.subject.as_bool().is_none() {
        let kind = handfast_mql::bson_type::type_name(call.request.subject);
        let text = format!("BSON field 'autoCompact.autoCompact' is the wrong type '{kind}', expected type 'bool'");
        return Err(CommandError::new(Code::TypeMismatch, text));
    }
    let text = "the store reclaims the space of removed data by itself, which cannot be turned on or off";
    Err(CommandError::new(Code::CommandNotSupported, text))
}

/// MongoDB's code for a number below its bound.
const TOO_SMALL: Code = Code(51_024);

#[cfg(test)]
mod tests;
