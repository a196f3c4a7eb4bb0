//! Views: what a request to one means, and the check of a definition.
//!
//! A view is a name for a pipeline over a collection, or over another view. It has no documents of its own: a request that reads it is an
//! aggregation of its source, with the view's stages before those of the request.
//!
//! ```text
//! adults   on people, [{$match: {age: {$gte: 18}}}]          names   on adults, [{$project: {name: 1}}]
//!
//! find names {filter: {name: "Ann"}, limit: 1}
//!     = aggregate people [{$match: {age: ..}}, {$project: {name: 1}}, {$match: {name: "Ann"}}, {$limit: 1}]
//! ```
//!
//! So the conditions of a view and of a request that stand at the beginning use the indexes of the source. A backend keeps a view as a
//! collection whose options have a definition, refuses writes to it ([`refuse`]), and [resolves](resolve) the names that requests read.
//!
//! Two views may not read each other, not even through a `$lookup` in a pipeline ([`check_definition`]), so that resolving ends.

use std::collections::BTreeMap;

use bson::raw::{CStr, RawBson, RawBsonRef, cstr};
use bson::{RawArrayBuf, RawDocumentBuf};
use handfast_mql::collation::{VARIABLE, simple, with_variable};
use handfast_mql::pipeline::{Pipeline, Stage};
use handfast_mql::{Code, Collation, CompileOptions};

use crate::distinct::DistinctValues;
use crate::{
    Aggregate, AggregateSource, BatchLimit, CollectionOptions, Count, Cursor, Distinct, DocumentStore, Error, Find,
    ModifyCollection, ModifyValidator, ModifyView, Namespace, Result, ViewDefinition, default_collation,
};

mod reads;
#[cfg(test)]
mod tests;

pub use self::reads::check_views_read;

/// The longest chain of views that read each other, as in MongoDB.
pub const VIEW_DEPTH_MAX: usize = 20;
/// Limit on the bytes of the stages that a view stands for, as in MongoDB.
const PIPELINE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The collection that MongoDB keeps the definitions of a database in. Here it can only be read.
pub const DEFINITIONS: &str = "system.views";

/// The names of a store, at one moment.
pub trait ViewCatalog {
    /// Returns the options of a collection or view; `None` if there is none of this name.
    fn options(&self, namespace: &Namespace) -> Option<&CollectionOptions>;

    /// Returns the views of a database.
    fn views(&self, database: &str) -> Vec<(&Namespace, &ViewDefinition)>;
}

/// What a view stands for: a collection and the stages over it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedView {
    namespace: Namespace,
    source: AggregateSource,
    pipeline: Vec<RawDocumentBuf>,
    collation: Option<RawDocumentBuf>,
}

/// Returns what a view stands for; `None` if the name is that of a collection, or of nothing.
///
/// # Errors
/// `ViewDepthLimitExceeded` (165) if more views than [`VIEW_DEPTH_MAX`] read each other, or if their stages are too large.
pub fn resolve(catalog: &impl ViewCatalog, namespace: &Namespace) -> Result<Option<ResolvedView>> {
    if namespace.collection() == DEFINITIONS {
        return definitions(catalog, namespace).map(Some);
    }
    let definition = |of: &Namespace| catalog.options(of).and_then(|options| options.view.as_ref());
    let Some(first) = definition(namespace) else { return Ok(None) };
    let (mut parts, mut current, mut bytes) = (Vec::new(), first, 0);
    let source = loop {
        bytes += current.pipeline.iter().map(|stage| stage.as_bytes().len()).sum::<usize>();
        parts.push(&current.pipeline);
        if parts.len() > VIEW_DEPTH_MAX || bytes > PIPELINE_BYTES_MAX {
            return Err(too_deep());
        }
        let on = Namespace::new(namespace.database(), &current.on)?;
        match definition(&on) {
            Some(next) => current = next,
            None => break on,
        }
    };
    Ok(Some(ResolvedView {
        namespace: namespace.clone(),
        source: AggregateSource::Collection(source),
        pipeline: parts.into_iter().rev().flatten().cloned().collect(),
        collation: first.collation.clone(),
    }))
}

/// Returns a view whose documents are the definitions of a database.
fn definitions(catalog: &impl ViewCatalog, namespace: &Namespace) -> Result<ResolvedView> {
    let database = namespace.database();
    let mut all = RawArrayBuf::new();
    for (view, ViewDefinition { on, pipeline, collation }) in catalog.views(database) {
        let mut shown = RawDocumentBuf::new();
        shown.append(cstr!("_id"), view.to_string());
        shown.append(cstr!("viewOn"), on.as_str());
        shown.append(cstr!("pipeline"), pipeline.iter().cloned().collect::<RawArrayBuf>());
        if let Some(collation) = collation {
            shown.append(cstr!("collation"), collation.clone());
        }
        all.push(shown);
    }
    let documents = stage(cstr!("$documents"), stage(cstr!("$literal"), all));
    Ok(ResolvedView {
        namespace: namespace.clone(),
        source: AggregateSource::Database(database.to_owned()),
        pipeline: vec![documents],
        collation: None,
    })
}

