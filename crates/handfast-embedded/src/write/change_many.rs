//! Changes all documents that match, in steps between which other operations run.
//!
//! The change must reach every document that matches all the time, none twice (a change may move a document ahead in the index
//! by which it was found), and must not hold one old state for as long as it takes. So:
//!
//! - a collection is scanned by `_id`, which never changes, each batch in the newest state;
//! - an index is scanned to its end in one state before the first change, and the `_id` keys are gathered. If they are too
//!   many, or that state is ended, the collection is scanned instead.

use std::collections::VecDeque;
use std::sync::Arc;

use handfast_mql::Code;
use handfast_store::{Error as StoreError, Result as StoreResult, blocking};

use super::change_one::change_document;
use super::context::WriteContext;
use super::evaluation::{Evaluation, OnCommitter, TooExpensive};
use super::target::Target;
use crate::catalog::{Collection, CollectionIndex};
use crate::committer::{AnswerAfter, Latest, Writer};
use crate::engine::Direction;
use crate::read::candidates::{Candidates, Source};
use crate::read::scan::Access;

/// Changes all documents that match, each in its newest state, and calls `each` with the result of each. Stops at the first
/// error and returns it: earlier changes stay.
pub(crate) async fn change_many<T: Send + 'static>(
    context: &WriteContext,
    evaluation: &mut Evaluation<T>,
    bytes: usize,
    mut each: impl FnMut(T),
) -> StoreResult<Option<StoreError>> {
    let target = evaluation.target.clone();
    let latest = context.latest();
    let Some(collection) = latest.catalog.get(&target.namespace).cloned() else {
        return Ok(None);
    };
    let access = target.access(&collection)?;
    let mut search = match begin_search(context, &target, latest, &collection, access).await {
        Ok(search) => search,
        Err(error) => return Ok(Some(error)),
    };
    let count = context.options.step_documents_max.max(1);
    let mut keys = VecDeque::new();
    loop {
        if context.latest().catalog.get(&target.namespace).is_none_or(|now| now.id != collection.id) {
            // The collection was dropped or renamed: no document of it has this name any more.
            return Ok(None);
        }
        if keys.is_empty() {
            let searched = target.clone();
            let found = blocking(move || {
                let keys = search.next_keys(&searched, count)?;
                Ok((search, keys))
            });
            match found.await {
                Ok((rest, found)) => {
                    search = rest;
                    keys = found.into();
                }
                Err(error) => return Ok(Some(error)),
            }
        }
        if keys.is_empty() {
            return Ok(None);
        }
        let given = keys.len();
        let (for_operation, taken) = (evaluation.for_operation(), std::mem::take(&mut keys));
        let operation = move |writer: &mut Writer<'_>| Ok(change_step(writer, for_operation, taken));
        // An error of the committer is returned like one of a step: the caller knows whether earlier steps were applied.
        let step = match context.committer.submit(AnswerAfter::Applied, bytes, operation).await {
            Ok(step) => step,
            Err(error) => return Ok(Some(error)),
        };
        if step.remaining.len() < given {
            evaluation.next_document();
        }
        step.results.into_iter().for_each(&mut each);
        if step.error.is_some() {
            return Ok(step.error);
        }
        if let Some(what) = step.too_expensive
            && let Err(error) = evaluation.compute_off_thread(what, &context.sources).await
        {
            return Ok(Some(error));
        }
        keys = step.remaining;
    }
}

/// The search for the documents of one change.
enum Search {
    /// The `_id` keys found by an index and not changed yet.
    Gathered(VecDeque<Vec<u8>>),
    Scan {
        candidates: Box<Candidates>,
        /// The index of a hint, whose documents alone are meant.
        held_by: Option<Arc<CollectionIndex>>,
    },
}

async fn begin_search(
    context: &WriteContext,
    target: &Arc<Target>,
    latest: Latest,
    collection: &Arc<Collection>,
    access: Access,
) -> StoreResult<Search> {
    let Access::Index { index, .. } = &access else {
        drop(latest);
        return Ok(Search::Scan { candidates: scan_newest(context, collection, access, target), held_by: None });
    };
    let index = index.clone();
    Ok(match gather(context, target, latest, collection, access).await? {
        Some(keys) => Search::Gathered(keys.into()),
        None => {
            let candidates = scan_newest(context, collection, Access::everything(Direction::Forward), target);
            Search::Scan { candidates, held_by: Some(index) }
        }
    })
}

