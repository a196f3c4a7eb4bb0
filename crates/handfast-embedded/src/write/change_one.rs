//! Changes the first document that matches.
//!
//! A search may be slow, so it reads a snapshot while the committer serves others. The committer then evaluates the found document
//! again in its newest state ([`evaluation`](super::evaluation)). If it does not match any more, the search is repeated; after some
//! attempts the search runs on the committer, where no other write can come between.
//!
//! ```text
//! filter names few ids      operation: evaluate them in turn
//! otherwise                 search a snapshot -> operation: evaluate what was found; no match: search again
//! after three searches      operation: search and evaluate
//! ```
//!
//! "No document matches" holds for the snapshot. Before an upsert inserts, the committer makes sure that the collection has not
//! changed since.

use std::sync::Arc;

use handfast_mql::Code;
use handfast_store::ticket::Recorded;
use handfast_store::{Result as StoreResult, blocking};

use super::context::WriteContext;
use super::evaluation::{Evaluation, OnCommitter};
use super::ticketed::{TicketedWrite, once_per_ticket};
use crate::committer::{AnswerAfter, Latest, Writer};
use crate::format::Verify;
use crate::read::candidates::Source;

/// Searches beside the committer before one on it.
const SEARCHES_MAX: usize = 3;
/// The steps of the filter in a search on the committer, a good part of a second: for a document that other writes change each time
/// between search and operation. Beyond it the write is refused.
const SEARCH_STEPS_MAX: u64 = 10_000_000;

/// The way in which the operations of a write are submitted.
#[derive(Clone, Copy)]
pub(crate) struct Submission {
    pub(crate) answer: AnswerAfter,
    pub(crate) bytes: usize,
    pub(crate) ticketed: Option<TicketedWrite>,
}

struct ChangeOne<'c, T> {
    context: &'c WriteContext,
    evaluation: Evaluation<T>,
    submission: Submission,
}

/// Changes the first document that matches; if none does, inserts the upsert's document. Any result, `None` included, is as
/// durable as the submission asks for.
pub(crate) async fn change_one<T: Recorded + Send + 'static>(
    context: &WriteContext,
    evaluation: Evaluation<T>,
    submission: Submission,
) -> StoreResult<Option<T>> {
    let target = evaluation.target.clone();
    let mut change = ChangeOne { context, evaluation, submission };
    match target.few_ids(&context.latest()) {
        Ok(Some(keys)) => {
            return change
                .run(move |writer, evaluation| change_first_of(writer, evaluation, &keys))
                .await
                .map(OnCommitter::done);
        }
        Ok(None) => {}
        Err(error) => return change.unless_ticket_used(Err(error)).await.map(OnCommitter::done),
    }
    let verify = context.shared().verify;
    for _ in 0..SEARCHES_MAX {
        let latest = context.latest();
        let (searched, snapshot) = (target.clone(), context.shared().snapshot_of(latest.clone()));
        let found = blocking(move || {
            let catalog = snapshot.catalog().clone();
            searched.first(Source::Snapshot(snapshot), &catalog, verify)
        });
        let found = match found.await {
            Ok(found) => found,
            Err(error) if error.code() == Code::SnapshotTooOld => continue,
            Err(error) => return change.unless_ticket_used(Err(error)).await.map(OnCommitter::done),
        };
        if found.is_none() && !change.evaluation.is_upsert() {
            return change.unless_ticket_used(Ok(OnCommitter::NoMatch)).await.map(OnCommitter::done);
        }
        let operation = move |writer: &mut Writer<'_>, evaluation: &mut Evaluation<T>| match &found {
            Some(id_key) => change_document(writer, evaluation, id_key),
            None => insert_if_unchanged(writer, evaluation, &latest),
        };
        if let OnCommitter::Done(result) = change.run(operation).await? {
            return Ok(Some(result));
        }
    }
    change.run(move |writer, evaluation| search_and_change(writer, evaluation, verify)).await.map(OnCommitter::done)
}

