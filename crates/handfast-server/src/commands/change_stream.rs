//! `$changeStream`, the first stage of an `aggregate` that opens a change stream.

use bson::Timestamp;
use bson::raw::{RawBsonRef, RawDocument};
use handfast_mql::Code;
use handfast_store::change_stream::{NO_CHANGE_LOG, is_logged_database};
use handfast_store::{DocumentStore, FullDocument, FullDocumentBefore, Watch, WatchScope, WatchStart};

use super::Call;
use super::write::owned;
use crate::arguments::Arguments;
use crate::changes::{Changes, first_batch, of_stream};
use crate::error::{CommandError, CommandResult};
use crate::options::Topology;
use crate::reply::Answer;
use crate::request::Request;
use crate::transactions::rules::unsupported;

const STAGE: &str = "$changeStream";
/// MongoDB's code for `resumeAfter` beside `startAfter`.
const TWO_TOKENS: Code = Code(50_865);
/// MongoDB's code for several moments at which a stream begins.
const SEVERAL_STARTS: Code = Code(40_674);

/// Returns the stages of a command that opens a change stream.
pub(super) fn pipeline<'a>(arguments: &mut Arguments<'a>) -> CommandResult<Option<Vec<&'a RawDocument>>> {
    let Some(pipeline) = arguments.documents("pipeline")? else { return Ok(None) };
    let is_stream = pipeline.first().is_some_and(|stage| first_name(stage) == Some(STAGE));
    Ok(is_stream.then_some(pipeline))
}

fn first_name(stage: &RawDocument) -> Option<&str> {
    stage.iter().next()?.ok().map(|(name, _)| name.as_str())
}

/// Returns the options of the stage, if a request opens a change stream.
pub(super) fn options_of<'a>(request: &Request<'a>) -> Option<&'a RawDocument> {
    let sequence = request.sequences.iter().find(|sequence| sequence.identifier == "pipeline");
    let first = match sequence {
        Some(sequence) => *sequence.documents.first()?,
        None => request.body.get_array("pipeline").ok()?.into_iter().next()?.ok()?.as_document()?,
    };
    first.get(STAGE).ok()??.as_document()
}

/// Returns whether a stream shows the changes of all databases.
pub(super) fn is_of_deployment(options: &RawDocument) -> bool {
    matches!(options.get("allChangesForCluster"), Ok(Some(RawBsonRef::Boolean(true))))
}

/// Opens the stream, and replies with its first events.
pub(super) async fn open(
    call: &Call<'_>,
    mut arguments: Arguments<'_>,
    cursor: Option<&RawDocument>,
    pipeline: Vec<&RawDocument>,
) -> CommandResult<Answer> {
    if arguments.flag("explain")?.unwrap_or(false) {
        let text = "a pipeline with $changeStream cannot be explained: it reads the log of changes";
        return Err(CommandError::new(Code::NotImplemented, text));
    }
    check_allowed(call)?;
    arguments.simple_collation()?;
    arguments.flag("allowDiskUse")?;
    arguments.lenient_flag("bypassDocumentValidation")?;
    arguments.ignored(&["hint"])?;
    arguments.unsupported(&["fromMongos", "needsMerge", "exchange"])?;
    let variables = call.variables(&mut arguments).await?;
    arguments.finish()?;
    let Some(cursor) = cursor else {
        let text = "The 'cursor' option is required, except for aggregate with the explain argument";
        return Err(CommandError::new(Code::FailedToParse, text));
    };
    let mut cursor = Arguments::of_document("aggregate.cursor", cursor)?;
    let batch_size = cursor.unsigned("batchSize")?;
    cursor.finish()?;
    let mut stages = pipeline.into_iter();
    let stage = read(call, stages.next())?;
    let watch = Watch { pipeline: owned(stages.collect()), variables, ..stage };
    let (namespace, database) = match &watch.scope {
        WatchScope::Collection(namespace) => (namespace.to_string(), None),
        WatchScope::Database(database) => (format!("{database}.$cmd.aggregate"), Some(database.clone())),
        WatchScope::Deployment => ("admin.$cmd.aggregate".to_owned(), Some(String::new())),
    };
    let stream = call.shared.database.watch(watch).await.map_err(of_stream)?;
    first_batch(call, Changes::new(stream, database), namespace, batch_size).await
}

