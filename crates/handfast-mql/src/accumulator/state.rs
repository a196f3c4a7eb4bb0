//! The state of an accumulator for one group.

use std::collections::HashSet;

use bson::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::{
    Average, Deviation, Quantiles, Sum,
    compile::{Accumulator, Kind, Selection, bytes_of, count_for, owned_or_null},
    quantiles_of,
    selected_n::{SelectedN, TopN},
};
use crate::{
    collation::Collation,
    context::Context,
    error::{Code, Error, Result},
    expression::{Value, object::merge_value, value::type_name},
    key,
    number::Number,
    order,
};
#[derive(Debug)]
pub(crate) struct State {
    gathered: Accumulated,
    bytes: usize,
}

#[derive(Debug)]
enum Accumulated {
    Sum(Sum),
    Average(Average),
    Extreme(Option<RawBson>),
    First(Option<RawBson>),
    Last(RawBson),
    Push(RawArrayBuf),
    Set { seen: HashSet<Vec<u8>>, values: RawArrayBuf },
    Deviation(Deviation),
    Merged(RawDocumentBuf),
    Count(i64),
    SelectedN(SelectedN),
    TopN(TopN),
    Numbers(Vec<f64>),
}
const STATE_BYTES: usize = 64;

impl State {
    pub(super) fn start(accumulator: &Accumulator, group: &RawDocument, context: &Context) -> Result<State> {
        let gathered = match &accumulator.kind {
            Kind::Sum(_) => Accumulated::Sum(Sum::default()),
            Kind::Average(_) => Accumulated::Average(Average::default()),
            Kind::Minimum(_) | Kind::Maximum(_) => Accumulated::Extreme(None),
            Kind::First(_) => Accumulated::First(None),
            Kind::Last(_) => Accumulated::Last(RawBson::Null),
            Kind::Push(_) | Kind::ConcatArrays(_) => Accumulated::Push(RawArrayBuf::new()),
            Kind::AddToSet(_) | Kind::SetUnion(_) => {
                Accumulated::Set { seen: HashSet::new(), values: RawArrayBuf::new() }
            }
            Kind::Deviation { .. } => Accumulated::Deviation(Deviation::default()),
            Kind::MergeObjects(_) => Accumulated::Merged(RawDocumentBuf::new()),
            Kind::Count => Accumulated::Count(0),
            Kind::SelectedN { n, selection, .. } => {
                Accumulated::SelectedN(SelectedN::new(count_for(n, group, context)?, *selection))
            }
            Kind::TopN { n, bottom, .. } => {
                let n = n.as_ref().map_or(Ok(1), |n| count_for(n, group, context))?;
                Accumulated::TopN(TopN::new(n, *bottom))
            }
            Kind::Quantile { .. } => Accumulated::Numbers(Vec::new()),
        };
        Ok(State { gathered, bytes: STATE_BYTES })
    }
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    pub(crate) fn add(&mut self, accumulator: &Accumulator, document: &RawDocument, context: &Context) -> Result<()> {
        let bytes = &mut self.bytes;
        match (&mut self.gathered, &accumulator.kind) {
            (Accumulated::Sum(sum), Kind::Sum(input)) => {
                if let Some(number) = number(&input.evaluate(document, context)?) {
                    sum.add(number);
                }
            }
            (Accumulated::Average(average), Kind::Average(input)) => {
                if let Some(number) = number(&input.evaluate(document, context)?) {
                    average.add(number);
                }
            }
            (Accumulated::Extreme(best), Kind::Minimum(input)) => {
                extreme(best, input.evaluate(document, context)?, std::cmp::Ordering::Less, context.collation(), bytes);
            }
            (Accumulated::Extreme(best), Kind::Maximum(input)) => {
                extreme(
                    best,
                    input.evaluate(document, context)?,
                    std::cmp::Ordering::Greater,
                    context.collation(),
                    bytes,
                );
            }
            (Accumulated::First(first), Kind::First(input)) if first.is_none() => {
                let value = owned_or_null(input.evaluate(document, context)?);
                *bytes += bytes_of(value.as_raw_bson_ref());
                *first = Some(value);
            }
            (Accumulated::Last(last), Kind::Last(input)) => {
                *last = owned_or_null(input.evaluate(document, context)?);
                *bytes = STATE_BYTES + bytes_of(last.as_raw_bson_ref());
            }
            (Accumulated::Push(values), Kind::Push(input)) => {
                if let Some(value) = input.evaluate(document, context)?.get() {
                    values.push(value);
                    *bytes = STATE_BYTES + values.as_bytes().len();
                }
            }
            (Accumulated::Set { seen, values }, Kind::AddToSet(input)) => {
                if let Some(value) = input.evaluate(document, context)?.get() {
                    add_to_set(seen, values, value, context.collation(), bytes);
                }
            }
            (Accumulated::Push(values), Kind::ConcatArrays(input)) => {
                let value = input.evaluate(document, context)?;
                for item in array("$concatArrays", &value)?.into_iter().flatten() {
                    values.push(item?);
                }
                *bytes = STATE_BYTES + values.as_bytes().len();
            }
            (Accumulated::Set { seen, values }, Kind::SetUnion(input)) => {
                let value = input.evaluate(document, context)?;
                for item in array("$setUnion", &value)?.into_iter().flatten() {
                    add_to_set(seen, values, item?, context.collation(), bytes);
                }
            }
            (Accumulated::Deviation(deviation), Kind::Deviation { input, .. }) => {
                if let Some(number) = number(&input.evaluate(document, context)?) {
                    deviation.add(number);
                }
            }
            (Accumulated::Merged(merged), Kind::MergeObjects(input)) => {
                merge_value(merged, &input.evaluate(document, context)?)?;
                *bytes = STATE_BYTES + merged.as_bytes().len();
            }
            (Accumulated::Count(count), Kind::Count) => *count += 1,
            (Accumulated::SelectedN(selected), Kind::SelectedN { input, selection, .. }) if selected.wants_more() => {
                let value = input.evaluate(document, context)?;
                let by_value = matches!(selection, Selection::Smallest | Selection::Largest);
                if !(by_value && value.is_nullish()) {
                    let value = owned_or_null(value);
                    *bytes += bytes_of(value.as_raw_bson_ref());
                    if let Some(gone) = selected.add(value, context.collation()) {
                        *bytes -= bytes_of(gone.as_raw_bson_ref());
                    }
                }
            }
            (Accumulated::TopN(top), Kind::TopN { sort, output, .. }) => {
                let key = sort.key(document)?;
                if top.wants(&key) {
                    let value = owned_or_null(output.evaluate(document, context)?);
                    *bytes += key.len() + bytes_of(value.as_raw_bson_ref());
                    if let Some((key, gone)) = top.add(key, value) {
                        *bytes -= key.len() + bytes_of(gone.as_raw_bson_ref());
                    }
                }
            }
            (Accumulated::Numbers(numbers), Kind::Quantile { input, .. }) => {
                if let Some(number) = number(&input.evaluate(document, context)?) {
                    numbers.push(number.to_f64());
                    *bytes += size_of::<f64>();
                }
            }
            // The first value, or the first n, are complete; a state is always fed by its own accumulator.
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn finish(self, accumulator: &Accumulator) -> RawBson {
        match self.gathered {
            Accumulated::Sum(sum) => RawBson::from(sum.total()),
            Accumulated::Average(average) => number_or_null(average.result()),
            Accumulated::Extreme(value) | Accumulated::First(value) => value.unwrap_or(RawBson::Null),
            Accumulated::Last(value) => value,
            Accumulated::Push(values) | Accumulated::Set { values, .. } => RawBson::Array(values),
            Accumulated::Deviation(deviation) => {
                let sample = matches!(accumulator.kind, Kind::Deviation { sample: true, .. });
                deviation.result(sample).map_or(RawBson::Null, RawBson::Double)
            }
            Accumulated::Merged(document) => RawBson::Document(document),
            Accumulated::Count(count) => i32::try_from(count).map_or(RawBson::Int64(count), RawBson::Int32),
            Accumulated::SelectedN(selected) => RawBson::Array(selected.into_values().into_iter().collect()),
            Accumulated::TopN(top) => {
                let outputs = top.into_outputs();
                match accumulator.kind {
                    Kind::TopN { n: None, .. } => outputs.into_iter().next().unwrap_or(RawBson::Null),
                    _ => RawBson::Array(outputs.into_iter().collect()),
                }
            }
            Accumulated::Numbers(numbers) => match &accumulator.kind {
                Kind::Quantile { quantiles, .. } => quantiles_of(numbers, quantiles),
                _ => quantiles_of(numbers, &Quantiles::Median),
            },
        }
    }
}

/// Returns the array that an accumulator of arrays takes; none for a missing field.
pub(super) fn array<'v>(name: &str, value: &'v Value<'_>) -> Result<Option<&'v RawArray>> {
    match value.get() {
        None => Ok(None),
        Some(RawBsonRef::Array(array)) => Ok(Some(array)),
        Some(other) => {
            let kind = type_name(other);
            Err(Error::new(Code::TypeMismatch, format!("{name} requires array inputs, but an input is of type {kind}")))
        }
    }
}

pub(super) fn number(value: &Value<'_>) -> Option<Number> {
    value.get().and_then(Number::of)
}

pub(super) fn number_or_null(number: Option<Number>) -> RawBson {
    number.map_or(RawBson::Null, RawBson::from)
}

/// Keeps the smaller or greater of two values, depending on the direction; ignores null and missing values.
fn extreme(
    best: &mut Option<RawBson>,
    value: Value<'_>,
    direction: std::cmp::Ordering,
    collation: Option<&Collation>,
    bytes: &mut usize,
) {
    if value.is_nullish() {
        return;
    }
    let better = match best {
        None => true,
        Some(best) => order::compare_under(value.or_null(), best.as_raw_bson_ref(), collation) == direction,
    };
    if better {
        *best = value.into_owned();
        *bytes = STATE_BYTES + best.as_ref().map_or(0, |best| bytes_of(best.as_raw_bson_ref()));
    }
}

fn add_to_set(
    seen: &mut HashSet<Vec<u8>>,
    values: &mut RawArrayBuf,
    value: RawBsonRef<'_>,
    collation: Option<&Collation>,
    bytes: &mut usize,
) {
    let identity = key::encoded_under(value, collation);
    let identity_bytes = identity.len();
    if seen.insert(identity) {
        values.push(value);
        *bytes += identity_bytes + STATE_BYTES + bytes_of(value);
    }
}
