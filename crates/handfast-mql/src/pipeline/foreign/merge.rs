//! `$out` and `$merge`, which write the results into a collection.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{Let, Target, collection_name, distinct_fields, unknown_field, value_at};
use crate::{
    context::{CompileOptions, Context},
    error::{Code, Error, Result},
    expression::{
        object,
        value::{self, type_name},
    },
    pipeline::{Pipeline, Stage, compile},
};

/// A compiled `$out`: the results take the place of the collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    /// The collection.
    pub target: Target,
}

impl Out {
    pub(in crate::pipeline) fn compile(argument: RawBsonRef<'_>) -> Result<Out> {
        let target = target("$out", argument).map_err(|error| match argument {
            RawBsonRef::String(_) | RawBsonRef::Document(_) => error,
            other => Error::new(
                Code(16_990),
                format!("$out only supports a string or object argument, but found {}", type_name(other)),
            ),
        })?;
        Ok(Out { target })
    }
}

/// Reads `"collection"` or `{db, coll}`.
fn target(stage: &'static str, argument: RawBsonRef<'_>) -> Result<Target> {
    match argument {
        RawBsonRef::String(name) => Ok(Target { database: None, collection: target_collection(stage, name)? }),
        RawBsonRef::Document(document) => {
            let (mut database, mut collection) = (None, None);
            for field in distinct_fields(stage, document) {
                let (key, item) = field?;
                match key.as_str() {
                    "db" => database = Some(text(stage, "db", item)?.to_owned()),
                    "coll" => collection = Some(target_collection(stage, text(stage, "coll", item)?)?),
                    other => return Err(unknown_field(stage, other)),
                }
            }
            if let Some(database) = &database {
                check_target_database(stage, database)?;
            }
            let collection =
                collection.ok_or_else(|| Error::new(Code::FailedToParse, format!("{stage}: 'coll' is required")))?;
            Ok(Target { database, collection })
        }
        other => Err(Error::new(
            Code(51_178),
            format!("{stage} 'into' field must be either a string or an object, but found {}", type_name(other)),
        )),
    }
}

/// Reads the name of a collection that a stage writes.
fn target_collection(stage: &str, name: &str) -> Result<String> {
    if name.contains('$') {
        let text = format!("Invalid {stage} target namespace: '{name}' contains '$'");
        return Err(Error::new(Code::IllegalOperation, text));
    }
    if name.starts_with("system.") {
        let code = if stage == "$out" { OUT_TO_SYSTEM_COLLECTION } else { MERGE_TO_SYSTEM_COLLECTION };
        return Err(Error::new(code, format!("Cannot {stage} to special collection: {name}")));
    }
    collection_name(stage, name)
}

/// Checks that `$out` or `$merge` may write to a database.
///
/// # Errors
/// 31321 (`$out`) and 31320 (`$merge`) for the databases of the server itself.
pub fn check_target_database(stage: &str, database: &str) -> Result<()> {
    if !matches!(database, "admin" | "config" | "local") {
        return Ok(());
    }
    let code = if stage == "$out" { OUT_TO_INTERNAL_DATABASE } else { MERGE_TO_INTERNAL_DATABASE };
    Err(Error::new(code, format!("Cannot {stage} to internal database: {database}")))
}

// MongoDB's codes.
const OUT_TO_SYSTEM_COLLECTION: Code = Code(17_385);
const MERGE_TO_SYSTEM_COLLECTION: Code = Code(31_319);
const MERGE_TO_INTERNAL_DATABASE: Code = Code(31_320);
const OUT_TO_INTERNAL_DATABASE: Code = Code(31_321);

/// Reads a text of the document of `$out` or `$merge`.
fn text<'s>(stage: &str, name: &str, item: RawBsonRef<'s>) -> Result<&'s str> {
    item.as_str().ok_or_else(|| wrong_type(stage, name, item, "string"))
}

fn wrong_type(stage: &str, name: &str, item: RawBsonRef<'_>, expected: &str) -> Error {
    let kind = type_name(item);
    let text = format!("BSON field '{stage}.{name}' is the wrong type '{kind}', expected type '{expected}'");
    Error::new(Code::TypeMismatch, text)
}

/// A compiled `$merge`: each result is written over, into or beside the document it belongs to.
#[derive(Debug)]
pub struct Merge {
    /// The collection.
    pub target: Target,
    /// The fields by which a result belongs to a document, as dotted paths. A unique index must cover them.
    pub on: Vec<String>,
    /// The action if such a document exists.
    pub when_matched: WhenMatched,
    /// The action if no such document exists.
    pub when_not_matched: WhenNotMatched,
    variables: Let,
}