impl ResolvedView {
    /// Returns the aggregation that a find in the view means.
    ///
    /// # Errors
    /// `InvalidPipelineOperator` (168) for an option that an aggregation does not have; `OptionNotSupportedOnView` (167) for another
    /// collation than that of the view.
    pub fn find(self, find: Find) -> Result<Aggregate> {
        let options = [
            ("min", find.min.is_some()),
            ("max", find.max.is_some()),
            ("returnKey", find.return_key),
            ("showRecordId", find.show_record_id),
        ];
        if let Some((name, _)) = options.into_iter().find(|(_, is_given)| *is_given) {
            let text = format!("Option {name} not supported in aggregation.");
            return Err(Error::command(Code::InvalidPipelineOperator, text));
        }
        if find.sort.get("$natural").map_err(handfast_mql::Error::from)?.is_some() {
            let text = "Sort option $natural not supported in aggregation.";
            return Err(Error::command(Code::InvalidPipelineOperator, text));
        }
        let mut stages = Vec::new();
        for (name, argument) in [(cstr!("$match"), find.filter), (cstr!("$sort"), find.sort)] {
            if !argument.is_empty() {
                stages.push(stage(name, argument));
            }
        }
        if find.skip > 0 {
            stages.push(stage(cstr!("$skip"), whole(find.skip)));
        }
        stages.extend(find.limit.map(|limit| stage(cstr!("$limit"), whole(limit))));
        if !find.projection.is_empty() {
            stages.push(stage(cstr!("$project"), find.projection));
        }
        let read = Aggregate::new(find.namespace, stages);
        let allow_disk_use = find.allow_disk_use;
        self.aggregate(Aggregate { hint: find.hint, variables: find.variables, allow_disk_use, ..read })
    }

    /// Returns the aggregation of the source that an aggregation of the view means.
    ///
    /// # Errors
    /// `OptionNotSupportedOnView` (167) for another collation than that of the view.
    pub fn aggregate(mut self, request: Aggregate) -> Result<Aggregate> {
        let given = request.variables.get(VARIABLE.as_str()).map_err(handfast_mql::Error::from)?;
        let variables = match given {
            Some(_) => {
                let given = Collation::among(&request.variables)?;
                if given.as_ref().map(Collation::document) != self.collation.as_deref() {
                    return Err(other_collation(&self.namespace));
                }
                request.variables
            }
            // Not that of the source.
            None => with_variable(request.variables, Some(self.collation.as_deref().unwrap_or(&simple()))),
        };
        self.pipeline.extend(request.pipeline);
        Ok(Aggregate { source: self.source, pipeline: self.pipeline, variables, ..request })
    }
}

/// Opens a cursor over the documents of a view that match.
///
/// # Errors
/// The errors of [`ResolvedView::find`] and of the aggregation.
pub async fn find(store: &dyn DocumentStore, view: ResolvedView, request: Find) -> Result<Box<dyn Cursor>> {
    store.aggregate(view.find(request)?).await
}

/// Counts the documents of a view that match.
///
/// # Errors
/// The errors of [`ResolvedView::find`] and of the aggregation.
pub async fn count(store: &dyn DocumentStore, view: ResolvedView, request: Count) -> Result<u64> {
    let variables = with_variable(RawDocumentBuf::new(), request.collation.as_deref());
    let Count { namespace, filter, skip, limit, hint, .. } = request;
    let find = Find { skip, limit, hint, variables, ..Find::new(namespace, filter) };
    let mut aggregate = view.find(find)?;
    aggregate.pipeline.push(stage(cstr!("$count"), "count"));
    let mut cursor = store.aggregate(aggregate).await?;
    let page = cursor.next_page(BatchLimit::REPLY).await?;
    let counted = page.documents.first().and_then(|document| match document.get("count") {
        Ok(Some(RawBsonRef::Int32(count))) => u64::try_from(count).ok(),
        Ok(Some(RawBsonRef::Int64(count))) => u64::try_from(count).ok(),
        _ => None,
    });
    Ok(counted.unwrap_or(0))
}

