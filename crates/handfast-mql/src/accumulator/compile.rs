//! Reads accumulators: `{$sum: ..}`, `{$topN: {n, sortBy, output}}`.

use bson::{RawBsonRef, RawDocument};

use super::{Quantiles, State, read_quantiles};
use crate::{
    context::{CompileOptions, Context},
    error::{Code, Error, Result},
    expression::{
        Expression, Value,
        compile::{NamedErrors, named_sources},
        value::type_name,
    },
    sort::Sort,
};
#[derive(Debug)]
pub(crate) struct Accumulator {
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Sum(Expression),
    Average(Expression),
    Minimum(Expression),
    Maximum(Expression),
    First(Expression),
    Last(Expression),
    Push(Expression),
    AddToSet(Expression),
    ConcatArrays(Expression),
    SetUnion(Expression),
    Deviation { input: Expression, sample: bool },
    MergeObjects(Expression),
    Count,
    SelectedN { input: Expression, n: Expression, selection: Selection },
    TopN { sort: Sort, output: Expression, n: Option<Expression>, bottom: bool },
    Quantile { input: Expression, quantiles: Quantiles },
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    First,
    Last,
    Smallest,
    Largest,
}

impl Accumulator {
    /// Returns whether it keeps one value at most, however many documents it gets.
    pub(crate) fn keeps_one_value(&self) -> bool {
        match self.kind {
            Kind::Sum(_)
            | Kind::Average(_)
            | Kind::Minimum(_)
            | Kind::Maximum(_)
            | Kind::First(_)
            | Kind::Last(_)
            | Kind::Deviation { .. }
            | Kind::Count => true,
            Kind::Push(_)
            | Kind::AddToSet(_)
            | Kind::ConcatArrays(_)
            | Kind::SetUnion(_)
            | Kind::MergeObjects(_)
            | Kind::SelectedN { .. }
            | Kind::TopN { .. }
            | Kind::Quantile { .. } => false,
        }
    }