/// The action of `$merge` for a result whose document exists.
#[derive(Debug)]
pub enum WhenMatched {
    /// The result replaces the document.
    Replace,
    /// The document stays as it is.
    KeepExisting,
    /// The fields of the result are set in the document.
    Merge,
    /// The command fails.
    Fail,
    /// A pipeline changes the document; the result is `$$new` in it.
    Pipeline(Pipeline),
}

/// The action of `$merge` for a result whose document does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenNotMatched {
    /// The result is inserted.
    Insert,
    /// The result is ignored.
    Discard,
    /// The command fails.
    Fail,
}

/// The write for one result of `$merge`.
#[derive(Clone, Debug, PartialEq)]
pub enum MergeOutcome {
    /// Writes nothing.
    Nothing,
    /// Replaces the document that was found with this one.
    Replace(RawDocumentBuf),
    /// Inserts this document.
    Insert(RawDocumentBuf),
}

impl Merge {
    pub(in crate::pipeline) fn compile(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Merge> {
        const STAGE: &str = "$merge";
        let document = match argument {
            RawBsonRef::String(_) => {
                return Ok(Merge {
                    target: target(STAGE, argument)?,
                    on: vec!["_id".to_owned()],
                    when_matched: WhenMatched::Merge,
                    when_not_matched: WhenNotMatched::Insert,
                    variables: Let::default(),
                });
            }
            RawBsonRef::Document(document) => document,
            other => {
                return Err(Error::new(
                    Code(51_182),
                    format!("$merge requires a string or object argument, but found {}", type_name(other)),
                ));
            }
        };
        let (mut into, mut on, mut variables) = (None, None, None);
        let (mut when_matched, mut when_not_matched) = (None, WhenNotMatched::Insert);
        for field in distinct_fields(STAGE, document) {
            let (key, item) = field?;
            match key.as_str() {
                "into" => into = Some(target(STAGE, item)?),
                "on" => on = Some(on_fields(item)?),
                "let" if item.as_document().is_none() => return Err(wrong_type(STAGE, "let", item, "object")),
                "let" => variables = Some(item),
                "whenMatched" => when_matched = Some(item),
                "whenNotMatched" => {
                    when_not_matched = match item {
                        RawBsonRef::String("insert") => WhenNotMatched::Insert,
                        RawBsonRef::String("discard") => WhenNotMatched::Discard,
                        RawBsonRef::String("fail") => WhenNotMatched::Fail,
                        RawBsonRef::String(_) => return Err(bad_choice("whenNotMatched", item)),
                        _ => return Err(wrong_type(STAGE, "whenNotMatched", item, "string")),
                    };
                }
                other => return Err(unknown_field(STAGE, other)),
            }
        }
        let target =
            into.ok_or_else(|| Error::new(Code(40_414), "BSON field '$merge.into' is missing but a required field"))?;
        let mut bound = Let::default();
        let when_matched = match when_matched {
            None | Some(RawBsonRef::String("merge")) => WhenMatched::Merge,
            Some(RawBsonRef::String("replace")) => WhenMatched::Replace,
            Some(RawBsonRef::String("keepExisting")) => WhenMatched::KeepExisting,
            Some(RawBsonRef::String("fail")) => WhenMatched::Fail,
            Some(RawBsonRef::Array(stages)) => {
                bound = Let::compile(variables.take(), STAGE, options)?;
                WhenMatched::Pipeline(update_pipeline(stages, &bound, options)?)
            }
            Some(other @ RawBsonRef::String(_)) => return Err(bad_choice("whenMatched", other)),
            Some(other) => {
                let kind = type_name(other);
                let text = format!("$merge 'whenMatched' field must be either a string or an array, but found {kind}");
                return Err(Error::new(Code(51_191), text));
            }
        };
        if variables.is_some() {
            return Err(Error::new(
                Code(51_199),
                "Cannot use 'let' variables with 'whenMatched' mode other than a pipeline",
            ));
        }
        Ok(Merge {
            target,
            on: on.unwrap_or_else(|| vec!["_id".to_owned()]),
            when_matched,
            when_not_matched,
            variables: bound,
        })
    }

    /// Returns the filter for the document that a result belongs to.
    ///
    /// # Errors
    /// 51185, 51132 for a result that lacks one of the fields, or has null or an array there.
    pub fn filter(&self, result: &RawDocument) -> Result<RawDocumentBuf> {
        let mut filter = RawDocumentBuf::new();
        for field in &self.on {
            let path: Vec<String> = field.split('.').map(str::to_owned).collect();
            let value = value_at(result, &path)?;
            if value.is_nullish() {
                return Err(Error::new(
                    Code(51_132),
                    "$merge write error: 'on' field cannot be missing, null, undefined or an array",
                ));
            }
            if value.as_array().is_some() {
                return Err(Error::new(
                    Code(51_185),
                    "$merge write error: 'on' field cannot be missing, null, undefined or an array",
                ));
            }
            let mut condition = RawDocumentBuf::new();
            condition.append(bson::raw::cstr!("$eq"), value.or_null());
            value::append(&mut filter, field, RawBsonRef::Document(&condition))?;
        }
        Ok(filter)
    }

    /// Returns the write for a result, given the document that was found by [`Merge::filter`].
    ///
    /// # Errors
    /// `DuplicateKey` (11000) for `whenMatched: "fail"`, 13113 for `whenNotMatched: "fail"`, and the errors of a pipeline.
    pub fn outcome(
        &self,
        result: &RawDocument,
        existing: Option<&RawDocument>,
        context: &Context,
    ) -> Result<MergeOutcome> {
        let Some(existing) = existing else {
            return match self.when_not_matched {
                WhenNotMatched::Insert => Ok(MergeOutcome::Insert(result.to_owned())),
                WhenNotMatched::Discard => Ok(MergeOutcome::Nothing),
                WhenNotMatched::Fail => Err(Error::new(
                    Code(13_113),
                    "$merge could not find a matching document in the target collection for at least one document in \
                     the source collection",
                )),
            };
        };
        match &self.when_matched {
            WhenMatched::KeepExisting => Ok(MergeOutcome::Nothing),
            WhenMatched::Fail => Err(Error::new(
                Code::DuplicateKey,
                "$merge found a document that is there already, and whenMatched is 'fail'",
            )),
            WhenMatched::Merge => object::merge(existing, result).map(MergeOutcome::Replace),
            WhenMatched::Replace => {
                // The document keeps its `_id` if the result does not say it.
                match (result.get("_id")?, existing.get("_id")?) {
                    (None, Some(id)) => {
                        let mut with_id = RawDocumentBuf::new();
                        with_id.append(bson::raw::cstr!("_id"), id);
                        for field in value::fields(result) {
                            let (key, item) = field?;
                            with_id.append(key, item);
                        }
                        Ok(MergeOutcome::Replace(with_id))
                    }
                    _ => Ok(MergeOutcome::Replace(result.to_owned())),
                }
            }
            WhenMatched::Pipeline(pipeline) => {
                let mut context = self.variables.context(result, context)?;
                if context.variable("new").is_none() {
                    value::append(&mut context.variables, "new", RawBsonRef::Document(result))?;
                }
                let changed = pipeline.run([existing.to_owned()], &context)?;
                Ok(changed.into_iter().next().map_or(MergeOutcome::Nothing, MergeOutcome::Replace))
            }
        }
    }
}

fn bad_choice(name: &str, found: RawBsonRef<'_>) -> Error {
    Error::new(
        Code::BadValue,
        format!("Enumeration value '{}' for field '$merge.{name}' is not a valid value.", value::show(found)),
    )
}

fn on_fields(item: RawBsonRef<'_>) -> Result<Vec<String>> {
    let name = |item: RawBsonRef<'_>| match item {
        RawBsonRef::String(name) => {
            crate::expression::path::split(name)?;
            Ok(name.to_owned())
        }
        other => Err(Error::new(
            Code(51_134),
            format!("$merge 'on' array elements must be strings, but found {}", type_name(other)),
        )),
    };
    match item {
        RawBsonRef::String(_) => Ok(vec![name(item)?]),
        RawBsonRef::Array(array) => {
            let fields = value::items(array).map(|item| name(item?)).collect::<Result<Vec<_>>>()?;
            if fields.is_empty() {
                return Err(Error::new(
                    Code(51_187),
                    "If explicitly specifying $merge 'on', must include at least one field",
                ));
            }
            for (index, field) in fields.iter().enumerate() {
                if fields[..index].contains(field) {
                    return Err(Error::new(
                        Code(31_465),
                        format!("Found a duplicate field in the $merge.on list: '{field}'"),
                    ));
                }
            }
            Ok(fields)
        }
        other => Err(Error::new(
            Code(51_186),
            format!("$merge 'on' field must be either a string or an array of strings, but found {}", type_name(other)),
        )),
    }
}

/// Compiles the stages of an update, which return one document for each.
fn update_pipeline(stages: &bson::RawArray, variables: &Let, options: &CompileOptions) -> Result<Pipeline> {
    let mut declared = variables.declared(options);
    declared.variables.push("new".to_owned());
    let mut sources = Vec::new();
    for stage in value::items(stages) {
        let RawBsonRef::Document(stage) = stage? else {
            return Err(Error::new(Code::TypeMismatch, "Each element of the 'pipeline' array must be an object"));
        };
        sources.push(stage);
    }
    let pipeline = compile::pipeline(&sources, &declared)?;
    for stage in pipeline.stages() {
        if !matches!(stage, Stage::Project(_) | Stage::ReplaceRoot(_)) {
            return Err(Error::new(
                Code::InvalidOptions,
                format!("{} is not allowed to be used within an update", stage.name()),
            ));
        }
    }
    Ok(pipeline)
}