/// Refuses a stream in a transaction, of a snapshot, and of a server that says that it is a standalone one.
fn check_allowed(call: &Call<'_>) -> CommandResult<()> {
    if call.transaction_number().is_some() {
        let text = "Operation not permitted in transaction :: caused by :: Aggregation stage $changeStream cannot run within a \
                    multi-document transaction";
        return Err(unsupported(text.to_owned()));
    }
    let level = call.request.read_concern.and_then(|concern| concern.level);
    if let Some(level) = level.filter(|level| *level != "majority") {
        let text = format!(
            "Aggregation stage $changeStream cannot run with a readConcern other than 'majority'. Current readConcern: {level}"
        );
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    if call.shared.options.topology == Topology::Standalone {
        let text =
            "The $changeStream stage is only supported on replica sets: start the server with --topology replica-set";
        return Err(CommandError::new(NO_CHANGE_LOG, text));
    }
    Ok(())
}

/// Reads the stage.
fn read(call: &Call<'_>, stage: Option<&RawDocument>) -> CommandResult<Watch> {
    let wrong = || CommandError::new(Code(50_808), "$changeStream stage expects a document as argument");
    let options = stage.and_then(|stage| stage.get(STAGE).ok().flatten()).and_then(RawBsonRef::as_document);
    let mut options = Arguments::of_document(STAGE, options.ok_or_else(wrong)?)?;
    let all = options.flag("allChangesForCluster")?.unwrap_or(false);
    let full_document = match options.text("fullDocument")? {
        None | Some("default") => FullDocument::Default,
        Some("updateLookup") => FullDocument::UpdateLookup,
        Some("whenAvailable") => FullDocument::WhenAvailable,
        Some("required") => FullDocument::Required,
        Some(other) => return Err(not_a_value("fullDocument", other)),
    };
    let full_document_before = match options.text("fullDocumentBeforeChange")? {
        None | Some("off") => FullDocumentBefore::Off,
        Some("whenAvailable") => FullDocumentBefore::WhenAvailable,
        Some("required") => FullDocumentBefore::Required,
        Some(other) => return Err(not_a_value("fullDocumentBeforeChange", other)),
    };
    let expanded = options.flag("showExpandedEvents")?.unwrap_or(false);
    let (resume, after) = (options.document("resumeAfter")?, options.document("startAfter")?);
    let time = options.any("startAtOperationTime")?.map(timestamp).transpose()?;
    // MongoDB's own options for its tools.
    options.unsupported(&[
        "showMigrationEvents",
        "showSystemEvents",
        "showRawUpdateDescription",
        "allowToRunOnConfigDB",
    ])?;
    options.ignored(&["matchCollectionUUIDForUpdateLookup"])?;
    options.finish()?;
    let start = match (resume, after, time) {
        (None, None, None) => WatchStart::Now,
        (Some(token), None, None) => WatchStart::ResumeAfter(token.to_owned()),
        (None, Some(token), None) => WatchStart::StartAfter(token.to_owned()),
        (None, None, Some(time)) => WatchStart::At(time),
        (Some(_), Some(_), _) => {
            let text = "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage";
            return Err(CommandError::new(TWO_TOKENS, text));
        }
        _ => {
            let text = "Only one type of resume option is allowed, but multiple were found.";
            return Err(CommandError::new(SEVERAL_STARTS, text));
        }
    };
    let scope = scope(call, all)?;
    Ok(Watch { start, full_document, full_document_before, expanded, ..Watch::new(scope) })
}

fn timestamp(value: RawBsonRef<'_>) -> CommandResult<Timestamp> {
    value.as_timestamp().ok_or_else(|| {
        let text = "BSON field '$changeStream.startAtOperationTime' is the wrong type, expected type 'timestamp'";
        CommandError::new(Code::TypeMismatch, text)
    })
}

fn not_a_value(option: &str, value: &str) -> CommandError {
    let text = format!("Enumeration value '{value}' for field '$changeStream.{option}' is not a valid value.");
    CommandError::new(Code::BadValue, text)
}

/// Returns the collections whose changes the stream shows.
fn scope(call: &Call<'_>, all: bool) -> CommandResult<WatchScope> {
    let request = call.request;
    let collection = match request.subject {
        RawBsonRef::String(_) => Some(request.namespace()?),
        RawBsonRef::Int32(1) | RawBsonRef::Int64(1) | RawBsonRef::Double(1.0) => None,
        _ => {
            let text = "Invalid command format: the 'aggregate' field must specify a collection name or 1";
            return Err(CommandError::new(Code::FailedToParse, text));
        }
    };
    let database = request.database;
    if all {
        if database == "admin" && collection.is_none() {
            return Ok(WatchScope::Deployment);
        }
        let found = collection.map_or_else(|| database.to_owned(), |namespace| namespace.to_string());
        let text = format!(
            "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with no collection \
             name; found {found}"
        );
        return Err(CommandError::new(Code::InvalidOptions, text));
    }
    let refused = |text: String| Err(CommandError::new(Code::InvalidNamespace, text));
    if !is_logged_database(database) {
        return refused(format!("$changeStream may not be opened on the internal {database} database"));
    }
    match collection {
        None => Ok(WatchScope::Database(database.to_owned())),
        Some(namespace) if namespace.collection().starts_with("system.") => {
            refused(format!("$changeStream may not be opened on the internal {namespace} collection"))
        }
        Some(namespace) => Ok(WatchScope::Collection(namespace)),
    }
}

#[cfg(test)]
mod tests;
