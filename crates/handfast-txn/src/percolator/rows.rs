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

use super::row::{Key, PrimaryStatus, Revision, Row, Step, Timestamp, millis_of};
use super::throttled::Throttled;

/// Attempts at a step before a row counts as too contended: each time somebody else has changed it in between.
const ATTEMPTS_MAX: usize = 64;
/// Answers of one step that may get lost. Each is followed by a look at the row.
const LOST_MAX: usize = 2;

/// The rows of a store.
#[derive(Clone)]
pub(super) struct Rows {
    /// The store, with a bounded number of requests under way.
    pub(super) store: Arc<dyn DocumentStore>,
    /// The store itself: for what must not stand in line behind data.
    direct: Arc<dyn DocumentStore>,
}

/// A step that was refused.
pub(super) struct RefusedStep<E> {
    /// Why.
    pub(super) why: E,
    /// The row that refused it.
    pub(super) row: Row,
    /// The answer to a request of it got lost before: it may have been done, and nothing is left of it.
    pub(super) was_in_doubt: bool,
}

impl Rows {
    pub(super) fn new(store: Arc<dyn DocumentStore>, requests_max: usize) -> Self {
        Rows { store: Arc::new(Throttled::new(Arc::clone(&store), requests_max)), direct: store }
    }

    /// The row as it is now.
    pub(super) async fn read(&self, key: &Key) -> StoreResult<Row> {
        match self.store.find_one(&key.namespace, by_id(key)).await? {
            Some(document) => Row::from_document(&document),
            None => Ok(Row::missing(key.id.clone())),
        }
    }

    /// What the row says of the transaction that began then, without all that is in the row.
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

    /// Lets the lock of the transaction that began then live longer, if it is still there, as [`renew`](super::row::renew) would:
    /// in one request of some bytes, whatever the row holds, and not behind others.
    pub(super) async fn renew(&self, primary: &Key, start: Timestamp, ttl: Duration) -> StoreResult<()> {
        let mut filter = by_id(primary);
        filter.append(cstr!("_hf.lock.s"), start.stored());
        let change = rawdoc! { "$max": { "_hf.lock.ttl": millis_of(ttl) }, "$inc": { "_hf.v": 1_i64 } };
        let statement = UpdateStatement::one(filter, UpdateSpec::Document(change));
        only(self.direct.update(Update::new(primary.namespace.clone(), vec![statement])).await?.errors)
    }

    /// Carries out a step on a row, on what is known of it or else on what is read: until it is done, or refused. Before
    /// a changed row is written, `check` says whether it may be.
    ///
    /// After a lost answer the row is read once more and the step looked at again: it is done then, or it is tried again
    /// on the same revision, so that it happens once however many of the requests arrive.
    ///
    /// # Errors
    /// Those of the store, in doubt if a request that may still arrive would do the step; those of `check`.
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

    /// As [`Rows::apply`], after requests of the same step: with the doubts about them, and the revision that the last one was
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

    /// Puts a row in the place of the one of this revision; `false` if there is another one now.
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

    /// Removes the row of this revision, if it is still that one.
    pub(super) async fn remove(&self, key: &Key, revision: Revision) -> StoreResult<()> {
        let statement = DeleteStatement { filter: of_revision(key, revision), multi: false, hint: None };
        only(self.store.delete(Delete::new(key.namespace.clone(), vec![statement])).await?.errors)
    }
}

/// What puts a row in the place of the one of a revision, and does nothing if there is another one.
pub(super) enum Swap {
    Insert(RawDocumentBuf),
    Update(Box<UpdateStatement>),
}

impl Swap {
    pub(super) fn of(key: &Key, revision: Revision, next: &Row) -> Self {
        let change = match (revision, next.hidden()) {
            (Revision::Missing, _) => return Swap::Insert(next.to_document()),
            // What no transaction has written shows what it is: there may be another document in its place by now.
            (Revision::Plain, Some(hidden)) => rawdoc! { "$set": { "_hf": hidden } },
            _ => next.to_document(),
        };
        Swap::Update(Box::new(UpdateStatement::one(of_revision(key, revision), UpdateSpec::Document(change))))
    }

    /// What it sends, about.
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

/// What became of the requests of one step.
#[derive(Default)]
pub(super) struct LostAnswers {
    /// Answers that got lost.
    lost: usize,
    /// The revision that a request was conditional on which may have been carried out, or may still be.
    of: Option<Revision>,
}

impl LostAnswers {
    /// Whether a request may have been carried out, or may still be.
    pub(super) fn may_be_done(&self) -> bool {
        self.of.is_some()
    }

    /// The error to give up with after one more; none to look at the row again.
    pub(super) fn after(&mut self, error: StoreError, revision: Revision) -> Option<StoreError> {
        if error.applied() == Applied::Maybe {
            self.of = Some(revision);
        }
        self.lost += 1;
        let gives_up = error.class() != ErrorClass::TransientNetwork || self.lost > LOST_MAX;
        // One on an earlier revision has been carried out, and was seen, or never will be.
        gives_up.then(|| if self.of == Some(revision) { error.in_doubt() } else { error })
    }
}

/// Rows that a transaction has locked which began up to this.
pub(super) fn locked_up_to(at: Timestamp) -> RawDocumentBuf {
    rawdoc! { "_hf.lock.s": { "$lte": at.stored() } }
}

/// Rows that any transaction has locked.
pub(super) fn locked() -> RawDocumentBuf {
    locked_up_to(Timestamp(u64::MAX))
}

/// Rows with a commit newer than this.
pub(super) fn newer_than(at: Timestamp) -> RawDocumentBuf {
    rawdoc! { "_hf.c": { "$gt": at.stored() } }
}

/// Nothing to look at before a row is written.
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
