//! Rows in the store: reading one, and carrying out a step on one by compare-and-set.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    Applied, Delete, DeleteStatement, DocumentStore, Error as StoreError, ErrorClass, Find, Insert,
    Result as StoreResult, StoreExt, Update, UpdateSpec, UpdateStatement, WriteError,
};

use super::row::{Body, Key, PrimaryStatus, Revision, Row, Step, Timestamp, millis_of};
use super::throttled::Throttled;

/// The most attempts at a step. An attempt fails if another client has changed the row in between.
const ATTEMPTS_MAX: usize = 64;
/// The most answers of one step that may get lost. After each the row is read again.
const LOST_MAX: usize = 2;

/// A change of a row, which a commit makes.
pub(super) struct RowChange {
    pub(super) key: Key,
    pub(super) body: Body,
}

/// The rows of a store.
#[derive(Clone)]
pub(super) struct Rows {
    /// The store, with a bounded number of requests under way.
    pub(super) store: Arc<dyn DocumentStore>,
    /// The store without the bound, for requests that must not wait behind data.
    direct: Arc<dyn DocumentStore>,
}

pub(super) struct RefusedStep<E> {
    /// The reason.
    pub(super) why: E,
    /// The row that refused it.
    pub(super) row: Row,
    /// Whether an answer got lost before: the step may have been done without a trace.
    pub(super) was_in_doubt: bool,
}

impl Rows {
    pub(super) fn new(store: Arc<dyn DocumentStore>, requests_max: usize) -> Self {
        Rows { store: Arc::new(Throttled::new(Arc::clone(&store), requests_max)), direct: store }
    }

    pub(super) async fn read(&self, key: &Key) -> StoreResult<Row> {
        match self.store.find_one(&key.namespace, by_id(key)).await? {
            Some(document) => Row::from_document(&document),
            None => Ok(Row::missing(key.id.clone())),
        }
    }

    /// Reads the status of a transaction in a row, without the rest of the row.
    pub(super) async fn primary_status(&self, key: &Key, start: Timestamp) -> StoreResult<PrimaryStatus> {
        let find = Find {
            projection: PrimaryStatus::projection(),
            limit: Some(1),
            ..Find::new(key.namespace.clone(), by_id(key))
        };
        match self.store.find_all(find).await?.first() {
            Some(document) => PrimaryStatus::from_document(document, start),
            None => Ok(PrimaryStatus::UNKNOWN),
        }
    }

    /// Extends the lifetime of a transaction's lock, if it is still there, as [`renew`](super::row::renew) does: by one small request that does
    /// not wait behind others.
    pub(super) async fn renew(&self, primary: &Key, start: Timestamp, ttl: Duration) -> StoreResult<()> {
        let mut filter = by_id(primary);
        filter.append(cstr!("_hf.lock.s"), start.stored());
        let change = rawdoc! { "$max": { "_hf.lock.ttl": millis_of(ttl) }, "$inc": { "_hf.v": 1_i64 } };
        let statement = UpdateStatement::one(filter, UpdateSpec::Document(change));
        only(self.direct.update(Update::new(primary.namespace.clone(), vec![statement])).await?.errors)
    }

    /// Carries out a step on a row, known or read, until it is done or refused. `check` may refuse a changed row before it is written.
    ///
    /// After a lost answer the row is read and the step computed again: it is done, or is tried again on the same revision, so that it happens
    /// once however many of the requests arrive.
    ///
    /// # Errors
    /// `WriteConflict` (112) if others change the row again and again; errors of `check`; errors of the store, which may be applied if a request
    /// of the step may still arrive.
    pub(super) async fn apply<E>(
        &self,
        key: &Key,
        known: Option<Row>,
        step: impl Fn(&Row) -> Result<Step, E> + Send + Sync,
        check: impl Fn(&Row) -> StoreResult<()> + Send + Sync,
    ) -> StoreResult<Result<Row, RefusedStep<E>>> {
        let last = known.as_ref().map_or(Revision::Missing, |row| row.revision);
        self.apply_after(key, known, LostAnswers::default(), last, step, check).await
    }

    /// Carries out a step as [`Rows::apply`] does, after earlier requests: with their lost answers, and the revision that the last one was
    /// conditional on.
    pub(super) async fn apply_after<E>(
        &self,
        key: &Key,
        mut known: Option<Row>,
        mut lost: LostAnswers,
        mut last: Revision,
        step: impl Fn(&Row) -> Result<Step, E> + Send + Sync,
        check: impl Fn(&Row) -> StoreResult<()> + Send + Sync,
    ) -> StoreResult<Result<Row, RefusedStep<E>>> {
        for _ in 0..ATTEMPTS_MAX {
            let row = match known.take() {
                Some(row) => row,
                None => match self.read(key).await {
                    Ok(row) => row,
                    Err(error) => match lost.after(error, last) {
                        Some(error) => return Err(error),
                        None => continue,
                    },
                },
            };
            let next = match step(&row) {
                Ok(Step::Done) => return Ok(Ok(row)),
                Ok(Step::Change(next)) => next,
                Err(why) => return Ok(Err(RefusedStep { why, row, was_in_doubt: lost.may_be_done() })),
            };
            check(&next)?;
            last = row.revision;
            match self.swap(key, row.revision, &next).await {
                Ok(true) => return Ok(Ok(next)),
                Ok(false) => {}
                Err(error) => {
                    if let Some(error) = lost.after(error, last) {
                        return Err(error);
                    }
                }
            }
        }
        let text = format!("write conflict: {key} was changed by others {ATTEMPTS_MAX} times in a row");
        Err(StoreError::command(Code::WriteConflict, text))
    }