/// Returns the distinct values of a field of the documents of a view that match.
///
/// # Errors
/// The errors of [`ResolvedView::find`], of the aggregation, and of [`DistinctValues`].
pub async fn distinct(store: &dyn DocumentStore, view: ResolvedView, request: Distinct) -> Result<Vec<RawBson>> {
    let collation = request.collation.clone().or_else(|| view.collation.clone());
    let mut values = DistinctValues::of(&Distinct { collation, ..request.clone() })?;
    let variables = with_variable(RawDocumentBuf::new(), request.collation.as_deref());
    let find = Find { hint: request.hint, variables, ..Find::new(request.namespace, request.filter) };
    let mut cursor = store.aggregate(view.find(find)?).await?;
    loop {
        let page = cursor.next_page(BatchLimit::REPLY).await?;
        page.documents.iter().try_for_each(|document| values.add(document))?;
        if page.exhausted {
            return Ok(values.finish());
        }
    }
}

/// Refuses a request that a view cannot carry out, such as a write.
///
/// # Errors
/// `CommandNotSupportedOnView` (166) if the options are those of a view.
pub fn refuse(namespace: &Namespace, options: &CollectionOptions) -> Result<()> {
    match options.view {
        Some(_) => Err(not_a_collection(namespace)),
        None => Ok(()),
    }
}

/// Returns the error of a request that a view cannot carry out.
pub fn not_a_collection(namespace: &Namespace) -> Error {
    let text = format!("Namespace {namespace} is a view, not a collection");
    Error::command(Code::CommandNotSupportedOnView, text)
}

/// Refuses to rename a view, and to give a collection the name of one.
///
/// # Errors
/// `CommandNotSupportedOnView` (166) and `NamespaceExists` (48), as MongoDB.
pub fn check_rename(catalog: &impl ViewCatalog, from: &Namespace, to: &Namespace) -> Result<()> {
    let is_view = |name: &Namespace| catalog.options(name).is_some_and(|options| options.view.is_some());
    if is_view(from) {
        return Err(Error::command(Code::CommandNotSupportedOnView, format!("cannot rename view: {from}")));
    }
    if is_view(to) {
        return Err(Error::command(Code::NamespaceExists, format!("a view already exists with that name: {to}")));
    }
    Ok(())
}

/// Returns the options of a collection or view after a change, which [`check_definition`] has not checked yet.
///
/// # Errors
/// `InvalidOptions` (72) for a part of a view's definition on a collection, and for other options on a view.
pub fn modified(
    namespace: &Namespace,
    options: &CollectionOptions,
    request: &ModifyCollection,
) -> Result<CollectionOptions> {
    let refused = |text: String| Err(Error::command(Code::InvalidOptions, text));
    let Some(view) = &options.view else {
        if request.view != ModifyView::default() {
            return refused(format!(
                "'viewOn' and 'pipeline' are only supported on a view: {namespace} is a collection"
            ));
        }
        return Ok(options.modified(&request.validator));
    };
    if request.index.is_some() {
        return refused("option not supported on a view: index".to_owned());
    }
    if request.validator != ModifyValidator::default() {
        return refused("option not supported on a view: validator, validationLevel or validationAction".to_owned());
    }
    Ok(CollectionOptions { view: Some(view.modified(&request.view)), ..CollectionOptions::default() })
}

/// Returns an aggregation under the default collation of its collection; if it reads a view, that of the source of the view.
///
/// # Errors
/// The errors of [`resolve`], of [`ResolvedView::aggregate`] and of [`check_views_read`].
pub fn of_source(catalog: &(impl ViewCatalog + Sync), request: Aggregate) -> Result<Aggregate> {
    let request = match &request.source {
        AggregateSource::Database(_) => request,
        AggregateSource::Collection(namespace) => match resolve(catalog, namespace)? {
            Some(view) => view.aggregate(request)?,
            None => {
                let default = default_collation::of(catalog.options(namespace));
                let variables = default_collation::with_default(request.variables, default);
                Aggregate { variables, ..request }
            }
        },
    };
    check_views_read(&request, &|namespace| resolve(catalog, namespace))?;
    Ok(request)
}

