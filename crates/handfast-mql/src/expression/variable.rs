//! `$let`, `$expr` and the names of variables.

use bson::RawBsonRef;

use super::{
    compile::{Compiler, NamedErrors, named_sources, required},
    node::{Frame, LazyOperator, Node, Scope, evaluate_all},
    path::Base,
    value::{self, Value},
};
use crate::{
    context::CompileOptions,
    error::{Code, Error, Result},
};

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    Ok(Some(match name {
        "$let" => bind(compiler, argument)?,
        "$expr" => compiler.expression(argument)?,
        _ => return Ok(None),
    }))
}

#[derive(Debug)]
struct Let {
    values: Vec<Node>,
    body: Node,
}

fn bind(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(16_874), unknown: Code(16_875) };
    let [vars, body] = named_sources("$let", argument, ["vars", "in"], &errors)?;
    let vars = required(vars, "$let", "vars", 16_876)?;
    let body = required(body, "$let", "in", 16_877)?;
    let RawBsonRef::Document(vars) = vars else {
        return Err(Error::new(Code(10_065), "invalid parameter: expected an object (vars)"));
    };
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for field in value::fields(vars) {
        let (name, source) = field?;
        check_own_name(name.as_str())?;
        // The values may use outer variables, but not each other.
        values.push(compiler.expression(source)?);
        names.push(name.as_str().to_owned());
    }
    let body = compiler.bound(names, |compiler| compiler.expression(body))?;
    Ok(Node::lazy(Let { values, body }))
}

impl LazyOperator for Let {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let values = evaluate_all(&self.values, scope)?;
        let held = values.iter().filter_map(Value::made_bytes).sum();
        let frame = Frame { values: &values, outer: scope.frame };
        let inner = Scope { frame: Some(&frame), ..scope.holding_bytes(held)? };
        Ok(self.body.evaluate(inner)?.detach())
    }
}

/// Checks a name after `$$`.
pub(crate) fn check_name(name: &str) -> Result<()> {
    check(name, |first| first.is_ascii_alphabetic() || !first.is_ascii(), "variable name")
}

/// Checks a name that a user binds: it begins with a lower case letter; of the system's names, `CURRENT` alone may be bound.
pub(crate) fn check_own_name(name: &str) -> Result<()> {
    if name == "CURRENT" {
        return Ok(());
    }
    check(name, |first| first.is_ascii_lowercase() || !first.is_ascii(), "user variable name")
}

fn check(name: &str, first_fits: impl Fn(char) -> bool, what: &str) -> Result<()> {
    let Some(first) = name.chars().next() else {
        return Err(Error::new(Code::FailedToParse, "empty variable names are not allowed"));
    };
    if !first_fits(first) {
        return Err(Error::new(Code::FailedToParse, format!("'{name}' starts with an invalid character for a {what}")));
    }
    match name.chars().find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_') {
        None => Ok(()),
        Some(bad) => Err(Error::new(
            Code::FailedToParse,
            format!("'{name}' contains an invalid character for a variable name: '{bad}'"),
        )),
    }
}

/// Returns a variable of the command or of the surrounding stage.
pub(crate) fn outer(options: &CompileOptions, name: &str) -> Option<Base> {
    options.declares(name).then(|| Base::Context(name.to_owned()))
}

/// Returns the value of `$$KEEP`, `$$PRUNE` or `$$DESCEND`: a text that no document holds by accident.
pub(crate) fn system_value(name: &str) -> String {
    format!("\u{0}{name}")
}
