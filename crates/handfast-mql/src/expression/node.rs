//! The compiled expression: a tree that is walked once per document.
//!
//! Most operators are functions of their evaluated arguments ([`Function`]): a row in a table with name, arity and a
//! plain function. Operators that choose which arguments to evaluate, or bind variables, are a [`LazyOperator`].

use std::fmt;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, raw::CString};

use super::{
    limits,
    path::FieldPath,
    value::{self, Value},
};
use crate::{collation::Collation, context::Context, error::Result};

/// The values that an expression sees while it is evaluated.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// `$$ROOT`.
    pub(crate) root: &'a RawDocument,
    /// `$$CURRENT`: the root, but for `$redact`.
    pub(crate) current: &'a RawDocument,
    /// The time, the random numbers and the variables of the command.
    pub(crate) context: &'a Context,
    /// The innermost frame of local variables.
    pub(crate) frame: Option<&'a Frame<'a>>,
    /// The bytes of made values that are kept during this evaluation: arguments, items and variables of the expressions around it.
    pub(crate) held_bytes: usize,
}

/// The variables that one `$let`, `$map`, `$filter` or `$reduce` binds.
pub(crate) struct Frame<'a> {
    pub(crate) values: &'a [Value<'a>],
    pub(crate) outer: Option<&'a Frame<'a>>,
}

impl<'a> Scope<'a> {
    /// Returns the scope for the next argument, while a made value is kept.
    ///
    /// # Errors
    /// `ExceededMemoryLimit` (146) if all kept values together are too large: each of them is bounded, but an expression may
    /// have a million arguments.
    pub(crate) fn holding(self, value: &Value<'_>) -> Result<Self> {
        self.holding_bytes(value.made_bytes().unwrap_or(0))
    }

    /// Returns the scope for the next argument, while `bytes` more bytes of made values are kept.
    ///
    /// # Errors
    /// Returns the errors of [`Scope::holding`].
    pub(crate) fn holding_bytes(self, bytes: usize) -> Result<Self> {
        let held_bytes = self.held_bytes.saturating_add(bytes);
        limits::check_bytes(held_bytes)?;
        Ok(Scope { held_bytes, ..self })
    }

    /// Returns the value of the local variable at `index` in the frame that is `up` frames further out.
    pub(crate) fn local(&self, up: usize, index: usize) -> &'a Value<'a> {
        const MISSING: &Value<'static> = &Value::Missing;
        let mut frame = self.frame;
        for _ in 0..up {
            frame = frame.and_then(|frame| frame.outer);
        }
        frame.and_then(|frame| frame.values.get(index)).unwrap_or(MISSING)
    }
}

/// An operator that evaluates its arguments itself.
pub(crate) trait LazyOperator: fmt::Debug + Send + Sync {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>>;

    /// Returns the arguments that are all true whenever the result is true: those of `$and`.
    fn conjuncts(&self) -> &[Node] {
        &[]
    }
}

/// A field of an object, or an argument with a name.
#[derive(Debug)]
pub(crate) struct NamedNode {
    pub(crate) name: CString,
    pub(crate) node: Node,
}

/// A part of a compiled expression.
#[derive(Debug)]
pub(crate) enum Node {
    /// A literal; `None` is `$$REMOVE`.
    Constant(Option<RawBson>),
    Path(FieldPath),
    Object(Vec<NamedNode>),
    Array(Vec<Node>),
    Call(&'static Function, Vec<Node>),
    Lazy(Box<dyn LazyOperator>),
}

impl Node {
    pub(crate) fn lazy(operator: impl LazyOperator + 'static) -> Node {
        Node::Lazy(Box::new(operator))
    }

    /// Returns the value of a literal.
    pub(crate) fn constant(&self) -> Option<RawBsonRef<'_>> {
        match self {
            Node::Constant(Some(value)) => Some(value.as_raw_bson_ref()),
            _ => None,
        }
    }

    pub(crate) fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let value = match self {
            Node::Constant(value) => return Ok(value.as_ref().map(RawBson::as_raw_bson_ref).into()),
            Node::Path(path) => path.evaluate(scope)?,
            Node::Object(fields) => object(fields, scope)?,
            Node::Array(items) => array(items, scope)?,
            Node::Call(function, arguments) => function.call(arguments, scope)?,
            Node::Lazy(operator) => operator.evaluate(scope)?,
        };
        if let Some(bytes) = value.made_bytes().filter(|bytes| *bytes >= limits::STEP_BYTES) {
            // To make it took time, also where no loop counted its steps.
            scope.context.steps((bytes / limits::STEP_BYTES) as u64)?;
            // A single value is limited where it grows; the sum of many large ones is limited here.
            if bytes >= limits::LARGE_BYTES {
                scope.context.count_made(bytes)?;
            }
        }
        Ok(value)
    }
}

