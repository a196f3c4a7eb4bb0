//! Functions of all write commands: they check the size of a batch, read updates and write the errors of statements.

use bson::RawDocumentBuf;
use bson::raw::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_store::{UpdateSpec, UpdateStatement, Validation, WriteError};
use handfast_wire::limits::WRITE_BATCH_MAX;

use super::{Call, hint, natural_order};
use crate::arguments::Arguments;
use crate::error::{CommandError, CommandResult, text};
use crate::writer::{Writer, decimal};

/// Refuses a batch without statements, and one with too many.
pub(super) fn check_batch(count: usize) -> CommandResult<()> {
    if (1..=WRITE_BATCH_MAX).contains(&count) {
        return Ok(());
    }
    let text = format!("Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {count} operations.");
    Err(CommandError::new(Code::InvalidLength, text))
}

/// The options of all write commands that pass over a step.
#[derive(Clone, Copy)]
pub(super) struct BypassOptions {
    /// Whether empty timestamps are stored as they are.
    pub(super) keep_empty_timestamps: bool,
    pub(super) validation: Validation,
}

impl BypassOptions {
    pub(super) fn read(arguments: &mut Arguments<'_>) -> CommandResult<Self> {
        Ok(BypassOptions {
            validation: validation(arguments)?,
            keep_empty_timestamps: arguments.lenient_flag("bypassEmptyTsReplacement")?.unwrap_or(false),
        })
    }
}

/// Reads `bypassDocumentValidation`.
pub(super) fn validation(arguments: &mut Arguments<'_>) -> CommandResult<Validation> {
    let bypass = arguments.lenient_flag("bypassDocumentValidation")?.unwrap_or(false);
    Ok(if bypass { Validation::Bypass } else { Validation::Apply })
}

/// Statements of a command that have the same collation and follow each other, as one request to the store has one collation.
pub(super) struct Run<T> {
    /// The position of the first of them in the command.
    pub(super) first: usize,
    pub(super) statements: Vec<T>,
    pub(super) collation: Option<RawDocumentBuf>,
}

/// Returns the statements of a command as runs, in order. A command without statements is a run of none.
pub(super) fn runs<T>(statements: Vec<(T, Option<RawDocumentBuf>)>) -> Vec<Run<T>> {
    let mut runs: Vec<Run<T>> = Vec::new();
    for (position, (statement, collation)) in statements.into_iter().enumerate() {
        match runs.last_mut().filter(|run| run.collation == collation) {
            Some(run) => run.statements.push(statement),
            None => runs.push(Run { first: position, statements: vec![statement], collation }),
        }
    }
    if runs.is_empty() {
        runs.push(Run { first: 0, statements: Vec::new(), collation: None });
    }
    runs
}

/// Returns the statement of a write command that is explained.
pub(super) fn explained_statement<T>(statements: Vec<T>) -> CommandResult<T> {
    let text = "explained write batches must be of size 1";
    let [statement]: [T; 1] = statements.try_into().map_err(|_| CommandError::new(Code::InvalidLength, text))?;
    Ok(statement)
}

/// Refuses statements that change many documents in a retryable write, because their result cannot be recorded in one step.
pub(super) fn check_single(call: &Call<'_>, multi: impl IntoIterator<Item = bool>, option: &str) -> CommandResult<()> {
    if call.ticket().is_some() && multi.into_iter().any(|multi| multi) {
        let text = format!("Cannot use retryable writes with {option}");
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    Ok(())
}

/// Writes `writeErrors`, if there are any.
pub(super) fn put_errors(writer: &mut Writer, errors: &[WriteError]) {
    if errors.is_empty() {
        return;
    }
    writer.begin_array("writeErrors");
    let mut digits = [0; 20];
    for (place, error) in errors.iter().enumerate() {
        writer.begin_document(decimal(place, &mut digits));
        writer.put("index", i32::try_from(error.index).unwrap_or(i32::MAX));
        put_error(writer, &error.error);
        writer.end();
    }
    writer.end();
}

/// Writes `code`, the details and `errmsg`.
pub(super) fn put_error(writer: &mut Writer, error: &handfast_store::Error) {
    writer.put("code", error.code().0);
    if let Some(details) = error.details() {
        writer.put_all(details);
    }
    writer.put("errmsg", &*text(error.applied(), error.message()));
}

/// The names of the fields of an update statement.
pub(super) struct UpdateNames {
    pub(super) filter: &'static str,
    pub(super) update: &'static str,
    pub(super) constants: &'static str,
}

/// Reads an update statement.
pub(super) fn update_statement(
    arguments: &mut Arguments<'_>,
    names: UpdateNames,
    bypass: BypassOptions,
) -> CommandResult<UpdateStatement> {
    let filter = arguments.document(names.filter)?;
    let filter = arguments.required(names.filter, filter)?.to_owned();
    let update = update_spec(arguments, names.update)?;
    let update = arguments.required(names.update, update)?;
    let multi = arguments.flag("multi")?.unwrap_or(false);
    let sort = arguments.document_or_empty("sort")?;
    if multi && !sort.is_empty() {
        return Err(CommandError::new(Code::FailedToParse, "Cannot specify sort with multi=true"));
    }
    let (sort, hint) = natural_order(sort, hint(arguments)?)?;
    Ok(UpdateStatement {
        filter,
        update,
        multi,
        upsert: arguments.flag("upsert")?.unwrap_or(false),
        array_filters: arguments.owned_documents("arrayFilters")?,
        sort,
        hint,
        constants: arguments.document_or_empty(names.constants)?,
        keep_empty_timestamps: bypass.keep_empty_timestamps,
        validation: bypass.validation,
    })
}

/// Reads a change: a document or a pipeline.
pub(super) fn update_spec(arguments: &mut Arguments<'_>, name: &str) -> CommandResult<Option<UpdateSpec>> {
    match arguments.any(name)? {
        None => Ok(None),
        Some(RawBsonRef::Document(document)) => Ok(Some(UpdateSpec::Document(document.to_owned()))),
        Some(RawBsonRef::Array(stages)) => {
            let stages = stages.into_iter().map(|stage| match stage? {
                RawBsonRef::Document(stage) => Ok(stage.to_owned()),
                _ => {
                    Err(CommandError::new(Code::TypeMismatch, "Each element of the 'pipeline' array must be an object"))
                }
            });
            Ok(Some(UpdateSpec::Pipeline(stages.collect::<CommandResult<_>>()?)))
        }
        Some(_) => {
            let text = "Update argument must be either an object or an array";
            Err(CommandError::new(Code::FailedToParse, text))
        }
    }
}

/// Copies the documents of a pipeline.
pub(super) fn owned(documents: Vec<&RawDocument>) -> Vec<bson::RawDocumentBuf> {
    documents.into_iter().map(RawDocument::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use crate::testing::{TestServer, error_of};

    #[tokio::test]
    async fn the_number_of_statements_is_bounded() {
        let mut server = TestServer::adjustable();
        let mut client = server.connect();
        let text = |count| format!("Write batch sizes must be between 1 and 100000. Got {count} operations.");
        let none = rawdoc! { "insert": "c", "documents": [] };
        assert_eq!(client.refused("d", none).await, (16, "InvalidLength".to_owned(), text(0)));
        let many = vec![rawdoc! { "q": {}, "limit": 1 }; 100_001];
        let reply = client.run_with("d", rawdoc! { "delete": "c" }, &[("deletes", &many)]).await;
        assert_eq!(error_of(&reply), (16, "InvalidLength".to_owned(), text(100_001)));
        // The connection stays open.
        client.run("d", rawdoc! { "ping": 1 }).await;
    }
}
