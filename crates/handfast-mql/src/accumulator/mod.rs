//! Accumulators compute the fields of a `$group` from the documents of a group, and those of `$bucketAuto` from a bucket.
//!
//! An [`Accumulator`] is compiled once; each group starts a [`State`] of it, feeds it documents and finishes it. The
//! same arithmetic serves the expression forms (`{$sum: "$array"}`).
//!
//! Sums are exact as long as all numbers are whole: longs are added in 128 bits. Doubles are added with the rounding
//! error kept aside (Neumaier's variant of Kahan's summation), so that the order of documents has hardly any effect.

mod compile;
mod deviation;
mod quantile;
mod selected_n;
mod state;
mod sum;
#[cfg(test)]
mod tests;
pub(crate) mod window;

use bson::RawBsonRef;

pub(crate) use self::{
    compile::Accumulator,
    deviation::Deviation,
    quantile::{Quantiles, quantiles_of, read_quantiles},
    state::State,
    sum::{Average, Sum},
};
use crate::{
    error::Result,
    expression::{Value, value},
};

/// Calls a function with each value of an array, or with a value that is no array.
pub(crate) fn each<'v>(value: &'v Value<'_>, mut visit: impl FnMut(RawBsonRef<'v>) -> Result<()>) -> Result<()> {
    match value.get() {
        None => Ok(()),
        Some(RawBsonRef::Array(array)) => {
            for item in value::items(array) {
                visit(item?)?;
            }
            Ok(())
        }
        Some(other) => visit(other),
    }
}
