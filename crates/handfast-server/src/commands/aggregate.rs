//! `aggregate`: opens a cursor over the output of a pipeline.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::collation::with_variable;
use handfast_mql::pipeline::check_target_database;
use handfast_store::{Aggregate, AggregateSource, Explain, Explained, Verbosity};

use super::get_more::{Opening, first_batch};
use super::write::owned;
use super::{Access, Call, Command, InTransaction, Properties, SnapshotSupport, change_stream, explain, hint, stages};
use crate::arguments::Arguments;
use crate::auth::guard::{Needs, Target, Visitor, visit_pipeline};
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::request::Request;
use crate::transactions::rules::unsupported;

pub(crate) const COMMAND: Command = Command {
    name: "aggregate",
    aliases: &[],
    help: "runs an aggregation pipeline",
    access: Access::Read,
    needs: Needs::Visited(needs),
    admin_only: false,
    confidential: false,
    versioned: true,
    properties: Properties {
        access_of: Some(access),
        in_transaction: InTransaction::Allowed,
        snapshots: SnapshotSupport::Allowed,
        explain: Some(|call| Box::pin(explained(call))),
        ..Properties::DEFAULT
    },
    run: |call| Box::pin(run(call)),
};

/// Returns whether the pipeline only reads, or also stores its output.
fn access(request: &Request<'_>) -> Access {
    let is_writing = |stage: &RawDocument| {
        let name = stage.iter().next().and_then(Result::ok);
        name.is_some_and(|(name, _)| matches!(name.as_str(), "$out" | "$merge"))
    };
    if stages_of(request).any(is_writing) { Access::ReadAndStore } else { Access::Read }
}

/// Returns the stages of a pipeline, also of one that was sent as a document sequence. A message has one of the two: the codec refuses
/// a sequence with the name of a field.
fn stages_of<'a>(request: &Request<'a>) -> impl Iterator<Item = &'a RawDocument> {
    let body = match request.body.get("pipeline") {
        Ok(Some(RawBsonRef::Array(stages))) => Some(stages),
        _ => None,
    };
    let body = body.into_iter().flatten().filter_map(|stage| stage.ok()?.as_document());
    body.chain(stages_of_sequences(request))
}

/// Returns the stages of a pipeline that was sent as a document sequence.
fn stages_of_sequences<'a>(request: &Request<'a>) -> impl Iterator<Item = &'a RawDocument> {
    let sequences = request.sequences.iter().filter(|sequence| sequence.identifier == "pipeline");
    sequences.flat_map(|sequence| sequence.documents.iter().copied())
}

/// Visits the collection that the command names, and those that its stages name.
fn needs(request: &Request<'_>, visitor: &mut Visitor<'_>) -> CommandResult<()> {
    let database = request.database;
    let is_computed = stages::visit(request, stages_of(request).next(), visitor)?;
    match request.subject {
        _ if is_computed => {}
        RawBsonRef::String(collection) => visitor(Action::Find, Target { database, collection })?,
        _ => {
            if let Some(options) = change_stream::options_of(request) {
                let database = if change_stream::is_of_deployment(options) { "" } else { database };
                visitor(Action::Find, Target { database, collection: "" })?;
            }
        }
    }
    for element in request.body.iter().skip(1) {
        let (name, value) = element?;
        if name == "pipeline" {
            visit_pipeline(database, value, visitor)?;
        }
    }
    for stage in stages_of_sequences(request) {
        visit_pipeline(database, RawBsonRef::Document(stage), visitor)?;
    }
    Ok(())
}

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("aggregate");
    let explained = arguments.flag("explain")?.unwrap_or(false);
    let cursor = arguments.document("cursor")?;
    if let Some(pipeline) = change_stream::pipeline(&mut arguments)? {
        return change_stream::open(call, arguments, cursor, pipeline).await;
    }
    let aggregate = read(call, &mut arguments).await?;
    arguments.finish()?;
    if explained && call.transaction_number().is_some() {
        return Err(unsupported("Cannot run 'aggregate' with explain in a multi-document transaction.".to_owned()));
    }
    if explained {
        let request = Explain { explained: Explained::Aggregate(aggregate), verbosity: Verbosity::QueryPlanner };
        return explain::answer(call, request).await;
    }
    let Some(cursor) = cursor else {
        let text = "The 'cursor' option is required, except for aggregate with the explain argument";
        return Err(CommandError::new(Code::FailedToParse, text));
    };
    let mut cursor = Arguments::of_document("aggregate.cursor", cursor)?;
    let batch_size = cursor.unsigned("batchSize")?;
    cursor.finish()?;
    let namespace = match &aggregate.source {
        AggregateSource::Collection(namespace) => namespace.to_string(),
        AggregateSource::Database(database) => format!("{database}.$cmd.aggregate"),
    };
    let began = call.shared.now();
    let is_computed = stages::is_computed(&aggregate);
    let aggregate = stages::computed(call, aggregate).await?;
    // A list that is made now needs no right for its later batches.
    let namespace = if is_computed { format!("{}.$cmd.aggregate", call.request.database) } else { namespace };
    let opening = Opening { namespace, batch_size, single_batch: false, no_timeout: false };
    let cursor = call.store().aggregate(aggregate).await?;
    first_batch(call, cursor, opening, began).await
}

