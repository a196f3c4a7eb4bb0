//! Short stages: `$match`, `$limit`, `$skip`, `$count`, `$replaceRoot`, `$documents`; the operators of `$project` and
//! `$redact`; and the operator of each stage.

use bson::{RawBsonRef, RawDocumentBuf};

use super::{
    Stage,
    operator::{Flow, Operator},
    redact::Redact,
    sample,
};
use crate::{
    context::Context,
    error::{Code, Error, Result},
    expression::{Expression, limits, value},
    filter::{Filter, MatchPosition},
    projection::Projection,
};

impl Stage {
    /// Returns the stage's name.
    pub fn name(&self) -> &'static str {
        match self {
            Stage::Match(_) => "$match",
            Stage::Project(_) => "$project",
            Stage::Unwind(_) => "$unwind",
            Stage::Group(_) => "$group",
            Stage::Sort(_) => "$sort",
            Stage::Limit(_) => "$limit",
            Stage::Skip(_) => "$skip",
            Stage::Count(_) => "$count",
            Stage::ReplaceRoot(_) => "$replaceRoot",
            Stage::BucketAuto(_) => "$bucketAuto",
            Stage::SetWindowFields(_) => "$setWindowFields",
            Stage::Densify(_) => "$densify",
            Stage::Sample(_) => "$sample",
            Stage::Facet(_) => "$facet",
            Stage::Redact(_) => "$redact",
            Stage::Documents(_) => "$documents",
            Stage::Lookup(_) => "$lookup",
            Stage::UnionWith(_) => "$unionWith",
            Stage::GraphLookup(_) => "$graphLookup",
            Stage::Out(_) => "$out",
            Stage::Merge(_) => "$merge",
        }
    }

    /// Tells whether the stage needs only its input documents. A `$facet` is pure if its pipelines are.
    pub fn is_pure(&self) -> bool {
        match self {
            Stage::Lookup(_)
            | Stage::UnionWith(_)
            | Stage::GraphLookup(_)
            | Stage::Out(_)
            | Stage::Merge(_)
            | Stage::Documents(_) => false,
            Stage::Facet(facet) => facet.is_pure(),
            _ => true,
        }
    }

    /// Returns the operator that does a pure stage's work.
    ///
    /// # Errors
    /// `IllegalOperation` (20) if the stage is not pure.
    pub fn operator<'p>(&'p self, context: &'p Context) -> Result<Box<dyn Operator + 'p>> {
        Ok(match self {
            Stage::Match(filter) => Box::new(Matching { filter, context }),
            Stage::Project(projection) => Box::new(Projecting { projection, context }),
            Stage::Unwind(unwind) => unwind.operator(),
            Stage::Group(group) => group.operator(context),
            Stage::Sort(sort) => sort.operator(context),
            Stage::Limit(limit) => Box::new(Limiting { left: *limit }),
            Stage::Skip(skip) => Box::new(Skipping { left: *skip }),
            Stage::Count(field) => Box::new(Counting { field, count: 0 }),
            Stage::ReplaceRoot(expression) => Box::new(Replacing { expression, context }),
            Stage::BucketAuto(bucket) => bucket.operator(context),
            Stage::SetWindowFields(windows) => windows.operator(context),
            Stage::Densify(densify) => densify.operator(context),
            Stage::Sample(size) => Box::new(sample::Sampling::new(*size, context)),
            Stage::Facet(facet) => facet.operator(context)?,
            Stage::Redact(redact) => Box::new(Redacting { redact, context }),
            Stage::Lookup(_)
            | Stage::UnionWith(_)
            | Stage::GraphLookup(_)
            | Stage::Out(_)
            | Stage::Merge(_)
            | Stage::Documents(_) => {
                return Err(Error::new(
                    Code::IllegalOperation,
                    format!("{} needs a store to be carried out", self.name()),
                ));
            }
        })
    }
}

struct Matching<'p> {
    filter: &'p Filter,
    context: &'p Context,
}

impl Operator for Matching<'_> {
    fn push(&mut self, document: RawDocumentBuf, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        if self.filter.matches(&document, self.context)? {
            out.push(document);
        }
        Ok(Flow::Continue)
    }
}

struct Projecting<'p> {
    projection: &'p Projection,
    context: &'p Context,
}

impl Operator for Projecting<'_> {
    fn push(&mut self, document: RawDocumentBuf, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        out.push(self.projection.apply(&document, MatchPosition::default(), self.context)?);
        Ok(Flow::Continue)
    }
}

struct Redacting<'p> {
    redact: &'p Redact,
    context: &'p Context,
}

impl Operator for Redacting<'_> {
    fn push(&mut self, document: RawDocumentBuf, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        out.extend(self.redact.apply(&document, self.context)?);
        Ok(Flow::Continue)
    }
}

struct Limiting {
    left: u64,
}

impl Operator for Limiting {
    fn push(&mut self, document: RawDocumentBuf, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        if self.left > 0 {
            self.left -= 1;
            out.push(document);
        }
        Ok(if self.left == 0 { Flow::Done } else { Flow::Continue })
    }
}

struct Skipping {
    left: u64,
}

impl Operator for Skipping {
    fn push(&mut self, document: RawDocumentBuf, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => out.push(document),
        }
        Ok(Flow::Continue)
    }
}

struct Counting<'p> {
    field: &'p str,
    count: i64,
}

impl Operator for Counting<'_> {
    fn push(&mut self, _: RawDocumentBuf, _: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        self.count += 1;
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        // Without input there is no output, not a count of 0.
        if self.count > 0 {
            let mut document = RawDocumentBuf::new();
            let count = i32::try_from(self.count).map_or(RawBsonRef::Int64(self.count), RawBsonRef::Int32);
            value::append(&mut document, self.field, count)?;
            out.push(document);
        }
        Ok(Flow::Done)
    }
}

struct Replacing<'p> {
    expression: &'p Expression,
    context: &'p Context,
}

impl Operator for Replacing<'_> {
    fn push(&mut self, document: RawDocumentBuf, out: &mut Vec<RawDocumentBuf>) -> Result<Flow> {
        let value = self.expression.evaluate(&document, self.context)?;
        let Some(new) = value.as_document() else {
            return Err(Error::new(
                Code(40_228),
                format!(
                    "'newRoot' expression must evaluate to an object, but resulting value was: {}. Type of resulting \
                     value: '{}'. Input document: {}",
                    value.show(),
                    value.type_name(),
                    value::show(RawBsonRef::Document(&document))
                ),
            ));
        };
        limits::check_depth(RawBsonRef::Document(new))?;
        out.push(new.to_owned());
        Ok(Flow::Continue)
    }
}
pub(super) fn documents(source: &Expression, context: &Context) -> Result<Vec<RawDocumentBuf>> {
    let empty = RawDocumentBuf::new();
    let value = source.evaluate(&empty, context)?;
    let wrong = |found: &str| {
        Error::new(Code(5_858_203), format!("an array of objects is expected in $documents stage, found: {found}"))
    };
    let Some(array) = value.as_array() else { return Err(wrong(value.type_name())) };
    let mut documents = Vec::new();
    for item in value::items(array) {
        let item = item?;
        let RawBsonRef::Document(document) = item else { return Err(wrong(value::type_name(item))) };
        limits::check_depth(item)?;
        documents.push(document.to_owned());
    }
    Ok(documents)
}
