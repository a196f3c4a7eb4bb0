//! `$map`, `$filter`, `$reduce`: an expression evaluated once per item, with the item in a variable.

use std::ops::ControlFlow;

use bson::{RawArray, RawArrayBuf, RawBsonRef};

use super::{
    compile::{Compiler, NamedErrors, named_sources, required},
    convert::integer_of,
    limits,
    node::{Frame, LazyOperator, Node, Scope},
    value::{self, Value, type_name},
    variable::check_own_name,
};
use crate::error::{Code, Error, Result};

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    Ok(Some(match name {
        "$map" => map(compiler, argument)?,
        "$filter" => filter(compiler, argument)?,
        "$reduce" => reduce(compiler, argument)?,
        _ => return Ok(None),
    }))
}

/// Returns the name of the item, from `as`.
fn item_name(source: Option<RawBsonRef<'_>>, code: i32) -> Result<String> {
    match source {
        None => Ok("this".to_owned()),
        Some(RawBsonRef::String(name)) => {
            check_own_name(name)?;
            Ok(name.to_owned())
        }
        Some(other) => Err(Error::new(Code(code), format!("'as' must be a string, found: {}", type_name(other)))),
    }
}

fn no_array(code: i32, operator: &str, input: &Value<'_>) -> Error {
    Error::new(Code(code), format!("input to {operator} must be an array not {}", input.type_name()))
}

/// Evaluates the body for each item, and calls `take` with the item and the result, until it breaks.
fn each<'a>(
    body: &'a Node,
    scope: Scope<'a>,
    input: &Value<'a>,
    array: &RawArray,
    mut take: impl FnMut(&mut RawArrayBuf, RawBsonRef<'_>, Value<'_>) -> Result<ControlFlow<()>>,
) -> Result<Value<'a>> {
    let mut taken = RawArrayBuf::new();
    for item in value::items(array) {
        scope.context.step()?;
        let item = item?;
        let values = [Value::Ref(item)];
        let frame = Frame { values: &values, outer: scope.frame };
        let inner = scope.holding(input)?.holding_bytes(taken.as_bytes().len())?;
        let result = body.evaluate(Scope { frame: Some(&frame), ..inner })?;
        if take(&mut taken, item, result)?.is_break() {
            break;
        }
    }
    Ok(taken.into())
}

/// Compiles an input, and a body with each of its items in a variable.
fn input_and_body(
    compiler: &mut Compiler<'_>,
    input: RawBsonRef<'_>,
    name: String,
    body: RawBsonRef<'_>,
) -> Result<(Node, Node)> {
    let input = compiler.expression(input)?;
    let body = compiler.bound(vec![name], |compiler| compiler.expression(body))?;
    Ok((input, body))
}

#[derive(Debug)]
struct Map {
    input: Node,
    body: Node,
}

fn map(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(16_878), unknown: Code(16_879) };
    let [input, name, body] = named_sources("$map", argument, ["input", "as", "in"], &errors)?;
    let input = required(input, "$map", "input", 16_880)?;
    let body = required(body, "$map", "in", 16_882)?;
    let (input, body) = input_and_body(compiler, input, item_name(name, 16_881)?, body)?;
    Ok(Node::lazy(Map { input, body }))
}

impl LazyOperator for Map {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let Some(array) = input.array_or_null(|input| no_array(16_883, "$map", input))? else {
            return Ok(Value::NULL);
        };
        each(&self.body, scope, &input, array, |mapped, _, result| {
            value::push(mapped, result.or_null())?;
            Ok(ControlFlow::Continue(()))
        })
    }
}

#[derive(Debug)]
struct Filter {
    input: Node,
    condition: Node,
    limit: Option<Node>,
}

fn filter(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(28_646), unknown: Code(28_647) };
    let [input, name, condition, limit] =
        named_sources("$filter", argument, ["input", "as", "cond", "limit"], &errors)?;
    let input = required(input, "$filter", "input", 28_648)?;
    let condition = required(condition, "$filter", "cond", 28_650)?;
    let (input, condition) = input_and_body(compiler, input, item_name(name, 28_649)?, condition)?;
    let limit = limit.map(|source| compiler.expression(source)).transpose()?;
    Ok(Node::lazy(Filter { input, condition, limit }))
}

impl LazyOperator for Filter {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let Some(array) = input.array_or_null(|input| no_array(28_651, "$filter", input))? else {
            return Ok(Value::NULL);
        };
        let mut room = self.limit(scope)?;
        each(&self.condition, scope, &input, array, |kept, item, result| {
            if result.is_true() {
                kept.push(item);
                room -= 1;
            }
            Ok(if room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }
}

impl Filter {
    fn limit(&self, scope: Scope<'_>) -> Result<i64> {
        let Some(node) = &self.limit else { return Ok(i64::MAX) };
        let value = node.evaluate(scope)?;
        if value.is_nullish() {
            return Ok(i64::MAX);
        }
        let Some(limit) = value.get().and_then(integer_of).filter(|limit| i32::try_from(*limit).is_ok()) else {
            return Err(Error::new(
                Code(327_391),
                format!("$filter: limit must be represented as a 32-bit integral value: {}", value.show()),
            ));
        };
        if limit < 1 {
            return Err(Error::new(Code(327_392), format!("$filter: limit must be greater than 0: {limit}")));
        }
        Ok(limit)
    }
}

#[derive(Debug)]
struct Reduce {
    input: Node,
    initial: Node,
    body: Node,
}

fn reduce(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(40_075), unknown: Code(40_076) };
    let [input, initial, body] = named_sources("$reduce", argument, ["input", "initialValue", "in"], &errors)?;
    let input = required(input, "$reduce", "input", 40_077)?;
    let initial = required(initial, "$reduce", "initialValue", 40_078)?;
    let body = required(body, "$reduce", "in", 40_079)?;
    let input = compiler.expression(input)?;
    let initial = compiler.expression(initial)?;
    let names = vec!["this".to_owned(), "value".to_owned()];
    let body = compiler.bound(names, |compiler| compiler.expression(body))?;
    Ok(Node::lazy(Reduce { input, initial, body }))
}

impl LazyOperator for Reduce {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let no_array = |input: &Value<'_>| {
            Error::new(Code(40_080), format!("$reduce requires that 'input' be an array, found: {}", input.show()))
        };
        let Some(array) = input.array_or_null(no_array)? else { return Ok(Value::NULL) };
        let mut result: Value<'a> = self.initial.evaluate(scope)?;
        for item in value::items(array) {
            scope.context.step()?;
            let values = [Value::Ref(item?), result];
            let frame = Frame { values: &values, outer: scope.frame };
            let inner = scope.holding(&input)?.holding(&values[1])?;
            let next = self.body.evaluate(Scope { frame: Some(&frame), ..inner })?;
            // Each iteration may nest the previous value in a new one; no other loop can nest without bound.
            limits::check_depth(next.or_null())?;
            result = next.detach();
        }
        Ok(result)
    }
}
