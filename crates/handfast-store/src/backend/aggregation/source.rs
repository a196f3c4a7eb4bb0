//! The source of a pipeline's documents, and the stages that its find replaces.

use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::{CStr, cstr};
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::pipeline::Pipeline;

use super::BATCH;
use super::documents::Documents;
use crate::{Aggregate, AggregateSource, Cursor, DocumentStore, Find, Result};

/// The first step of a pipeline.
pub(super) enum Source {
    /// Documents that the pipeline itself contains.
    Literal(Vec<RawDocumentBuf>),
    /// A find that is opened when the first batch is needed.
    Find(Arc<dyn DocumentStore>, Box<Find>),
    /// A find that is open.
    Cursor(Box<dyn Cursor>),
}

impl Source {
    pub(super) fn literal(documents: Vec<RawDocumentBuf>) -> Self {
        Source::Literal(documents)
    }

    pub(super) fn find(store: &Arc<dyn DocumentStore>, find: Find) -> Self {
        Source::Find(Arc::clone(store), Box::new(find))
    }
}

#[async_trait]
impl Documents for Source {
    async fn next_batch(&mut self) -> Result<Option<Vec<RawDocumentBuf>>> {
        if let Source::Find(store, find) = self {
            let cursor = store.find((**find).clone()).await?;
            *self = Source::Cursor(cursor);
        }
        let documents = match self {
            Source::Literal(documents) => std::mem::take(documents),
            Source::Cursor(cursor) => {
                let page = cursor.next_page(BATCH).await?;
                if page.exhausted {
                    *self = Source::Literal(Vec::new());
                }
                page.documents
            }
            Source::Find(..) => Vec::new(),
        };
        Ok((!documents.is_empty()).then_some(documents))
    }
}

/// Returns the find that reads all documents of a request's collection.
pub(super) fn find_of(request: &Aggregate) -> Option<Find> {
    match &request.source {
        AggregateSource::Database(_) => None,
        AggregateSource::Collection(namespace) => {
            let find = Find::new(namespace.clone(), RawDocumentBuf::new());
            let (hint, variables) = (request.hint.clone(), request.variables.clone());
            Some(Find { hint, variables, allow_disk_use: request.allow_disk_use, ..find })
        }
    }
}

/// Moves the first stages of a pipeline into the find that reads its input; returns how many stages the find replaces.
///
/// A find can evaluate `$expr` with the variables that it has, and uses an index for it. Other expressions stay in the pipeline: `$$NOW` is
/// the time of the whole pipeline, and a variable without a value cannot be passed on. Of such a stage, the find gets the other conditions
/// in addition.
pub(super) fn push_down(mut find: Find, pipeline: &Pipeline) -> (Find, usize) {
    let prefix = pipeline.prefix();
    let mut filters = Vec::new();
    let mut pushed = 0;
    for stage in pipeline.leading().iter().take(prefix.filter_stages) {
        let Ok(filter) = stage.get_document("$match") else { break };
        let part = evaluated_by_find(filter, &find.variables);
        let is_whole = part.as_bytes().len() == filter.as_bytes().len();
        filters.push(part);
        if !is_whole {
            // This stage and those after it stay in the pipeline.
            break;
        }
        pushed += 1;
    }
    let own = std::mem::take(&mut find.filter);
    find.filter = all_of(std::iter::once(own).chain(filters));
    if pushed < prefix.filter_stages {
        return (find, pushed);
    }
    if prefix.sort.is_some() {
        let written = pipeline.leading().iter().find_map(|stage| stage.get_document("$sort").ok());
        let Some(sort) = written else { return (find, pushed) };
        find.sort = sort.to_owned();
    }
    find.skip = prefix.skip;
    find.limit = prefix.limit;
    (find, prefix.stages)
}

/// Returns the conditions of a filter that a find with these variables evaluates as the pipeline would. If these are not all, the pipeline
/// evaluates them again, so those that depend on chance are its alone.
fn evaluated_by_find(filter: &RawDocument, variables: &RawDocument) -> RawDocumentBuf {
    let is_evaluated = |name: &CStr, value: RawBsonRef<'_>| {
        let has_expression = name == "$expr" || value_mentions(value, "$expr");
        !has_expression || knows_variables(value, variables)
    };
    let is_whole = filter.iter().flatten().all(|(name, value)| is_evaluated(name, value));
    let mut part = RawDocumentBuf::new();
    for (name, value) in filter.iter().flatten() {
        let is_of_chance = name == "$sampleRate" || value_mentions(value, "$sampleRate");
        if is_evaluated(name, value) && (is_whole || !is_of_chance) {
            part.append(name, value);
        }
    }
    part
}

/// Returns whether all variables that expressions name are the document or have a value here, and none of its operators depends on
/// chance. Of local variables, and of text that looks like a variable, this is not known.
fn knows_variables(value: RawBsonRef<'_>, variables: &RawDocument) -> bool {
    match value {
        RawBsonRef::String(text) => text.strip_prefix("$$").is_none_or(|variable| {
            let name = variable.split_once('.').map_or(variable, |(name, _)| name);
            matches!(name, "ROOT" | "CURRENT" | "REMOVE") || matches!(variables.get(name), Ok(Some(_)))
        }),
        RawBsonRef::Document(document) => document.iter().flatten().all(|(name, value)| {
            !matches!(name.as_str(), "$rand" | "$sampleRate") && knows_variables(value, variables)
        }),
        RawBsonRef::Array(array) => array.into_iter().flatten().all(|item| knows_variables(item, variables)),
        _ => true,
    }
}

/// Returns the conjunction of the filters that have conditions.
fn all_of(filters: impl Iterator<Item = RawDocumentBuf>) -> RawDocumentBuf {
    let mut filters: Vec<_> = filters.filter(|filter| !filter.is_empty()).collect();
    if filters.len() > 1 {
        let all: RawArrayBuf = filters.into_iter().collect();
        let mut filter = RawDocumentBuf::new();
        filter.append(cstr!("$and"), all);
        return filter;
    }
    filters.pop().unwrap_or_default()
}

/// Returns whether a document has a field of this name at any depth. The filter was compiled before, which bounds the depth.
pub(super) fn mentions(document: &RawDocument, wanted: &str) -> bool {
    document.iter().flatten().any(|(name, value)| name.as_str() == wanted || value_mentions(value, wanted))
}

fn value_mentions(value: RawBsonRef<'_>, wanted: &str) -> bool {
    match value {
        RawBsonRef::Document(document) => mentions(document, wanted),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(|item| value_mentions(item, wanted)),
        _ => false,
    }
}
