//! `$bucket`, which is a `$group` by ranges, and `$bucketAuto`, which finds ranges of about equal size.

use std::cmp::Ordering;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use super::{
    Stage,
    granularity::{Granularity, groupable},
    group::{Accumulation, Group, accumulation, add, bytes, finish, start},
    memory::{ENTRY_BYTES, StageMemory},
    operator::{Flow, Operator},
    sort::SortStage,
};
use crate::{
    collation::Collation,
    context::{CompileOptions, Context},
    error::{Code, Error, Result},
    expression::{
        Expression,
        convert::integer_of,
        value::{self, show, type_name},
    },
    number::Number,
    order,
};

/// Compiles `$bucket` into a `$group` by a `$switch` over the boundaries, and a `$sort` by `_id`.
pub(super) fn bucket(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Vec<Stage>> {
    let RawBsonRef::Document(document) = argument else {
        return Err(Error::new(
            Code(40_201),
            format!("Argument to $bucket stage must be an object, but found type: {}", type_name(argument)),
        ));
    };
    let (mut by, mut boundaries, mut default, mut output) = (None, None, None, None);
    for field in value::fields(document) {
        let (key, item) = field?;
        match key.as_str() {
            "groupBy" => by = Some(grouping("$bucket", 40_202, item)?),
            "boundaries" => boundaries = Some(read_boundaries(item, options)?),
            "default" => default = Some(constant(item, options, 40_195, "'default' field")?),
            "output" => output = Some(fields_of("$bucket", 40_196, item, options)?),
            other => {
                return Err(Error::new(Code(40_197), format!("Unrecognized option to $bucket: {other}.")));
            }
        }
    }
    let (Some(by), Some(boundaries)) = (by, boundaries) else {
        return Err(Error::new(Code(40_198), "$bucket requires 'groupBy' and 'boundaries' to be specified."));
    };
    if let (Some(default), [low, .., high]) = (&default, &boundaries[..]) {
        let default = default.as_raw_bson_ref();
        let collation = options.collation.as_ref();
        let inside = order::compare_under(default, low.as_raw_bson_ref(), collation).is_ge()
            && order::compare_under(default, high.as_raw_bson_ref(), collation).is_lt();
        if inside {
            return Err(Error::new(
                Code(40_199),
                "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the \
                 highest boundary.",
            ));
        }
    }
    let id = Expression::compile(RawBsonRef::Document(&switch(by, &boundaries, default.as_ref())), options)?;
    let group = Group::new(id, output.map_or_else(|| count(options), Ok)?);
    Ok(vec![Stage::Group(group), Stage::Sort(SortStage::compile(&rawdoc! { "_id": 1 }, options)?)])
}

/// Returns the expression whose value is the lower boundary of the bucket of a value.
fn switch(by: RawBsonRef<'_>, boundaries: &[RawBson], default: Option<&RawBson>) -> RawDocumentBuf {
    let compare = |operator: &'static bson::raw::CStr, boundary: &RawBson| {
        let mut arguments = RawArrayBuf::new();
        arguments.push(by);
        arguments.push(literal(boundary));
        let mut document = RawDocumentBuf::new();
        document.append(operator, arguments);
        document
    };
    let mut branches = RawArrayBuf::new();
    for pair in boundaries.windows(2) {
        let [low, high] = pair else { continue };
        let mut both = RawArrayBuf::new();
        both.push(compare(bson::raw::cstr!("$gte"), low));
        both.push(compare(bson::raw::cstr!("$lt"), high));
        branches.push(rawdoc! { "case": { "$and": both }, "then": literal(low) });
    }
    let mut body = rawdoc! { "branches": branches };
    if let Some(default) = default {
        body.append(bson::raw::cstr!("default"), literal(default));
    }
    rawdoc! { "$switch": body }
}

fn literal(value: &RawBson) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(bson::raw::cstr!("$literal"), value.as_raw_bson_ref());
    document
}

/// Reads `groupBy`, which must be a path or an operator.
fn grouping<'s>(stage: &str, code: i32, item: RawBsonRef<'s>) -> Result<RawBsonRef<'s>> {
    match item {
        RawBsonRef::String(text) if text.starts_with('$') => Ok(item),
        RawBsonRef::Document(_) => Ok(item),
        other => Err(Error::new(
            Code(code),
            format!(
                "The {stage} 'groupBy' field must be defined as a $-prefixed path or an expression object, but found: {}.",
                show(other)
            ),
        )),
    }
}

fn constant(item: RawBsonRef<'_>, options: &CompileOptions, code: i32, what: &str) -> Result<RawBson> {
    let expression = Expression::compile(item, options)?;
    expression.constant().map(value::to_owned).ok_or_else(|| {
        Error::new(Code(code), format!("The $bucket {what} must be a constant expression, but found: {}.", show(item)))
    })
}

