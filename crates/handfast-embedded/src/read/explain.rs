//! The plan of a query, and its execution statistics, in MongoDB's form.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bson::raw::{CString, cstr};
use bson::{RawArrayBuf, RawDocumentBuf};
use handfast_store::{Find, Result as StoreResult, Verbosity, blocking, default_collation};

use super::candidates::ExaminedCounts;
use super::find::{PreparedFind, SnapshotReader};
use super::plan::Plan;
use super::scan::Access;
use crate::engine::Direction;

/// The counts of an execution.
struct Executed {
    returned: u64,
    keys: u64,
    documents: u64,
}

impl SnapshotReader {
    pub(crate) async fn explain(self, find: Find, verbosity: Verbosity) -> StoreResult<RawDocumentBuf> {
        let find = default_collation::of_find(&find, self.default_collation(&find.namespace)).unwrap_or(find);
        let prepared = self.prepare(&find)?;
        let stages = stages(&find, &prepared.plan);
        let mut planner = RawDocumentBuf::new();
        planner.append(cstr!("namespace"), find.namespace.to_string());
        planner.append(cstr!("parsedQuery"), find.filter.clone());
        planner.append(cstr!("winningPlan"), nested(&stages, None));
        planner.append(cstr!("rejectedPlans"), RawArrayBuf::new());
        let mut answer = RawDocumentBuf::new();
        answer.append(cstr!("explainVersion"), "1");
        answer.append(cstr!("queryPlanner"), planner);
        if verbosity == Verbosity::ExecutionStats {
            let executed = self.execute(find, prepared).await?;
            let mut statistics = RawDocumentBuf::new();
            statistics.append(cstr!("executionSuccess"), true);
            append_number(&mut statistics, "nReturned", executed.returned);
            append_number(&mut statistics, "totalKeysExamined", executed.keys);
            append_number(&mut statistics, "totalDocsExamined", executed.documents);
            statistics.append(cstr!("executionStages"), nested(&stages, Some(&executed)));
            answer.append(cstr!("executionStats"), statistics);
        }
        Ok(answer)
    }

    async fn execute(self, find: Find, prepared: PreparedFind) -> StoreResult<Executed> {
        if prepared.collection.is_none() {
            return Ok(Executed { returned: 0, keys: 0, documents: 0 });
        }
        let examined: Arc<ExaminedCounts> = Arc::default();
        let _stop = prepared.stop_on_drop();
        let documents = self.documents(&find, prepared, examined.clone())?;
        let returned = blocking(move || {
            let mut returned = 0;
            for document in documents {
                document?;
                returned += 1;
            }
            Ok(returned)
        });
        let returned = returned.await?;
        let (keys, documents) = (examined.keys.load(Ordering::Relaxed), examined.documents.load(Ordering::Relaxed));
        Ok(Executed { returned, keys, documents })
    }
}

/// Returns the stages of a plan, the last to run first.
fn stages(find: &Find, plan: &Plan) -> Vec<RawDocumentBuf> {
    let named = |name: &str| {
        let mut stage = RawDocumentBuf::new();
        stage.append(cstr!("stage"), name);
        stage
    };
    let mut stages = Vec::new();
    if !find.projection.is_empty() {
        let mut stage = named("PROJECTION_DEFAULT");
        stage.append(cstr!("transformBy"), find.projection.clone());
        stages.push(stage);
    }
    if let Some(limit) = find.limit {
        let mut stage = named("LIMIT");
        append_number(&mut stage, "limitAmount", limit);
        stages.push(stage);
    }
    if find.skip > 0 {
        let mut stage = named("SKIP");
        append_number(&mut stage, "skipAmount", find.skip);
        stages.push(stage);
    }
    if !find.sort.is_empty() && !plan.sorted {
        let mut stage = named("SORT");
        stage.append(cstr!("sortPattern"), find.sort.clone());
        stages.push(stage);
    }
    match &plan.access {
        Access::Nothing => stages.push(named("EOF")),
        Access::Points(keys) if keys.len() == 1 => stages.push(named("IDHACK")),
        Access::Points(_) => {
            stages.push(fetch(find, named("FETCH")));
            let mut stage = named("IXSCAN");
            stage.append(cstr!("keyPattern"), bson::rawdoc! { "_id": 1 });
            stage.append(cstr!("indexName"), "_id_");
            stage.append(cstr!("direction"), "forward");
            stages.push(stage);
        }
        Access::Documents { direction, .. } => {
            let mut stage = fetch(find, named("COLLSCAN"));
            stage.append(cstr!("direction"), direction_name(*direction));
            stages.push(stage);
        }
        Access::Index { index, direction, .. } => {
            stages.push(fetch(find, named("FETCH")));
            let mut stage = named("IXSCAN");
            stage.append(cstr!("keyPattern"), index.spec().key.clone());
            stage.append(cstr!("indexName"), index.spec().name.as_str());
            stage.append(cstr!("isMultiKey"), index.multikey != 0);
            stage.append(cstr!("isUnique"), index.spec().unique);
            stage.append(cstr!("isSparse"), index.spec().sparse);
            stage.append(cstr!("isPartial"), index.spec().partial_filter.is_some());
            stage.append(cstr!("direction"), direction_name(*direction));
            let mut bounds = RawDocumentBuf::new();
            for (name, intervals) in &plan.bounds {
                let mut texts = RawArrayBuf::new();
                intervals.iter().for_each(|text| texts.push(text.as_str()));
                append(&mut bounds, name, texts);
            }
            stage.append(cstr!("indexBounds"), bounds);
            stages.push(stage);
        }
    }
    stages
}

fn fetch(find: &Find, mut stage: RawDocumentBuf) -> RawDocumentBuf {
    if !find.filter.is_empty() {
        stage.append(cstr!("filter"), find.filter.clone());
    }
    stage
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Backward => "backward",
    }
}

/// Returns the stages, each inside of the one that runs after it.
fn nested(stages: &[RawDocumentBuf], executed: Option<&Executed>) -> RawDocumentBuf {
    let mut inner: Option<RawDocumentBuf> = None;
    for stage in stages.iter().rev() {
        let mut stage = stage.clone();
        if let Some(executed) = executed {
            // The innermost stage reads; the others only process its documents.
            if inner.is_none() {
                append_number(&mut stage, "keysExamined", executed.keys);
                append_number(&mut stage, "docsExamined", executed.documents);
            }
            append_number(&mut stage, "nReturned", executed.returned);
        }
        if let Some(inner) = inner.take() {
            stage.append(cstr!("inputStage"), inner);
        }
        inner = Some(stage);
    }
    inner.unwrap_or_default()
}

fn append(document: &mut RawDocumentBuf, name: &str, value: impl Into<bson::raw::RawBson>) {
    // Names of fields come from documents, so they hold no NUL.
    if let Ok(name) = CString::try_from(name.to_owned()) {
        document.append(name, value.into());
    }
}

fn append_number(document: &mut RawDocumentBuf, name: &str, number: u64) {
    match i32::try_from(number) {
        Ok(number) => append(document, name, number),
        Err(_) => append(document, name, i64::try_from(number).unwrap_or(i64::MAX)),
    }
}
