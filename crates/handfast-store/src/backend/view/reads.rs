//! The collections and views that the stages of a pipeline read, and the checks of them.
//!
//! ```text
//! [{$lookup: {from: "a", pipeline: [{$unionWith: "b"}], ..}}]      reads a inside one pipeline, b inside two
//! ```

use std::collections::BTreeMap;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::pipeline::check_pipeline_depth;
use handfast_mql::{Code, Collation};

use super::{ResolvedView, other_collation};
use crate::{Aggregate, Error, Namespace, Result};

/// The name of a collection or view in a stage.
pub(super) struct ForeignName<'p> {
    pub(super) name: &'p str,
    /// The number of pipelines that the documents of that name run through, one inside the other.
    depth: usize,
}

/// Returns the names that stages read, at any depth. The stages may be invalid: of a field that is written twice, both count.
pub(super) fn foreign_names(pipeline: &[RawDocumentBuf]) -> Vec<ForeignName<'_>> {
    let mut found = Vec::new();
    pipeline.iter().for_each(|stage| add_names(stage, 1, &mut found));
    found
}

fn add_names<'p>(stage: &'p RawDocument, depth: usize, found: &mut Vec<ForeignName<'p>>) {
    for (operator, argument) in stage.iter().flatten() {
        let (named, inner) = match operator.as_str() {
            "$lookup" => (Some("from"), Some("pipeline")),
            "$graphLookup" => (Some("from"), None),
            "$unionWith" => (Some("coll"), Some("pipeline")),
            "$facet" => (None, None),
            _ => continue,
        };
        match argument {
            RawBsonRef::String(name) if operator == "$unionWith" => found.push(ForeignName { name, depth }),
            RawBsonRef::Document(options) => {
                for (option, value) in options.iter().flatten() {
                    match value {
                        RawBsonRef::String(name) if named == Some(option.as_str()) => {
                            found.push(ForeignName { name, depth });
                        }
                        // Each field of `$facet` is a pipeline.
                        RawBsonRef::Array(stages) if operator == "$facet" || inner == Some(option.as_str()) => {
                            let stages = stages.into_iter().flatten();
                            stages
                                .filter_map(RawBsonRef::as_document)
                                .for_each(|stage| add_names(stage, depth + 1, found));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// A function that returns what a view stands for; `None` for a collection.
type Resolve<'r> = &'r (dyn Fn(&Namespace) -> Result<Option<ResolvedView>> + Sync);

/// Checks the views that the stages of an aggregation read.
///
/// # Errors
/// `OptionNotSupportedOnView` (167) for a view with another collation than that of the aggregation; `MaxSubPipelineDepthExceeded` (232)
/// if too many pipelines run inside each other; `InvalidNamespace` (73) for an invalid name.
pub fn check_views_read(request: &Aggregate, resolve: Resolve<'_>) -> Result<()> {
    let names = foreign_names(&request.pipeline);
    if names.is_empty() {
        return Ok(());
    }
    let collation = Collation::among(&request.variables)?;
    let collation = collation.as_ref().map(Collation::document);
    let mut depths = Depths { database: request.source.database(), resolve, known: BTreeMap::new() };
    for ForeignName { name, depth } in names {
        let Known { namespace, view } = depths.of(name)?;
        let Some(view) = view else { continue };
        if view.collation.as_deref() != collation {
            return Err(other_collation(namespace));
        }
        check_pipeline_depth(depth + view.inside)?;
    }
    Ok(())
}

/// What names stand for, each found once: a view may have megabytes of stages, and a request may name it many times.
struct Depths<'r> {
    database: &'r str,
    resolve: Resolve<'r>,
    known: BTreeMap<String, Known>,
}

struct Known {
    namespace: Namespace,
    /// `None` for a collection.
    view: Option<KnownView>,
}

struct KnownView {
    collation: Option<RawDocumentBuf>,
    /// The number of pipelines that run inside that of the view, one inside the other.
    inside: usize,
}

impl Depths<'_> {
    /// Returns what a name stands for. No view reads itself, so this ends.
    fn of(&mut self, name: &str) -> Result<&Known> {
        if !self.known.contains_key(name) {
            let namespace = Namespace::new(self.database, name)?;
            let view = match (self.resolve)(&namespace)? {
                None => None,
                Some(view) => {
                    let mut inside = 0;
                    for ForeignName { name, depth } in foreign_names(&view.pipeline) {
                        let inner = self.of(name)?.view.as_ref().map_or(0, |view| view.inside);
                        inside = inside.max(depth + inner);
                    }
                    Some(KnownView { collation: view.collation, inside })
                }
            };
            self.known.insert(name.to_owned(), Known { namespace, view });
        }
        self.known.get(name).ok_or_else(|| Error::command(Code::InternalError, "a name was not found"))
    }
}
