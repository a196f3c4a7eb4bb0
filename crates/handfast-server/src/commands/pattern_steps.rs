//! The parts that the commands of job queues and of ledgers share. Each runs a step of a pattern of handfast-patterns in the session's transaction.

use bson::{Bson, RawBson, RawBsonRef};
use handfast_mql::Code;

use super::{Access, Command, InTransaction, Properties, Running};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::writer::Writer;

/// Opening a pattern creates its indexes.
const NEEDS: Needs = Needs::Collection(&[Action::Find, Action::Write, Action::Structure]);

/// The properties of the commands that can be part of a transaction.
pub(super) const IN_TRANSACTION: Properties =
    Properties { in_transaction: InTransaction::Allowed, ..Properties::DEFAULT };

/// Returns a command of a pattern, which writes.
pub(super) const fn command(
    name: &'static str,
    help: &'static str,
    properties: Properties,
    run: for<'a> fn(&'a super::Call<'a>) -> Running<'a>,
) -> Command {
    Command {
        name,
        aliases: &[],
        help,
        access: Access::Write,
        needs: NEEDS,
        admin_only: false,
        confidential: false,
        versioned: false,
        properties,
        run,
    }
}

/// Reads the `_id` of a document that a command is about. (It is no argument of the command itself: pymongo sends that before the command's name.)
pub(super) fn required_id(document: &mut Arguments<'_>) -> CommandResult<Bson> {
    required_value(document, "_id")
}

/// Reads a required value of any type, null included.
pub(super) fn required_value(arguments: &mut Arguments<'_>, name: &'static str) -> CommandResult<Bson> {
    let value = arguments.any_or_null(name)?;
    owned(arguments.required(name, value)?)
}

/// Reads the text of an error or a name that a command requires.
pub(super) fn required_text<'a>(arguments: &mut Arguments<'a>, name: &'static str) -> CommandResult<&'a str> {
    let text = arguments.text(name)?;
    arguments.required(name, text)
}

pub(super) fn owned(value: RawBsonRef<'_>) -> CommandResult<Bson> {
    Ok(Bson::try_from(value)?)
}

/// Writes a value of any type.
pub(super) fn put_value(writer: &mut Writer, name: &str, value: &Bson) -> CommandResult<()> {
    let raw = RawBson::try_from(value.clone())?;
    writer.put_any(name, raw.as_raw_bson_ref());
    Ok(())
}

/// Returns the error of an argument that is out of range.
pub(super) fn invalid(text: impl Into<String>) -> CommandError {
    CommandError::new(Code::BadValue, text)
}
