//! Updates: operators, replacements and pipelines, applied to raw documents.
//!
//! An update is compiled once ([`Update::compile`]) and applied to any number of documents. By operators, it is a tree of
//! paths with an operator at each leaf (`plan`); applying it opens the document along those paths only (`tree`), lets
//! the operators change the values there (`apply`, `operator`), and writes the document, in which unchanged byte ranges are
//! copied.
//!
//! ```text
//! {$inc: {n: 1}}  --compile-->  Fields { n: Leaf(0) }, [$inc 1]
//! {_id: 7, big: {..}, n: 1}  --apply-->  [ _id: 7 | big: {..} ] copied, n: 2 written
//! ```
//!
//! A document is `modified` if its bytes have changed. An `$inc` by 0, a `$set` of the present value and a `$push` whose `$slice`
//! removes the new elements modify nothing. A replacement is compared as it was given: without `_id`, it always modifies the
//! document, as in MongoDB (<https://jira.mongodb.org/browse/SERVER-36405>).
//!
//! Source: MongoDB's documentation of the update operators; the texts and codes of errors are those that its drivers'
//! tests and users compare.

mod apply;
mod array_filter;
mod compile;
mod growth;
mod idempotence;
mod operator;
mod path;
mod pipeline;
mod plan;
mod replacement;
mod tree;
mod upsert;

use bson::{RawDocument, RawDocumentBuf};

use crate::depth::{self, Limits};
use crate::element::elements;
use crate::{Code, CompileOptions, Context, Error, MatchPosition, Result};

use apply::ApplyContext;
use array_filter::ArrayFilters;
use compile::Operators;
use growth::check_size;
use pipeline::PipelineUpdate;
pub use replacement::stamp;
pub use upsert::check_upsert_filter;

/// The source of an update.
#[derive(Clone, Copy, Debug)]
pub enum UpdateSource<'a> {
    /// `{$set: ..}` or a replacement: the first field's name tells.
    Document(&'a RawDocument),
    /// Stages `$set`, `$unset`, `$project`, `$replaceRoot` and their aliases.
    Pipeline(&'a [RawDocumentBuf]),
}

/// The options that an update is compiled with.
#[derive(Clone, Debug, Default)]
pub struct UpdateOptions<'a> {
    /// The conditions of `$[name]`.
    pub array_filters: &'a [RawDocumentBuf],
    /// The options for the filters in array filters and `$pull`, and for the expressions of a pipeline.
    pub compile: CompileOptions,
    /// Whether an empty timestamp in a replacement, or in a document that an upsert inserts, is stored as it is. Otherwise it
    /// becomes the cluster's time, see [`stamp`].
    pub keep_empty_timestamps: bool,
}

/// A compiled update.
#[derive(Debug)]
pub struct Update {
    kind: Kind,
    keep_empty_timestamps: bool,
}

#[derive(Debug)]
enum Kind {
    Operators(Operators),
    Replacement(RawDocumentBuf),
    Pipeline(PipelineUpdate),
}

/// The result of an update of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The document after the update.
    pub document: RawDocumentBuf,
    /// Whether the bytes of the document have changed, or a replacement has other bytes than the document.
    pub modified: bool,
}

impl Update {
    /// Compiles an update: operators, a replacement or a pipeline.
    ///
    /// # Errors
    /// Returns `FailedToParse` (9), `BadValue` (2), `TypeMismatch` (14) for operators and operands; `EmptyFieldName` (56) and
    /// `DollarPrefixedFieldName` (52) for names; `ConflictingUpdateOperators` (40) for paths that lead to each other.
    pub fn compile(source: UpdateSource<'_>, options: &UpdateOptions<'_>) -> Result<Self> {
        let kind = match source {
            UpdateSource::Pipeline(stages) => {
                no_array_filters(options, "pipeline")?;
                Kind::Pipeline(PipelineUpdate::compile(stages, &options.compile)?)
            }
            UpdateSource::Document(document) => {
                let first = elements(document).next().transpose()?;
                if first.is_some_and(|first| first.name().starts_with('$')) {
                    let filters = ArrayFilters::compile(options.array_filters, &options.compile)?;
                    Kind::Operators(Operators::compile(document, filters, &options.compile)?)
                } else {
                    no_array_filters(options, "replacement")?;
                    replacement::check(document)?;
                    Kind::Replacement(document.to_owned())
                }
            }
        };
        Ok(Update { kind, keep_empty_timestamps: options.keep_empty_timestamps })
    }

    /// Tells whether the update is a replacement, which cannot be applied to many documents.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement(_))
    }

    /// Applies the update to a document. `position` is that of the array element that the filter matched, which `$` stands for.
    ///
    /// # Errors
    /// Returns the errors of operators that cannot be applied to the document; `ImmutableField` (66) for a change of
    /// `_id`; 17419 if the result is too large. The document is then what it was.
    pub fn apply(&self, document: &RawDocument, position: MatchPosition, context: &Context) -> Result<Applied> {
        let changed = match &self.kind {
            Kind::Replacement(new) => {
                let replaced = self.stamped(replacement::replace(document, new)?, context)?;
                if new.as_bytes() != document.as_bytes() {
                    check_size(replaced.as_bytes().len(), false)?;
                    return Ok(Applied { document: replaced, modified: true });
                }
                Some(replaced)
            }
            Kind::Pipeline(pipeline) => Some(pipeline.apply(document, context)?),
            Kind::Operators(operators) => {
                let apply_context = ApplyContext { position, inserting: false, context };
                run(operators, document, apply_context)?
            }
        };
        match changed {
            Some(changed) if changed.as_bytes() != document.as_bytes() => {
                check_size(changed.as_bytes().len(), false)?;
                Ok(Applied { document: changed, modified: true })
            }
            _ => Ok(Applied { document: document.to_owned(), modified: false }),
        }
    }

    /// Replaces the empty timestamps of a new document, unless they are kept.
    fn stamped(&self, document: RawDocumentBuf, context: &Context) -> Result<RawDocumentBuf> {
        if self.keep_empty_timestamps {
            return Ok(document);
        }
        Ok(stamp(&document, context.cluster_time)?.unwrap_or(document))
    }
}

/// Applies operators, and returns none if they touch nothing.
fn run(
    operators: &Operators,
    document: &RawDocument,
    apply_context: ApplyContext<'_>,
) -> Result<Option<RawDocumentBuf>> {
    let Some(bytes) = apply::apply(operators, document, apply_context)? else { return Ok(None) };
    if operators.nesting > depth::NESTING_MAX {
        // Only deep operands at deep paths and `$rename` can nest so deep.
        depth::check(&bytes, Limits { bytes_max: usize::MAX, ..Limits::default() })?;
    }
    Ok(Some(RawDocumentBuf::from_bytes(bytes)?))
}

fn no_array_filters(options: &UpdateOptions<'_>, kind: &str) -> Result<()> {
    if options.array_filters.is_empty() {
        return Ok(());
    }
    Err(Error::new(Code::FailedToParse, format!("arrayFilters may not be specified for {kind}-style updates")))
}

#[cfg(test)]
mod tests;