/// Checks the options of a collection or view that gets them. A collection needs no check.
///
/// # Errors
/// `OptionNotSupportedOnView` (167) for a stage that writes, and for another collation than that of a view that it reads or that reads it;
/// `GraphContainsCycle` (5) if it reads itself through others; `ViewDepthLimitExceeded` (165) for too many views that read each other;
/// `InvalidNamespace` (73) for an invalid name and for a stage that reads no collection; the errors of the stages.
pub fn check_definition(catalog: &impl ViewCatalog, namespace: &Namespace, options: &CollectionOptions) -> Result<()> {
    let Some(view) = &options.view else { return Ok(()) };
    check_stages(namespace, view)?;
    let mut views: BTreeMap<&str, &ViewDefinition> = BTreeMap::new();
    for (other, definition) in catalog.views(namespace.database()) {
        views.insert(other.collection(), definition);
    }
    views.insert(namespace.collection(), view);
    let edges: BTreeMap<&str, Vec<&str>> = views.iter().map(|(name, view)| (*name, read_by(view))).collect();
    let mut search = DepthSearch { edges: &edges, depths: BTreeMap::new(), path: Vec::new() };
    search.depth(namespace.collection())?;
    for name in views.keys() {
        if search.depth(name)? > VIEW_DEPTH_MAX {
            return Err(too_deep());
        }
    }
    for (reader, read) in &edges {
        for name in read {
            let concerns = *reader == namespace.collection() || *name == namespace.collection();
            if let (true, Some(one), Some(other)) = (concerns, views.get(reader), views.get(name))
                && one.collation != other.collation
            {
                let text = format!("View {reader} has a collation that does not match the collation of view {name}");
                return Err(Error::command(Code::OptionNotSupportedOnView, text));
            }
        }
    }
    Ok(())
}

/// Returns the collections and views that a view reads.
///
/// # Errors
/// `InvalidNamespace` (73) for an invalid name.
pub fn namespaces_read(database: &str, view: &ViewDefinition) -> Result<Vec<Namespace>> {
    read_by(view).into_iter().map(|name| Namespace::new(database, name)).collect()
}

fn check_stages(namespace: &Namespace, view: &ViewDefinition) -> Result<()> {
    for name in read_by(view) {
        Namespace::new(namespace.database(), name)?;
    }
    let first = view.pipeline.first().and_then(|stage| stage.iter().next()).transpose();
    if first.map_err(handfast_mql::Error::from)?.is_some_and(|(name, _)| name == "$changeStream") {
        let text = "$changeStream cannot be used in a view definition";
        return Err(Error::command(Code::OptionNotSupportedOnView, text));
    }
    let collation = with_variable(RawDocumentBuf::new(), view.collation.as_deref());
    let pipeline = Pipeline::compile(&view.pipeline, &CompileOptions::with_variables(&collation)?)?;
    for (place, stage) in pipeline.stages().iter().enumerate() {
        match stage {
            Stage::Out(_) | Stage::Merge(_) => {
                let text = format!(
                    "The aggregation stage {} in location {place} of the pipeline cannot be used in the view definition of {namespace} because it writes to disk",
                    stage.name()
                );
                return Err(Error::command(Code::OptionNotSupportedOnView, text));
            }
            Stage::Documents(_) => {
                let text = format!("'{}' cannot be used in a view definition", stage.name());
                return Err(Error::command(Code::InvalidNamespace, text));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A search for the longest chain of views that begins at a view, and for circles.
struct DepthSearch<'v> {
    edges: &'v BTreeMap<&'v str, Vec<&'v str>>,
    depths: BTreeMap<&'v str, usize>,
    /// The views from the first one to the current one. All but one of them are of a catalog that was checked before, which bounds
    /// their number.
    path: Vec<&'v str>,
}

impl<'v> DepthSearch<'v> {
    /// Returns the number of views in the longest chain; 0 for a collection.
    fn depth(&mut self, name: &str) -> Result<usize> {
        if let Some(depth) = self.depths.get(name) {
            return Ok(*depth);
        }
        let Some((name, read)) = self.edges.get_key_value(name) else { return Ok(0) };
        if self.path.contains(name) {
            let path: Vec<&str> = self.path.iter().chain([name]).copied().collect();
            let text = format!("View cycle detected: {}", path.join(" => "));
            return Err(Error::command(Code::GraphContainsCycle, text));
        }
        self.path.push(name);
        let mut deepest = 0;
        for other in read {
            deepest = deepest.max(self.depth(other)?);
        }
        self.path.pop();
        self.depths.insert(name, deepest + 1);
        Ok(deepest + 1)
    }
}

/// Returns the names that a view reads: its source, and those in its stages at any depth.
fn read_by(view: &ViewDefinition) -> Vec<&str> {
    let foreign = reads::foreign_names(&view.pipeline).into_iter().map(|foreign| foreign.name);
    std::iter::once(view.on.as_str()).chain(foreign).collect()
}

fn stage(name: &CStr, argument: impl Into<RawBson>) -> RawDocumentBuf {
    let mut stage = RawDocumentBuf::new();
    stage.append(name, argument.into());
    stage
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn too_deep() -> Error {
    let text = format!("View depth limit exceeded; maximum depth is {VIEW_DEPTH_MAX}");
    Error::command(Code::ViewDepthLimitExceeded, text)
}

fn other_collation(namespace: &Namespace) -> Error {
    let text = format!("Cannot override a view's default collation: {namespace}");
    Error::command(Code::OptionNotSupportedOnView, text)
}
