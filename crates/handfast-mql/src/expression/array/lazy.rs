//! Array operators with named arguments: `$zip`, `$sortArray`, `$firstN` and the like; `$first` and `$last`.

use std::cmp::Ordering;

use bson::{RawArrayBuf, RawBsonRef};

use super::{at, collect, count, sort_items, whole};
use crate::{
    error::{Code, Error, Result},
    expression::{
        compile::{Compiler, NamedErrors, named_sources},
        convert::integer_of,
        node::{LazyOperator, Node, Scope, evaluate_all},
        string::IntegerCodes,
        value::{self, Value, type_name},
    },
    order,
    sort::Sort,
};

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    Ok(Some(match name {
        "$first" => end(compiler, "$first", argument, 0)?,
        "$last" => end(compiler, "$last", argument, -1)?,
        "$firstN" => several(compiler, "$firstN", argument, Selection::First)?,
        "$lastN" => several(compiler, "$lastN", argument, Selection::Last)?,
        "$minN" => several(compiler, "$minN", argument, Selection::Smallest)?,
        "$maxN" => several(compiler, "$maxN", argument, Selection::Largest)?,
        "$zip" => zip(compiler, argument)?,
        "$sortArray" => sort_array(compiler, argument)?,
        _ => return Ok(None),
    }))
}
#[derive(Debug)]
struct FirstOrLast {
    operator: &'static str,
    index: i64,
    input: Node,
}

fn end(compiler: &mut Compiler<'_>, operator: &'static str, argument: RawBsonRef<'_>, index: i64) -> Result<Node> {
    let [input] = compiler.exactly::<1>(operator, argument)?;
    Ok(Node::lazy(FirstOrLast { operator, index, input }))
}

impl LazyOperator for FirstOrLast {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        if input.is_nullish() {
            return Ok(Value::NULL);
        }
        if input.as_array().is_none() {
            return Err(Error::new(
                Code(28_689),
                format!("{}'s argument must be an array, but is {}", self.operator, input.type_name()),
            ));
        }
        at(input, self.index)
    }
}

#[derive(Clone, Copy, Debug)]
enum Selection {
    First,
    Last,
    Smallest,
    Largest,
}

/// `$firstN`, `$lastN`, `$minN`, `$maxN`.
#[derive(Debug)]
struct SelectN {
    operator: &'static str,
    selection: Selection,
    input: Node,
    n: Node,
}

fn several(
    compiler: &mut Compiler<'_>,
    operator: &'static str,
    argument: RawBsonRef<'_>,
    selection: Selection,
) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(5_787_801), unknown: Code(5_787_901) };
    let [input, n] = compiler.named(operator, argument, ["input", "n"], &errors)?;
    let input = input.ok_or_else(|| Error::new(Code(5_787_907), format!("Missing value for 'input' in {operator}")))?;
    let n = n.ok_or_else(|| Error::new(Code(5_787_906), format!("Missing value for 'n' in {operator}")))?;
    Ok(Node::lazy(SelectN { operator, selection, input, n }))
}

/// Reads the `n` of an operator that keeps n values: a positive whole number.
pub(crate) fn positive_count(n: &Value<'_>) -> Result<usize> {
    let Some(number) = n.get().and_then(integer_of) else {
        return Err(Error::new(
            Code(5_787_902),
            format!("Value for 'n' must be of integral type, but found {}", n.show()),
        ));
    };
    usize::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| Error::new(Code(5_787_908), format!("'n' must be greater than 0, found {number}")))
}

impl LazyOperator for SelectN {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let n = positive_count(&self.n.evaluate(scope)?)?;
        let input = self.input.evaluate(scope)?;
        let Some(array) = input.as_array() else {
            return Err(Error::new(
                Code(5_788_200),
                format!("{}: input must be an array, found {}", self.operator, input.type_name()),
            ));
        };
        let mut items = value::items(array).collect::<Result<Vec<_>>>()?;
        match self.selection {
            Selection::First => items.truncate(n),
            Selection::Last => {
                items.drain(..items.len().saturating_sub(n));
            }
            Selection::Smallest | Selection::Largest => {
                items.retain(|item| !matches!(item, RawBsonRef::Null | RawBsonRef::Undefined));
                sort_items(&mut items, scope.context.collation());
                if let Selection::Largest = self.selection {
                    items.reverse();
                }
                items.truncate(n);
            }
        }
        Ok(collect(items)?.into())
    }
}

#[derive(Debug)]
struct Zip {
    inputs: Vec<Node>,
    defaults: Vec<Node>,
    longest: bool,
}

