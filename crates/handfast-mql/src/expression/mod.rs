//! Aggregation expressions: `{$add: ["$price", "$fee"]}` compiled once, evaluated per document.
//!
//! [`Expression::compile`] reads the BSON form into a tree whose leaves are literals, field paths and variables;
//! [`Expression::evaluate`] walks the tree over a raw document. Values of the document are borrowed from it
//! ([`Value`]); unneeded arguments (the other branch of `$cond`) are not evaluated. An evaluation cannot
//! recurse deeper than the expression nests, nor make a value beyond the bounds in `limits`.
//!
//! ```
//! use bson::{DateTime, RawBsonRef, Timestamp, rawdoc};
//! use handfast_mql::{CompileOptions, Context, expression::Expression};
//!
//! let source = rawdoc! { "total": { "$add": ["$price", "$fee"] } };
//! let expression = Expression::compile(RawBsonRef::Document(&source), &CompileOptions::default())?;
//! let context = Context::new(DateTime::from_millis(0), Timestamp { time: 1, increment: 1 }, 42);
//! let document = rawdoc! { "price": 10, "fee": 2.5 };
//! let value = expression.evaluate(&document, &context)?;
//! assert_eq!(value.get(), Some(RawBsonRef::Document(&rawdoc! { "total": 12.5 })));
//! # Ok::<(), handfast_mql::Error>(())
//! ```
//!
//! Each file holds one family of operators. Names, arguments and error codes are those of MongoDB's documentation and its
//! drivers' published tests.

pub(crate) mod compile;
pub(crate) mod field_comparison;
pub(crate) mod limits;
pub(crate) mod node;
pub(crate) mod path;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod value;

pub(crate) mod accumulate;
mod arithmetic;
pub(crate) mod array;
mod binary;
mod boolean;
mod comparison;
mod conditional;
pub(crate) mod convert;
pub(crate) mod date;
mod iterate;
mod misc;
pub(crate) mod object;
mod regex;
mod set;
mod string;
mod trigonometry;
pub(crate) mod variable;

use bson::{RawBsonRef, RawDocument};

pub(crate) use self::string::is_number;
pub use self::value::Value;
use self::{
    compile::Compiler,
    node::{Node, Scope},
    path::Base,
};
use crate::{
    context::{CompileOptions, Context},
    error::Result,
};

/// A filter or expression of more bytes may compare so much with each element of a large document that it takes long.
const SHORT_BYTES_MAX: usize = 1024;

/// The operators and stages of which a few bytes can take any time.
const LOOPS: &[&str] = &["$map", "$filter", "$reduce", "$setWindowFields", "$fill", "$densify"];

/// Tells whether the evaluation of a filter, a stage or an expression may take any time, and belongs on a thread of its
/// own: it has a loop (`$map`, `$filter`, `$reduce`) or a stage that computes each result from many documents or makes many
/// (`$setWindowFields`, `$fill`, `$densify`) at any depth, or text that looks like one, or is long itself.
/// Everything else takes time in proportion to the bytes it reads and makes, which are bounded. The depth has been checked by the caller.
pub fn may_take_long(written: &RawDocument) -> bool {
    written.as_bytes().len() > SHORT_BYTES_MAX || has_loop(written)
}

fn has_loop(written: &RawDocument) -> bool {
    written.iter().flatten().any(|(name, value)| LOOPS.contains(&name.as_str()) || holds_loop(value))
}

fn holds_loop(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(document) => has_loop(document),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(holds_loop),
        _ => false,
    }
}

/// Tells whether the result of a filter depends on the time or on chance: `$$NOW`, `$$CLUSTER_TIME`, `$rand`,
/// `$sampleRate`, or text that looks like one of them. The caller has checked the depth of the filter.
pub fn may_vary(written: &RawDocument) -> bool {
    written
        .iter()
        .flatten()
        .any(|(name, value)| matches!(name.as_str(), "$rand" | "$sampleRate") || holds_time_or_chance(value))
}

fn holds_time_or_chance(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::String(text) => text.starts_with("$$NOW") || text.starts_with("$$CLUSTER_TIME"),
        RawBsonRef::Document(document) => may_vary(document),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(holds_time_or_chance),
        _ => false,
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    node: Node,
}

/// Tells whether a document is written as an expression: its first field begins with `$`.
pub(crate) fn is_operator(document: &RawDocument) -> bool {
    document.iter().flatten().next().is_some_and(|(name, _)| name.as_str().starts_with('$'))
}

impl Expression {
    /// Compiles the BSON form of an expression.
    ///
    /// # Errors
    /// Returns MongoDB's codes: 168 for an operator that does not exist, 16020 and 28667 for a wrong number of arguments,
    /// 17276 for an unbound variable, and the errors of the single operators.
    pub fn compile(source: RawBsonRef<'_>, options: &CompileOptions) -> Result<Expression> {
        Ok(Expression { node: Compiler::new(options).expression(source)? })
    }

    /// Compiles an expression of `$redact`, with variables for its decisions.
    pub(crate) fn compile_for_levels(
        source: RawBsonRef<'_>,
        options: &CompileOptions,
        names: &[&'static str],
    ) -> Result<Expression> {
        Ok(Expression { node: Compiler::new(options).with_system(names).expression(source)? })
    }

    /// Returns an expression that always has this value.
    pub fn literal(value: RawBsonRef<'_>) -> Expression {
        Expression { node: Node::Constant(Some(value::to_owned(value))) }
    }

    /// Evaluates the expression over a document.
    ///
    /// # Errors
    /// Returns the errors of the operators, with MongoDB's codes; 146 if a value would exceed 100 MB.
    pub fn evaluate<'a>(&'a self, document: &'a RawDocument, context: &'a Context) -> Result<Value<'a>> {
        self.evaluate_at(document, document, context)
    }

    /// Evaluates the expression with a part of `$$ROOT` as `$$CURRENT`.
    pub(crate) fn evaluate_at<'a>(
        &'a self,
        current: &'a RawDocument,
        root: &'a RawDocument,
        context: &'a Context,
    ) -> Result<Value<'a>> {
        context.begin_evaluation();
        self.node.evaluate(Scope { root, current, context, frame: None, held_bytes: 0 })
    }

    /// Returns the literal value, if the expression is one.
    pub fn constant(&self) -> Option<RawBsonRef<'_>> {
        self.node.constant()
    }

    /// Returns the field, as a dotted path, if the expression is just `"$a.b"`.
    pub fn field_path(&self) -> Option<String> {
        match &self.node {
            Node::Path(path) if path.base == Base::Current && !path.parts.is_empty() => Some(path.parts.join(".")),
            _ => None,
        }
    }
}
