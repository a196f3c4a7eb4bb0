//! Compiles the functions of `$setWindowFields`: `{$sum: "$a", window: {..}}`.

use bson::{RawBson, RawBsonRef, RawDocument};

use super::{
    bounds::{Window, unit_of},
    moving::Smoothing,
    ordered::RankKind,
};
use crate::{
    accumulator::Accumulator,
    context::CompileOptions,
    error::{Code, Error, Result},
    expression::{
        Expression,
        convert::integer_of,
        date::Unit,
        value::{self, show, type_name},
    },
    sort::Sort,
};

/// A function of the documents of a partition.
#[derive(Debug)]
pub(super) enum Function {
    /// An accumulator over a window.
    Accumulate { accumulator: Accumulator, window: Window },
    /// `$covariancePop` and `$covarianceSamp`.
    Covariance { x: Expression, y: Expression, sample: bool, window: Window },
    /// `$derivative`.
    Derivative { input: Expression, unit: Option<Unit>, window: Window },
    /// `$integral`.
    Integral { input: Expression, unit: Option<Unit>, window: Window },
    /// `$expMovingAvg`.
    MovingAverage { input: Expression, smoothing: Smoothing },
    /// `$rank`, `$denseRank`, `$documentNumber`.
    Rank(RankKind),
    /// `$shift`.
    Shift { output: Expression, by: i64, default: RawBson },
    /// `$linearFill`.
    LinearFill(Expression),
    /// `$locf`, which carries the last value forward.
    CarryForward(Expression),
}

/// The accumulators that are window functions.
const ACCUMULATORS: &[&str] = &[
    "$sum",
    "$avg",
    "$min",
    "$max",
    "$minN",
    "$maxN",
    "$first",
    "$last",
    "$firstN",
    "$lastN",
    "$top",
    "$topN",
    "$bottom",
    "$bottomN",
    "$count",
    "$push",
    "$addToSet",
    "$concatArrays",
    "$setUnion",
    "$stdDevPop",
    "$stdDevSamp",
    "$median",
    "$percentile",
    "$mergeObjects",
];

/// The source of one output field.
struct Call<'s> {
    name: &'s str,
    argument: RawBsonRef<'s>,
    window: Option<RawBsonRef<'s>>,
}

pub(super) fn failed(message: impl Into<String>) -> Error {
    Error::new(Code::FailedToParse, message)
}

impl Function {
    /// Compiles the value of an output field.
    ///
    /// # Errors
    /// `FailedToParse` (9) for what is no function, and the errors of the functions.
    pub(super) fn compile(source: &RawDocument, sort: &Sort, options: &CompileOptions) -> Result<Function> {
        let call = Call::read(source)?;
        let argument = call.argument;
        if ACCUMULATORS.contains(&call.name) {
            let accumulator = Accumulator::compile(call.name, argument, options)?;
            return Ok(Function::Accumulate { accumulator, window: call.window(sort)? });
        }
        let expression = |source| Expression::compile(source, options);
        match call.name {
            "$covariancePop" | "$covarianceSamp" => {
                let sample = call.name == "$covarianceSamp";
                let [x, y] = pair(call.name, argument)?;
                Ok(Function::Covariance { x: expression(x)?, y: expression(y)?, sample, window: call.window(sort)? })
            }
            "$derivative" => {
                let (input, unit) = call.over_time(sort)?;
                if call.window.is_none() {
                    return Err(failed("$derivative requires explicit window bounds"));
                }
                Ok(Function::Derivative { input: expression(input)?, unit, window: call.window(sort)? })
            }
            "$integral" => {
                let (input, unit) = call.over_time(sort)?;
                Ok(Function::Integral { input: expression(input)?, unit, window: call.window(sort)? })
            }
            "$expMovingAvg" => {
                call.no_window()?;
                if sort.is_empty() {
                    return Err(failed("$expMovingAvg requires an explicit 'sortBy'"));
                }
                let (input, smoothing) = Smoothing::read(argument)?;
                Ok(Function::MovingAverage { input: expression(input)?, smoothing })
            }
            "$rank" => call.rank(sort, RankKind::Rank),
            "$denseRank" => call.rank(sort, RankKind::Dense),
            "$documentNumber" => call.rank(sort, RankKind::Number),
            "$shift" => call.shift(sort, options),
            "$linearFill" => {
                call.no_window()?;
                if sort.fields().len() != 1 {
                    let text =
                        "$linearFill must be specified with a top level sortBy expression with exactly one element";
                    return Err(Error::new(Code(605_001), text));
                }
                Ok(Function::LinearFill(expression(argument)?))
            }
            "$locf" => {
                call.no_window()?;
                Ok(Function::CarryForward(expression(argument)?))
            }
            other => Err(failed(format!("Unrecognized window function, {other}"))),
        }
    }

    /// Tells whether the function needs the values of the `sortBy` field.
    pub(super) fn needs_positions(&self) -> bool {
        match self {
            Function::Accumulate { window, .. } | Function::Covariance { window, .. } => window.needs_positions(),
            Function::Derivative { .. } | Function::Integral { .. } | Function::LinearFill(_) => true,
            _ => false,
        }
    }
}

