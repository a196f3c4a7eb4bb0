//! Aggregation pipelines over any store.
//!
//! handfast-mql implements the stages (its module `pipeline`); this module supplies their input. The first stages of a pipeline
//! become a find, so that it uses the backend's indexes; stages that need other collections query the store:
//!
//! ```text
//! [$match, $sort] -> find      [$unwind, $group] -> chain      $lookup -> finds, 100 keys at a time      ...
//!      source   ──────────────>   documents   ──────────────>   documents   ──>   cursor, $out or $merge
//! ```
//!
//! Each step is a [`documents::Documents`], which pulls batches from the step before it. So the memory holds a few batches,
//! and the documents that single stages keep, which are limited ([`QueryMemory`](handfast_mql::context::QueryMemory)).
//!
//! A pipeline does not read one snapshot: each collection is read by a find of its own. `$out` replaces its target in one
//! step; `$merge` writes document by document.

mod cursor;
mod documents;
mod lookup;
mod source;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf};
use handfast_mql::collation::{is_named, simple, with_variable};
use handfast_mql::pipeline::{Pipeline, Stage};
use handfast_mql::{Code, CompileOptions, Context};

use self::documents::Documents;
use self::source::Source;
pub use self::write::{is_temporary, is_temporary_of};
use crate::{
    Aggregate, AggregateSource, BatchLimit, Cursor, DocumentStore, Durability, Error, Explain, Explained, Find,
    Namespace, Result, Sources, Validation, Verbosity,
};

/// The largest number of documents in a batch between two steps.
const BATCH_DOCUMENTS: usize = 1000;
/// The largest size of a batch between two steps; one document may be larger.
const BATCH_BYTES: usize = 1024 * 1024;
const BATCH: BatchLimit = BatchLimit { documents: BATCH_DOCUMENTS, bytes: BATCH_BYTES };

/// Opens a cursor over the output of a pipeline, with the first batch already computed. With `$out` or `$merge` the pipeline has
/// finished when this returns, and the cursor is empty.
///
/// # Errors
/// `InvalidNamespace` (73) for a pipeline that needs a collection but has none, and the errors of the language and of the store.
pub async fn open(store: Arc<dyn DocumentStore>, sources: &Sources, mut request: Aggregate) -> Result<Box<dyn Cursor>> {
    let options = CompileOptions::with_variables(&request.variables)?;
    let pipeline = Pipeline::compile(&request.pipeline, &options)?;
    check_source(&request.source, &pipeline)?;
    if !pipeline.is_pure() && !is_named(&request.variables) {
        // The collections that stages read do not bring their defaults.
        request.variables = with_variable(request.variables, Some(&simple()));
    }
    let context = sources.context(&request.variables).with_disk_use(request.allow_disk_use);
    let environment = Environment {
        store,
        sources: sources.clone(),
        database: request.source.database().to_owned(),
        durability: request.durability,
        validation: request.validation,
    };
    cursor::open(environment, pipeline, context, request).await
}

/// The store, sources and variables that every step needs.
struct Environment {
    store: Arc<dyn DocumentStore>,
    sources: Sources,
    database: String,
    durability: Durability,
    validation: Validation,
}

impl Environment {
    /// Returns the namespace of a collection that a stage names.
    fn namespace(&self, database: Option<&str>, collection: &str) -> Result<Namespace> {
        Namespace::new(database.unwrap_or(&self.database), collection)
    }
}

/// Builds the steps of a pipeline and returns the last one. The find gets the stages that it can replace.
fn steps<'p>(
    environment: &'p Environment,
    pipeline: &'p Pipeline,
    from: Option<Find>,
    context: &'p Context,
) -> Result<Box<dyn Documents + 'p>> {
    let mut rest = pipeline.stages();
    let source = match (rest.first(), from) {
        (Some(Stage::Documents(literal)), _) => {
            rest = &rest[1..];
            Source::literal(handfast_mql::pipeline::literal_documents(literal, context)?)
        }
        (_, Some(find)) => {
            let (find, taken) = source::push_down(find, pipeline);
            rest = rest.get(taken..).unwrap_or_default();
            Source::find(&environment.store, find)
        }
        (_, None) => Source::literal(Vec::new()),
    };
    steps_after(environment, Box::new(source), rest, context)
}

/// Appends stages to a step.
fn steps_after<'p>(
    environment: &'p Environment,
    mut last: Box<dyn Documents + 'p>,
    rest: &'p [Stage],
    context: &'p Context,
) -> Result<Box<dyn Documents + 'p>> {
    let mut pure_from = 0;
    for (index, stage) in rest.iter().enumerate() {
        if stage.is_pure() {
            continue;
        }
        last = documents::with_pure_stages(last, &rest[pure_from..index], context)?;
        pure_from = index + 1;
        last = match stage {
            Stage::Lookup(lookup) => Box::new(lookup::LookupStep::new(environment, lookup, last, context)),
            Stage::GraphLookup(graph) => Box::new(lookup::GraphLookupStep::new(environment, graph, last, context)),
            Stage::UnionWith(union) => Box::new(lookup::UnionStep::new(environment, union, last, context)),
            Stage::Facet(facet) => Box::new(documents::FacetStep::new(environment, facet, last, context)),
            Stage::Out(out) => Box::new(write::OutStep::new(environment, out, last)),
            Stage::Merge(merge) => Box::new(write::MergeStep::new(environment, merge, last, context)),
            _ => {
                return Err(Error::command(
                    Code::IllegalOperation,
                    format!("{} is not allowed at this position", stage.name()),
                ));
            }
        };
    }
    documents::with_pure_stages(last, &rest[pure_from..], context)
}

/// Checks that the source of a pipeline fits its first stage.
fn check_source(source: &AggregateSource, pipeline: &Pipeline) -> Result<()> {
    let literal = matches!(pipeline.stages().first(), Some(Stage::Documents(_)));
    let text = match source {
        AggregateSource::Collection(_) if literal => {
            "'$documents' can only be run with {aggregate: 1}; this aggregation names a collection"
        }
        AggregateSource::Database(_) if !literal => {
            "{aggregate: 1} is only valid for a pipeline that begins with a source of its own, such as $documents"
        }
        _ => return Ok(()),
    };
    Err(Error::command(Code::InvalidNamespace, text))
}

/// Explains how a pipeline runs: the explanation of the find that its first stages become, and the other stages as they were
/// written.
pub async fn explain(store: &dyn DocumentStore, request: Aggregate, verbosity: Verbosity) -> Result<RawDocumentBuf> {
    let options = CompileOptions::with_variables(&request.variables)?;
    let pipeline = Pipeline::compile(&request.pipeline, &options)?;
    check_source(&request.source, &pipeline)?;
    let mut stages = RawArrayBuf::new();
    let mut taken = 0;
    if let Some(find) = source::find_of(&request) {
        let (find, pushed) = source::push_down(find, &pipeline);
        taken = pushed;
        let explained = store.explain(Explain { explained: Explained::Find(find), verbosity }).await?;
        if taken == request.pipeline.len() {
            return Ok(explained);
        }
        let mut cursor = RawDocumentBuf::new();
        cursor.append(cstr!("$cursor"), explained);
        stages.push(cursor);
    }
    for stage in request.pipeline.into_iter().skip(taken) {
        stages.push(stage);
    }
    let mut shown = RawDocumentBuf::new();
    shown.append(cstr!("stages"), stages);
    Ok(shown)
}
