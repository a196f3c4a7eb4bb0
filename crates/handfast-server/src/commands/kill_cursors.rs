//! `killCursors`: closes cursors.

use bson::raw::RawBsonRef;
use handfast_mql::Code;

use super::{Access, Call, Command, InTransaction, Properties};
use crate::auth::guard::Needs;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::Writer;

pub(crate) const COMMAND: Command = Command {
    name: "killCursors",
    aliases: &[],
    help: "closes cursors",
    access: Access::Server,
    needs: Needs::Login,
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties { in_transaction: InTransaction::NotFirst, ..Properties::DEFAULT },
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("killCursors");
    let RawBsonRef::String(collection) = call.request.subject else {
        let text = "BSON field 'killCursors.killCursors' is the wrong type, expected type 'string'";
        return Err(CommandError::new(Code::TypeMismatch, text));
    };
    let cursors = arguments.array("cursors")?;
    let cursors = arguments.required("cursors", cursors)?;
    arguments.finish()?;
    let namespace = format!("{}.{collection}", call.request.database);
    let (mut killed, mut unknown) = (Vec::new(), Vec::new());
    for id in cursors {
        let Some(id) = id?.as_i64() else {
            let text = "BSON field 'killCursors.cursors' holds the wrong type, expected type 'long'";
            return Err(CommandError::new(Code::TypeMismatch, text));
        };
        let list = if call.shared.cursors.kill(id, &namespace, call.user_id()) { &mut killed } else { &mut unknown };
        list.push(id);
    }
    let none = || std::iter::empty::<i64>();
    let mut writer = Writer::new();
    writer.array("cursorsKilled", killed).array("cursorsNotFound", unknown);
    writer.array("cursorsAlive", none()).array("cursorsUnknown", none());
    Ok(writer.into())
}
