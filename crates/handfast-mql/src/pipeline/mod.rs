//! Aggregation pipelines: an array of stages compiled to operators.
//!
//! A stage that needs only its input documents is pure: [`Stage::operator`] returns its operator, and [`Pipeline::chain`] joins the
//! operators of a whole pipeline. `$lookup`, `$unionWith`, `$graphLookup`,
//! `$out` and `$merge` need other collections: they are compiled into the structs of [`foreign`], which return the queries
//! and put the results into the documents. A caller with a store runs the queries.
//!
//! A store can run the first stages of many pipelines as a find: [`Pipeline::prefix`] returns the leading `$match`,
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
mod densify;
mod facet;
mod fill;
pub mod foreign;
mod granularity;
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
mod window;

use bson::{RawDocument, RawDocumentBuf};

pub use self::{
    bucket::BucketAuto,
    compile::check_pipeline_depth,
    densify::Densify,
    facet::Facet,
    foreign::{GraphLookup, Lookup, Merge, Out, UnionWith, check_target_database},
    group::{Accumulation, Group},
    operator::{Chain, Flow, Operator},
    prefix::Prefix,
    redact::Redact,
    sort::SortStage,
    unwind::Unwind,
    window::SetWindowFields,
};
use crate::{
    context::{CompileOptions, Context},
    error::Result,
    expression::Expression,
    filter::Filter,
    projection::Projection,
};

/// A compiled pipeline.
#[derive(Debug, Default)]
pub struct Pipeline {
    stages: Vec<Stage>,
    /// The leading `$match`, `$sort`, `$skip` and `$limit` stages as they were written.
    leading: Vec<RawDocumentBuf>,
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
    /// `$group`; also the first stage of `$sortByCount` and `$bucket`.
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
    /// `$setWindowFields`.
    SetWindowFields(Box<SetWindowFields>),
    /// `$densify`.
    Densify(Box<Densify>),
    /// `$sample`, with the number of documents.
    Sample(u64),
    /// `$facet`.
    Facet(Facet),
    /// `$redact`.
    Redact(Redact),
    /// `$documents`: the expression whose value is the array of input documents.
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
    /// Returns MongoDB's codes: 40323 for a stage that is not one field, 40324 for one that does not exist, 40601 and 40602
    /// for one at a position where it is not allowed, 168 for an unknown expression, and the errors of the single stages.
    pub fn compile(stages: &[impl AsRef<RawDocument>], options: &CompileOptions) -> Result<Pipeline> {
        compile::pipeline(stages, options)
    }

    /// Returns the stages, in order. `$sortByCount`, `$bucket` and `$fill` are replaced by the stages that they abbreviate.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Tells whether no stage needs another collection (or source), so that [`Pipeline::chain`] can run the pipeline.
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
    /// Returns the errors of [`Pipeline::chain`] and the operators.
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

    /// Returns the leading `$match`, `$sort`, `$skip` and `$limit` stages as they were written: a find is written with the contents of those in
    /// the [prefix](Pipeline::prefix).
    pub fn leading(&self) -> &[RawDocumentBuf] {
        &self.leading
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

/// Returns the documents of a `$documents` stage.
///
/// # Errors
/// 5858203 if the value of the expression is not an array of documents.
pub fn literal_documents(source: &Expression, context: &Context) -> Result<Vec<RawDocumentBuf>> {
    simple::documents(source, context)
}
