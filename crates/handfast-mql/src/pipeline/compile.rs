//! Compiles pipelines, and checks the position of each stage.

use bson::{RawBsonRef, RawDocument, rawdoc};

use super::{
    BucketAuto, Densify, Facet, Group, Pipeline, Redact, SetWindowFields, SortStage, Stage, Unwind, bucket, fill,
    foreign,
};
use crate::{
    context::CompileOptions,
    error::{Code, Error, Result},
    expression::{
        Expression, is_operator,
        value::{self, show, type_name},
    },
    filter::Filter,
    number::Number,
    projection::Projection,
};

/// MongoDB's bound on the length of a pipeline.
const STAGES_MAX: usize = 1000;

/// The most levels of pipelines inside `$lookup`, `$unionWith` and `$facet`, as in MongoDB.
const PIPELINE_DEPTH_MAX: usize = 20;

/// Checks the number of pipelines around a pipeline.
///
/// # Errors
/// `MaxSubPipelineDepthExceeded` (232).
pub fn check_pipeline_depth(depth: usize) -> Result<()> {
    if depth <= PIPELINE_DEPTH_MAX {
        return Ok(());
    }
    let text = format!("Maximum number of nested sub-pipelines exceeded. Limit is {PIPELINE_DEPTH_MAX}");
    Err(Error::new(Code::MaxSubPipelineDepthExceeded, text))
}

/// The place in a command where a pipeline is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipelineLocation {
    /// The pipeline is the aggregate command's own.
    TopLevel,
    /// The pipeline is inside `$lookup`.
    Lookup,
    /// The pipeline is inside `$unionWith`.
    UnionWith,
    /// The pipeline is inside `$facet`.
    Facet,
}

/// The options and the enclosing pipelines that a stage is compiled with.
#[derive(Clone, Copy)]
pub(super) struct StageContext<'o> {
    pub(super) options: &'o CompileOptions,
    location: PipelineLocation,
    depth: usize,
}

impl<'o> StageContext<'o> {
    /// Returns the context of the stages of an inner pipeline.
    pub(super) fn inner<'i>(
        &self,
        location: PipelineLocation,
        options: &'i CompileOptions,
    ) -> Result<StageContext<'i>> {
        check_pipeline_depth(self.depth + 1)?;
        Ok(StageContext { options, location, depth: self.depth + 1 })
    }
}

pub(super) fn pipeline(stages: &[impl AsRef<RawDocument>], options: &CompileOptions) -> Result<Pipeline> {
    let stage_context = StageContext { options, location: PipelineLocation::TopLevel, depth: 0 };
    of_stages(stages.iter().map(|stage| Ok(RawBsonRef::Document(stage.as_ref()))), stage_context)
}

/// Compiles a pipeline that is an array inside a stage.
pub(super) fn of_array(array: RawBsonRef<'_>, stage_context: StageContext<'_>) -> Result<Pipeline> {
    let RawBsonRef::Array(array) = array else {
        return Err(Error::new(Code::TypeMismatch, "'pipeline' option must be specified as an array"));
    };
    of_stages(value::items(array), stage_context)
}

fn of_stages<'s>(
    sources: impl Iterator<Item = Result<RawBsonRef<'s>>>,
    stage_context: StageContext<'_>,
) -> Result<Pipeline> {
    let mut stages: Vec<Stage> = Vec::new();
    let mut leading = Vec::new();
    for (index, source) in sources.enumerate() {
        if index >= STAGES_MAX {
            return Err(Error::new(
                Code(7_749_501),
                format!("Pipeline length must be no longer than {STAGES_MAX} stages."),
            ));
        }
        let RawBsonRef::Document(source) = source? else {
            return Err(Error::new(Code::TypeMismatch, "Each element of the 'pipeline' array must be an object"));
        };
        if let Some(last @ (Stage::Out(_) | Stage::Merge(_))) = stages.last() {
            return Err(Error::new(
                Code(40_601),
                format!("{} can only be the final stage in the pipeline", last.name()),
            ));
        }
        for stage in stage(source, stage_context)? {
            check_location(&stage, index, stage_context.location)?;
            // Each of these is one stage as it is written, and none has another pipeline inside.
            let may_lead = matches!(stage, Stage::Match(_) | Stage::Sort(_) | Stage::Skip(_) | Stage::Limit(_));
            if may_lead && leading.len() == index && stages.len() == index {
                leading.push(source.to_owned());
            }
            if let Stage::Limit(limit) = stage {
                limit_sort(&mut stages, limit);
            }
            stages.push(stage);
        }
    }
    Ok(Pipeline { stages, leading })
}

