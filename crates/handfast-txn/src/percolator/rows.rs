//! Rows in the store: reading one, and carrying out a step on one by compare-and-set.

use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::{
    Applied, Delete, DeleteStatement, DocumentStore, Error as StoreError, ErrorClass, Insert, Result as StoreResult,
    StoreExt, Update, UpdateSpec, UpdateStatement, WriteError,
};

use super::row::{Key, Revision, Row, Step};

/// Attempts at a step before a row counts as too contended: each time somebody else has changed it in between.
const ATTEMPTS_MAX: usize = 64;
/// Answers of one step that may get lost. Each is followed by a look at the row.
const LOST_MAX: usize = 2;

/// The rows of a store.
#[derive(Clone)]
pub(super) struct Rows {
    pub(super) store: Arc<dyn DocumentStore>,
}

/// A step that was refused, and the row that refused it.
pub(super) type RefusedBy<E> = (E, Row);

impl Rows {
    /// The row as it is now.
    pub(super) async fn read(&self, key: &Key) -> StoreResult<Row> {
        match self.store.find_one(&key.namespace, by_id(key)).await? {
            Some(document) => Row::from_document(&document),
            None => Ok(Row::missing(key.id.clone())),
        }
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
        mut known: Option<Row>,
        step: impl Fn(&Row) -> Result<Step, E> + Send + Sync,
        check: impl Fn(&Row) -> StoreResult<()> + Send + Sync,
    ) -> StoreResult<Result<Row, RefusedBy<E>>> {
        let (mut lost, mut in_doubt) = (0, None);
        let mut doubtful = |error: StoreError, revision: Revision| {
            if error.applied() == Applied::Maybe {
                in_doubt = Some(revision);
            }
            let is_transient = error.class() == ErrorClass::TransientNetwork;
            lost += 1;
            let gives_up = !is_transient || lost > LOST_MAX;
            gives_up.then(|| if in_doubt == Some(revision) { error.in_doubt() } else { error })
        };
        let mut last = known.as_ref().map_or(Revision::Missing, |row| row.revision);
        for _ in 0..ATTEMPTS_MAX {
            let row = match known.take() {
                Some(row) => row,
                None => match self.read(key).await {
                    Ok(row) => row,
                    Err(error) => match doubtful(error, last) {
                        Some(error) => return Err(error),
                        None => continue,
                    },
                },
            };
            let next = match step(&row) {
                Ok(Step::Done) => return Ok(Ok(row)),
                Ok(Step::Change(next)) => next,
                Err(refused) => return Ok(Err((refused, row))),
            };
            check(&next)?;
            last = row.revision;
            match self.swap(key, row.revision, &next).await {
                Ok(true) => return Ok(Ok(next)),
                Ok(false) => {}
                Err(error) => {
                    if let Some(error) = doubtful(error, last) {
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
        if revision == Revision::Missing {
            let insert = Insert::new(key.namespace.clone(), vec![next.to_document()]);
            return match only(self.store.insert(insert).await?.errors) {
                Ok(()) => Ok(true),
                Err(error) if error.code() == Code::DuplicateKey => Ok(false),
                Err(error) => Err(error),
            };
        }
        let statement = UpdateStatement::one(of_revision(key, revision), UpdateSpec::Document(next.to_document()));
        let outcome = self.store.update(Update::new(key.namespace.clone(), vec![statement])).await?;
        only(outcome.errors)?;
        Ok(outcome.matched > 0)
    }

    /// Removes the row of this revision, if it is still that one.
    pub(super) async fn remove(&self, key: &Key, revision: Revision) -> StoreResult<()> {
        let statement = DeleteStatement { filter: of_revision(key, revision), multi: false, hint: None };
        only(self.store.delete(Delete::new(key.namespace.clone(), vec![statement])).await?.errors)
    }
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
