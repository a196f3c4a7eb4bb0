//! Accumulators as expressions: `{$sum: "$array"}` goes over the array, `{$sum: ["$a", "$b"]}` over the arguments.

use std::cmp::Ordering;

use bson::RawBsonRef;

use super::{
    compile::Compiler,
    node::{Arity, Function, LazyOperator, Node, Scope},
    value::Value,
};
use crate::{
    accumulator::{Average, Deviation, Quantiles, Sum, each, quantiles_of, read_quantiles},
    collation::Collation,
    error::Result,
    number::Number,
    order,
};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::many("$sum", Arity::AtLeast(0), |values| {
        let mut sum = Sum::default();
        numbers(&values, |number| sum.add(number))?;
        Ok(of_number(Some(sum.total())))
    }),
    Function::many("$avg", Arity::AtLeast(0), |values| {
        let mut average = Average::default();
        numbers(&values, |number| average.add(number))?;
        Ok(of_number(average.result()))
    }),
    Function::many("$stdDevPop", Arity::AtLeast(0), |values| deviation(&values, false)),
    Function::many("$stdDevSamp", Arity::AtLeast(0), |values| deviation(&values, true)),
    Function::many_under("$min", Arity::AtLeast(0), |values, collation| extreme(&values, Ordering::Less, collation)),
    Function::many_under("$max", Arity::AtLeast(0), |values, collation| extreme(&values, Ordering::Greater, collation)),
];

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    if name != "$percentile" && name != "$median" {
        return Ok(None);
    }
    let (input, quantiles) = read_quantiles(name, argument)?;
    // An input that is an array of expressions is an array, not several arguments.
    let input = compiler.expression(input)?;
    Ok(Some(Node::lazy(Quantile { input, quantiles })))
}

/// Visits the values: of the array, if there is one argument and it is one; else the arguments.
fn visit<'v>(values: &'v [Value<'_>], mut visit: impl FnMut(RawBsonRef<'v>) -> Result<()>) -> Result<()> {
    match values {
        [only] => each(only, visit),
        several => several.iter().filter_map(Value::get).try_for_each(&mut visit),
    }
}

fn numbers(values: &[Value<'_>], mut add: impl FnMut(Number)) -> Result<()> {
    visit(values, |value| {
        if let Some(number) = Number::of(value) {
            add(number);
        }
        Ok(())
    })
}

fn of_number<'a>(number: Option<Number>) -> Value<'a> {
    number.map_or(Value::NULL, |number| Value::Ref(number.to_bson()))
}

fn deviation<'a>(values: &[Value<'_>], sample: bool) -> Result<Value<'a>> {
    let mut spread = Deviation::default();
    numbers(values, |number| spread.add(number))?;
    Ok(spread.result(sample).map_or(Value::NULL, Value::from))
}

fn extreme<'a>(values: &[Value<'_>], direction: Ordering, collation: Option<&Collation>) -> Result<Value<'a>> {
    let mut best: Option<RawBsonRef<'_>> = None;
    visit(values, |value| {
        if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) {
            return Ok(());
        }
        if best.is_none_or(|best| order::compare_under(value, best, collation) == direction) {
            best = Some(value);
        }
        Ok(())
    })?;
    Ok(best.map_or(Value::NULL, super::value::detach))
}

#[derive(Debug)]
struct Quantile {
    input: Node,
    quantiles: Quantiles,
}

impl LazyOperator for Quantile {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let mut found = Vec::new();
        each(&input, |value| {
            found.extend(Number::of(value).map(Number::to_f64));
            Ok(())
        })?;
        Ok(Value::Owned(quantiles_of(found, &self.quantiles)))
    }
}