/// Sets the limit of a `$sort` to that of a later `$limit`, plus the documents that a `$skip` between them leaves out.
fn limit_sort(stages: &mut [Stage], limit: u64) {
    let mut wanted = limit;
    for stage in stages.iter_mut().rev() {
        match stage {
            Stage::Skip(skip) => wanted = wanted.saturating_add(*skip),
            Stage::Sort(sort) => return sort.set_limit(wanted),
            _ => return,
        }
    }
}

fn check_location(stage: &Stage, index: usize, location: PipelineLocation) -> Result<()> {
    let name = stage.name();
    match (stage, location) {
        (Stage::Documents(_), _) if index > 0 => {
            Err(Error::new(Code(40_602), format!("{name} is only valid as the first stage in a pipeline.")))
        }
        (Stage::Out(_) | Stage::Merge(_), PipelineLocation::Lookup) => {
            Err(Error::new(Code(51_047), format!("{name} is not allowed within a $lookup's sub-pipeline")))
        }
        (Stage::Out(_) | Stage::Merge(_), PipelineLocation::UnionWith) => {
            Err(Error::new(Code(31_441), format!("{name} is not allowed within a $unionWith's sub-pipeline")))
        }
        (Stage::Out(_) | Stage::Merge(_) | Stage::Facet(_) | Stage::Documents(_), PipelineLocation::Facet) => {
            Err(Error::new(Code(40_600), format!("{name} is not allowed to be used within a $facet stage")))
        }
        _ => Ok(()),
    }
}

/// The stages of MongoDB that Handfast does not support. They are refused by name, not as unknown.
const UNSUPPORTED: &[&str] = &[
    "$changeStreamSplitLargeEvent",
    "$collStats",
    "$currentOp",
    "$geoNear",
    "$indexStats",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
    "$rankFusion",
    "$score",
    "$scoreFusion",
    "$search",
    "$searchMeta",
    "$shardedDataDistribution",
    "$vectorSearch",
];

