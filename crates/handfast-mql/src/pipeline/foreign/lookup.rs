//! `$lookup`: the documents of another collection that belong to each document, as an array in it.

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr};

use super::{Let, collection_name, distinct_fields, path_of, string, unknown, visit_values};
use crate::{
    context::{CompileOptions, Context},
    error::{Code, Error, Result},
    expression::{limits, value},
    pipeline::{
        Pipeline,
        compile::{PipelineLocation, StageContext, of_array},
        memory::StageMemory,
        set_path::with_path,
    },
};

/// A compiled `$lookup`.
#[derive(Debug)]
pub struct Lookup {
    /// The other collection; none if the pipeline begins with `$documents`.
    pub from: Option<String>,
    /// The fields whose values must be equal, if the join is by fields.
    pub local: Option<EqualityJoin>,
    /// The variables that the pipeline sees.
    pub variables: Let,
    /// The pipeline that the documents of the other collection run through.
    pub pipeline: Option<Pipeline>,
    into: Vec<String>,
}

/// A join by equal values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EqualityJoin {
    local_field: Vec<String>,
    foreign_field: String,
}

impl EqualityJoin {
    /// Returns the field of the other collection, as a dotted path: an index on it serves the join.
    pub fn foreign_field(&self) -> &str {
        &self.foreign_field
    }
}

impl Lookup {
    pub(in crate::pipeline) fn compile(argument: RawBsonRef<'_>, stage_context: StageContext<'_>) -> Result<Lookup> {
        let RawBsonRef::Document(document) = argument else {
            return Err(Error::new(Code::FailedToParse, "the $lookup specification must be an Object"));
        };
        let options = stage_context.options;
        let (mut from, mut local, mut foreign, mut into) = (None, None, None, None);
        let (mut variables, mut pipeline) = (None, None);
        for field in distinct_fields("$lookup", document) {
            let (key, item) = field?;
            match key.as_str() {
                "from" => from = Some(collection_name("$lookup", string("$lookup", "from", item)?)?),
                "localField" => local = Some(path_of("$lookup", "localField", item)?),
                "foreignField" => foreign = Some(path_of("$lookup", "foreignField", item)?.join(".")),
                "as" => into = Some(path_of("$lookup", "as", item)?),
                "let" => variables = Some(item),
                "pipeline" => pipeline = Some(item),
                other => return Err(unknown("$lookup", other)),
            }
        }
        let into = into.ok_or_else(|| Error::new(Code::FailedToParse, "must specify 'as' field for a $lookup"))?;
        if variables.is_some() && pipeline.is_none() {
            return Err(Error::new(Code::FailedToParse, "$lookup with 'let' must also specify 'pipeline'"));
        }
        let local = match (local, foreign) {
            (Some(local_field), Some(foreign_field)) => Some(EqualityJoin { local_field, foreign_field }),
            (None, None) => None,
            _ => {
                return Err(Error::new(
                    Code::FailedToParse,
                    "$lookup requires both or neither of 'localField' and 'foreignField' to be specified",
                ));
            }
        };
        if local.is_none() && pipeline.is_none() {
            return Err(Error::new(
                Code::FailedToParse,
                "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified",
            ));
        }
        let variables = Let::compile(variables, "$lookup", options)?;
        let declared: CompileOptions = variables.declared(options);
        let pipeline = match pipeline {
            None => None,
            Some(source) => Some(of_array(source, stage_context.inner(PipelineLocation::Lookup, &declared)?)?),
        };
        let has_source = pipeline
            .as_ref()
            .is_some_and(|pipeline| matches!(pipeline.stages().first(), Some(crate::pipeline::Stage::Documents(_))));
        if from.is_none() && !has_source {
            return Err(Error::new(Code::FailedToParse, "must specify 'from' field for a $lookup"));
        }
        Ok(Lookup { from, local, variables, pipeline, into })
    }

    /// Returns the filter for the documents of the other collection that belong to a document: their field has the
    /// value of the local one, or (if that is an array) one of its values; null if the local field is missing or an
    /// empty array. Empty if the join is not by fields.
    ///
    /// # Errors
    /// `InvalidBSON` (22) for broken bytes.
    pub fn filter(&self, document: &RawDocument) -> Result<RawDocumentBuf> {
        let mut filter = RawDocumentBuf::new();
        let Some(EqualityJoin { local_field, foreign_field }) = &self.local else { return Ok(filter) };
        let mut values = Vec::new();
        visit_values(RawBsonRef::Document(document), local_field, &mut |value| {
            values.push(value);
            Ok(())
        })?;
        match values[..] {
            [] | [RawBsonRef::Undefined] => {
                value::append(&mut filter, foreign_field, RawBsonRef::Document(&equals(RawBsonRef::Null)))?;
            }
            [only] => value::append(&mut filter, foreign_field, RawBsonRef::Document(&equals(only)))?,
            _ => value::append(&mut filter, "$or", RawBsonRef::Array(&alternatives(foreign_field, &values)?))?,
        }
        Ok(filter)
    }

    /// Returns the context in which the pipeline runs for a document.
    ///
    /// # Errors
    /// Returns the errors of the expressions of `let`.
    pub fn context(&self, document: &RawDocument, outer: &Context) -> Result<Context> {
        self.variables.context(document, outer)
    }

    /// Returns the document with the results in their field.
    ///
    /// # Errors
    /// 292 if the document exceeds the limit of a stage ([`QueryMemory`](crate::context::QueryMemory)), together with the results of
    /// earlier stages in it.
    pub fn attach(
        &self,
        document: &RawDocument,
        found: impl IntoIterator<Item = RawDocumentBuf>,
        context: &Context,
    ) -> Result<RawDocumentBuf> {
        let mut memory = StageMemory::new("$lookup", context);
        memory.reserve(document.as_bytes().len())?;
        let mut array = RawArrayBuf::new();
        for item in found {
            memory.reserve(item.as_bytes().len())?;
            array.push(item);
        }
        let out = with_path(document, &self.into, Some(RawBsonRef::Array(&array)))?;
        limits::check_depth(RawBsonRef::Document(&out))?;
        Ok(out)
    }
}

fn equals(value: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut condition = RawDocumentBuf::new();
    condition.append(cstr!("$eq"), value);
    condition
}

/// Returns `[{field: {$in: [..]}}]`, with `$eq` for regular expressions, which `$in` would take as patterns.
fn alternatives(field: &str, values: &[RawBsonRef<'_>]) -> Result<RawArrayBuf> {
    let mut plain = RawArrayBuf::new();
    let mut alternatives = RawArrayBuf::new();
    let mut alternative = |condition: &RawDocumentBuf| -> Result<()> {
        let mut filter = RawDocumentBuf::new();
        value::append(&mut filter, field, RawBsonRef::Document(condition))?;
        alternatives.push(filter);
        Ok(())
    };
    for value in values {
        match *value {
            regex @ RawBsonRef::RegularExpression(_) => alternative(&equals(regex))?,
            RawBsonRef::Undefined => plain.push(RawBsonRef::Null),
            other => plain.push(other),
        }
    }
    let mut condition = RawDocumentBuf::new();
    condition.append(cstr!("$in"), plain);
    alternative(&condition)?;
    Ok(alternatives)
}