fn scan_newest(
    context: &WriteContext,
    collection: &Arc<Collection>,
    access: Access,
    target: &Target,
) -> Box<Candidates> {
    let source = Source::Newest(context.shared().clone());
    let candidates = Candidates::new(source, context.shared().verify, collection.clone(), access, None);
    Box::new(candidates.stopped_by(target.context.interrupt.clone()))
}

/// Returns the `_id` keys of all documents that match in a state; `None` if they are too many, or the state was ended.
async fn gather(
    context: &WriteContext,
    target: &Arc<Target>,
    latest: Latest,
    collection: &Arc<Collection>,
    access: Access,
) -> StoreResult<Option<Vec<Vec<u8>>>> {
    let source = Source::Snapshot(context.shared().snapshot_of(latest));
    let candidates = Candidates::new(source, context.shared().verify, collection.clone(), access, None);
    let mut candidates = candidates.stopped_by(target.context.interrupt.clone());
    let (target, bytes_max) = (target.clone(), context.options.gathered_bytes_max);
    let gathered = blocking(move || {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while let Some(found) = candidates.next_document()? {
            if target.matches(&found.id_key, &found.stored)? {
                bytes += size_of::<Vec<u8>>() + found.id_key.len();
                keys.push(found.id_key);
            }
            if bytes > bytes_max {
                return Ok(None);
            }
        }
        Ok(Some(keys))
    });
    match gathered.await {
        Err(error) if error.code() == Code::SnapshotTooOld => Ok(None),
        gathered => gathered,
    }
}

impl Search {
    fn next_keys(&mut self, target: &Target, count: usize) -> StoreResult<Vec<Vec<u8>>> {
        match self {
            Search::Gathered(keys) => Ok(keys.drain(..count.min(keys.len())).collect()),
            Search::Scan { candidates, held_by } => {
                let mut keys = Vec::new();
                while keys.len() < count
                    && let Some(found) = candidates.next_document()?
                {
                    let document = found.stored.document()?;
                    let held = match held_by {
                        Some(held_by) => !held_by.index.keys(document)?.keys.is_empty(),
                        None => true,
                    };
                    if held && target.matches(&found.id_key, &found.stored)? {
                        keys.push(found.id_key);
                    }
                }
                Ok(keys)
            }
        }
    }
}

/// The result of one operation on several documents.
pub(super) struct Step<T> {
    pub(super) results: Vec<T>,
    /// The documents for the next operation.
    pub(super) remaining: VecDeque<Vec<u8>>,
    /// The first of them takes too many steps for the committer.
    too_expensive: Option<TooExpensive>,
    error: Option<StoreError>,
}

pub(super) fn change_step<T>(
    writer: &mut Writer<'_>,
    mut evaluation: Evaluation<T>,
    keys: VecDeque<Vec<u8>>,
) -> Step<T> {
    let mut step = Step { results: Vec::with_capacity(keys.len()), remaining: keys, too_expensive: None, error: None };
    // All documents together take no more steps than one may.
    let mut steps_left = writer.steps_max();
    while steps_left > 0
        && let Some(id_key) = step.remaining.pop_front()
    {
        let changed = change_document(writer, &mut evaluation, &id_key);
        // The count is taken, because a document that is gone is not evaluated and would count the steps of the one before again.
        steps_left = steps_left.saturating_sub(std::mem::take(&mut evaluation.steps));
        match changed {
            Ok(OnCommitter::Done(result)) => step.results.push(result),
            Ok(OnCommitter::NoMatch) => {}
            Ok(OnCommitter::TooExpensive(what)) => {
                step.remaining.push_front(id_key);
                step.too_expensive = Some(what);
                break;
            }
            Err(error) => {
                step.error = Some(error);
                break;
            }
        }
    }
    step
}
