//! The parts that the commands of the patterns share. Each runs a step of a pattern of handfast-patterns in the session's transaction.

use std::time::Duration;

use bson::{Bson, Document, RawBson, RawBsonRef, RawDocumentBuf, doc};
use handfast_mql::Code;
use handfast_patterns::{Change, Token};

use super::{Access, Command, InTransaction, Properties, Running};
use crate::arguments::Arguments;
use crate::auth::guard::Needs;
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::writer::Writer;

/// Limit on the items of a round of a recovery, a sweep or a clean-up.
const COUNT_MAX: u64 = 1000;
/// The items of a round that names no number.
const COUNT: u64 = 100;

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

/// Reads a document that has only the `_id` of what a command is about.
pub(super) fn named(arguments: &mut Arguments<'_>, name: &'static str) -> CommandResult<Bson> {
    let document = arguments.document(name)?;
    let mut document = Arguments::of_document(name, arguments.required(name, document)?)?;
    let id = required_id(&mut document)?;
    document.finish()?;
    Ok(id)
}

/// Reads the token that makes a command one that can be sent again: an ObjectId of the client.
pub(super) fn required_token(arguments: &mut Arguments<'_>) -> CommandResult<Token> {
    let token = arguments.any("token")?;
    match arguments.required("token", token)?.as_object_id() {
        Some(token) => Ok(Token(token)),
        None => Err(CommandError::new(Code::TypeMismatch, "token must be an ObjectId, which a driver makes")),
    }
}

/// Reads a document that a command requires.
pub(super) fn required_document(arguments: &mut Arguments<'_>, name: &'static str) -> CommandResult<Document> {
    let document = arguments.document(name)?;
    Ok(Document::try_from(arguments.required(name, document)?)?)
}

/// Reads a document that may be left out.
pub(super) fn optional_document(arguments: &mut Arguments<'_>, name: &str) -> CommandResult<Option<Document>> {
    Ok(arguments.document(name)?.map(Document::try_from).transpose()?)
}

/// Reads `update`, and the condition `guard` on the document that it changes.
pub(super) fn required_change(arguments: &mut Arguments<'_>) -> CommandResult<Change> {
    let change = Change::new(required_document(arguments, "update")?);
    Ok(match optional_document(arguments, "guard")? {
        Some(guard) => change.guarded(guard),
        None => change,
    })
}

/// Reads the number of items of a round.
pub(super) fn count(arguments: &mut Arguments<'_>) -> CommandResult<u32> {
    let count = arguments.exact_unsigned("count")?.unwrap_or(COUNT);
    let fits = u32::try_from(count).ok().filter(|count| (1..=COUNT_MAX).contains(&u64::from(*count)));
    fits.ok_or_else(|| invalid(format!("count must be from 1 to {COUNT_MAX}, and is {count}")))
}

/// Reads a time in milliseconds that may be left out.
pub(super) fn millis(arguments: &mut Arguments<'_>, name: &str) -> CommandResult<Option<Duration>> {
    Ok(arguments.unsigned(name)?.map(Duration::from_millis))
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

/// Returns the error of a step on something that does not exist.
pub(super) fn missing(what: &str, id: &Bson) -> CommandError {
    CommandError::new(Code::NoSuchKey, format!("there is no {what} {id}"))
}

/// Returns the error of a change whose guard does not hold.
pub(super) fn not_allowed(id: &Bson) -> CommandError {
    let text = format!("document {id} does not match the guard, so it was not changed");
    CommandError::new(Code::DocumentValidationFailure, text)
}

/// Returns the error of a transaction whose step was made before it began, by an earlier transaction together with its other changes, which this one
/// would make again.
pub(super) fn made_before(what: &str, id: &Bson) -> CommandError {
    let text = format!(
        "{what} {id} was made before this transaction, which was aborted so that its other changes are not made again"
    );
    CommandError::new(Code::TransactionCommitted, text)
}

/// Returns an error with `errInfo`.
pub(super) fn with_info(code: Code, text: String, info: Document) -> CommandResult<CommandError> {
    let details = RawDocumentBuf::try_from(&doc! { "errInfo": info })?;
    Ok(CommandError { details: Some(details), ..CommandError::new(code, text) })
}
