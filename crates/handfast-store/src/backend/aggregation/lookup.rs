//! Stages that read other collections: `$lookup`, `$graphLookup`, `$unionWith`.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::cstr;
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::pipeline::{GraphLookup, Lookup, UnionWith};
use handfast_mql::{CompileOptions, Context, Filter};

use super::documents::{Collected, Documents, collect, too_much};
use super::source::Source;
use super::{Environment, steps};
use crate::{Error, Find, Result};

/// The number of documents whose keys are looked up with one find.
const LOOKUP_DOCUMENTS: usize = 100;
/// The size of the results that a `$lookup` caches for documents with the same key.
const LOOKUP_CACHE_BYTES: usize = 16 * 1024 * 1024;

/// `$lookup`.
pub(super) struct LookupStep<'p> {
    environment: &'p Environment,
    lookup: &'p Lookup,
    input: Box<dyn Documents + 'p>,
    context: &'p Context,
    waiting: Vec<RawDocumentBuf>,
    /// Cached results by their filter, where the result depends on the filter alone.
    known: HashMap<Vec<u8>, Arc<Collected>>,
    known_bytes: usize,
}

impl<'p> LookupStep<'p> {
    pub(super) fn new(
        environment: &'p Environment,
        lookup: &'p Lookup,
        input: Box<dyn Documents + 'p>,
        context: &'p Context,
    ) -> Self {
        let known = HashMap::new();
        LookupStep { environment, lookup, input, context, waiting: Vec::new(), known, known_bytes: 0 }
    }

    /// Returns the find in the other collection, without variables other than the collation.
    fn find(&self, filter: RawDocumentBuf) -> Result<Option<Find>> {
        let Some(from) = &self.lookup.from else { return Ok(None) };
        let find = Find::new(self.environment.namespace(None, from)?, filter);
        let allow_disk_use = self.context.allows_disk_use();
        Ok(Some(Find { variables: self.context.only_collation(), allow_disk_use, ..find }))
    }

    async fn attach_all(&mut self, documents: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
        let mut filters = Vec::with_capacity(documents.len());
        for document in &documents {
            filters.push(self.lookup.filter(document)?);
        }
        if self.lookup.pipeline.is_none() {
            self.learn(&filters).await?;
        }
        let mut attached = Vec::with_capacity(documents.len());
        for (document, filter) in documents.iter().zip(filters) {
            let found = self.found(document, filter).await?;
            attached.push(self.lookup.attach(document, found.documents.iter().cloned(), self.context)?);
        }
        Ok(attached)
    }

    /// Returns the foreign documents of one document.
    async fn found(&mut self, document: &RawDocument, filter: RawDocumentBuf) -> Result<Arc<Collected>> {
        if let Some(known) = self.known.get(filter.as_bytes()) {
            return Ok(Arc::clone(known));
        }
        let found = match &self.lookup.pipeline {
            None => {
                let find = self.existing(filter.clone())?;
                collect(&mut Source::find(&self.environment.store, find), "$lookup", self.context).await?
            }
            Some(pipeline) => {
                let context = self.lookup.context(document, self.context)?;
                let from = self.find(filter.clone())?;
                let from = from.map(|find| Find { variables: context.variables.clone(), ..find });
                let mut steps = steps(self.environment, pipeline, from, &context)?;
                collect(&mut *steps, "$lookup", &context).await?
            }
        };
        let found = Arc::new(found);
        // With variables of the document, the same filter may have another result.
        if self.lookup.variables.is_empty() {
            self.keep(&filter, &found);
        }
        Ok(found)
    }

    fn existing(&self, filter: RawDocumentBuf) -> Result<Find> {
        let missing = || Error::command(handfast_mql::Code::FailedToParse, "must specify 'from' field for a $lookup");
        self.find(filter)?.ok_or_else(missing)
    }

    fn keep(&mut self, filter: &RawDocument, found: &Arc<Collected>) {
        let bytes = found.bytes() + 64 * found.documents.len();
        let bytes = bytes + filter.as_bytes().len() + 64;
        if self.known_bytes + bytes <= LOOKUP_CACHE_BYTES {
            self.known_bytes += bytes;
            self.known.insert(filter.as_bytes().to_vec(), Arc::clone(found));
        }
    }

