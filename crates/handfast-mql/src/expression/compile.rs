//! Compiles BSON to a tree of paths, variables, literals and operators, and checks the numbers of arguments.

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, raw::CString};

use super::{
    accumulate, arithmetic, array, boolean, comparison, conditional, convert, date, iterate, limits, misc,
    node::{Arity, Function, NamedNode, Node},
    object,
    path::{self, Base, FieldPath},
    regex, set, string, trigonometry,
    value::{self, show, type_name},
    variable,
};
use crate::{
    collation::Collation,
    context::CompileOptions,
    error::{Code, Error, Result},
};
const TABLES: &[&[Function]] = &[
    arithmetic::FUNCTIONS,
    arithmetic::rounding::FUNCTIONS,
    trigonometry::FUNCTIONS,
    comparison::FUNCTIONS,
    string::FUNCTIONS,
    array::FUNCTIONS,
    set::FUNCTIONS,
    object::FUNCTIONS,
    convert::FUNCTIONS,
    accumulate::FUNCTIONS,
    misc::FUNCTIONS,
];

/// Compiles expressions, knowing which variables are visible.
pub(crate) struct Compiler<'o> {
    options: &'o CompileOptions,
    frames: Vec<Vec<String>>,
    depth: usize,
    system: &'o [&'static str],
}

impl<'o> Compiler<'o> {
    pub(crate) fn new(options: &'o CompileOptions) -> Self {
        Compiler { options, frames: Vec::new(), depth: 0, system: &[] }
    }

    /// Returns the collation of the command.
    pub(crate) fn collation(&self) -> Option<&Collation> {
        self.options.collation.as_ref()
    }

