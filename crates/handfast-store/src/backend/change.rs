//! Compiled changes: the effect of an update statement or a find-and-modify on one document.
//!
//! [`Change::apply`] is a function from a document to a document. A backend calls it with the document as it is at the
//! moment of the write. It matches the filter again, so that a document that no longer matches is left unchanged.

use std::borrow::Cow;

use bson::{RawDocument, RawDocumentBuf};
use handfast_mql::update::{Applied, UpdateOptions, UpdateSource, check_upsert_filter};
use handfast_mql::{Code, CompileOptions, Context, Filter, Projection, Sort, Update};

use crate::{
    Error, FindAndModify, FindAndModifyOutcome, IdSource, Modification, Result, ReturnDocument, UpdateSpec,
    UpdateStatement, Validation, WriteKind, insertion,
};

#[cfg(test)]
mod tests;

/// MongoDB's code for constants (`c`) without a pipeline.
const CONSTANTS_WITHOUT_PIPELINE: Code = Code(51_198);

/// A compiled filter, and the change to the documents that match it.
#[derive(Debug)]
pub struct Change {
    filter: Filter,
    update: Update,
    sort: Sort,
    multi: bool,
    upsert: bool,
    validation: Validation,
}

impl Change {
    /// Compiles a statement of an update with these variables of `let`.
    ///
    /// # Errors
    /// `FailedToParse` (9) for a replacement or a sort with `multi`; 51198 for constants without a pipeline; the errors of the
    /// language.
    pub fn of_statement(statement: &UpdateStatement, variables: &RawDocument) -> Result<Self> {
        if matches!(statement.update, UpdateSpec::Document(_)) && !statement.constants.is_empty() {
            let text = "Constant values may only be specified for pipeline updates";
            return Err(Error::command(CONSTANTS_WITHOUT_PIPELINE, text));
        }
        let options = CompileOptions::with_variables(&joined(variables, &statement.constants)?)?;
        let change = Change {
            filter: Filter::compile(&statement.filter, &options)?,
            sort: Sort::compile(&statement.sort)?.under(options.collation.as_ref()),
            update: compile(
                &statement.update,
                UpdateOptions {
                    array_filters: &statement.array_filters,
                    compile: options,
                    keep_empty_timestamps: statement.keep_empty_timestamps,
                },
            )?,
            multi: statement.multi,
            upsert: statement.upsert,
            validation: statement.validation,
        };
        if change.multi && change.update.is_replacement() {
            return Err(failed_to_parse("multi update is not supported for replacement-style update"));
        }
        if change.upsert {
            check_upsert_filter(&change.filter)?;
        }
        if change.multi && !change.sort.is_empty() {
            return Err(failed_to_parse("Cannot specify sort with multi=true"));
        }
        Ok(change)
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns the order that decides which of several matching documents is changed.
    pub fn sort(&self) -> &Sort {
        &self.sort
    }

    /// Returns the kind of its writes.
    pub fn kind(&self) -> WriteKind {
        if self.update.is_replacement() { WriteKind::Replacement } else { WriteKind::Update }
    }

    /// Returns whether the validator of the collection is applied.
    pub fn validation(&self) -> Validation {
        self.validation
    }

    /// Returns whether all matching documents are changed, not only the first.
    pub fn is_multi(&self) -> bool {
        self.multi
    }

    /// Returns whether a document is inserted if none matches.
    pub fn is_upsert(&self) -> bool {
        self.upsert
    }

    /// Applies the change to a document; returns `None` if the document does not match.
    ///
    /// # Errors
    /// `ImmutableField` (66), 17419 for a result that is too large, `Overflow` (15) for one that is nested too deeply, and the
    /// errors of the operators.
    pub fn apply(&self, document: &RawDocument, context: &Context) -> Result<Option<Applied>> {
        let Some(position) = self.filter.matches_position(document, context)? else { return Ok(None) };
        let applied = self.update.apply(document, position, context)?;
        if applied.modified && !insertion::same_id(insertion::id(document)?, insertion::id(&applied.document)?) {
            let text = "Performing an update on the path '_id' would modify the immutable field '_id'";
            return Err(Error::command(Code::ImmutableField, text));
        }
        if applied.modified {
            // The result may be nested more deeply than both the document and the update, and must be safe to recurse into.
            insertion::check_structure(&applied.document)?;
        }
        Ok(Some(applied))
    }

    /// Returns the document to insert if none matches, ready to be stored.
    pub fn insertion(&self, ids: &dyn IdSource, context: &Context) -> Result<RawDocumentBuf> {
        insertion::prepare(self.update.upsert(&self.filter, context)?, ids)
    }
}

/// Returns the variables of `c` followed by those of `let`.
pub fn joined<'d>(variables: &'d RawDocument, constants: &RawDocument) -> Result<Cow<'d, RawDocument>> {
    if constants.is_empty() {
        return Ok(Cow::Borrowed(variables));
    }
    let mut joined = constants.to_owned();
    for element in variables {
        let (name, value) = element.map_err(handfast_mql::Error::from)?;
        if constants.get(name.as_str()).map_err(handfast_mql::Error::from)?.is_none() {
            joined.append(name, value);
        }
    }
    Ok(Cow::Owned(joined))
}

