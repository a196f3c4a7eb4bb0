//! `$graphLookup`: the documents that can be reached from a document along a field, level by level.

use std::collections::HashSet;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr};

use super::{collection_name, distinct_fields, path_of, string, unknown, visit_values};
use crate::{
    collation::Collation,
    context::{CompileOptions, Context},
    error::{Code, Error, Result},
    expression::{
        Expression,
        convert::integer_of,
        limits,
        value::{self, show, type_name},
    },
    key,
    pipeline::{
        memory::{ENTRY_BYTES, StageMemory},
        set_path::with_path,
    },
};

/// A compiled `$graphLookup`.
#[derive(Debug)]
pub struct GraphLookup {
    /// The collection that is walked through.
    pub from: String,
    /// The field that is looked up, as a dotted path: an index on it serves every step.
    pub connect_to: String,
    /// The most steps beyond the first.
    pub depth_max: Option<u64>,
    start_with: Expression,
    connect_from: Vec<String>,
    into: Vec<String>,
    depth_field: Option<Vec<String>>,
    restrict: Option<RawDocumentBuf>,
}

impl GraphLookup {
    pub(in crate::pipeline) fn compile(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<GraphLookup> {
        const STAGE: &str = "$graphLookup";
        let RawBsonRef::Document(document) = argument else {
            return Err(Error::new(
                Code::FailedToParse,
                format!("the $graphLookup stage specification must be an object, but found {}", type_name(argument)),
            ));
        };
        let (mut from, mut start_with, mut connect_from, mut connect_to) = (None, None, None, None);
        let (mut into, mut depth_max, mut depth_field, mut restrict) = (None, None, None, None);
        for field in distinct_fields(STAGE, document) {
            let (key, item) = field?;
            match key.as_str() {
                "from" => from = Some(collection_name(STAGE, string(STAGE, "from", item)?)?),
                "startWith" => start_with = Some(Expression::compile(item, options)?),
                "connectFromField" => connect_from = Some(path_of(STAGE, "connectFromField", item)?),
                "connectToField" => connect_to = Some(path_of(STAGE, "connectToField", item)?.join(".")),
                "as" => into = Some(path_of(STAGE, "as", item)?),
                "depthField" => depth_field = Some(path_of(STAGE, "depthField", item)?),
                "maxDepth" => depth_max = Some(max_depth(item)?),
                "restrictSearchWithMatch" => {
                    let RawBsonRef::Document(filter) = item else {
                        return Err(Error::new(
                            Code(40_185),
                            format!("restrictSearchWithMatch must be an object, found {}", type_name(item)),
                        ));
                    };
                    // The filter is compiled here, so that its errors are errors of the pipeline.
                    crate::filter::Filter::compile(filter, options)?;
                    restrict = Some(filter.to_owned());
                }
                other => return Err(unknown(STAGE, other)),
            }
        }
        let missing = || {
            Error::new(
                Code(40_105),
                "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.",
            )
        };
        Ok(GraphLookup {
            from: from.ok_or_else(missing)?,
            connect_to: connect_to.ok_or_else(missing)?,
            depth_max,
            start_with: start_with.ok_or_else(missing)?,
            connect_from: connect_from.ok_or_else(missing)?,
            into: into.ok_or_else(missing)?,
            depth_field,
            restrict,
        })
    }

    /// Starts the search from a document.
    ///
    /// # Errors
    /// Returns the errors of `startWith`.
    pub fn start(&self, document: &RawDocument, context: &Context) -> Result<GraphSearch<'_>> {
        let mut walk = GraphSearch {
            stage: self,
            depth: 0,
            frontier: Vec::new(),
            asked: HashSet::new(),
            seen: HashSet::new(),
            found: Vec::new(),
            memory: StageMemory::new("$graphLookup", context),
            collation: context.collation().cloned(),
        };
        let value = self.start_with.evaluate(document, context)?;
        walk.reach(value.or_null())?;
        Ok(walk)
    }
}

fn without_id(from: &str) -> Error {
    let text = format!(
        "Documents in the '{from}' namespace must contain an _id for de-duplication in $graphLookup: keep _id in the view"
    );
    Error::new(Code(40_271), text)
}

