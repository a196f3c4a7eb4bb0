//! Validators: the condition of a collection that new states of documents have to fulfil.

use std::sync::Arc;

use bson::raw::cstr;
use bson::{RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::filter::mismatch;
use handfast_mql::{Code, CompileOptions, Context, Filter};

use crate::{CollectionOptions, Error, Result, Validation, ValidationAction, ValidationLevel, insertion};

/// Limit on the bytes of what an error says about a document.
const DETAILS_BYTES_MAX: usize = 1024 * 1024;

/// The compiled validator of a collection.
#[derive(Debug)]
pub struct Validator {
    written: RawDocumentBuf,
    filter: Filter,
    level: ValidationLevel,
    action: ValidationAction,
}

impl Validator {
    /// Compiles the validator of a collection; `None` if it has none, or if the level is `off`.
    ///
    /// # Errors
    /// Returns the error of an invalid condition.
    pub fn compile(options: &CollectionOptions) -> Result<Option<Arc<Self>>> {
        let filter = Filter::compile(&options.validator, &CompileOptions::default())?;
        if filter.is_empty() || options.validation_level == ValidationLevel::Off {
            return Ok(None);
        }
        Ok(Some(Arc::new(Validator {
            written: options.validator.clone(),
            filter,
            level: options.validation_level,
            action: options.validation_action,
        })))
    }

    /// Checks the new state of a document; `before` is the state that it replaces.
    ///
    /// # Errors
    /// `DocumentValidationFailure` (121) with MongoDB's `errInfo`, and the errors of the condition.
    pub fn check(
        &self,
        before: Option<&RawDocument>,
        after: &RawDocument,
        validation: Validation,
        context: &Context,
    ) -> Result<()> {
        if validation == Validation::Bypass || self.filter.matches(after, context)? {
            return Ok(());
        }
        if self.level == ValidationLevel::Moderate
            && let Some(before) = before
            && !self.filter.matches(before, context)?
        {
            return Ok(());
        }
        let id = RawBson::from(insertion::id(after)?);
        if self.action == ValidationAction::Warn {
            let id = handfast_mql::text::value(id.as_raw_bson_ref());
            tracing::warn!(id, "a document does not fulfil the validator of its collection, whose action is warn");
            return Ok(());
        }
        let mut info = rawdoc! { "failingDocumentId": id };
        // A description that takes too long is left out.
        if let Ok(Some(details)) = mismatch(&self.written, &CompileOptions::default(), after, context)
            && details.as_bytes().len() <= DETAILS_BYTES_MAX
        {
            info.append(cstr!("details"), details);
        }
        let text = "Document failed validation";
        Err(Error::command(Code::DocumentValidationFailure, text).with_details(rawdoc! { "errInfo": info }))
    }
}
