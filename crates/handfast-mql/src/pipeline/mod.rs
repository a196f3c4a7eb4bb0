//! Aggregation pipelines: an array of stages compiled to operators.
//!
//! A stage that needs nothing but the documents that flow through is pure: [`Stage::operator`] gives the operator that
//! does its work, and [`Pipeline::chain`] joins those of a whole pipeline. `$lookup`, `$unionWith`, `$graphLookup`,
//! `$out` and `$merge` need other collections: they are compiled into the structs of [`foreign`], which give the queries
//! and put the answers into the documents. A caller that has a store carries them out.
//!
//! A store can do the beginning of many pipelines by itself: [`Pipeline::prefix`] gives the leading `$match`,
//! `$sort`, `$skip` and `$limit` as one find.
//!
//! ```
//! use bson::{DateTime, Timestamp, rawdoc};
//! use handfast_mql::{CompileOptions, Context, pipeline::Pipeline};
//!
//! let stages = [rawdoc! { "$unwind": "$tags" }, rawdoc! { "$sortByCount": "$tags" }];
//! let pipeline = Pipeline::compile(&stages, &CompileOptions::default())?;
//! let context = Context::new(DateTime::from_millis(0), Timestamp { time: 1, increment: 1 }, 42);
//! let documents = [rawdoc! { "tags": ["a", "b"] }, rawdoc! { "tags": ["b"] }];
//! let counts = pipeline.run(documents, &context)?;
//! assert_eq!(counts, [rawdoc! { "_id": "b", "count": 2 }, rawdoc! { "_id": "a", "count": 1 }]);
//! # Ok::<(), handfast_mql::Error>(())
//! ```

mod bucket;
mod compile;
mod facet;
pub mod foreign;
mod group;
mod memory;
mod operator;
mod prefix;
mod redact;
mod sample;
mod set_path;
mod simple;
mod sort;
#[cfg(test)]
mod tests;
mod unwind;

use bson::{RawDocument, RawDocumentBuf};

pub use self::{
    bucket::BucketAuto,
    facet::Facet,
    foreign::{GraphLookup, Lookup, Merge, Out, UnionWith},
    group::{Accumulation, Group},
    operator::{Chain, Flow, Operator},
    prefix::Prefix,
    redact::Redact,
    sort::SortStage,
    unwind::Unwind,
};
use crate::{
    context::{CompileOptions, Context},
    error::Result,
    expression::Expression,
    filter::Filter,
    projection::Projection,
};

/// A compiled pipeline.
#[derive(Debug)]
pub struct Pipeline {
    stages: Vec<Stage>,
}

/// A compiled stage.
#[derive(Debug)]
pub enum Stage {
    /// `$match`.
    Match(Filter),
    /// `$project`, `$addFields`, `$set`, `$unset`.
    Project(Projection),
    /// `$unwind`.
    Unwind(Unwind),
    /// `$group`; also what `$sortByCount` and `$bucket` begin with.
    Group(Group),
    /// `$sort`.
    Sort(SortStage),
    /// `$limit`.
    Limit(u64),
    /// `$skip`.
    Skip(u64),
    /// `$count`, with the field that gets the count.
    Count(String),
    /// `$replaceRoot`, `$replaceWith`.
    ReplaceRoot(Expression),
    /// `$bucketAuto`.
    BucketAuto(BucketAuto),
    /// `$sample`, with the number of documents.
    Sample(u64),
    /// `$facet`.
    Facet(Facet),
    /// `$redact`.
    Redact(Redact),
    /// `$documents`: the expression that gives the array of documents the pipeline begins with.
    Documents(Expression),
    /// `$lookup`.
    Lookup(Box<Lookup>),
    /// `$unionWith`.
    UnionWith(UnionWith),
    /// `$graphLookup`.
    GraphLookup(Box<GraphLookup>),
    /// `$out`.
    Out(Out),
    /// `$merge`.
    Merge(Box<Merge>),
}

impl Pipeline {
    /// Compiles the stages of an aggregate command.
    ///
    /// # Errors
    /// With MongoDB's codes: 40323 for a stage that is not one field, 40324 for one that does not exist, 40601 and 40602
    /// for one at a place where it may not stand, 168 for an unknown expression, and those of the single stages.
    pub fn compile(stages: &[impl AsRef<RawDocument>], options: &CompileOptions) -> Result<Pipeline> {
        compile::pipeline(stages, options)
    }

    /// Returns the stages, in order. `$sortByCount` and `$bucket` stand here as the stages they are short for.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Tells whether no stage needs another collection (or source), so that [`Pipeline::chain`] can carry it out.
    pub fn is_pure(&self) -> bool {
        self.stages.iter().all(Stage::is_pure)
    }

    /// Returns the operators of all stages, joined.
    ///
    /// # Errors
    /// `IllegalOperation` (20) if a stage is not pure.
    pub fn chain<'p>(&'p self, context: &'p Context) -> Result<Chain<'p>> {
        chain(&self.stages, context)
    }

    /// Runs a pure pipeline over documents in memory.
    ///
    /// # Errors
    /// The errors of [`Pipeline::chain`] and the operators.
    pub fn run(
        &self,
        documents: impl IntoIterator<Item = RawDocumentBuf>,
        context: &Context,
    ) -> Result<Vec<RawDocumentBuf>> {
        if let Some((Stage::Documents(source), rest)) = self.stages.split_first() {
            return chain(rest, context)?.run(simple::documents(source, context)?);
        }
        self.chain(context)?.run(documents)
    }

    /// Returns the beginning of the pipeline that a find can do.
    pub fn prefix(&self) -> Prefix<'_> {
        prefix::of(&self.stages)
    }
}

/// Returns the operators of stages, joined.
///
/// # Errors
/// `IllegalOperation` (20) if a stage is not pure.
pub fn chain<'p>(stages: &'p [Stage], context: &'p Context) -> Result<Chain<'p>> {
    let operators = stages.iter().map(|stage| stage.operator(context)).collect::<Result<_>>()?;
    Ok(Chain::new(operators, context.interrupt.clone()))
}

/// Returns the documents that a `$documents` stage gives.
///
/// # Errors
/// 5858203 if the expression gives anything but an array of documents.
pub fn literal_documents(source: &Expression, context: &Context) -> Result<Vec<RawDocumentBuf>> {
    simple::documents(source, context)
}