/// Returns the values of several expressions that are needed together.
pub(crate) fn evaluate_all<'a>(nodes: &'a [Node], mut scope: Scope<'a>) -> Result<Vec<Value<'a>>> {
    let mut values = Vec::with_capacity(nodes.len());
    for node in nodes {
        let value = node.evaluate(scope)?;
        scope = scope.holding(&value)?;
        values.push(value);
    }
    Ok(values)
}

fn object<'a>(fields: &'a [NamedNode], scope: Scope<'a>) -> Result<Value<'a>> {
    let mut document = RawDocumentBuf::new();
    for NamedNode { name, node } in fields {
        if let Some(value) = node.evaluate(scope.holding_bytes(document.as_bytes().len())?)?.get() {
            value::append(&mut document, name.as_str(), value)?;
        }
    }
    Ok(document.into())
}

fn array<'a>(items: &'a [Node], scope: Scope<'a>) -> Result<Value<'a>> {
    let mut array = RawArrayBuf::new();
    for node in items {
        let inner = scope.holding_bytes(array.as_bytes().len())?;
        value::push(&mut array, node.evaluate(inner)?.or_null())?;
    }
    Ok(array.into())
}

/// An operator that is a function of its evaluated arguments.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) arity: Arity,
    pub(crate) apply: Apply,
}
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arity {
    Exactly(usize),
    Between(usize, usize),
    AtLeast(usize),
}

type UnaryFn = for<'a> fn(Value<'a>) -> Result<Value<'a>>;
type BinaryFn = for<'a> fn(Value<'a>, Value<'a>) -> Result<Value<'a>>;
type VariadicFn = for<'a> fn(Vec<Value<'a>>) -> Result<Value<'a>>;
type BinaryUnderFn = for<'a> fn(Value<'a>, Value<'a>, Option<&Collation>) -> Result<Value<'a>>;
type VariadicUnderFn = for<'a> fn(Vec<Value<'a>>, Option<&Collation>) -> Result<Value<'a>>;

/// The function of an operator, by its number of arguments (so that common ones allocate nothing).
#[derive(Clone, Copy)]
pub(crate) enum Apply {
    One(UnaryFn),
    Two(BinaryFn),
    Many(VariadicFn),
    /// Two arguments, whose strings are compared by a collation.
    TwoUnder(BinaryUnderFn),
    /// Any number of arguments, whose strings are compared by a collation.
    ManyUnder(VariadicUnderFn),
}

impl Function {
    pub(crate) const fn one(name: &'static str, apply: UnaryFn) -> Function {
        Function { name, arity: Arity::Exactly(1), apply: Apply::One(apply) }
    }

    pub(crate) const fn two(name: &'static str, apply: BinaryFn) -> Function {
        Function { name, arity: Arity::Exactly(2), apply: Apply::Two(apply) }
    }

    pub(crate) const fn many(name: &'static str, arity: Arity, apply: VariadicFn) -> Function {
        Function { name, arity, apply: Apply::Many(apply) }
    }

    pub(crate) const fn two_under(name: &'static str, apply: BinaryUnderFn) -> Function {
        Function { name, arity: Arity::Exactly(2), apply: Apply::TwoUnder(apply) }
    }

    pub(crate) const fn many_under(name: &'static str, arity: Arity, apply: VariadicUnderFn) -> Function {
        Function { name, arity, apply: Apply::ManyUnder(apply) }
    }

    fn call<'a>(&self, arguments: &'a [Node], scope: Scope<'a>) -> Result<Value<'a>> {
        match (self.apply, arguments) {
            (Apply::One(apply), [only]) => apply(only.evaluate(scope)?),
            (Apply::Two(apply), [left, right]) => {
                let left = left.evaluate(scope)?;
                let right = right.evaluate(scope.holding(&left)?)?;
                apply(left, right)
            }
            (Apply::TwoUnder(apply), [left, right]) => {
                let left = left.evaluate(scope)?;
                let right = right.evaluate(scope.holding(&left)?)?;
                apply(left, right, scope.context.collation())
            }
            (Apply::Many(apply), arguments) => apply(evaluate_all(arguments, scope)?),
            (Apply::ManyUnder(apply), arguments) => apply(evaluate_all(arguments, scope)?, scope.context.collation()),
            // The compiler has checked the arity.
            (Apply::One(_) | Apply::Two(_) | Apply::TwoUnder(_), _) => Ok(Value::NULL),
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
