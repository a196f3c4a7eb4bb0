//! Projections: the fields of a document that `find` returns, and the stages `$project`, `$addFields` (`$set`)
//! and `$unset` of pipelines.
//!
//! A projection is compiled to a tree of field names (`compile`, `stage`); applying it walks the document along the tree
//! and copies what is shown, range by range of its bytes (`apply`).
//!
//! ```text
//! {a: 1, "b.c": 1, l: {$slice: 2}}            inclusion: _id, a, b with only c, the first two of l
//! {a: 0, "b.c": 0}                            exclusion: all but a and b.c
//! {l: {$elemMatch: {x: 1}}}, {"l.$": 1}       one element of an array: by a condition, by what the filter matched
//! {total: {$add: ["$a", "$b"]}, kind: "x"}    computed fields, after those of the document
//! {$addFields: {a: "$x", "b.c": 1}}           all fields; a and b.c computed where they stand, or else at the end
//! ```
//!
//! The order of fields: those of the document in the document's order, then what is computed (and `$elemMatch`) in the
//! projection's order. Arrays on a path are transparent: the tree applies to each of their documents. A scalar at a
//! place where a computed path needs a document is replaced by one.
//!
//! `find` and `$project` share the tree, but not all of its rules; [`Syntax`] marks each place where they differ. Source:
//! MongoDB's documentation, "Projection Restrictions" and "Consistency with $project" (4.4).

mod apply;
mod compile;
mod stage;
mod tree;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::{CompileOptions, Context, MatchPosition, Result};

use tree::FieldTree;

/// A compiled projection of `find`, or a compiled `$project`, `$addFields`, `$set` or `$unset`.
#[derive(Debug)]
pub struct Projection {
    syntax: Syntax,
    kind: Kind,
    root: FieldTree,
}

/// The place in MongoDB's language where a projection is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    /// The projection of a `find`. `$slice`, `$elemMatch` and `$` are operators, a computed `_id` comes first, and the
    /// result may be as large as an answer.
    Find,
    /// A stage of a pipeline. Messages name it, and the result obeys the bounds of expressions.
    Stage,
}

/// The treatment of fields that the projection does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Other fields are left out, except `_id`.
    Inclusion,
    /// Other fields are shown.
    Exclusion,
    /// Other fields are shown, and computed fields replace existing ones: `$addFields`.
    Addition,
}

impl Projection {
    /// Compiles the projection of a `find`. An empty one shows everything.
    ///
    /// # Errors
    /// MongoDB's codes: 31253 and 31254 for inclusions among exclusions and the other way round, 31249 and 31250 for
    /// paths that lead to each other, those of `$slice`, `$elemMatch` and `$`; the errors of paths and of expressions.
    pub fn compile(projection: &RawDocument, options: &CompileOptions) -> Result<Self> {
        compile::compile(projection, Syntax::Find, options)
    }

    /// Compiles the argument of `$project`.
    ///
    /// # Errors
    /// Returns the errors of [`Projection::compile`], and 51272 if there are no fields.
    pub fn compile_project(document: &RawDocument, options: &CompileOptions) -> Result<Self> {
        stage::project(document, options)
    }

    /// Compiles the argument of `$addFields` or `$set`.
    ///
    /// # Errors
    /// 40177 if there are no fields, 31249 and 31250 for paths that lead to each other; the errors of paths and of expressions.
    pub fn compile_add_fields(stage: &str, document: &RawDocument, options: &CompileOptions) -> Result<Self> {
        stage::add_fields(stage, document, options)
    }

    /// Compiles the argument of `$unset`: one path or several.
    ///
    /// # Errors
    /// 31002, 31119 and 31120 for anything but strings, 31249 and 31250 for paths that lead to each other; the errors of paths.
    pub fn compile_unset(argument: RawBsonRef<'_>) -> Result<Self> {
        stage::unset(argument)
    }

    /// Tells whether the projection shows whole documents.
    pub fn is_empty(&self) -> bool {
        self.kind == Kind::Exclusion && self.root.is_empty()
    }

    /// Tells whether the projection needs to know which array element the filter matched.
    pub fn needs_position(&self) -> bool {
        self.root.has_positional()
    }

    /// Projects a document. `position` is that of the array element that the filter matched, which `$` stands for.
    ///
    /// # Errors
    /// 51246 if there is a `$` and an array, but the filter went through none; the errors of expressions. A result that is too
    /// large is `BSONObjectTooLarge` (10334) in a `find` and `ExceededMemoryLimit` (146) in a stage.
    pub fn apply(&self, document: &RawDocument, position: MatchPosition, context: &Context) -> Result<RawDocumentBuf> {
        if self.is_empty() {
            return Ok(document.to_owned());
        }
        apply::apply(self, document, position, context)
    }
}

#[cfg(test)]
mod tests;
