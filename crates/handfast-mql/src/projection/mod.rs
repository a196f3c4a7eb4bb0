//! Projections of `find`: which fields of a document an answer shows.
//!
//! A projection is compiled to a tree of field names (`compile`); applying it walks the document along the tree and
//! copies what is shown, range by range of its bytes (`apply`).
//!
//! ```text
//! {a: 1, "b.c": 1, l: {$slice: 2}}            inclusion: _id, a, b with only c, the first two of l
//! {a: 0, "b.c": 0}                            exclusion: all but a and b.c
//! {l: {$elemMatch: {x: 1}}}, {"l.$": 1}       one element of an array: by a condition, by what the filter matched
//! {total: {$add: ["$a", "$b"]}, kind: "x"}    computed fields, after those of the document
//! ```
//!
//! The order of fields: those of the document in the document's order, then what is computed (and `$elemMatch`) in the
//! projection's order. Source: MongoDB's documentation, "Projection Restrictions" and "Consistency with $project" (4.4).

mod apply;
mod compile;
mod tree;

use bson::{RawDocument, RawDocumentBuf};

use crate::{CompileOptions, Context, MatchPosition, Result};

use tree::Children;

/// A compiled projection.
#[derive(Debug)]
pub struct Projection {
    kind: Kind,
    root: Children,
    positional: bool,
}

/// What happens to fields that the projection does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// They are left out; `_id` is shown all the same.
    Inclusion,
    /// They are shown.
    Exclusion,
}

impl Projection {
    /// Compiles the projection of a `find`. An empty one shows everything.
    ///
    /// # Errors
    /// MongoDB's codes: 31253 and 31254 for inclusions among exclusions and the other way round, 31249 and 31250 for
    /// paths that lead to each other, those of `$slice`, `$elemMatch` and `$`; those of paths and of expressions.
    pub fn compile(projection: &RawDocument, options: &CompileOptions) -> Result<Self> {
        compile::compile(projection, options)
    }

    /// Whether it shows documents as they are.
    pub fn is_empty(&self) -> bool {
        self.kind == Kind::Exclusion && self.root.is_empty()
    }

    /// Whether it needs to know which array element the filter matched.
    pub fn needs_position(&self) -> bool {
        self.positional
    }

    /// Shows a document. `position` is where the filter matched: what `$` stands for.
    ///
    /// # Errors
    /// 51246 if there is a `$` and an array, but the filter went through none; those of expressions.
    pub fn apply(&self, document: &RawDocument, position: MatchPosition, context: &Context) -> Result<RawDocumentBuf> {
        if self.is_empty() {
            return Ok(document.to_owned());
        }
        apply::apply(self, document, position, context)
    }
}

#[cfg(test)]
mod tests;