fn zip(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(34_460), unknown: Code(34_464) };
    let [inputs, defaults, longest] =
        named_sources("$zip", argument, ["inputs", "defaults", "useLongestLength"], &errors)?;
    let list = |compiler: &mut Compiler<'_>, source: Option<RawBsonRef<'_>>, what: &str, code: i32| match source {
        None => Ok(Vec::new()),
        Some(source @ RawBsonRef::Array(_)) => compiler.arguments(source),
        Some(other) => {
            Err(Error::new(Code(code), format!("{what} must be an array of expressions, found {}", type_name(other))))
        }
    };
    let inputs = list(compiler, inputs, "inputs", 34_461)?;
    let defaults = list(compiler, defaults, "defaults", 34_462)?;
    let longest = match longest {
        None => false,
        Some(RawBsonRef::Boolean(longest)) => longest,
        Some(other) => {
            return Err(Error::new(
                Code(34_463),
                format!("useLongestLength must be a bool, found {}", type_name(other)),
            ));
        }
    };
    if inputs.is_empty() {
        return Err(Error::new(Code(34_465), "$zip requires at least one input array"));
    }
    if !defaults.is_empty() && !longest {
        return Err(Error::new(Code(34_466), "cannot specify defaults unless useLongestLength is true"));
    }
    if !defaults.is_empty() && defaults.len() != inputs.len() {
        return Err(Error::new(Code(34_467), "defaults and inputs must have the same length"));
    }
    Ok(Node::lazy(Zip { inputs, defaults, longest }))
}

impl LazyOperator for Zip {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let inputs = evaluate_all(&self.inputs, scope)?;
        if inputs.iter().any(Value::is_nullish) {
            return Ok(Value::NULL);
        }
        let mut arrays = Vec::new();
        for input in &inputs {
            let Some(array) = input.as_array() else {
                return Err(Error::new(
                    Code(34_468),
                    format!("$zip found a non-array expression in input: {}", input.show()),
                ));
            };
            arrays.push(array);
        }
        let held = inputs.iter().filter_map(Value::made_bytes).sum();
        let defaults = evaluate_all(&self.defaults, scope.holding_bytes(held)?)?;
        let lengths = arrays.iter().map(|array| count(array));
        let length = if self.longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
        let mut cursors: Vec<_> = arrays.iter().map(|array| value::items(array)).collect();
        let mut rows = RawArrayBuf::new();
        for _ in 0..length {
            let mut row = RawArrayBuf::new();
            for (index, cursor) in cursors.iter_mut().enumerate() {
                let item = match cursor.next() {
                    Some(item) => item?,
                    None => defaults.get(index).map_or(RawBsonRef::Null, Value::or_null),
                };
                value::push(&mut row, item)?;
            }
            value::push(&mut rows, RawBsonRef::Array(&row))?;
        }
        Ok(rows.into())
    }
}

#[derive(Debug)]
struct SortArray {
    input: Node,
    by: SortBy,
}

#[derive(Debug)]
enum SortBy {
    /// Whole values are compared, in ascending or descending order.
    Value(Ordering),
    /// Fields are compared; a value that is no document sorts as an empty one.
    Fields(Sort),
}

fn sort_array(compiler: &mut Compiler<'_>, argument: RawBsonRef<'_>) -> Result<Node> {
    let errors = NamedErrors { no_object: Code(2_942_500), unknown: Code(2_942_501) };
    let [input, by] = named_sources("$sortArray", argument, ["input", "sortBy"], &errors)?;
    let input = input.ok_or_else(|| Error::new(Code(2_942_502), "$sortArray requires 'input' to be specified"))?;
    let by = by.ok_or_else(|| Error::new(Code(2_942_503), "$sortArray requires 'sortBy' to be specified"))?;
    let by = match by {
        RawBsonRef::Document(document) => {
            let invalid = |text: &str| Error::new(Code(2_942_505), format!("$sortArray's sortBy is not valid: {text}"));
            if document.is_empty() {
                return Err(invalid("it has no field"));
            }
            let sort = Sort::compile(document).map_err(|error| invalid(error.message()))?;
            SortBy::Fields(sort.under(compiler.collation()))
        }
        other => match whole(
            &Value::Ref(other),
            IntegerCodes { no_number: 2_942_507, no_integer: 2_942_506 },
            "$sortArray's sortBy",
        )? {
            1 => SortBy::Value(Ordering::Less),
            -1 => SortBy::Value(Ordering::Greater),
            _ => {
                return Err(Error::new(
                    Code(2_942_506),
                    "$sortArray's sortBy must be 1 (ascending), -1 (descending) or a document",
                ));
            }
        },
    };
    Ok(Node::lazy(SortArray { input: compiler.expression(input)?, by }))
}

impl LazyOperator for SortArray {
    fn evaluate<'a>(&'a self, scope: Scope<'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let no_array = |input: &Value<'_>| {
            let found = input.type_name();
            Error::new(
                Code(2_942_504),
                format!("The input argument to $sortArray must be an array, but was of type: {found}"),
            )
        };
        let Some(array) = input.array_or_null(no_array)? else { return Ok(Value::NULL) };
        let mut items = value::items(array).collect::<Result<Vec<_>>>()?;
        let collation = scope.context.collation();
        match &self.by {
            SortBy::Value(Ordering::Greater) => {
                items.sort_by(|left, right| order::compare_under(*right, *left, collation));
            }
            SortBy::Value(_) => sort_items(&mut items, collation),
            SortBy::Fields(sort) => {
                let empty = bson::RawDocumentBuf::new();
                let keys = items
                    .iter()
                    .map(|item| sort.key(item.as_document().unwrap_or(&empty)))
                    .collect::<Result<Vec<_>>>()?;
                let mut keyed: Vec<_> = keys.into_iter().zip(items).collect();
                keyed.sort_by(|left, right| left.0.cmp(&right.0));
                items = keyed.into_iter().map(|(_, item)| item).collect();
            }
        }
        Ok(collect(items)?.into())
    }
}
