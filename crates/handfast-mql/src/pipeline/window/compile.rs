//! Compiles `{partitionBy, sortBy, output}`.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{
    Output, SetWindowFields,
    function::{Function, failed},
    result_name,
};
use crate::{
    context::CompileOptions,
    error::{Code, Error, Result},
    expression::{
        Expression,
        path::split,
        value::{self, type_name},
    },
    pipeline::sort::SortStage,
    projection::Projection,
    sort::Sort,
};

const STAGE: &str = "$setWindowFields";

impl SetWindowFields {
    /// Compiles the argument of the stage.
    ///
    /// # Errors
    /// `FailedToParse` (9), 40414 without `output`, 40415 for an unknown field, `TypeMismatch` (14), the errors of a `$sort` and of the
    /// functions.
    pub(in crate::pipeline) fn compile(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<SetWindowFields> {
        let RawBsonRef::Document(document) = argument else {
            return Err(failed(format!(
                "the {STAGE} stage specification must be an object, found {}",
                type_name(argument)
            )));
        };
        let (mut partition, mut sort, mut output) = (None, None, None);
        for field in value::fields(document) {
            let (key, item) = field?;
            match key.as_str() {
                "partitionBy" => partition = Some(Expression::compile(item, options)?),
                "sortBy" => sort = Some(SortStage::compile(object("sortBy", item)?, options)?.sort().clone()),
                "output" => output = Some(object("output", item)?),
                other => {
                    return Err(Error::new(Code(40_415), format!("BSON field '{STAGE}.{other}' is an unknown field.")));
                }
            }
        }
        let output = output.ok_or_else(|| {
            Error::new(Code(40_414), format!("BSON field '{STAGE}.output' is missing but a required field"))
        })?;
        let sort = sort.map_or_else(|| Sort::compile(&RawDocumentBuf::new()), Ok)?;
        let position = match sort.fields() {
            [field] => {
                let path = format!("${}", field.path().as_str());
                Some(Expression::compile(RawBsonRef::String(&path), options)?)
            }
            _ => None,
        };
        let outputs = value::fields(output)
            .map(|field| {
                let (key, item) = field?;
                let function =
                    item.as_document().ok_or_else(|| failed(format!("The field '{key}' must be an object")))?;
                Ok(Output { path: split(key.as_str())?, function: Function::compile(function, &sort, options)? })
            })
            .collect::<Result<Vec<Output>>>()?;
        let fields = projection(output, options)?;
        let is_flat = outputs.iter().all(|output| output.path.len() == 1);
        Ok(SetWindowFields { partition, sort, position, outputs, fields: fields.filter(|_| !is_flat) })
    }
}

/// Compiles the projection that puts the results into a document, which also refuses paths that contain each other.
fn projection(output: &RawDocument, options: &CompileOptions) -> Result<Option<Projection>> {
    let mut variables = Vec::new();
    let mut fields = RawDocumentBuf::new();
    for (index, field) in value::fields(output).enumerate() {
        let (key, _) = field?;
        let name = result_name(index);
        value::append(&mut fields, key.as_str(), RawBsonRef::String(&format!("$${name}")))?;
        variables.push(name);
    }
    if variables.is_empty() {
        return Ok(None);
    }
    let options = CompileOptions { variables, collation: options.collation.clone() };
    Projection::compile_add_fields(STAGE, &fields, &options).map(Some)
}

fn object<'s>(name: &str, item: RawBsonRef<'s>) -> Result<&'s RawDocument> {
    item.as_document().ok_or_else(|| {
        Error::new(
            Code::TypeMismatch,
            format!("BSON field '{STAGE}.{name}' is the wrong type '{}', expected type 'object'", type_name(item)),
        )
    })
}
