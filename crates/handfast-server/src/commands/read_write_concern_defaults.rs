//! `getDefaultRWConcern` and `setDefaultRWConcern`: the read and write concerns of commands that name none.
//!
//! They follow from the server: reads see committed writes (`local`), and the setting `durability` decides whether a write is synced
//! before its reply (`w: "majority"`) or not (`w: 1`). So `setDefaultRWConcern` accepts the concerns that are in force, and refuses others.

use bson::raw::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_store::Durability;

use super::{Access, Call, Command, Properties};
use crate::arguments::{Arguments, as_integer};
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::options::Topology;
use crate::reply::Answer;
use crate::request;
use crate::writer::Writer;

pub(crate) const GET: Command = Command {
    name: "getDefaultRWConcern",
    aliases: &[],
    help: "returns the default read and write concern",
    access: Access::Server,
    needs: Needs::Server(Action::Monitor),
    admin_only: true,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(get(call)),
};

pub(crate) const SET: Command = Command {
    name: "setDefaultRWConcern",
    help: "accepts the default read and write concern that the server has, and refuses others",
    needs: Needs::Server(Action::Control),
    run: |call| Box::pin(set(call)),
    ..GET
};

async fn get(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("getDefaultRWConcern");
    let in_memory = arguments.lenient_flag("inMemory")?.unwrap_or(false);
    arguments.finish()?;
    refuse_standalone(call, "getDefaultRWConcern")?;
    let mut writer = answer(call);
    writer.put_some("inMemory", in_memory.then_some(true));
    Ok(writer.into())
}

fn answer(call: &Call<'_>) -> Writer {
    let shared = call.shared;
    let mut writer = Writer::new();
    writer.begin_document("defaultReadConcern").put("level", "local").end();
    writer.begin_document("defaultWriteConcern");
    match shared.options.durability {
        Durability::Journaled => writer.put("w", "majority"),
        Durability::Memory => writer.put("w", 1),
    };
    writer.put("wtimeout", 0).end();
    writer.put("defaultWriteConcernSource", "implicit").put("defaultReadConcernSource", "implicit");
    // The concerns are those of the settings with which the server was started.
    writer.put("localUpdateWallClockTime", shared.started_at());
    writer
}

async fn set(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("setDefaultRWConcern");
    let read = arguments.document("defaultReadConcern")?;
    let write = arguments.document("defaultWriteConcern")?;
    arguments.finish()?;
    refuse_standalone(call, "setDefaultRWConcern")?;
    if read.is_none() && write.is_none() {
        let text = "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present";
        return Err(CommandError::new(Code::BadValue, text));
    }
    if let Some(read) = read {
        check_read(read)?;
    }
    if let Some(write) = write {
        check_write(call, write)?;
    }
    Ok(answer(call).into())
}

/// Refuses a read concern other than `local`. An empty document removes a default that was set, of which there is none.
fn check_read(concern: &RawDocument) -> CommandResult<()> {
    let unsuitable = |what: &str| {
        let text = format!("{what} is not suitable for the default read concern");
        Err(CommandError::new(Code::BadValue, text))
    };
    for moment in ["afterClusterTime", "atClusterTime"] {
        if concern.get(moment)?.is_some() {
            return unsuitable(&format!("'{moment}'"));
        }
    }
    match request::read_concern(concern)?.level {
        None | Some("local") => Ok(()),
        Some(level @ ("linearizable" | request::SNAPSHOT)) => unsuitable(&format!("level: '{level}'")),
        Some(level) => Err(unsupported(format!(
            "the default read concern is always 'local', which reads committed writes, and cannot become '{level}'"
        ))),
    }
}

/// Refuses a write concern other than that of the setting `durability`.
fn check_write(call: &Call<'_>, concern: &RawDocument) -> CommandResult<()> {
    if concern.is_empty() {
        return Ok(());
    }
    let parsed = request::write_concern(concern)?;
    if !parsed.acknowledged {
        let text = "Unacknowledged write concern (w: 0) is not suitable for the default write concern";
        return Err(CommandError::new(Code::BadValue, text));
    }
    let mut arguments = Arguments::of_document("defaultWriteConcern", concern)?;
    let is_one = match arguments.any("w")? {
        None => true,
        Some(value) => as_integer(value) == Some(1),
    };
    let is_majority = matches!(arguments.any("w")?, Some(RawBsonRef::String("majority")));
    let waits = arguments.integer("wtimeout")?.is_some_and(|millis| millis != 0);
    let accepted = match call.shared.options.durability {
        Durability::Journaled => is_majority,
        Durability::Memory => is_one && !parsed.synced,
    };
    if accepted && !waits {
        return Ok(());
    }
    let text = "the default write concern follows from the setting 'durability' of the server (journaled: {w: \"majority\"}, memory: {w: 1}) and cannot become another one";
    Err(unsupported(text.to_owned()))
}

fn unsupported(text: String) -> CommandError {
    CommandError::new(Code::CommandNotSupported, text)
}

fn refuse_standalone(call: &Call<'_>, name: &str) -> CommandResult<()> {
    if call.shared.options.topology == Topology::Standalone {
        let text = format!("'{name}' is not supported on standalone nodes.");
        return Err(CommandError::new(OF_STANDALONE, text));
    }
    Ok(())
}

const OF_STANDALONE: Code = Code(51_300);

#[cfg(test)]
mod tests;
