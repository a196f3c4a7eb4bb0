//! Updates by an aggregation pipeline: its result for the document replaces the document.

use bson::{RawDocument, RawDocumentBuf};

use crate::depth::{self, Limits};
use crate::element::elements;
use crate::pipeline::Pipeline;
use crate::{Code, CompileOptions, Context, Error, Result};

use super::replacement::replace;

/// The stages, which return one document for each.
const ALLOWED: [&str; 6] = ["$set", "$addFields", "$unset", "$project", "$replaceRoot", "$replaceWith"];

#[derive(Debug)]
pub(super) struct PipelineUpdate(Pipeline);

impl PipelineUpdate {
    /// Compiles the pipeline of an update.
    ///
    /// # Errors
    /// Returns `InvalidOptions` (72) for a stage that an update may not have; the errors of stages and expressions.
    pub(super) fn compile(stages: &[RawDocumentBuf], options: &CompileOptions) -> Result<Self> {
        for stage in stages {
            if let Some(stage) = elements(stage).next().transpose()?
                && !ALLOWED.contains(&stage.name())
                && stage.name().starts_with('$')
            {
                let message = format!("{} is not allowed to be used within an update", stage.name());
                return Err(Error::new(Code::InvalidOptions, message));
            }
        }
        Ok(PipelineUpdate(Pipeline::compile(stages, options)?))
    }

    /// Returns the new document. `_id` stays if the pipeline drops it.
    ///
    /// # Errors
    /// `ImmutableField` (66) if the pipeline changes `_id`; the errors of the expressions.
    pub(super) fn apply(&self, document: &RawDocument, context: &Context) -> Result<RawDocumentBuf> {
        let made = self.0.run([document.to_owned()], context)?;
        let [made] = made.as_slice() else {
            return Err(Error::new(Code::InternalError, "an update's pipeline must give one document for one"));
        };
        // Expressions can put documents into each other.
        depth::check(made.as_bytes(), Limits { bytes_max: usize::MAX, ..Limits::default() })?;
        replace(document, made)
    }
}