/// Reads the command for `explain`.
async fn explained(call: &Call<'_>) -> CommandResult<Explained> {
    let mut arguments = call.arguments("aggregate");
    let aggregate = read(call, &mut arguments).await?;
    arguments.ignored(&["cursor", "explain"])?;
    arguments.finish()?;
    Ok(Explained::Aggregate(aggregate))
}

/// Reads the arguments of the pipeline, without those of the cursor.
async fn read(call: &Call<'_>, arguments: &mut Arguments<'_>) -> CommandResult<Aggregate> {
    let collation = arguments.collation()?;
    let allow_disk_use = arguments.flag("allowDiskUse")?.unwrap_or(true);
    let validation = super::write::validation(arguments)?;
    arguments.unsupported(&["fromMongos", "needsMerge", "exchange"])?;
    let source = match call.request.subject {
        RawBsonRef::String(_) => AggregateSource::Collection(call.request.namespace()?),
        RawBsonRef::Int32(1) | RawBsonRef::Int64(1) | RawBsonRef::Double(1.0) => {
            AggregateSource::Database(call.request.database.to_owned())
        }
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) => {
            let text = "Invalid command format: the 'aggregate' field must specify a collection name or 1";
            return Err(CommandError::new(Code::FailedToParse, text));
        }
        _ => {
            let text = "collection name has invalid type";
            return Err(CommandError::new(Code::InvalidNamespace, text));
        }
    };
    let pipeline = arguments.documents("pipeline")?;
    let pipeline = owned(arguments.required("pipeline", pipeline)?);
    check_target(call.request.database, &pipeline)?;
    Ok(Aggregate {
        source,
        pipeline,
        allow_disk_use,
        hint: hint(arguments)?,
        variables: with_variable(call.variables(arguments).await?, collation.as_deref()),
        durability: call.durability(),
        validation,
    })
}

/// Refuses a last stage that writes into the command's database, if that is one of the server itself. The language refuses one that
/// names such a database.
fn check_target(database: &str, pipeline: &[RawDocumentBuf]) -> CommandResult<()> {
    let Some((stage, argument)) = pipeline.last().and_then(|stage| stage.iter().next()).transpose()? else {
        return Ok(());
    };
    let target = match (stage.as_str(), argument.as_document()) {
        ("$out", target) => target,
        ("$merge", Some(merge)) => merge.get_document("into").ok(),
        ("$merge", None) => None,
        _ => return Ok(()),
    };
    if target.is_none_or(|target| matches!(target.get("db"), Ok(None))) {
        check_target_database(stage.as_str(), database)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
