//! The compiled stages that need other collections: the queries for a store, and the use of their results.
//!
//! Nothing here does I/O. A caller with a store runs the queries:
//!
//! ```text
//! $lookup      per document: collection.find(lookup.filter(document)), pipeline with lookup.context(document, ..),
//!              then lookup.attach(document, results)
//! $unionWith   after the last document: the collection through the pipeline
//! $graphLookup per document: level by level collection.find(graph.filter(values)), then graph.attach(..)
//! $out         all documents into a new collection that then takes the place of the old one
//! $merge       per document: find one by merge.filter(document), then merge.outcome(..) gives the write
//! ```

mod graph;
mod lookup;
mod merge;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, raw::CStr};

pub use self::{
    graph::{GraphLookup, GraphSearch},
    lookup::{EqualityJoin, Lookup},
    merge::{Merge, MergeOutcome, Out, WhenMatched, WhenNotMatched, check_target_database},
};
use super::{
    Pipeline,
    compile::{PipelineLocation, StageContext, of_array},
};
use crate::{
    context::{CompileOptions, Context},
    error::{Code, Error, Result},
    expression::{
        Expression, Value,
        value::{self, type_name},
        variable::check_own_name,
    },
};

/// A collection that a stage names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The database, if it is not the one the command runs on.
    pub database: Option<String>,
    /// The collection.
    pub collection: String,
}

/// The variables of a `let`: names, and the expressions of their values, which are evaluated for each document.
#[derive(Debug, Default)]
pub struct Let {
    variables: Vec<(String, Expression)>,
}

impl Let {
    fn compile(source: Option<RawBsonRef<'_>>, stage: &str, options: &CompileOptions) -> Result<Let> {
        let document = match source {
            None => return Ok(Let::default()),
            Some(RawBsonRef::Document(document)) => document,
            Some(other) => {
                return Err(Error::new(
                    Code::FailedToParse,
                    format!(
                        "{stage} argument 'let: {}' must be an object, is type {}",
                        value::show(other),
                        type_name(other)
                    ),
                ));
            }
        };
        let mut variables = Vec::new();
        for field in value::fields(document) {
            let (name, item) = field?;
            check_own_name(name.as_str())?;
            variables.push((name.as_str().to_owned(), Expression::compile(item, options)?));
        }
        Ok(Let { variables })
    }

    /// Returns the options under which an inner pipeline is compiled: it sees the variables around and these.
    fn declared(&self, options: &CompileOptions) -> CompileOptions {
        let mut variables = options.variables.clone();
        variables.extend(self.variables.iter().map(|(name, _)| name.clone()));
        CompileOptions { variables, collation: options.collation.clone() }
    }

    /// Returns the values of all variables for a document: the ones around, and these over them.
    ///
    /// # Errors
    /// Returns the errors of the expressions.
    pub fn bind(&self, document: &RawDocument, context: &Context) -> Result<RawDocumentBuf> {
        let mut bound = RawDocumentBuf::new();
        for field in value::fields(&context.variables) {
            let (name, item) = field?;
            if !self.variables.iter().any(|(own, _)| own == name.as_str()) {
                bound.append(name, item);
            }
        }
        for (name, expression) in &self.variables {
            // A missing variable stays missing.
            if let Some(item) = expression.evaluate(document, context)?.get() {
                value::append(&mut bound, name, item)?;
            }
        }
        Ok(bound)
    }

    /// Tells whether there are no variables, so that an inner pipeline has the same results for every document.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }

    /// Returns the context in which an inner pipeline runs for a document.
    ///
    /// # Errors
    /// Returns the errors of [`Let::bind`].
    pub fn context(&self, document: &RawDocument, outer: &Context) -> Result<Context> {
        Ok(outer.nested(self.bind(document, outer)?))
    }
}

/// `$unionWith`: the documents of another collection, or of a pipeline over it, after the input.
#[derive(Debug)]
pub struct UnionWith {
    /// The collection; none if the pipeline begins with `$documents`.
    pub collection: Option<String>,
    /// The pipeline that its documents run through.
    pub pipeline: Pipeline,
}