    /// Compiles an accumulator such as `{$sum: ..}` from its name and argument.
    ///
    /// # Errors
    /// 15952 for an accumulator that does not exist, 40237 for several arguments, and the errors of expressions.
    pub(crate) fn compile(name: &str, argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Accumulator> {
        let input = || one_argument(name, argument, options);
        let kind = match name {
            "$sum" => Kind::Sum(input()?),
            "$avg" => Kind::Average(input()?),
            "$min" => Kind::Minimum(input()?),
            "$max" => Kind::Maximum(input()?),
            "$first" => Kind::First(input()?),
            "$last" => Kind::Last(input()?),
            "$push" => Kind::Push(input()?),
            "$addToSet" => Kind::AddToSet(input()?),
            "$concatArrays" => Kind::ConcatArrays(input()?),
            "$setUnion" => Kind::SetUnion(input()?),
            "$stdDevPop" => Kind::Deviation { input: input()?, sample: false },
            "$stdDevSamp" => Kind::Deviation { input: input()?, sample: true },
            "$mergeObjects" => Kind::MergeObjects(input()?),
            "$count" => match argument {
                RawBsonRef::Document(document) if document.is_empty() => Kind::Count,
                _ => return Err(Error::new(Code::TypeMismatch, "$count takes no arguments, i.e. $count:{}")),
            },
            "$firstN" => several(name, argument, options, Selection::First)?,
            "$lastN" => several(name, argument, options, Selection::Last)?,
            "$minN" => several(name, argument, options, Selection::Smallest)?,
            "$maxN" => several(name, argument, options, Selection::Largest)?,
            "$top" => top(name, argument, options, OutputCount::One, false)?,
            "$topN" => top(name, argument, options, OutputCount::Several, false)?,
            "$bottom" => top(name, argument, options, OutputCount::One, true)?,
            "$bottomN" => top(name, argument, options, OutputCount::Several, true)?,
            "$percentile" | "$median" => {
                let (input, quantiles) = read_quantiles(name, argument)?;
                Kind::Quantile { input: Expression::compile(input, options)?, quantiles }
            }
            "$accumulator" | "$function" => {
                return Err(Error::new(Code::CommandNotSupported, format!("{name} is not supported: no JavaScript")));
            }
            other => return Err(Error::new(Code(15_952), format!("unknown group operator '{other}'"))),
        };
        Ok(Accumulator { kind })
    }

    /// Creates a state for one group. `group` is the group's `_id`, which the `n` of `$firstN` and its like may depend on.
    pub(crate) fn start(&self, group: &RawDocument, context: &Context) -> Result<State> {
        State::start(self, group, context)
    }
}

fn one_argument(name: &str, argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Expression> {
    if let RawBsonRef::Array(_) = argument {
        return Err(Error::new(Code(40_237), format!("The {name} accumulator is a unary operator")));
    }
    Expression::compile(argument, options)
}

const SEVERAL_ERRORS: NamedErrors = NamedErrors { no_object: Code(5_787_801), unknown: Code(5_787_901) };

fn missing(name: &str, what: &str, code: i32) -> Error {
    Error::new(Code(code), format!("Missing value for '{what}' in {name}"))
}

fn several(name: &str, argument: RawBsonRef<'_>, options: &CompileOptions, selection: Selection) -> Result<Kind> {
    let [input, n] = named_sources(name, argument, ["input", "n"], &SEVERAL_ERRORS)?;
    let input = input.ok_or_else(|| missing(name, "input", 5_787_907))?;
    let n = n.ok_or_else(|| missing(name, "n", 5_787_906))?;
    Ok(Kind::SelectedN { input: Expression::compile(input, options)?, n: Expression::compile(n, options)?, selection })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputCount {
    One,
    Several,
}

fn top(
    name: &str,
    argument: RawBsonRef<'_>,
    options: &CompileOptions,
    size: OutputCount,
    bottom: bool,
) -> Result<Kind> {
    let [sort, output, n] = named_sources(name, argument, ["sortBy", "output", "n"], &SEVERAL_ERRORS)?;
    let output = output.ok_or_else(|| missing(name, "output", 5_788_004))?;
    let sort = sort.ok_or_else(|| missing(name, "sortBy", 5_788_005))?;
    let RawBsonRef::Document(sort) = sort else {
        return Err(Error::new(
            Code(5_788_604),
            format!("expected 'sortBy' to be an object in {name}, found {}", type_name(sort)),
        ));
    };
    let n = match (n, size) {
        (None, OutputCount::One) => None,
        (Some(n), OutputCount::Several) => Some(Expression::compile(n, options)?),
        (None, OutputCount::Several) => return Err(missing(name, "n", 5_788_003)),
        (Some(_), OutputCount::One) => {
            return Err(Error::new(Code(5_788_002), format!("Unknown argument to {name} 'n'")));
        }
    };
    Ok(Kind::TopN {
        sort: Sort::compile(sort)?.under(options.collation.as_ref()),
        output: Expression::compile(output, options)?,
        n,
        bottom,
    })
}

/// Returns the n of `$firstN` and its like for one group.
pub(super) fn count_for(n: &Expression, group: &RawDocument, context: &Context) -> Result<usize> {
    crate::expression::array::lazy::positive_count(&n.evaluate(group, context)?)
}

/// Copies a value; a missing one becomes null.
pub(super) fn owned_or_null(value: Value<'_>) -> bson::RawBson {
    value.into_owned().unwrap_or(bson::RawBson::Null)
}
pub(super) fn bytes_of(value: RawBsonRef<'_>) -> usize {
    const SCALAR_BYTES: usize = 32;
    SCALAR_BYTES
        + match value {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) | RawBsonRef::JavaScriptCode(text) => text.len(),
            RawBsonRef::Document(document) => document.as_bytes().len(),
            RawBsonRef::Array(array) => array.as_bytes().len(),
            RawBsonRef::Binary(binary) => binary.bytes.len(),
            RawBsonRef::RegularExpression(regex) => regex.pattern.len(),
            _ => 0,
        }
}
