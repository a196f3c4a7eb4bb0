//! Validators: the condition of a collection that new states of documents have to fulfil.
//!
//! What a validator says depends on the states of the document alone. A caller that holds up others checks within a few steps
//! ([`Validator::check_within`]); a check that needs more runs beside them ([`ExpensiveCheck::run`]), and the caller takes its
//! [`Verdict`] when it looks at the same states again.

use std::sync::Arc;

use bson::raw::cstr;
use bson::{RawBson, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::filter::mismatch;
use handfast_mql::{Code, Collation, CompileOptions, Context, Filter};

use crate::{
    CollectionOptions, Error, Namespace, Result, Sources, Validation, ValidationAction, ValidationLevel, blocking,
    default_collation, insertion,
};

/// Limit on the bytes of what an error says about a document.
const DETAILS_BYTES_MAX: usize = 1024 * 1024;

/// The compiled validator of a collection.
#[derive(Debug)]
pub struct Validator {
    written: RawDocumentBuf,
    options: CompileOptions,
    filter: Filter,
    /// Whether the `_id` of a new document has no string, because the collection has a default collation.
    checks_id: bool,
    level: ValidationLevel,
    action: ValidationAction,
}

/// A new state of a document.
#[derive(Clone, Copy, Debug)]
pub struct NewState<'d> {
    /// The collection, for messages.
    pub namespace: &'d Namespace,
    /// The state that is replaced.
    pub before: Option<&'d RawDocument>,
    /// The new state.
    pub after: &'d RawDocument,
    /// Whether the validator is applied.
    pub validation: Validation,
}

/// A check that takes more steps than its caller may take.
#[derive(Debug)]
pub struct ExpensiveCheck {
    validator: Arc<Validator>,
    namespace: Namespace,
    before: Option<RawDocumentBuf>,
    after: RawDocumentBuf,
    validation: Validation,
}

/// The result of an [`ExpensiveCheck`].
#[derive(Debug)]
pub struct Verdict {
    check: ExpensiveCheck,
    result: Result<()>,
}

impl ExpensiveCheck {
    /// Checks on another thread, in any number of steps. Dropping the future ends the computation.
    ///
    /// # Errors
    /// `InternalError` (1) if the thread fails. What the validator says is in the verdict.
    pub async fn run(self, sources: &Sources) -> Result<Verdict> {
        let context = sources.context(&RawDocumentBuf::new());
        let _stop = context.interrupt.stop_on_drop();
        blocking(move || {
            let ExpensiveCheck { validator, namespace, before, after, validation } = &self;
            let state = NewState { namespace, before: before.as_deref(), after, validation: *validation };
            let result = validator.check(state, &context);
            Ok(Verdict { check: self, result })
        })
        .await
    }
}

impl Verdict {
    /// Returns what the validator says about a state, if this is the verdict on it.
    pub fn on(&self, validator: &Arc<Validator>, state: &NewState<'_>) -> Option<Result<()>> {
        let check = &self.check;
        let same = check.validator.says_the_same_as(validator)
            && check.after.as_bytes() == state.after.as_bytes()
            && check.before.as_deref().map(RawDocument::as_bytes) == state.before.map(RawDocument::as_bytes);
        same.then(|| self.result.clone())
    }

    /// Returns the new state of the document.
    pub fn after(&self) -> &RawDocument {
        &self.check.after
    }

    /// Returns the result.
    ///
    /// # Errors
    /// Returns the errors of [`Validator::check`].
    pub fn into_result(self) -> Result<()> {
        self.result
    }
}

impl Validator {
    /// Compiles the validator of a collection; `None` if it has none, or if the level is `off`, unless it has a default collation, which
    /// allows no strings in `_id`.
    ///
    /// # Errors
    /// Returns the error of an invalid condition.
    pub fn compile(options: &CollectionOptions) -> Result<Option<Arc<Self>>> {
        let collation = options.collation.as_deref().map(Collation::parse).transpose()?.flatten();
        let checks_id = collation.is_some();
        let compiled = CompileOptions { collation, ..CompileOptions::default() };
        let filter = Filter::compile(&options.validator, &compiled)?;
        let is_off = filter.is_empty() || options.validation_level == ValidationLevel::Off;
        if is_off && !checks_id {
            return Ok(None);
        }
        Ok(Some(Arc::new(Validator {
            written: options.validator.clone(),
            options: compiled,
            filter,
            checks_id,
            level: options.validation_level,
            action: options.validation_action,
        })))
    }

    /// Returns whether both have the same verdict on every state: a transaction compiles that of a collection that it creates anew.
    fn says_the_same_as(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let settings = |validator: &Validator| (validator.level, validator.action);
        let collation = |validator: &Validator| validator.options.collation.as_ref().map(|c| c.document().to_owned());
        let is_same = || settings(self) == settings(other) && self.written == other.written;
        Arc::ptr_eq(self, other) || (is_same() && collation(self) == collation(other))
    }

    /// Returns whether documents are refused, and not only mentioned in the log.
    pub fn refuses(&self) -> bool {
        self.action == ValidationAction::Error || self.checks_id
    }

    /// Checks the new state of a document in at most `steps_left` steps, which become fewer; `None` if it needs more.
    ///
    /// # Errors
    /// Returns the errors of [`Validator::check`].
    pub fn check_within(&self, steps_left: &mut u64, state: NewState<'_>, context: &Context) -> Option<Result<()>> {
        context.bound_steps(*steps_left);
        let result = self.check(state, context);
        *steps_left = context.bound_steps(u64::MAX);
        // What is wrong with the document may not have been described to its end.
        let cut = |error: &Error| matches!(error.code(), Code::OperationFailed | Code::DocumentValidationFailure);
        let stopped = *steps_left == 0 && result.as_ref().is_err_and(cut);
        (!stopped).then_some(result)
    }

    /// Returns the check of a state for another thread.
    pub fn expensive(self: &Arc<Self>, state: NewState<'_>) -> ExpensiveCheck {
        let NewState { namespace, before, after, validation } = state;
        let (before, after) = (before.map(RawDocument::to_owned), after.to_owned());
        ExpensiveCheck { validator: Arc::clone(self), namespace: namespace.clone(), before, after, validation }
    }

    /// Checks the new state of a document.
    ///
    /// # Errors
    /// `DocumentValidationFailure` (121) with MongoDB's `errInfo`, and the errors of the condition; `NotImplemented` (238) for a string in
    /// the `_id` of a new document of a collection with a default collation, also if the validator is bypassed.
    pub fn check(&self, state: NewState<'_>, context: &Context) -> Result<()> {
        let NewState { namespace, before, after, validation } = state;
        if self.checks_id && before.is_none() {
            default_collation::check_id(insertion::id(after)?)?;
        }
        let is_off = validation == Validation::Bypass || self.level == ValidationLevel::Off;
        if is_off || self.filter.matches(after, context)? {
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
            let text = "a document does not fulfil the validator of its collection, whose action is warn";
            tracing::warn!(%namespace, id, "{text}");
            return Ok(());
        }
        let mut info = rawdoc! { "failingDocumentId": id };
        // A description that takes too long is left out.
        if let Ok(Some(details)) = mismatch(&self.written, &self.options, after, context)
            && details.as_bytes().len() <= DETAILS_BYTES_MAX
        {
            info.append(cstr!("details"), details);
        }
        let text = "Document failed validation";
        Err(Error::command(Code::DocumentValidationFailure, text).with_details(rawdoc! { "errInfo": info }))
    }
}