    /// Replaces the row of this revision. Returns `false` if the row has another revision.
    async fn swap(&self, key: &Key, revision: Revision, next: &Row) -> StoreResult<bool> {
        let namespace = key.namespace.clone();
        match Swap::of(key, revision, next) {
            Swap::Insert(document) => {
                match only(self.store.insert(Insert::new(namespace, vec![document])).await?.errors) {
                    Ok(()) => Ok(true),
                    Err(error) if error.code() == Code::DuplicateKey => Ok(false),
                    Err(error) => Err(error),
                }
            }
            Swap::Update(statement) => {
                let outcome = self.store.update(Update::new(namespace, vec![*statement])).await?;
                only(outcome.errors)?;
                Ok(outcome.matched > 0)
            }
        }
    }

    /// Removes the row if it still has this revision.
    pub(super) async fn remove(&self, key: &Key, revision: Revision) -> StoreResult<()> {
        let statement = DeleteStatement { filter: of_revision(key, revision), multi: false, hint: None };
        only(self.store.delete(Delete::new(key.namespace.clone(), vec![statement])).await?.errors)
    }
}

/// A write that replaces the row of a revision, and does nothing if the row has another one.
pub(super) enum Swap {
    Insert(RawDocumentBuf),
    Update(Box<UpdateStatement>),
}

impl Swap {
    pub(super) fn of(key: &Key, revision: Revision, next: &Row) -> Self {
        let change = match (revision, next.hidden()) {
            (Revision::Missing, _) => return Swap::Insert(next.to_document()),
            // A plain document has no revision: another one may have replaced it, so only the hidden field is set.
            (Revision::Plain, Some(hidden)) => rawdoc! { "$set": { "_hf": hidden } },
            _ => next.to_document(),
        };
        Swap::Update(Box::new(UpdateStatement::one(of_revision(key, revision), UpdateSpec::Document(change))))
    }

    /// Returns the approximate bytes of the request.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Swap::Insert(document) => document.as_bytes().len(),
            Swap::Update(statement) => {
                let change = match &statement.update {
                    UpdateSpec::Document(document) => document.as_bytes().len(),
                    UpdateSpec::Pipeline(stages) => stages.iter().map(|stage| stage.as_bytes().len()).sum(),
                };
                statement.filter.as_bytes().len().saturating_add(change)
            }
        }
    }
}

/// The lost answers to requests of one step.
#[derive(Default)]
pub(super) struct LostAnswers {
    /// The number of lost answers.
    lost: usize,
    /// The revision of the last request that may have been carried out, or may still be.
    of: Option<Revision>,
}

impl LostAnswers {
    /// Returns whether a request may have been carried out, or may still be.
    pub(super) fn may_be_done(&self) -> bool {
        self.of.is_some()
    }

    /// Counts an error, and returns it if the step is to be given up. With `None` the row is read again.
    pub(super) fn after(&mut self, error: StoreError, revision: Revision) -> Option<StoreError> {
        if error.applied() == Applied::Maybe {
            self.of = Some(revision);
        }
        self.lost += 1;
        let gives_up = error.class() != ErrorClass::TransientNetwork || self.lost > LOST_MAX;
        // A request on an earlier revision was seen to be carried out, or never will be.
        gives_up.then(|| if self.of == Some(revision) { error.in_doubt() } else { error })
    }
}

/// Returns a filter for rows locked by a transaction that began up to this.
pub(super) fn locked_up_to(at: Timestamp) -> RawDocumentBuf {
    rawdoc! { "_hf.lock.s": { "$lte": at.stored() } }
}

/// Returns a filter for locked rows.
pub(super) fn locked() -> RawDocumentBuf {
    locked_up_to(Timestamp(u64::MAX))
}

/// Returns a filter for rows with a newer commit.
pub(super) fn newer_than(at: Timestamp) -> RawDocumentBuf {
    rawdoc! { "_hf.c": { "$gt": at.stored() } }
}

/// Accepts each row.
pub(super) fn unchecked(_: &Row) -> StoreResult<()> {
    Ok(())
}

fn by_id(key: &Key) -> RawDocumentBuf {
    rawdoc! { "_id": { "$eq": key.id.clone() } }
}

fn of_revision(key: &Key, revision: Revision) -> RawDocumentBuf {
    let mut filter = by_id(key);
    match revision {
        Revision::At(revision) => {
            filter.append(bson::raw::cstr!("_hf.v"), i64::try_from(revision).unwrap_or(i64::MAX));
        }
        Revision::Plain | Revision::Missing => {
            filter.append(bson::raw::cstr!("_hf"), rawdoc! { "$exists": false });
        }
    }
    filter
}

fn only(errors: Vec<WriteError>) -> StoreResult<()> {
    errors.into_iter().next().map_or(Ok(()), |refused| Err(refused.error))
}