fn read_boundaries(item: RawBsonRef<'_>, options: &CompileOptions) -> Result<Vec<RawBson>> {
    let RawBsonRef::Array(array) = item else {
        return Err(Error::new(
            Code(40_200),
            format!("The $bucket 'boundaries' field must be an array, but found type: {}.", type_name(item)),
        ));
    };
    let mut boundaries = Vec::new();
    for item in value::items(array) {
        boundaries.push(constant(item?, options, 40_191, "'boundaries' field")?);
    }
    if boundaries.len() < 2 {
        return Err(Error::new(
            Code(40_192),
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
                boundaries.len()
            ),
        ));
    }
    for (index, pair) in boundaries.windows(2).enumerate() {
        let [low, high] = pair else { continue };
        let (low, high) = (low.as_raw_bson_ref(), high.as_raw_bson_ref());
        if order::type_rank(low) != order::type_rank(high) {
            return Err(Error::new(
                Code(40_193),
                format!(
                    "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting \
                     types {} and {}.",
                    type_name(low),
                    type_name(high)
                ),
            ));
        }
        if order::compare_under(low, high, options.collation.as_ref()) != Ordering::Less {
            return Err(Error::new(
                Code(40_194),
                format!(
                    "The 'boundaries' option to $bucket must be sorted, but elements {index} and {} are not in \
                     ascending order ({} is not less than {}).",
                    index + 1,
                    show(low),
                    show(high)
                ),
            ));
        }
    }
    Ok(boundaries)
}

fn fields_of(stage: &str, code: i32, item: RawBsonRef<'_>, options: &CompileOptions) -> Result<Vec<Accumulation>> {
    let RawBsonRef::Document(document) = item else {
        return Err(Error::new(
            Code(code),
            format!("The {stage} 'output' field must be an object, but found type: {}.", type_name(item)),
        ));
    };
    value::fields(document)
        .map(|field| {
            let (key, item) = field?;
            accumulation(key.as_str(), item, options)
        })
        .collect()
}

/// Returns the default output of a bucket: the number of its documents.
fn count(options: &CompileOptions) -> Result<Vec<Accumulation>> {
    Ok(vec![accumulation("count", RawBsonRef::Document(&rawdoc! { "$sum": 1 }), options)?])
}

/// A compiled `$bucketAuto`.
#[derive(Debug)]
pub struct BucketAuto {
    by: Expression,
    buckets: usize,
    output: Vec<Accumulation>,
    granularity: Option<Granularity>,
}

