//! Filters: conditions that select the documents of a query.
//!
//! A filter is compiled once into a tree of [`Node`]s and then applied to any number of documents. It reads their bytes
//! in place and allocates nothing.
//!
//! The main rules of MongoDB's filters:
//!
//! - **Arrays.** A path continues in the elements of arrays (see [`path`](crate::path)), and a comparison holds if it holds
//!   for *one* of the values there: an element, or the whole array. `{a: {$gt: 1, $lt: 3}}` therefore finds
//!   `{a: [0, 5]}`: 5 fulfils the first condition, 0 the second. With `$elemMatch` one element must fulfil both.
//! - **Types.** A range compares only within the operand's group of types: `{a: {$lt: 5}}` finds no strings. MinKey and
//!   MaxKey compare with everything. NaN is in no range; it equals itself.
//! - **Null.** `{a: null}` finds null *and* documents without the field. `$exists` tells the two apart.
//! - **Negations** (`$ne`, `$nin`, `$not`, `$nor`) hold exactly where the positive form does not: also for documents
//!   without the field.
//!
//! ```
//! use handfast_mql::{CompileOptions, Context, Filter};
//! use bson::{DateTime, Timestamp, rawdoc};
//!
//! let filter = Filter::compile(&rawdoc! { "qty": { "$gte": 10 }, "tags": "red" }, &CompileOptions::default())?;
//! let context = Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0);
//! assert!(filter.matches(&rawdoc! { "qty": 12.5, "tags": ["blue", "red"] }, &context)?);
//! assert!(!filter.matches(&rawdoc! { "qty": "12", "tags": ["red"] }, &context)?);
//! # Ok::<(), handfast_mql::Error>(())
//! ```
//!
//! Source: the MongoDB manual, "Query and Projection Operators" and the "Query Documents" tutorials.

mod bits;
mod compile;
mod evaluate;
mod mismatch;
mod necessary;
mod node;
mod regex;
mod types;

use bson::{RawBsonRef, RawDocument};

pub use bits::{BitCondition, BitTest};
pub use mismatch::mismatch;
pub use necessary::{NecessaryConditions, WholeComparison, implied};
pub use node::{Choices, Comparison, ElementNode, FieldNode, Node, Operand, Predicate};
pub use regex::RegexTest;
pub use types::TypeSet;

use crate::{Collation, CompileOptions, Context, Path, Result};

/// A compiled filter.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    collation: Option<Collation>,
}

/// The position in a document's arrays where a filter matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchPosition {
    /// The index that a positional `$` stands for: of the element that matched, in the outermost array on its path. It is none
    /// if no condition went through an array.
    pub array_index: Option<usize>,
}

impl Filter {
    /// Compiles a filter document.
    ///
    /// # Errors
    /// MongoDB's code and message for an invalid filter, mostly `BadValue` (2).
    pub fn compile(filter: &RawDocument, options: &CompileOptions) -> Result<Self> {
        let root = compile::document(filter, &compile::Scope { options, top: true })?;
        Ok(Filter { root, collation: options.collation.clone() })
    }

    /// Tells whether a document matches.
    ///
    /// # Errors
    /// Returns the errors of `$expr`, and that of a regular expression that takes too long.
    pub fn matches(&self, document: &RawDocument, context: &Context) -> Result<bool> {
        evaluate::Evaluation::new(context, self.collation.as_ref()).node(&self.root, document)
    }

    /// Returns the position in its arrays where a document matches; none if it does not match.
    ///
    /// # Errors
    /// Returns the errors of [`Filter::matches`].
    pub fn matches_position(&self, document: &RawDocument, context: &Context) -> Result<Option<MatchPosition>> {
        let mut evaluation = evaluate::Evaluation::new(context, self.collation.as_ref());
        let matched = evaluation.node(&self.root, document)?;
        Ok(matched.then_some(MatchPosition { array_index: evaluation.position }))
    }

    /// Returns the tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Tells whether it matches every document, as `{}` does.
    pub fn is_empty(&self) -> bool {
        matches!(&self.root, Node::And(all) if all.is_empty())
    }

    /// Returns the collation by which the filter compares strings.
    pub fn collation(&self) -> Option<&Collation> {
        self.collation.as_ref()
    }

    /// Returns conditions that every matching document fulfils, from which a planner derives bounds of an index in the order of bytes.
    /// Variables have their values in the context. With a collation, these are the conditions without strings.
    pub fn necessary_conditions(&self, context: &Context) -> NecessaryConditions<'_> {
        self.necessary_conditions_under(context, None)
    }

    /// Returns conditions that every matching document fulfils, for an index under a collation: without those on strings, unless it is
    /// the filter's own.
    pub fn necessary_conditions_under(
        &self,
        context: &Context,
        collation: Option<&Collation>,
    ) -> NecessaryConditions<'_> {
        NecessaryConditions::of(&self.root, context, self.collation.as_ref() == collation)
    }

    /// Returns conditions that every matching document fulfils and that compare no strings: for an index under any collation.
    pub fn conditions_without_text(&self, context: &Context) -> NecessaryConditions<'_> {
        NecessaryConditions::of(&self.root, context, false)
    }

    /// Returns the predicates that every matching document fulfils at `path`: those that stand alone or in `$and`.
    pub fn predicates<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Predicate> {
        self.conjuncts().filter(move |field| field.path.as_str() == path).map(FieldNode::predicate)
    }

    /// Returns the fields that the filter fixes by equality, in its order: an upsert starts from them.
    pub fn equalities(&self) -> impl Iterator<Item = (&Path, RawBsonRef<'_>)> {
        self.conjuncts().filter_map(|field| match &field.predicate {
            Predicate::Compare(Comparison::Equal, operand) => Some((&field.path, operand.value())),
            _ => None,
        })
    }

    /// Returns the field conditions that hold for every matching document: the root, and those within `$and` (and an `$or` of one).
    pub fn conjuncts(&self) -> impl Iterator<Item = &FieldNode> {
        self.root.conjuncts()
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
