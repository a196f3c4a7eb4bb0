//! The source of a pipeline's documents, and the stages that its find replaces.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::cstr;
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
            Some(Find { hint: request.hint.clone(), variables: request.variables.clone(), ..find })
        }
    }
}

/// Moves the first stages of a pipeline into the find that reads its input; returns how many stages the find replaces.
///
/// The stages of the prefix are the first ones as they were written: none of them is short for others. A filter with `$expr`
/// stays: no index serves it, and its `$$NOW` is that of the whole pipeline.
pub(super) fn push_down(mut find: Find, pipeline: &Pipeline, raw: &[RawDocumentBuf]) -> (Find, usize) {
    let prefix = pipeline.prefix();
    let mut filters: VecDeque<&RawDocument> = VecDeque::new();
    for stage in raw.iter().take(prefix.filter_stages) {
        match stage.get_document("$match") {
            Ok(filter) if !mentions(filter, "$expr") => filters.push_back(filter),
            // This stage and those after it stay in the pipeline.
            _ => break,
        }
    }
    let pushed = filters.len();
    if !find.filter.is_empty() {
        let own = find.filter.clone();
        find.filter = all_of(std::iter::once(&*own).chain(filters));
    } else {
        find.filter = all_of(filters.into_iter());
    }
    if pushed < prefix.filter_stages {
        return (find, pushed);
    }
    if prefix.sort.is_some() {
        let written = raw.iter().take(prefix.stages).find_map(|stage| stage.get_document("$sort").ok());
        let Some(sort) = written else { return (find, pushed) };
        find.sort = sort.to_owned();
    }
    find.skip = prefix.skip;
    find.limit = prefix.limit;
    (find, prefix.stages)
}

/// Returns the conjunction of filters.
pub(super) fn all_of<'f>(mut filters: impl Iterator<Item = &'f RawDocument>) -> RawDocumentBuf {
    let (first, second) = (filters.next(), filters.next());
    match (first, second) {
        (None, _) => RawDocumentBuf::new(),
        (Some(only), None) => only.to_owned(),
        (Some(first), Some(second)) => {
            let all: RawArrayBuf = [first, second].into_iter().chain(filters).map(RawDocument::to_owned).collect();
            let mut filter = RawDocumentBuf::new();
            filter.append(cstr!("$and"), all);
            filter
        }
    }
}

/// Returns whether a document has a field of this name at any depth. The filter was compiled before, which bounds the depth.
fn mentions(document: &RawDocument, wanted: &str) -> bool {
    document.iter().flatten().any(|(name, value)| name.as_str() == wanted || value_mentions(value, wanted))
}

fn value_mentions(value: RawBsonRef<'_>, wanted: &str) -> bool {
    match value {
        RawBsonRef::Document(document) => mentions(document, wanted),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(|item| value_mentions(item, wanted)),
        _ => false,
    }
}