/// Compiles a stage; some names are short for several stages.
fn stage(source: &RawDocument, stage_context: StageContext<'_>) -> Result<Vec<Stage>> {
    let mut fields = value::fields(source);
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(Error::new(Code(40_323), "A pipeline stage specification object must contain exactly one field."));
    };
    let (name, argument) = field?;
    let options = stage_context.options;
    let one = match name.as_str() {
        "$match" => Stage::Match(matching(argument, options)?),
        "$project" => Stage::Project(Projection::compile_project(object("$project", 15_969, argument)?, options)?),
        name @ ("$addFields" | "$set") => {
            Stage::Project(Projection::compile_add_fields(name, object(name, 40_272, argument)?, options)?)
        }
        "$unset" => Stage::Project(Projection::compile_unset(argument)?),
        "$unwind" => Stage::Unwind(Unwind::compile(argument)?),
        "$group" => {
            let document = argument
                .as_document()
                .ok_or_else(|| Error::new(Code(15_947), "a group's fields must be specified in an object"))?;
            Stage::Group(Group::compile(document, options)?)
        }
        "$sort" => {
            let document = argument
                .as_document()
                .ok_or_else(|| Error::new(Code(15_973), "the $sort key specification must be an object"))?;
            Stage::Sort(SortStage::compile(document, options)?)
        }
        "$limit" => Stage::Limit(limit(argument)?),
        "$skip" => Stage::Skip(whole("$skip", argument, 5_107_200)?),
        "$count" => Stage::Count(count_field(argument)?),
        "$sortByCount" => return sort_by_count(argument, options),
        "$replaceRoot" => Stage::ReplaceRoot(new_root(argument, options)?),
        "$replaceWith" => Stage::ReplaceRoot(Expression::compile(argument, options)?),
        "$bucket" => return bucket::bucket(argument, options),
        "$bucketAuto" => Stage::BucketAuto(BucketAuto::compile(argument, options)?),
        "$setWindowFields" => Stage::SetWindowFields(Box::new(SetWindowFields::compile(argument, options)?)),
        "$densify" => Stage::Densify(Box::new(Densify::compile(argument, options)?)),
        "$fill" => return fill::fill(argument, options),
        "$sample" => Stage::Sample(sample(argument)?),
        "$facet" => Stage::Facet(facet(argument, stage_context)?),
        "$redact" => Stage::Redact(Redact::compile(argument, options)?),
        "$documents" => Stage::Documents(Expression::compile(argument, options)?),
        "$lookup" => Stage::Lookup(Box::new(foreign::Lookup::compile(argument, stage_context)?)),
        "$unionWith" => Stage::UnionWith(foreign::UnionWith::compile(argument, stage_context)?),
        "$graphLookup" => Stage::GraphLookup(Box::new(foreign::GraphLookup::compile(argument, options)?)),
        "$out" => Stage::Out(foreign::Out::compile(argument)?),
        "$merge" => Stage::Merge(Box::new(foreign::Merge::compile(argument, options)?)),
        "$changeStream" => {
            return Err(Error::new(Code(40_602), "$changeStream is only valid as the first stage in a pipeline."));
        }
        other if UNSUPPORTED.contains(&other) => {
            return Err(Error::new(Code::NotImplemented, format!("the pipeline stage {other} is not supported")));
        }
        other => {
            return Err(Error::new(Code(40_324), format!("Unrecognized pipeline stage name: '{other}'")));
        }
    };
    Ok(vec![one])
}

fn object<'s>(name: &str, code: i32, argument: RawBsonRef<'s>) -> Result<&'s RawDocument> {
    bucket::document_of(argument, || {
        Error::new(Code(code), format!("{name} specification stage must be an object, got {}", type_name(argument)))
    })
}

