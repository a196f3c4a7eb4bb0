//! `$fill`, which is written as other stages: `$setWindowFields` for values from the documents around, `$addFields` for given ones.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{SetWindowFields, Stage};
use crate::{
    context::CompileOptions,
    error::{Code, Error, Result},
    expression::{
        path::check,
        value::{self, show, type_name},
    },
    projection::Projection,
};

const STAGE: &str = "$fill";

/// Compiles `{partitionBy, partitionByFields, sortBy, output}` into the stages that it abbreviates.
///
/// # Errors
/// 40414 without `output`, 40415 for an unknown field, 6050204 for two partitions, 6050201 and 6050202 for an output that is neither a value nor a
/// known method, `FailedToParse` (9) for a method without `sortBy`, and the errors of the stages.
pub(super) fn fill(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Vec<Stage>> {
    let RawBsonRef::Document(document) = argument else {
        return Err(failed(format!(
            "The argument to {STAGE} must be an object, but found type: {}",
            type_name(argument)
        )));
    };
    let (mut partition, mut sort, mut output) = (None, None, None);
    for field in value::fields(document) {
        let (key, item) = field?;
        let part = match key.as_str() {
            "partitionBy" => value::to_owned(item),
            "partitionByFields" => bson::RawBson::Document(partition_by_fields(item)?),
            "sortBy" => {
                sort = Some(object("sortBy", item)?);
                continue;
            }
            "output" => {
                output = Some(object("output", item)?);
                continue;
            }
            other => {
                return Err(Error::new(Code(40_415), format!("BSON field '{STAGE}.{other}' is an unknown field.")));
            }
        };
        if partition.replace(part).is_some() {
            let text = format!("Maximum one of 'partitionBy' and 'partitionByFields' can be specified in '{STAGE}'");
            return Err(Error::new(Code(6_050_204), text));
        }
    }
    let output = output.ok_or_else(|| {
        Error::new(Code(40_414), format!("BSON field '{STAGE}.output' is missing but a required field"))
    })?;
    let (methods, values) = outputs(output)?;
    let mut stages = Vec::new();
    if !methods.is_empty() {
        let sort = sort.ok_or_else(|| failed(format!("'sortBy' is required if a field of {STAGE} has a 'method'")))?;
        let mut windows = RawDocumentBuf::new();
        if let Some(partition) = &partition {
            windows.append(bson::raw::cstr!("partitionBy"), partition.as_raw_bson_ref());
        }
        windows.append(bson::raw::cstr!("sortBy"), sort);
        windows.append(bson::raw::cstr!("output"), methods);
        let windows = SetWindowFields::compile(RawBsonRef::Document(&windows), options)?;
        stages.push(Stage::SetWindowFields(Box::new(windows)));
    }
    if !values.is_empty() {
        stages.push(Stage::Project(Projection::compile_add_fields(STAGE, &values, options)?));
    }
    Ok(stages)
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(Code::FailedToParse, message)
}

fn object<'s>(name: &str, item: RawBsonRef<'s>) -> Result<&'s RawDocument> {
    item.as_document().ok_or_else(|| {
        let text =
            format!("BSON field '{STAGE}.{name}' is the wrong type '{}', expected type 'object'", type_name(item));
        Error::new(Code::TypeMismatch, text)
    })
}

/// Returns an expression whose value is different for different values of the fields.
fn partition_by_fields(item: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    let mut partition = RawDocumentBuf::new();
    for (index, name) in field_names(STAGE, item)?.into_iter().enumerate() {
        value::append(&mut partition, &format!("field{index}"), RawBsonRef::String(&format!("${name}")))?;
    }
    Ok(partition)
}

/// Reads `partitionByFields`.
///
/// # Errors
/// `TypeMismatch` (14) for anything but an array of strings, and the errors of paths.
pub(super) fn field_names<'s>(stage: &str, item: RawBsonRef<'s>) -> Result<Vec<&'s str>> {
    let wrong = |found: RawBsonRef<'_>, expected: &str| {
        let text = format!(
            "BSON field '{stage}.partitionByFields' is the wrong type '{}', expected {expected}",
            type_name(found)
        );
        Error::new(Code::TypeMismatch, text)
    };
    let RawBsonRef::Array(array) = item else { return Err(wrong(item, "an array")) };
    let mut names = Vec::new();
    for item in value::items(array) {
        let item = item?;
        let RawBsonRef::String(name) = item else { return Err(wrong(item, "strings")) };
        check(name)?;
        names.push(name);
    }
    Ok(names)
}

/// Returns the output of `$setWindowFields` for the methods, and the fields of `$addFields` for the values.
fn outputs(output: &RawDocument) -> Result<(RawDocumentBuf, RawDocumentBuf)> {
    let (mut methods, mut values) = (RawDocumentBuf::new(), RawDocumentBuf::new());
    for field in value::fields(output) {
        let (key, item) = field?;
        let one = || {
            let text =
                format!("The field '{key}' of the output of {STAGE} must have exactly one of 'value' and 'method'");
            Error::new(Code(6_050_201), text)
        };
        let mut fields = value::fields(item.as_document().ok_or_else(one)?);
        let (kind, argument) = fields.next().ok_or_else(one)??;
        if fields.next().is_some() {
            return Err(one());
        }
        let path = format!("${key}");
        let mut written = RawDocumentBuf::new();
        match (kind.as_str(), argument) {
            ("value", argument) => {
                let mut arguments = bson::RawArrayBuf::new();
                arguments.push(RawBsonRef::String(&path));
                arguments.push(argument);
                written.append(bson::raw::cstr!("$ifNull"), arguments);
                values.append(key, written);
            }
            ("method", RawBsonRef::String("linear")) => {
                written.append(bson::raw::cstr!("$linearFill"), path);
                methods.append(key, written);
            }
            ("method", RawBsonRef::String("locf")) => {
                written.append(bson::raw::cstr!("$locf"), path);
                methods.append(key, written);
            }
            ("method", other) => {
                let text = format!("Method must be either 'linear' or 'locf', but found {}", show(other));
                return Err(Error::new(Code(6_050_202), text));
            }
            _ => return Err(one()),
        }
    }
    Ok((methods, values))
}