    /// Declares names (`KEEP`, `PRUNE`, `DESCEND`) whose values are the names themselves.
    pub(crate) fn with_system(mut self, names: &'o [&'static str]) -> Self {
        self.system = names;
        self
    }

    /// Compiles with a frame of local variables around it.
    pub(crate) fn bound<T>(&mut self, names: Vec<String>, compile: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.frames.push(names);
        let result = compile(self);
        self.frames.pop();
        result
    }

    pub(crate) fn expression(&mut self, source: RawBsonRef<'_>) -> Result<Node> {
        if self.depth >= limits::EXPRESSION_DEPTH_MAX {
            return Err(Error::new(
                Code::Overflow,
                format!("expression exceeds the limit of {} levels of nesting", limits::EXPRESSION_DEPTH_MAX),
            ));
        }
        self.depth += 1;
        let node = self.any(source);
        self.depth -= 1;
        node
    }

    fn any(&mut self, source: RawBsonRef<'_>) -> Result<Node> {
        match source {
            RawBsonRef::String(text) if text.starts_with('$') => self.path(text),
            RawBsonRef::Document(document) => self.document(document),
            RawBsonRef::Array(array) => {
                let nodes = value::items(array).map(|item| self.expression(item?)).collect::<Result<Vec<Node>>>()?;
                folded_array(nodes)
            }
            other => Ok(Node::Constant(Some(value::to_owned(other)))),
        }
    }

    fn document(&mut self, document: &RawDocument) -> Result<Node> {
        let mut fields = Vec::new();
        for field in value::fields(document) {
            let (key, source) = field?;
            if key.as_str().starts_with('$') {
                if document.iter_elements().nth(1).is_some() {
                    return Err(Error::new(
                        Code(15_983),
                        format!(
                            "an object representing an expression must have exactly one field: {}",
                            show(RawBsonRef::Document(document))
                        ),
                    ));
                }
                return self.operator(key.as_str(), source);
            }
            if key.as_str().contains('.') {
                return Err(Error::new(
                    Code(16_412),
                    format!(
                        "FieldPath field names may not contain '.'. Consider using $getField or $setField. Found '{key}'"
                    ),
                ));
            }
            fields.push(NamedNode { name: CString::from(key), node: self.expression(source)? });
        }
        folded_object(fields)
    }

    /// Compiles `"$a.b"` or `"$$name.a.b"`.
    pub(crate) fn path(&self, text: &str) -> Result<Node> {
        let Some(variable) = text.strip_prefix("$$") else {
            let path = text.strip_prefix('$').unwrap_or(text);
            if path.is_empty() {
                return Err(Error::new(Code(16_872), "'$' by itself is not a valid FieldPath"));
            }
            let base = self.lookup("CURRENT")?.unwrap_or(Base::Current);
            return Ok(Node::Path(FieldPath { base, parts: path::split(path)? }));
        };
        let (name, rest) = match variable.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (variable, None),
        };
        variable::check_name(name)?;
        if name == "REMOVE" {
            return Ok(Node::Constant(None));
        }
        if let Some(name) = self.system.iter().find(|known| **known == name) {
            return Ok(Node::Constant(Some(RawBson::String(variable::system_value(name)))));
        }
        let base =
            self.lookup(name)?.ok_or_else(|| Error::new(Code(17_276), format!("Use of undefined variable: {name}")))?;
        let parts = rest.map_or(Ok(Vec::new()), path::split)?;
        Ok(Node::Path(FieldPath { base, parts }))
    }

    fn lookup(&self, name: &str) -> Result<Option<Base>> {
        for (up, frame) in self.frames.iter().rev().enumerate() {
            if let Some(index) = frame.iter().rposition(|known| known == name) {
                return Ok(Some(Base::Local { up, index }));
            }
        }
        Ok(match name {
            "ROOT" => Some(Base::Root),
            "CURRENT" => Some(Base::Current),
            "NOW" => Some(Base::Now),
            "CLUSTER_TIME" => Some(Base::ClusterTime),
            _ => variable::outer(self.options, name),
        })
    }

    /// Compiles `{$name: argument}`.
    pub(crate) fn operator(&mut self, name: &str, argument: RawBsonRef<'_>) -> Result<Node> {
        if name == "$literal" {
            return Ok(Node::Constant(Some(value::to_owned(argument))));
        }
        if let Some(function) = TABLES.iter().flat_map(|table| table.iter()).find(|function| function.name == name) {
            let arguments = self.arguments(argument)?;
            check_arity(name, function.arity, arguments.len())?;
            return Ok(Node::Call(function, arguments));
        }
        const FAMILIES: &[FamilyCompiler] = &[
            boolean::compile,
            conditional::compile,
            variable::compile,
            iterate::compile,
            array::lazy::compile,
            string::lazy::compile,
            regex::compile,
            object::lazy::compile,
            date::compile,
            convert::compile,
            accumulate::compile,
            misc::compile,
        ];
        for family in FAMILIES {
            if let Some(node) = family(self, name, argument)? {
                return Ok(node);
            }
        }
        Err(Error::new(Code::InvalidPipelineOperator, format!("Unrecognized expression '{name}'")))
    }

    /// Returns the arguments of an operator: the items of an array, else the one value.
    pub(crate) fn arguments(&mut self, argument: RawBsonRef<'_>) -> Result<Vec<Node>> {
        match argument {
            RawBsonRef::Array(array) => value::items(array).map(|item| self.expression(item?)).collect(),
            other => Ok(vec![self.expression(other)?]),
        }
    }

    /// Returns the arguments of an operator that takes exactly `N`.
    pub(crate) fn exactly<const N: usize>(&mut self, name: &str, argument: RawBsonRef<'_>) -> Result<[Node; N]> {
        let arguments = self.arguments(argument)?;
        let count = arguments.len();
        arguments.try_into().map_err(|_| arity_error(name, Arity::Exactly(N), count))
    }
}

/// Compiles the operators of one family; `None` if the name is none of them.
type FamilyCompiler = fn(&mut Compiler<'_>, &str, RawBsonRef<'_>) -> Result<Option<Node>>;

fn check_arity(name: &str, arity: Arity, count: usize) -> Result<()> {
    let fits = match arity {
        Arity::Exactly(n) => count == n,
        Arity::Between(low, high) => (low..=high).contains(&count),
        Arity::AtLeast(low) => count >= low,
    };
    if fits { Ok(()) } else { Err(arity_error(name, arity, count)) }
}