impl<'s> Call<'s> {
    fn read(source: &'s RawDocument) -> Result<Call<'s>> {
        let (mut call, mut window) = (None, None);
        for field in value::fields(source) {
            let (key, item) = field?;
            match key.as_str() {
                "window" => window = Some(item),
                name if name.starts_with('$') => {
                    if let Some((first, _)) = call.replace((name, item)) {
                        return Err(failed(format!(
                            "Cannot specify two functions in window function spec: {first} and {name}"
                        )));
                    }
                }
                other => return Err(failed(format!("Window function found an unknown argument: {other}"))),
            }
        }
        let (name, argument) = call.ok_or_else(|| {
            failed(format!("Expected a $-prefixed window function, but found {}", show(RawBsonRef::Document(source))))
        })?;
        Ok(Call { name, argument, window })
    }

    fn window(&self, sort: &Sort) -> Result<Window> {
        self.window.map_or(Ok(Window::WHOLE), |window| Window::compile(window, sort))
    }

    fn no_window(&self) -> Result<()> {
        match self.window {
            None => Ok(()),
            Some(_) => Err(failed(format!("{} does not accept a 'window' field", self.name))),
        }
    }

    fn rank(&self, sort: &Sort, kind: RankKind) -> Result<Function> {
        let name = self.name;
        match self.argument {
            RawBsonRef::Document(document) if document.is_empty() => {}
            _ => return Err(Error::new(Code(5_371_603), format!("{name} must be specified with '{{}}' as the value"))),
        }
        if self.window.is_some() {
            return Err(Error::new(Code(5_371_601), "Rank style window functions take no other arguments"));
        }
        if sort.fields().len() != 1 {
            let text = format!("{name} must be specified with a top level sortBy expression with exactly one element");
            return Err(Error::new(Code(5_371_602), text));
        }
        Ok(Function::Rank(kind))
    }

    /// Reads `{input, unit}` of a function over the `sortBy` field.
    fn over_time(&self, sort: &Sort) -> Result<(RawBsonRef<'s>, Option<Unit>)> {
        let name = self.name;
        let RawBsonRef::Document(document) = self.argument else {
            return Err(failed(format!("{name} expects an object, but got a {}", type_name(self.argument))));
        };
        let (mut input, mut unit) = (None, None);
        for field in value::fields(document) {
            let (key, item) = field?;
            match key.as_str() {
                "input" => input = Some(item),
                "unit" => unit = Some(unit_of(item)?),
                other => return Err(failed(format!("{name} got unexpected argument: {other}"))),
            }
        }
        let input = input.ok_or_else(|| failed(format!("{name} requires an 'input' expression")))?;
        if sort.fields().len() != 1 {
            return Err(failed(format!("{name} requires a non-compound sortBy")));
        }
        if unit.is_some_and(|unit| unit.exact_millis().is_none()) {
            return Err(Error::new(Code(5_490_710), "unit must be 'week' or smaller"));
        }
        Ok((input, unit))
    }

    fn shift(&self, sort: &Sort, options: &CompileOptions) -> Result<Function> {
        self.no_window()?;
        if sort.is_empty() {
            return Err(failed("'$shift' requires a sortBy"));
        }
        let RawBsonRef::Document(document) = self.argument else {
            return Err(failed(format!(
                "Argument to $shift must be an object, but got a {}",
                type_name(self.argument)
            )));
        };
        let (mut output, mut by, mut default) = (None, None, RawBson::Null);
        for field in value::fields(document) {
            let (key, item) = field?;
            match key.as_str() {
                "output" => output = Some(Expression::compile(item, options)?),
                "by" => {
                    by = Some(integer_of(item).and_then(|by| i32::try_from(by).ok()).ok_or_else(|| {
                        failed(format!("'$shift:by' field must be an integer, but found {}", show(item)))
                    })?);
                }
                "default" => {
                    let expression = Expression::compile(item, options)?;
                    let constant = expression.constant().map(value::to_owned);
                    default = constant.ok_or_else(|| {
                        failed(format!("'$shift:default' expression must yield a constant value: {}", show(item)))
                    })?;
                }
                other => return Err(failed(format!("Unknown argument in $shift: {other}"))),
            }
        }
        let output = output.ok_or_else(|| failed("$shift requires an 'output' expression."))?;
        let by = by.ok_or_else(|| failed("$shift requires 'by' as an integer value."))?;
        Ok(Function::Shift { output, by: i64::from(by), default })
    }
}

fn pair<'s>(name: &str, source: RawBsonRef<'s>) -> Result<[RawBsonRef<'s>; 2]> {
    let wrong =
        || failed(format!("{name} must be specified with an array of two expressions, but got {}", show(source)));
    let RawBsonRef::Array(array) = source else { return Err(wrong()) };
    value::items(array).collect::<Result<Vec<_>>>()?.try_into().map_err(|_| wrong())
}