impl<T: Recorded + Send + 'static> ChangeOne<'_, T> {
    /// Runs an operation on the committer, again after each computation that was too expensive there.
    async fn run<F>(&mut self, operation: F) -> StoreResult<OnCommitter<T>>
    where
        F: Fn(&mut Writer<'_>, &mut Evaluation<T>) -> StoreResult<OnCommitter<T>> + Send + Sync + 'static,
    {
        let operation = Arc::new(operation);
        let Submission { answer, bytes, ticketed } = self.submission;
        loop {
            let (mut evaluation, operation) = (self.evaluation.for_operation(), operation.clone());
            let run = move |writer: &mut Writer<'_>| {
                once_per_ticket(writer, ticketed, |writer| operation(writer, &mut evaluation))
            };
            match self.context.committer.submit(answer, bytes, run).await? {
                OnCommitter::TooExpensive(what) => {
                    if let Err(error) = self.evaluation.compute_off_thread(what, &self.context.sources).await {
                        return self.unless_ticket_used(Err(error)).await;
                    }
                }
                done => return Ok(done),
            }
        }
    }

    /// Returns a result that was found beside the committer, unless another attempt has used the ticket: only the committer knows.
    async fn unless_ticket_used(&self, result: StoreResult<OnCommitter<T>>) -> StoreResult<OnCommitter<T>> {
        let Submission { answer, ticketed, .. } = self.submission;
        if ticketed.is_none() && answer == AnswerAfter::Applied {
            return result;
        }
        let run = move |writer: &mut Writer<'_>| once_per_ticket(writer, ticketed, |_| result);
        self.context.committer.submit(answer, 0, run).await
    }
}

/// Changes the first of these documents that matches, or inserts the upsert's document.
fn change_first_of<T>(
    writer: &mut Writer<'_>,
    evaluation: &mut Evaluation<T>,
    id_keys: &[Vec<u8>],
) -> StoreResult<OnCommitter<T>> {
    for id_key in id_keys {
        match change_document(writer, evaluation, id_key)? {
            OnCommitter::NoMatch => {}
            changed => return Ok(changed),
        }
    }
    evaluation.insert(writer)
}

/// Changes a document, if it still matches.
pub(super) fn change_document<T>(
    writer: &mut Writer<'_>,
    evaluation: &mut Evaluation<T>,
    id_key: &[u8],
) -> StoreResult<OnCommitter<T>> {
    let Some(collection) = writer.collection(&evaluation.target.namespace) else {
        return Ok(OnCommitter::NoMatch);
    };
    match writer.get(collection.id, id_key)? {
        Some(stored) => evaluation.change(writer, &collection, id_key, &stored),
        None => Ok(OnCommitter::NoMatch),
    }
}

/// Inserts the upsert's document, if the collection has not changed since it was searched.
fn insert_if_unchanged<T>(
    writer: &mut Writer<'_>,
    evaluation: &Evaluation<T>,
    searched: &Latest,
) -> StoreResult<OnCommitter<T>> {
    let namespace = &evaluation.target.namespace;
    let searched_id = searched.catalog.get(namespace).map(|collection| collection.id);
    let unchanged = match writer.collection(namespace) {
        Some(collection) => {
            searched_id == Some(collection.id) && writer.last_change(collection.id) <= searched.timestamp
        }
        None => searched_id.is_none(),
    };
    if unchanged { evaluation.insert(writer) } else { Ok(OnCommitter::NoMatch) }
}

/// Searches and changes in one operation.
fn search_and_change<T>(
    writer: &mut Writer<'_>,
    evaluation: &mut Evaluation<T>,
    verify: Verify,
) -> StoreResult<OnCommitter<T>> {
    let view = writer.apply_staged()?;
    let catalog = writer.catalog().clone();
    let target = evaluation.target.clone();
    target.context.bound_steps(SEARCH_STEPS_MAX);
    let found = target.first(Source::Latest(view), &catalog, verify);
    target.context.bound_steps(u64::MAX);
    if let Some(id_key) = found? {
        match change_document(writer, evaluation, &id_key)? {
            OnCommitter::NoMatch => {}
            changed => return Ok(changed),
        }
    }
    evaluation.insert(writer)
}