impl UnionWith {
    pub(super) fn compile(argument: RawBsonRef<'_>, stage_context: StageContext<'_>) -> Result<UnionWith> {
        let document = match argument {
            RawBsonRef::String(name) => {
                let collection = Some(collection_name("$unionWith", name)?);
                return Ok(UnionWith { collection, pipeline: Pipeline::default() });
            }
            RawBsonRef::Document(document) => document,
            other => {
                return Err(Error::new(
                    Code::FailedToParse,
                    format!(
                        "the $unionWith stage specification must be an object or string, but found {}",
                        type_name(other)
                    ),
                ));
            }
        };
        let (mut collection, mut pipeline) = (None, None);
        for field in distinct_fields("$unionWith", document) {
            let (key, item) = field?;
            match key.as_str() {
                "coll" => collection = Some(collection_name("$unionWith", string("$unionWith", "coll", item)?)?),
                "pipeline" => {
                    let inner = stage_context.inner(PipelineLocation::UnionWith, stage_context.options)?;
                    pipeline = Some(of_array(item, inner)?);
                }
                other => return Err(unknown("$unionWith", other)),
            }
        }
        let pipeline = pipeline.unwrap_or_default();
        let has_source = matches!(pipeline.stages().first(), Some(super::Stage::Documents(_)));
        if collection.is_none() && !has_source {
            return Err(Error::new(
                Code::FailedToParse,
                "$unionWith stage without explicit collection must have a pipeline with $documents as first stage",
            ));
        }
        Ok(UnionWith { collection, pipeline })
    }
}

fn unknown(stage: &str, name: &str) -> Error {
    Error::new(Code::FailedToParse, format!("unknown argument to {stage}: {name}"))
}

/// MongoDB's code for a field that a stage does not have.
const UNKNOWN_FIELD: Code = Code(40_415);
/// MongoDB's code for a field that is written twice in a stage.
const DUPLICATE_FIELD: Code = Code(40_413);

fn unknown_field(stage: &str, name: &str) -> Error {
    Error::new(UNKNOWN_FIELD, format!("BSON field '{stage}.{name}' is an unknown field."))
}

/// Returns the fields of a stage up to the first that is written for the second time, which is an error. The caller stops at a field that
/// the stage does not have.
fn distinct_fields<'s>(
    stage: &'static str,
    document: &'s RawDocument,
) -> impl Iterator<Item = Result<(&'s CStr, RawBsonRef<'s>)>> {
    let mut seen = Vec::new();
    value::fields(document).map(move |field| {
        let (key, item) = field?;
        if seen.contains(&key) {
            return Err(Error::new(DUPLICATE_FIELD, format!("BSON field '{stage}.{key}' is a duplicate field")));
        }
        seen.push(key);
        Ok((key, item))
    })
}

fn string<'s>(stage: &str, name: &str, item: RawBsonRef<'s>) -> Result<&'s str> {
    match item {
        RawBsonRef::String(text) => Ok(text),
        other => Err(Error::new(
            Code::FailedToParse,
            format!("{stage} argument '{name}: {}' must be a string, is type {}", value::show(other), type_name(other)),
        )),
    }
}

fn collection_name(stage: &str, name: &str) -> Result<String> {
    if name.is_empty() || name.contains('\0') || name.contains('$') {
        return Err(Error::new(Code::InvalidNamespace, format!("{stage}: invalid collection name '{name}'")));
    }
    Ok(name.to_owned())
}

/// Reads a dotted path without `$`.
fn path_of(stage: &str, name: &str, item: RawBsonRef<'_>) -> Result<Vec<String>> {
    crate::expression::path::split(string(stage, name, item)?)
}

/// Returns the value at a path, with arrays on the path mapped.
fn value_at<'a>(document: &'a RawDocument, path: &[String]) -> Result<Value<'a>> {
    crate::expression::path::walk(RawBsonRef::Document(document), path)
}

/// Returns all values along a path, as the local side of a join reads them: of an array on the way those of each of its
/// items (and of the item at an index, if the path says one), of an array at the end its items.
fn visit_values<'a>(
    value: RawBsonRef<'a>,
    path: &[String],
    visit: &mut dyn FnMut(RawBsonRef<'a>) -> Result<()>,
) -> Result<()> {
    match (value, path) {
        (RawBsonRef::Array(array), []) => value::items(array).try_for_each(|item| visit(item?)),
        (other, []) => visit(other),
        (RawBsonRef::Document(document), [name, rest @ ..]) => match crate::expression::path::field(document, name)? {
            Some(inner) => visit_values(inner, rest, visit),
            None => Ok(()),
        },
        (RawBsonRef::Array(array), [name, rest @ ..]) => {
            if let Some(item) = crate::path::array_index(name).and_then(|index| crate::path::element(array, index)) {
                visit_values(item, rest, visit)?;
            }
            for item in value::items(array) {
                if let item @ RawBsonRef::Document(_) = item? {
                    visit_values(item, path, visit)?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