/// Returns MongoDB's words for a wrong number of arguments.
pub(crate) fn arity_error(name: &str, arity: Arity, count: usize) -> Error {
    match arity {
        Arity::Exactly(n) => {
            Error::new(Code(16_020), format!("Expression {name} takes exactly {n} arguments. {count} were passed in."))
        }
        Arity::Between(low, high) => Error::new(
            Code(28_667),
            format!(
                "Expression {name} takes at least {low} arguments, and at most {high}, but {count} were passed in."
            ),
        ),
        // This operator alone has another code.
        Arity::AtLeast(low) if name == "$setEquals" => {
            Error::new(Code(17_045), format!("{name} needs at least {low} arguments had: {count}"))
        }
        Arity::AtLeast(low) => Error::new(
            Code(28_667),
            format!("Expression {name} takes at least {low} arguments, but {count} were passed in."),
        ),
    }
}

/// Turns an array of literals into a literal, so that it is not built for each document.
fn folded_array(nodes: Vec<Node>) -> Result<Node> {
    if !nodes.iter().all(|node| matches!(node, Node::Constant(_))) {
        return Ok(Node::Array(nodes));
    }
    let mut array = RawArrayBuf::new();
    for node in &nodes {
        value::push(&mut array, node.constant().unwrap_or(RawBsonRef::Null))?;
    }
    Ok(Node::Constant(Some(RawBson::Array(array))))
}

fn folded_object(fields: Vec<NamedNode>) -> Result<Node> {
    if !fields.iter().all(|field| matches!(field.node, Node::Constant(_))) {
        return Ok(Node::Object(fields));
    }
    let mut document = RawDocumentBuf::new();
    for NamedNode { name, node } in &fields {
        if let Some(value) = node.constant() {
            document.append(name, value);
        }
    }
    Ok(Node::Constant(Some(RawBson::Document(document))))
}

/// The codes of errors in the parameters of an operator that takes an object of named arguments.
pub(crate) struct NamedErrors {
    pub(crate) no_object: Code,
    pub(crate) unknown: Code,
}

impl Compiler<'_> {
    /// Compiles an object of named arguments, in the order of `names`.
    pub(crate) fn named<const N: usize>(
        &mut self,
        operator: &str,
        argument: RawBsonRef<'_>,
        names: [&str; N],
        errors: &NamedErrors,
    ) -> Result<[Option<Node>; N]> {
        let sources = named_sources(operator, argument, names, errors)?;
        let mut nodes = [const { None }; N];
        for (node, source) in nodes.iter_mut().zip(sources) {
            *node = source.map(|source| self.expression(source)).transpose()?;
        }
        Ok(nodes)
    }
}

/// Returns the named arguments of an operator, uncompiled, in the order of `names`.
pub(crate) fn named_sources<'s, const N: usize>(
    operator: &str,
    argument: RawBsonRef<'s>,
    names: [&str; N],
    errors: &NamedErrors,
) -> Result<[Option<RawBsonRef<'s>>; N]> {
    let RawBsonRef::Document(document) = argument else {
        return Err(Error::new(
            errors.no_object,
            format!("{operator} only supports an object as its argument, found: {}", type_name(argument)),
        ));
    };
    let mut sources = [None; N];
    for field in value::fields(document) {
        let (key, source) = field?;
        match names.iter().position(|name| *name == key.as_str()) {
            Some(index) => sources[index] = Some(source),
            None => {
                return Err(Error::new(errors.unknown, format!("Unrecognized parameter to {operator}: {key}")));
            }
        }
    }
    Ok(sources)
}

/// Returns a named argument, or the error that it is missing.
pub(crate) fn required<T>(node: Option<T>, operator: &str, name: &str, code: i32) -> Result<T> {
    node.ok_or_else(|| Error::new(Code(code), format!("Missing '{name}' parameter to {operator}")))
}