fn matching(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Filter> {
    let document = argument
        .as_document()
        .ok_or_else(|| Error::new(Code(15_959), "the match filter must be an expression in an object"))?;
    Filter::compile(document, options)
}

fn limit(argument: RawBsonRef<'_>) -> Result<u64> {
    match whole("$limit", argument, 5_107_201)? {
        0 => Err(Error::new(Code(15_958), "the limit must be positive")),
        limit => Ok(limit),
    }
}

/// Reads a number without a fraction that is not negative.
fn whole(stage: &str, argument: RawBsonRef<'_>, code: i32) -> Result<u64> {
    let error = |what: &str| {
        Error::new(
            Code(code),
            format!("invalid argument to {stage} stage: Expected {what} in: {stage}: {}", show(argument)),
        )
    };
    let number = Number::of(argument).ok_or_else(|| error("a number"))?;
    let number = number.to_i64_exact().ok_or_else(|| error("an integer"))?;
    u64::try_from(number).map_err(|_| error("a non-negative number"))
}

fn count_field(argument: RawBsonRef<'_>) -> Result<String> {
    let RawBsonRef::String(name) = argument else {
        return Err(Error::new(Code(40_156), "the count field must be a non-empty string"));
    };
    let problem = match name {
        "" => Some((40_157, "the count field must be a non-empty string")),
        name if name.starts_with('$') => Some((40_158, "the count field cannot be a $-prefixed path")),
        name if name.contains('\0') => Some((40_159, "the count field cannot contain a null byte")),
        name if name.contains('.') => Some((40_160, "the count field cannot contain '.'")),
        _ => None,
    };
    match problem {
        None => Ok(name.to_owned()),
        Some((code, text)) => Err(Error::new(Code(code), text)),
    }
}

fn sort_by_count(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Vec<Stage>> {
    match argument {
        RawBsonRef::Document(document) if is_operator(document) => {}
        RawBsonRef::Document(document) => {
            return Err(Error::new(
                Code(40_147),
                format!(
                    "the sortByCount field must be defined as a $-prefixed path or an expression inside an object: {}",
                    show(RawBsonRef::Document(document))
                ),
            ));
        }
        RawBsonRef::String(path) if path.starts_with('$') => {}
        RawBsonRef::String(_) => {
            return Err(Error::new(
                Code(40_148),
                "the sortByCount field must be defined as a $-prefixed path or an expression inside an object",
            ));
        }
        other => {
            return Err(Error::new(
                Code(40_149),
                format!(
                    "the sortByCount field must be specified as a string or as an object, found {}",
                    type_name(other)
                ),
            ));
        }
    }
    let mut group = bson::RawDocumentBuf::new();
    group.append(bson::raw::cstr!("_id"), argument);
    group.append(bson::raw::cstr!("count"), rawdoc! { "$sum": 1 });
    Ok(vec![
        Stage::Group(Group::compile(&group, options)?),
        Stage::Sort(SortStage::compile(&rawdoc! { "count": -1 }, options)?),
    ])
}

fn new_root(argument: RawBsonRef<'_>, options: &CompileOptions) -> Result<Expression> {
    let RawBsonRef::Document(document) = argument else {
        return Err(Error::new(
            Code(40_229),
            format!("expected an object as specification for $replaceRoot stage, got {}", type_name(argument)),
        ));
    };
    let mut root = None;
    for field in value::fields(document) {
        let (key, item) = field?;
        if key.as_str() != "newRoot" {
            return Err(Error::new(Code(40_415), format!("BSON field '$replaceRoot.{key}' is an unknown field.")));
        }
        root = Some(Expression::compile(item, options)?);
    }
    root.ok_or_else(|| Error::new(Code(40_414), "BSON field '$replaceRoot.newRoot' is missing but a required field"))
}

fn sample(argument: RawBsonRef<'_>) -> Result<u64> {
    let RawBsonRef::Document(document) = argument else {
        return Err(Error::new(Code(28_745), "the $sample stage specification must be an object"));
    };
    let mut size = None;
    for field in value::fields(document) {
        let (key, item) = field?;
        if key.as_str() != "size" {
            return Err(Error::new(Code(28_748), format!("unrecognized option to $sample: {key}")));
        }
        let number =
            Number::of(item).ok_or_else(|| Error::new(Code(28_746), "size argument to $sample must be a number"))?;
        let positive = number.to_i64_truncated().and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0);
        size = Some(
            positive.ok_or_else(|| Error::new(Code(28_747), "size argument to $sample must be a positive integer"))?,
        );
    }
    size.ok_or_else(|| Error::new(Code(28_749), "$sample stage must specify a size"))
}

fn facet(argument: RawBsonRef<'_>, stage_context: StageContext<'_>) -> Result<Facet> {
    let RawBsonRef::Document(document) = argument else {
        return Err(Error::new(
            Code(40_169),
            format!("the $facet specification must be a non-empty object, but found {}", show(argument)),
        ));
    };
    if document.is_empty() {
        return Err(Error::new(Code(40_169), "the $facet specification must be a non-empty object, but found {}"));
    }
    let mut pipelines = Vec::new();
    for field in value::fields(document) {
        let (key, item) = field?;
        let name = key.as_str();
        if name.is_empty() || name.starts_with('$') || name.contains('.') {
            return Err(Error::new(
                Code::FailedToParse,
                format!("'{name}' is no valid name for an output field of $facet"),
            ));
        }
        if !matches!(item, RawBsonRef::Array(_)) {
            return Err(Error::new(
                Code(40_170),
                format!("arguments to $facet must be arrays, {name} is type {}", type_name(item)),
            ));
        }
        let inner = stage_context.inner(PipelineLocation::Facet, stage_context.options)?;
        pipelines.push((name.to_owned(), of_array(item, inner)?));
    }
    Ok(Facet { pipelines })
}