impl BucketAuto {
    /// Compiles `{groupBy, buckets, output, granularity}`.
    ///
    /// # Errors
    /// 40239 to 40246 for arguments that do not fit; the errors of [`Granularity::read`].
    pub fn compile(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<BucketAuto> {
        let RawBsonRef::Document(document) = argument else {
            return Err(Error::new(
                Code(40_240),
                format!("The argument to $bucketAuto must be an object, but found type: {}.", type_name(argument)),
            ));
        };
        let (mut by, mut buckets, mut output, mut granularity) = (None, None, None, None);
        for field in value::fields(document) {
            let (key, item) = field?;
            match key.as_str() {
                "groupBy" => by = Some(Expression::compile(grouping("$bucketAuto", 40_239, item)?, options)?),
                "buckets" => buckets = Some(bucket_count(item)?),
                "output" => output = Some(fields_of("$bucketAuto", 40_244, item, options)?),
                "granularity" => granularity = Some(Granularity::read(item)?),
                other => {
                    return Err(Error::new(Code(40_245), format!("Unrecognized option to $bucketAuto: {other}.")));
                }
            }
        }
        match (by, buckets) {
            (Some(by), Some(buckets)) => {
                let output = output.map_or_else(|| count(options), Ok)?;
                Ok(BucketAuto { by, buckets, output, granularity })
            }
            _ => Err(Error::new(Code(40_246), "$bucketAuto requires 'groupBy' and 'buckets' to be specified")),
        }
    }

    pub(super) fn operator<'p>(&'p self, context: &'p Context) -> Box<dyn Operator + 'p> {
        Box::new(Bucketing { stage: self, context, memory: StageMemory::new("$bucketAuto", context), held: Vec::new() })
    }
}

fn bucket_count(item: RawBsonRef<'_>) -> Result<usize> {
    if !crate::expression::is_number(item) {
        return Err(Error::new(
            Code(40_241),
            format!("The $bucketAuto 'buckets' field must be a numeric value, but found type: {}.", type_name(item)),
        ));
    }
    let Some(count) = integer_of(item).and_then(|count| i32::try_from(count).ok()) else {
        return Err(Error::new(
            Code(40_242),
            format!(
                "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {}.",
                show(item)
            ),
        ));
    };
    usize::try_from(count).ok().filter(|count| *count > 0).ok_or_else(|| {
        Error::new(Code(40_243), format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {count}."))
    })
}

struct Bucketing<'p> {
    stage: &'p BucketAuto,
    context: &'p Context,
    memory: StageMemory,
    held: Vec<HeldDocument>,
}

/// A document with its value of `groupBy`.
struct HeldDocument {
    by: RawBson,
    document: RawDocumentBuf,
}

impl Operator for Bucketing<'_> {
    fn push(&mut self, document: RawDocumentBuf, _: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let by = self.stage.by.evaluate(&document, self.context)?.into_owned().unwrap_or(RawBson::Null);
        if self.stage.granularity.is_some() {
            groupable(by.as_raw_bson_ref())?;
        }
        // The value is a part of the document, or about as large as the parts that it was computed from.
        self.memory.reserve(2 * document.as_bytes().len() + ENTRY_BYTES)?;
        self.held.push(HeldDocument { by, document });
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let mut held = std::mem::take(&mut self.held);
        let collation = self.context.collation();
        held.sort_by(|left, right| {
            order::compare_under(left.by.as_raw_bson_ref(), right.by.as_raw_bson_ref(), collation)
        });
        let buckets = self.stage.buckets;
        let size = ((held.len() as f64 / buckets as f64).round() as usize).max(1);
        let mut from = 0;
        // The lower bound of the next bucket, if it is not that of its first value.
        let mut lower: Option<RawBson> = None;
        for number in 1..=buckets {
            let Some(first) = held.get(from) else { break };
            let wanted = if number == buckets { held.len() } else { (from + size).min(held.len()) };
            let (end, low, high) = match &self.stage.granularity {
                None => {
                    let end = bucket_end(&held, wanted, collation);
                    // The upper bound of a bucket is the lower bound of the next one; that of the last bucket is its greatest value.
                    let high = held.get(end).or_else(|| held.last()).map_or(RawBson::Null, |next| next.by.clone());
                    (end, first.by.clone(), high)
                }
                Some(granularity) => {
                    let (end, high) = rounded_end(granularity, &held, wanted)?;
                    let low = match lower.take() {
                        Some(low) => low,
                        None => granularity.below(groupable(first.by.as_raw_bson_ref())?),
                    };
                    lower = Some(high.clone());
                    (end, low, high)
                }
            };
            let id = id_of(low.as_raw_bson_ref(), high.as_raw_bson_ref());
            let id = RawBsonRef::Document(&id);
            let mut states = start(&self.stage.output, id, self.context)?;
            for HeldDocument { document, .. } in &held[from..end] {
                add(&self.stage.output, &mut states, document, self.context)?;
            }
            self.memory.reserve(bytes(&states))?;
            out.push(finish(&self.stage.output, states, id)?);
            from = end;
        }
        Ok(Flow::Done)
    }
}

/// Returns the end of a bucket that should end before `end`, moved so that equal values stay together.
fn bucket_end(held: &[HeldDocument], end: usize, collation: Option<&Collation>) -> usize {
    let mut end = end.min(held.len());
    let Some(last) = end.checked_sub(1).and_then(|last| held.get(last)) else { return end };
    while let Some(next) = held.get(end) {
        if order::compare_under(next.by.as_raw_bson_ref(), last.by.as_raw_bson_ref(), collation).is_ne() {
            break;
        }
        end += 1;
    }
    end
}

/// Returns the end of a bucket that should end before `wanted`, and its upper bound: the preferred number above its last value. All values
/// below that bound are in the bucket.
fn rounded_end(granularity: &Granularity, held: &[HeldDocument], wanted: usize) -> Result<(usize, RawBson)> {
    let number = |place: usize| held.get(place).map(|held| groupable(held.by.as_raw_bson_ref())).transpose();
    let last = number(wanted.saturating_sub(1))?.unwrap_or(Number::Int(0));
    if last.is_zero() {
        // No preferred number is next to 0: the bucket of zeros ends below the next value.
        let end = held.partition_point(|held| Number::of(held.by.as_raw_bson_ref()).is_none_or(Number::is_zero));
        return Ok((end, granularity.below(number(end)?.unwrap_or(last))));
    }
    let high = granularity.above(last);
    let is_below = |held: &HeldDocument| order::compare(held.by.as_raw_bson_ref(), high.as_raw_bson_ref()).is_lt();
    Ok((held.partition_point(is_below).max(wanted), high))
}

fn id_of(low: RawBsonRef<'_>, high: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut id = RawDocumentBuf::new();
    id.append(bson::raw::cstr!("min"), low);
    id.append(bson::raw::cstr!("max"), high);
    id
}

/// Reads a document argument of a stage.
pub(super) fn document_of<'s>(argument: RawBsonRef<'s>, error: impl FnOnce() -> Error) -> Result<&'s RawDocument> {
    argument.as_document().ok_or_else(error)
}
