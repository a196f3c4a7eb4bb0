//! Writes: evaluates them on a copy and writes the changes back, document by document.

use std::sync::Arc;

use bson::RawDocument;
use handfast_mql::Code;
use handfast_store::index::duplicate_key;
use handfast_store::{
    Applied, Delete, DeleteOutcome, DeleteStatement, DocumentStore, Durability, Error, ErrorClass, FindAndModify,
    FindAndModifyOutcome, IndexSpec, Insert, InsertOutcome, Namespace, Result, Update, UpdateOutcome, UpdateSpec,
    UpdateStatement, WriteError, insertion,
};

use super::working_copy::{Change, Documents, WorkingCopy, by_id};
use super::{ClientSideStore, Inner};
use crate::direct::refuse_ticket;
use crate::needs::{self, Stored};

impl ClientSideStore {
    pub(super) async fn insert_serially(&self, request: Insert) -> Result<InsertOutcome> {
        refuse_ticket(request.ticket)?;
        let inner = Arc::clone(&self.inner);
        self.run_serially(async move {
            if inner.has_indexes(&request.namespace).await? {
                inner.insert_indexed(request).await
            } else {
                inner.insert_directly(request).await
            }
        })
        .await
    }

    pub(super) async fn update_serially(&self, request: Update) -> Result<UpdateOutcome> {
        refuse_ticket(request.ticket)?;
        let inner = Arc::clone(&self.inner);
        self.run_serially(async move {
            let mut all = UpdateOutcome::default();
            for (index, statement) in request.statements.iter().enumerate() {
                let one = Update { statements: vec![statement.clone()], ..request.clone() };
                match inner.update_statement(one).await {
                    Ok(outcome) => {
                        all.matched += outcome.matched;
                        all.modified += outcome.modified;
                        all.upserted.extend(outcome.upserted.into_iter().map(|(_, id)| (index, id)));
                        all.errors.extend(outcome.errors.into_iter().map(|refused| WriteError { index, ..refused }));
                    }
                    Err(error) => {
                        let has_effect = all.modified > 0 || !all.upserted.is_empty();
                        all.errors.push(statement_error(error, index, has_effect)?);
                    }
                }
                if request.ordered && !all.errors.is_empty() {
                    break;
                }
            }
            Ok(all)
        })
        .await
    }

    pub(super) async fn delete_serially(&self, request: Delete) -> Result<DeleteOutcome> {
        refuse_ticket(request.ticket)?;
        let inner = Arc::clone(&self.inner);
        self.run_serially(async move {
            let mut all = DeleteOutcome::default();
            for (index, statement) in request.statements.iter().enumerate() {
                let one = Delete { statements: vec![statement.clone()], ..request.clone() };
                match inner.delete_statement(one).await {
                    Ok(outcome) => {
                        all.deleted += outcome.deleted;
                        all.errors.extend(outcome.errors.into_iter().map(|refused| WriteError { index, ..refused }));
                    }
                    Err(error) => all.errors.push(statement_error(error, index, all.deleted > 0)?),
                }
                if request.ordered && !all.errors.is_empty() {
                    break;
                }
            }
            Ok(all)
        })
        .await
    }

    pub(super) async fn find_and_modify_serially(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        refuse_ticket(request.ticket)?;
        let inner = Arc::clone(&self.inner);
        self.run_serially(async move {
            let (namespace, durability) = (request.namespace.clone(), request.durability);
            let statement = inner.prepare(&namespace, &request.filter, &request.variables).await?;
            let outcome = statement.copy.store.find_and_modify(request).await?;
            // It changes one document at most, so no partial write is possible.
            inner.write_back(statement, &namespace, durability).await?;
            Ok(outcome)
        })
        .await
    }
}

/// Attributes an error to a statement, unless its outcome is unknown.
fn statement_error(error: Error, index: usize, has_effect: bool) -> Result<WriteError> {
    if error.class() == ErrorClass::Command && error.applied() == Applied::No {
        return Ok(WriteError { index, error });
    }
    Err(if has_effect { error.in_doubt() } else { error })
}

/// A statement whose changes were written back in part.
struct PartialWrite {
    count: u64,
    refused: WriteError,
}

/// The copy for a statement, and its documents before the statement.
struct PreparedStatement {
    copy: WorkingCopy,
    before: Documents,
}

impl Inner {
    /// Makes the copy for a statement.
    async fn prepare(
        &self,
        namespace: &Namespace,
        filter: &RawDocument,
        variables: &RawDocument,
    ) -> Result<PreparedStatement> {
        let copy = if self.has_indexes(namespace).await? {
            self.copy_collection(namespace).await?
        } else {
            self.copy_matching(namespace, filter, variables).await?
        };
        let before = copy.documents().await?;
        Ok(PreparedStatement { copy, before })
    }

