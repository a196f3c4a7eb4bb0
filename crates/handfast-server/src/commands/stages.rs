//! The stages with which a pipeline begins that reads what the server knows, such as `$currentOp` and `$indexStats`.
//!
//! The server computes their documents and puts a stage `$documents` in their place, so that the store runs the rest of the pipeline.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_mql::bson_type::type_name;
use handfast_store::{Aggregate, AggregateSource, Namespace};

use super::{Call, coll_stats, current_op, index_stats, list_sessions, plan_cache, query_settings};
use crate::auth::guard::{Target, Visitor};
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::request::Request;
use crate::transactions::rules::unsupported;
use crate::writer::Writer;

/// A stage of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    CollStats,
    CurrentOp,
    IndexStats,
    ListLocalSessions,
    ListSessions,
    PlanCacheStats,
    QuerySettings,
}

/// The stages by name.
const STAGES: [(&str, Stage); 7] = [
    ("$collStats", Stage::CollStats),
    ("$currentOp", Stage::CurrentOp),
    ("$indexStats", Stage::IndexStats),
    ("$listLocalSessions", Stage::ListLocalSessions),
    ("$listSessions", Stage::ListSessions),
    ("$planCacheStats", Stage::PlanCacheStats),
    ("$querySettings", Stage::QuerySettings),
];

impl Stage {
    fn named(name: &str) -> Option<Self> {
        STAGES.iter().find(|(known, _)| *known == name).map(|(_, stage)| *stage)
    }

    /// Returns the action that the stage needs, on the collection or the server, in place of reading documents. The other stages check
    /// by themselves what their options show.
    fn action(self) -> Option<Action> {
        match self {
            Stage::CollStats => Some(Action::Statistics),
            Stage::IndexStats => Some(Action::IndexStatistics),
            Stage::PlanCacheStats => Some(Action::ReadPlans),
            Stage::QuerySettings => Some(Action::Control),
            Stage::CurrentOp | Stage::ListLocalSessions | Stage::ListSessions => None,
        }
    }
}

/// Returns the name and the options of a stage.
fn named(stage: &RawDocument) -> Option<(&str, RawBsonRef<'_>)> {
    let (name, value) = stage.iter().next()?.ok()?;
    Some((name.as_str(), value))
}

/// Visits the action of the first stage, if it is one of these stages, and returns whether it is one.
pub(super) fn visit(
    request: &Request<'_>,
    first: Option<&RawDocument>,
    visitor: &mut Visitor<'_>,
) -> CommandResult<bool> {
    let Some(stage) = first.and_then(named).and_then(|(name, _)| Stage::named(name)) else { return Ok(false) };
    if let Some(action) = stage.action() {
        // The stage itself refuses to run without a collection.
        let collection = request.subject.as_str().unwrap_or_default();
        visitor(action, Target { database: request.database, collection })?;
    }
    Ok(true)
}

/// Returns whether the first stage is one of these.
pub(super) fn is_computed(aggregate: &Aggregate) -> bool {
    aggregate.pipeline.first().and_then(|first| named(first)).is_some_and(|(name, _)| Stage::named(name).is_some())
}