fn compile(spec: &UpdateSpec, options: UpdateOptions<'_>) -> Result<Update> {
    let source = match spec {
        UpdateSpec::Document(document) => UpdateSource::Document(document),
        UpdateSpec::Pipeline(stages) => UpdateSource::Pipeline(stages),
    };
    Ok(Update::compile(source, &options)?)
}

fn failed_to_parse(text: &str) -> Error {
    Error::command(Code::FailedToParse, text)
}

/// A compiled find-and-modify.
#[derive(Debug)]
pub struct CompiledFindAndModify {
    filter: Filter,
    sort: Sort,
    projection: Projection,
    /// `None` for a removal.
    change: Option<Change>,
    returns: ReturnDocument,
}

impl CompiledFindAndModify {
    /// Compiles a find-and-modify.
    pub fn compile(request: &FindAndModify) -> Result<Self> {
        let options = CompileOptions::with_variables(&request.variables)?;
        let filter = Filter::compile(&request.filter, &options)?;
        let sort = Sort::compile(&request.sort)?.under(options.collation.as_ref());
        let projection = Projection::compile(&request.projection, &options)?;
        let (change, returns) = match &request.modification {
            Modification::Remove => (None, ReturnDocument::Before),
            Modification::Update { update, upsert, returns, array_filters } => {
                let keep_empty_timestamps = request.keep_empty_timestamps;
                let update = compile(update, UpdateOptions { array_filters, compile: options, keep_empty_timestamps })?;
                let (filter, sort) = (filter.clone(), sort.clone());
                if *upsert {
                    check_upsert_filter(&filter)?;
                }
                let validation = request.validation;
                (Some(Change { filter, update, sort, multi: false, upsert: *upsert, validation }), *returns)
            }
        };
        Ok(CompiledFindAndModify { filter, sort, projection, change, returns })
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns the order that decides which of several matching documents is taken.
    pub fn sort(&self) -> &Sort {
        &self.sort
    }

    /// Returns the change; `None` if the document is removed.
    pub fn change(&self) -> Option<&Change> {
        self.change.as_ref()
    }

    /// Returns the outcome for a document that was changed, or removed if `after` is `None`.
    pub fn changed(
        &self,
        before: RawDocumentBuf,
        after: Option<RawDocumentBuf>,
        context: &Context,
    ) -> Result<FindAndModifyOutcome> {
        // A positional projection uses the position at which the filter matched the document before the change.
        let position = self.filter.matches_position(&before, context)?.unwrap_or_default();
        let shown = match (self.returns, after) {
            (ReturnDocument::After, Some(after)) => after,
            _ => before,
        };
        let value = self.projection.apply(&shown, position, context)?;
        Ok(FindAndModifyOutcome { value: Some(value), matched: true, upserted: None })
    }

    /// Returns the outcome for a document that was inserted because none matched.
    pub fn upserted(&self, inserted: &RawDocument, context: &Context) -> Result<FindAndModifyOutcome> {
        let value = match self.returns {
            ReturnDocument::Before => None,
            ReturnDocument::After => Some(self.projection.apply(inserted, Default::default(), context)?),
        };
        Ok(FindAndModifyOutcome { value, matched: false, upserted: Some(insertion::id(inserted)?.into()) })
    }
}