    /// Finds the foreign documents of several documents with one request.
    async fn learn(&mut self, filters: &[RawDocumentBuf]) -> Result<()> {
        let (mut values, mut asked) = (RawArrayBuf::new(), Vec::<&RawDocumentBuf>::new());
        let Some(local) = &self.lookup.local else { return Ok(()) };
        for filter in filters {
            let new = !self.known.contains_key(filter.as_bytes()) && !asked.contains(&filter);
            if new && take_values(filter, local.foreign_field(), &mut values) {
                asked.push(filter);
            }
        }
        if asked.len() < 2 {
            return Ok(());
        }
        let mut condition = RawDocumentBuf::new();
        condition.append(cstr!("$in"), values);
        let mut all = RawDocumentBuf::new();
        let name = bson::raw::CString::try_from(local.foreign_field().to_owned()).map_err(handfast_mql::Error::from)?;
        all.append(name, condition);
        let find = self.existing(all)?;
        let found = collect(&mut Source::find(&self.environment.store, find), "$lookup", self.context).await?;
        let mut bytes = 0;
        let options = CompileOptions { collation: self.context.collation().cloned(), ..CompileOptions::default() };
        for filter in asked {
            let compiled = Filter::compile(filter, &options)?;
            let mut own = Collected::new(self.context);
            for document in &found.documents {
                if compiled.matches(document, self.context)? {
                    bytes += document.as_bytes().len();
                    own.extend(vec![document.clone()])?;
                }
            }
            if bytes > self.context.memory.stage_bytes_max {
                return Err(too_much("$lookup", self.context));
            }
            self.keep(filter, &Arc::new(own));
        }
        Ok(())
    }
}

/// Adds the values that a filter of [`Lookup::filter`] compares with; returns `false` for a filter that does more.
fn take_values(filter: &RawDocument, field: &str, values: &mut RawArrayBuf) -> bool {
    match filter.get(field) {
        Ok(Some(RawBsonRef::Document(condition))) => match condition.get("$eq") {
            // In a list of `$in` it would be a pattern.
            Ok(Some(RawBsonRef::RegularExpression(_))) | Ok(None) | Err(_) => false,
            Ok(Some(value)) => {
                values.push(value);
                true
            }
        },
        _ => false,
    }
}

#[async_trait]
impl Documents for LookupStep<'_> {
    async fn next_batch(&mut self) -> Result<Option<Vec<RawDocumentBuf>>> {
        if self.waiting.is_empty() {
            match self.input.next_batch().await? {
                Some(batch) => self.waiting = batch,
                None => return Ok(None),
            }
        }
        let rest = self.waiting.split_off(LOOKUP_DOCUMENTS.min(self.waiting.len()));
        let documents = std::mem::replace(&mut self.waiting, rest);
        self.attach_all(documents).await.map(Some)
    }
}

/// `$graphLookup`.
pub(super) struct GraphLookupStep<'p> {
    environment: &'p Environment,
    graph: &'p GraphLookup,
    input: Box<dyn Documents + 'p>,
    context: &'p Context,
}

impl<'p> GraphLookupStep<'p> {
    pub(super) fn new(
        environment: &'p Environment,
        graph: &'p GraphLookup,
        input: Box<dyn Documents + 'p>,
        context: &'p Context,
    ) -> Self {
        GraphLookupStep { environment, graph, input, context }
    }

    async fn walk(&mut self, document: &RawDocument) -> Result<RawDocumentBuf> {
        let from = self.environment.namespace(None, &self.graph.from)?;
        let mut walk = self.graph.start(document, self.context)?;
        while let Some(filter) = walk.filter()? {
            let (variables, allow_disk_use) = (self.context.variables.clone(), self.context.allows_disk_use());
            let find = Find { variables, allow_disk_use, ..Find::new(from.clone(), filter) };
            let found = collect(&mut Source::find(&self.environment.store, find), "$graphLookup", self.context).await?;
            walk.arrive(found.documents)?;
        }
        Ok(walk.attach(document)?)
    }
}

#[async_trait]
impl Documents for GraphLookupStep<'_> {
    async fn next_batch(&mut self) -> Result<Option<Vec<RawDocumentBuf>>> {
        let Some(batch) = self.input.next_batch().await? else { return Ok(None) };
        let mut walked = Vec::with_capacity(batch.len());
        for document in &batch {
            walked.push(self.walk(document).await?);
        }
        Ok(Some(walked))
    }
}

/// `$unionWith`: first the input, then the other collection.
pub(super) struct UnionStep<'p> {
    environment: &'p Environment,
    union: &'p UnionWith,
    context: &'p Context,
    current: Box<dyn Documents + 'p>,
    second: bool,
}

impl<'p> UnionStep<'p> {
    pub(super) fn new(
        environment: &'p Environment,
        union: &'p UnionWith,
        input: Box<dyn Documents + 'p>,
        context: &'p Context,
    ) -> Self {
        UnionStep { environment, union, context, current: input, second: false }
    }
}

#[async_trait]
impl Documents for UnionStep<'_> {
    async fn next_batch(&mut self) -> Result<Option<Vec<RawDocumentBuf>>> {
        loop {
            match self.current.next_batch().await? {
                Some(batch) => return Ok(Some(batch)),
                None if self.second => return Ok(None),
                None => {
                    self.second = true;
                    let from = match &self.union.collection {
                        Some(name) => {
                            let find = Find::new(self.environment.namespace(None, name)?, RawDocumentBuf::new());
                            let allow_disk_use = self.context.allows_disk_use();
                            Some(Find { variables: self.context.variables.clone(), allow_disk_use, ..find })
                        }
                        None => None,
                    };
                    self.current = steps(self.environment, &self.union.pipeline, from, self.context)?;
                }
            }
        }
    }
}
