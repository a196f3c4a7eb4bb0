//! `$percentile` and `$median`: the number at a rank of the sorted numbers, exactly (no digest that approximates).

use bson::{RawArrayBuf, RawBson, RawBsonRef};

use crate::{
    error::{Code, Error, Result},
    expression::{
        compile::{NamedErrors, named_sources},
        value::{self, type_name},
    },
    number::Number,
};
#[derive(Clone, Debug)]
pub(crate) enum Quantiles {
    Median,
    List(Vec<f64>),
}

/// Reads `{input, p, method}`; returns the source of the input.
pub(crate) fn read_quantiles<'s>(name: &str, argument: RawBsonRef<'s>) -> Result<(RawBsonRef<'s>, Quantiles)> {
    let errors = NamedErrors { no_object: Code(7_436_100), unknown: Code(40_415) };
    let needed = |source: Option<RawBsonRef<'s>>, field: &str| {
        source.ok_or_else(|| {
            Error::new(Code(40_414), format!("BSON field '{name}.{field}' is missing but a required field"))
        })
    };
    let (input, method, p) = if name == "$median" {
        let [input, method] = named_sources(name, argument, ["input", "method"], &errors)?;
        (input, method, None)
    } else {
        let [input, p, method] = named_sources(name, argument, ["input", "p", "method"], &errors)?;
        (input, method, Some(needed(p, "p")?))
    };
    let input = needed(input, "input")?;
    match needed(method, "method")? {
        RawBsonRef::String("approximate") => {}
        other => {
            return Err(Error::new(
                Code::BadValue,
                format!(
                    "Currently only 'approximate' can be used as percentile 'method', found {}",
                    value::show(other)
                ),
            ));
        }
    }
    let quantiles = match p {
        None => Quantiles::Median,
        Some(p) => Quantiles::List(read_list(p)?),
    };
    Ok((input, quantiles))
}

fn read_list(p: RawBsonRef<'_>) -> Result<Vec<f64>> {
    let RawBsonRef::Array(array) = p else {
        return Err(Error::new(
            Code(7_750_300),
            format!(
                "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}",
                type_name(p)
            ),
        ));
    };
    let mut list = Vec::new();
    for item in value::items(array) {
        let item = item?;
        let number = Number::of(item).map(Number::to_f64).filter(|p| (0.0..=1.0).contains(p));
        list.push(number.ok_or_else(|| {
            Error::new(
                Code(7_750_303),
                format!(
                    "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}",
                    value::show(item)
                ),
            )
        })?);
    }
    if list.is_empty() {
        return Err(Error::new(
            Code(7_750_301),
            "The $percentile 'p' field must be a non-empty array of numbers from [0.0, 1.0]",
        ));
    }
    Ok(list)
}

/// Returns the quantiles of numbers; null if there are no numbers.
pub(crate) fn quantiles_of(mut numbers: Vec<f64>, quantiles: &Quantiles) -> RawBson {
    numbers.sort_by(f64::total_cmp);
    quantiles_by(numbers.len(), |index| numbers.get(index).copied(), quantiles)
}

/// Returns the quantiles of `count` numbers, of which `nth` returns one by its place in the order, from 0.
pub(super) fn quantiles_by(count: usize, nth: impl Fn(usize) -> Option<f64>, quantiles: &Quantiles) -> RawBson {
    let at = |p: f64| -> RawBsonRef<'static> {
        let rank = (p * count as f64).ceil() as usize;
        nth(rank.saturating_sub(1)).map_or(RawBsonRef::Null, RawBsonRef::Double)
    };
    match quantiles {
        Quantiles::Median => RawBson::from(at(0.5)),
        Quantiles::List(list) => RawBson::Array(list.iter().map(|p| at(*p)).collect::<RawArrayBuf>()),
    }
}