fn max_depth(item: RawBsonRef<'_>) -> Result<u64> {
    if !crate::expression::is_number(item) {
        return Err(Error::new(Code(40_100), format!("maxDepth must be numeric, found type: {}", type_name(item))));
    }
    let depth = integer_of(item).ok_or_else(|| {
        Error::new(Code(40_102), format!("maxDepth could not be represented as a long long: {}", show(item)))
    })?;
    u64::try_from(depth)
        .map_err(|_| Error::new(Code(40_101), format!("maxDepth requires a nonnegative argument, found: {depth}")))
}

/// The search from one document. [`GraphSearch::filter`] returns the next query, [`GraphSearch::arrive`] takes its results,
/// until there is no further query.
///
/// A value is queried once and a document (by its `_id`) counts once, so that cycles end.
#[derive(Debug)]
pub struct GraphSearch<'p> {
    stage: &'p GraphLookup,
    depth: u64,
    frontier: Vec<RawBson>,
    asked: HashSet<Vec<u8>>,
    seen: HashSet<Vec<u8>>,
    found: Vec<RawDocumentBuf>,
    memory: StageMemory,
    collation: Option<Collation>,
}

impl GraphSearch<'_> {
    /// Returns the filter for the next level; none if the search is complete.
    ///
    /// # Errors
    /// Fails for a value that BSON cannot hold.
    pub fn filter(&self) -> Result<Option<RawDocumentBuf>> {
        if self.frontier.is_empty() || self.stage.depth_max.is_some_and(|max| self.depth > max) {
            return Ok(None);
        }
        let values: RawArrayBuf = self.frontier.iter().map(RawBson::as_raw_bson_ref).collect();
        let mut condition = RawDocumentBuf::new();
        condition.append(cstr!("$in"), values);
        let mut step = RawDocumentBuf::new();
        value::append(&mut step, &self.stage.connect_to, RawBsonRef::Document(&condition))?;
        let Some(restrict) = &self.stage.restrict else { return Ok(Some(step)) };
        let mut both = RawArrayBuf::new();
        both.push(step);
        both.push(restrict.clone());
        let mut filter = RawDocumentBuf::new();
        filter.append(cstr!("$and"), both);
        Ok(Some(filter))
    }

    /// Adds the documents of a level and begins the next level.
    ///
    /// # Errors
    /// 40271 for a document of a view that has no `_id`; 292 if the walk holds more than 100 MB.
    pub fn arrive(&mut self, documents: impl IntoIterator<Item = RawDocumentBuf>) -> Result<()> {
        let stage = self.stage;
        self.frontier.clear();
        for document in documents {
            let id = document.get("_id")?.ok_or_else(|| without_id(&stage.from))?;
            let identity = key::encoded(id);
            self.memory.reserve(identity.len() + ENTRY_BYTES)?;
            if !self.seen.insert(identity) {
                continue;
            }
            self.memory.reserve(document.as_bytes().len())?;
            let from = RawBsonRef::Document(&document);
            visit_values(from, &stage.connect_from, &mut |next| self.reach_one(next))?;
            let document = match &self.stage.depth_field {
                Some(path) => with_path(&document, path, Some(RawBsonRef::Int64(self.depth as i64)))?,
                None => document,
            };
            self.found.push(document);
        }
        self.depth += 1;
        Ok(())
    }

    /// Adds a value, or the values of an array, to the list of the next level.
    fn reach(&mut self, value: RawBsonRef<'_>) -> Result<()> {
        let RawBsonRef::Array(array) = value else { return self.reach_one(value) };
        for item in value::items(array) {
            self.reach_one(item?)?;
        }
        Ok(())
    }

    fn reach_one(&mut self, value: RawBsonRef<'_>) -> Result<()> {
        let identity = key::encoded_under(value, self.collation.as_ref());
        self.memory.reserve(2 * identity.len() + ENTRY_BYTES)?;
        if self.asked.insert(identity) {
            self.frontier.push(value::to_owned(value));
        }
        Ok(())
    }

    /// Returns the document that the search started from, with the results in their field.
    ///
    /// # Errors
    /// `Overflow` (15) if the document nests too deeply; 292 if it exceeds the limit of a stage
    /// ([`QueryMemory`](crate::context::QueryMemory)), together with the results of earlier stages in it.
    pub fn attach(mut self, document: &RawDocument) -> Result<RawDocumentBuf> {
        self.memory.reserve(document.as_bytes().len())?;
        let array: RawArrayBuf = self.found.into_iter().collect();
        let out = with_path(document, &self.stage.into, Some(RawBsonRef::Array(&array)))?;
        limits::check_depth(RawBsonRef::Document(&out))?;
        Ok(out)
    }
}
