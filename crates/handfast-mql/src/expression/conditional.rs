//! `$cond`, `$ifNull`, `$switch`: only the branch that is taken is evaluated.

use bson::RawBsonRef;

use super::{
    compile::{Compiler, NamedErrors, named_sources, required},
    node::{LazyOperator, Node, Scope},
    value::{self, Value, type_name},
};
use crate::error::{Code, Error, Result};

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    Ok(Some(match name {
        "$cond" => cond(compiler, argument)?,
        "$ifNull" => if_null(compiler, argument)?,
        "$switch" => switch(compiler, argument)?,
        _ => return Ok(None),
    }))
}

#[derive(Debug)]
struct Cond {
    condition: Node,
    then: Node,
    otherwise: Node,
}

fn cond(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let [condition, then, otherwise] = if let RawBsonRef::Document(_) = argument {
        let errors = NamedErrors { no_object: Code(17_083), unknown: Code(17_083) };
        let [condition, then, otherwise] = compiler.named("$cond", argument, ["if", "then", "else"], &errors)?;
        [
            required(condition, "$cond", "if", 17_080)?,
            required(then, "$cond", "then", 17_081)?,
            required(otherwise, "$cond", "else", 17_082)?,
        ]
    } else {
        compiler.exactly::<3>("$cond", argument)?
    };
    Ok(Node::lazy(Cond { condition, then, otherwise }))
}

impl LazyOperator for Cond {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        if self.condition.evaluate(scope)?.is_true() {
            self.then.evaluate(scope)
        } else {
            self.otherwise.evaluate(scope)
        }
    }
}

#[derive(Debug)]
struct IfNull {
    candidates: Vec<Node>,
}

fn if_null(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let candidates = compiler.arguments(argument)?;
    if candidates.len() < 2 {
        let count = candidates.len();
        return Err(Error::new(Code(1_257_300), format!("$ifNull needs at least two arguments, had: {count}")));
    }
    Ok(Node::lazy(IfNull { candidates }))
}

impl LazyOperator for IfNull {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let mut last = Value::NULL;
        for candidate in &self.candidates {
            last = candidate.evaluate(scope)?;
            if !last.is_nullish() {
                break;
            }
        }
        Ok(last)
    }
}

#[derive(Debug)]
struct Switch {
    branches: Vec<(Node, Node)>,
    default: Option<Node>,
}

fn switch(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(40_060), unknown: Code(40_067) };
    let [branches, default] = named_sources("$switch", argument, ["branches", "default"], &errors)?;
    let mut compiled = Vec::new();
    match branches {
        None => {}
        Some(RawBsonRef::Array(array)) => {
            for branch in value::items(array) {
                compiled.push(switch_branch(compiler, branch?)?);
            }
        }
        Some(other) => {
            return Err(Error::new(
                Code(40_061),
                format!("$switch expected an array for 'branches', found: {}", type_name(other)),
            ));
        }
    }
    if compiled.is_empty() {
        return Err(Error::new(Code(40_068), "$switch requires at least one branch."));
    }
    let default = default.map(|source| compiler.expression(source)).transpose()?;
    Ok(Node::lazy(Switch { branches: compiled, default }))
}

fn switch_branch(compiler: &mut Compiler<'_>, branch: RawBsonRef<'_>) -> Result<(Node, Node)> {
    let RawBsonRef::Document(_) = branch else {
        return Err(Error::new(
            Code(40_062),
            format!("$switch expected each branch to be an object, found: {}", type_name(branch)),
        ));
    };
    let errors = NamedErrors { no_object: Code(40_062), unknown: Code(40_063) };
    let [case, then] = compiler.named("$switch branch", branch, ["case", "then"], &errors)?;
    let needed = |node: Option<Node>, what: &str, code: i32| {
        node.ok_or_else(|| Error::new(Code(code), format!("$switch requires each branch have a '{what}' expression")))
    };
    Ok((needed(case, "case", 40_064)?, needed(then, "then", 40_065)?))
}

impl LazyOperator for Switch {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        for (case, then) in &self.branches {
            if case.evaluate(scope)?.is_true() {
                return then.evaluate(scope);
            }
        }
        match &self.default {
            Some(default) => default.evaluate(scope),
            None => Err(Error::new(
                Code(40_066),
                "$switch could not find a matching branch for an input, and no default was specified.",
            )),
        }
    }
}