/// Replaces a first stage of this kind by the documents that it returns.
///
/// # Errors
/// 40323 for a stage with several fields, 40602 for such a stage at another place, `OperationNotSupportedInTransaction` (263) in a transaction, and the errors of its options.
pub(super) async fn computed(call: &Call<'_>, mut aggregate: Aggregate) -> CommandResult<Aggregate> {
    let mut later = aggregate.pipeline.iter().skip(1).filter_map(|stage| named(stage));
    if let Some((name, _)) = later.find(|(name, _)| Stage::named(name).is_some()) {
        let text = format!("{name} is only valid as the first stage in a pipeline");
        return Err(CommandError::new(NOT_FIRST, text));
    }
    let Some((name, options)) = aggregate.pipeline.first().and_then(|first| named(first)) else {
        return Ok(aggregate);
    };
    let Some(stage) = Stage::named(name) else { return Ok(aggregate) };
    if aggregate.pipeline.first().is_some_and(|first| first.iter().count() != 1) {
        let text = "A pipeline stage specification object must contain exactly one field.";
        return Err(CommandError::new(NOT_ONE_FIELD, text));
    }
    if call.transaction_number().is_some() {
        let text = format!(
            "Operation not permitted in transaction :: caused by :: Aggregation stage {name} cannot run within a multi-document transaction"
        );
        return Err(unsupported(text));
    }
    let documents: Vec<RawDocumentBuf> = match stage {
        Stage::CollStats => {
            let namespace = collection(name, &aggregate.source)?;
            let Some(options) = options.as_document() else {
                let text = format!("$collStats must take a nested object but found: {}", type_name(options));
                return Err(CommandError::new(NOT_NESTED, text));
            };
            vec![coll_stats::stage(call, namespace, options).await?]
        }
        Stage::CurrentOp => {
            check_of_admin(name, &aggregate.source)?;
            current_op::stage(call, options)?
        }
        Stage::IndexStats => index_stats::stage(call, collection(name, &aggregate.source)?, options).await?,
        Stage::ListLocalSessions => {
            if !matches!(aggregate.source, AggregateSource::Database(_)) {
                let text = "$listLocalSessions must be run against a database, with {aggregate: 1} and an object";
                return Err(CommandError::new(Code::InvalidNamespace, text));
            }
            list_sessions::stage(call, "$listLocalSessions", options).await?
        }
        Stage::ListSessions => {
            let is_of_sessions = matches!(&aggregate.source, AggregateSource::Collection(namespace)
                if (namespace.database(), namespace.collection()) == ("config", "system.sessions"));
            if !is_of_sessions {
                let text = "$listSessions may only be run against config.system.sessions";
                return Err(CommandError::new(Code::InvalidNamespace, text));
            }
            list_sessions::stage(call, "$listSessions", options).await?
        }
        Stage::PlanCacheStats => {
            let namespace = collection(name, &aggregate.source)?;
            plan_cache::check_stage(options)?;
            call.refuse_view(namespace).await?;
            Vec::new()
        }
        Stage::QuerySettings => {
            check_of_admin(name, &aggregate.source)?;
            query_settings::check_stage(options)?;
            Vec::new()
        }
    };
    // The documents are literals, because a running command may contain an expression.
    let mut stage = Writer::new();
    stage.begin_document("$documents").array("$literal", documents);
    if let Some(first) = aggregate.pipeline.first_mut() {
        *first = stage.finish();
    }
    let source = AggregateSource::Database(call.request.database.to_owned());
    Ok(Aggregate { source, ..aggregate })
}

/// Refuses a stage about the server on a collection, and on another database than `admin`.
fn check_of_admin(name: &str, source: &AggregateSource) -> CommandResult<()> {
    match source {
        AggregateSource::Database(database) if database == "admin" => Ok(()),
        _ => {
            let text = format!("{name} must be run against the 'admin' database with {{aggregate: 1}}");
            Err(CommandError::new(Code::InvalidNamespace, text))
        }
    }
}

/// Returns the collection of a stage that needs one.
fn collection<'a>(name: &str, source: &'a AggregateSource) -> CommandResult<&'a Namespace> {
    match source {
        AggregateSource::Collection(namespace) => Ok(namespace),
        AggregateSource::Database(_) => {
            let text = format!("{{aggregate: 1}} is not valid for '{name}'; a collection is required.");
            Err(CommandError::new(Code::InvalidNamespace, text))
        }
    }
}

const NOT_ONE_FIELD: Code = Code(40_323);
const NOT_FIRST: Code = Code(40_602);
const NOT_NESTED: Code = Code(5_447_000);

#[cfg(test)]
mod tests;