    async fn update_statement(&self, request: Update) -> Result<UpdateOutcome> {
        let (namespace, durability) = (request.namespace.clone(), request.durability);
        let statement = self.prepare(&namespace, &request.statements[0].filter, &request.variables).await?;
        let outcome = statement.copy.store.update(request).await?;
        match self.write_back(statement, &namespace, durability).await? {
            None => Ok(outcome),
            Some(PartialWrite { count, refused }) => {
                Ok(UpdateOutcome { matched: count, modified: count, upserted: Vec::new(), errors: vec![refused] })
            }
        }
    }

    async fn delete_statement(&self, request: Delete) -> Result<DeleteOutcome> {
        let (namespace, durability) = (request.namespace.clone(), request.durability);
        let statement = self.prepare(&namespace, &request.statements[0].filter, &request.variables).await?;
        let outcome = statement.copy.store.delete(request).await?;
        match self.write_back(statement, &namespace, durability).await? {
            None => Ok(outcome),
            Some(PartialWrite { count, refused }) => Ok(DeleteOutcome { deleted: count, errors: vec![refused] }),
        }
    }

    /// Writes the changes of a statement back, document by document. Writes nothing if one of them needs a capability that the
    /// server lacks. Returns the number of written documents if a later one was refused.
    async fn write_back(
        &self,
        statement: PreparedStatement,
        namespace: &Namespace,
        durability: Durability,
    ) -> Result<Option<PartialWrite>> {
        let changes = statement.copy.changes_since(statement.before).await?;
        for change in &changes {
            if let Change::Insert(document) | Change::Replace(document) = change {
                needs::check(&Stored(document), &self.direct.server().capabilities)?;
            }
        }
        let mut count = 0;
        for change in changes {
            match self.write_one(namespace, change, durability).await {
                Ok(()) => count += 1,
                Err(error) if error.applied() == Applied::No && count > 0 => {
                    return Ok(Some(PartialWrite { count, refused: WriteError { index: 0, error } }));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn write_one(&self, namespace: &Namespace, change: Change, durability: Durability) -> Result<()> {
        let namespace = namespace.clone();
        match change {
            Change::Insert(document) => {
                let insert = Insert { durability, ..Insert::new(namespace, vec![document]) };
                first_error(self.insert_directly(insert).await?.errors)
            }
            Change::Replace(document) => {
                let filter = by_id(insertion::id(&document)?.into());
                let statement = UpdateStatement::one(filter, UpdateSpec::Document(document));
                let update = Update { durability, ..Update::new(namespace, vec![statement]) };
                let outcome = self.direct.update(update).await?;
                first_error(outcome.errors)?;
                if outcome.matched == 1 { Ok(()) } else { Err(another_writer()) }
            }
            Change::Delete(id) => {
                let statement = DeleteStatement { filter: by_id(id), multi: false, hint: None };
                let outcome =
                    self.direct.delete(Delete { durability, ..Delete::new(namespace, vec![statement]) }).await?;
                first_error(outcome.errors)?;
                if outcome.deleted == 1 { Ok(()) } else { Err(another_writer()) }
            }
        }
    }

    /// Inserts into a collection whose only index is the one on `_id`, which every server enforces.
    async fn insert_directly(&self, request: Insert) -> Result<InsertOutcome> {
        let namespace = request.namespace.clone();
        // FerretDB 1 does not name the duplicate key.
        let complete = |error: Error, document: &RawDocument| match insertion::id(document) {
            Ok(id) if error.code() == Code::DuplicateKey => duplicate_key(&namespace, &IndexSpec::id(), &[Some(id)]),
            _ => error,
        };
        self.direct.run_insert(request, complete).await
    }

    /// Inserts into a collection with further indexes. The caller holds the lock.
    async fn insert_indexed(&self, request: Insert) -> Result<InsertOutcome> {
        let copy = self.copy_collection(&request.namespace).await?;
        let mut all = InsertOutcome::default();
        for (index, document) in request.documents.into_iter().enumerate() {
            let one = |document| Insert {
                durability: request.durability,
                ..Insert::new(request.namespace.clone(), vec![document])
            };
            let inserted = async {
                let document = insertion::prepare(document, &*self.sources.ids)?;
                first_error(copy.store.insert(one(document.clone())).await?.errors)?;
                first_error(self.insert_directly(one(document)).await?.errors)
            };
            match inserted.await {
                Ok(()) => all.inserted += 1,
                Err(error) => all.errors.push(statement_error(error, index, all.inserted > 0)?),
            }
            if request.ordered && !all.errors.is_empty() {
                break;
            }
        }
        Ok(all)
    }
}

fn first_error(errors: Vec<WriteError>) -> Result<()> {
    errors.into_iter().next().map_or(Ok(()), |refused| Err(refused.error))
}

/// Returns the error for a document that has changed while this store held the lock.
fn another_writer() -> Error {
    let text = "a document has changed meanwhile: another program writes to this server, which has no atomic updates";
    Error::command(Code::WriteConflict, text)
}
