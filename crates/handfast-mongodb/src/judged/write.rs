//! Writes: judged on an image, written back document by document.

use std::sync::Arc;

use bson::RawDocument;
use handfast_mql::Code;
use handfast_store::index::duplicate_key;
use handfast_store::{
    Applied, Delete, DeleteOutcome, DeleteStatement, DocumentStore, Durability, Error, ErrorClass, FindAndModify,
    FindAndModifyOutcome, IndexSpec, Insert, InsertOutcome, Namespace, Result, Update, UpdateOutcome, UpdateSpec,
    UpdateStatement, WriteError, insertion,
};

use super::image::{Change, Documents, Image, by_id};
use super::{Inner, JudgedStore};
use crate::direct::refuse_ticket;
use crate::needs::{self, Stored};

impl JudgedStore {
    pub(super) async fn insert_judged(&self, request: Insert) -> Result<InsertOutcome> {
        refuse_ticket(request.ticket)?;
        let inner = Arc::clone(&self.inner);
        self.in_turn(async move {
            if inner.has_indexes(&request.namespace).await? {
                inner.insert_indexed(request).await
            } else {
                inner.insert_plain(request).await
            }
        })
        .await
    }

    pub(super) async fn update_judged(&self, request: Update) -> Result<UpdateOutcome> {
        refuse_ticket(request.ticket)?;
        let inner = Arc::clone(&self.inner);
        self.in_turn(async move {
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
                        all.errors.push(of_statement(error, index, has_effect)?);
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

    pub(super) async fn delete_judged(&self, request: Delete) -> Result<DeleteOutcome> {
        refuse_ticket(request.ticket)?;
        let inner = Arc::clone(&self.inner);
        self.in_turn(async move {
            let mut all = DeleteOutcome::default();
            for (index, statement) in request.statements.iter().enumerate() {
                let one = Delete { statements: vec![statement.clone()], ..request.clone() };
                match inner.delete_statement(one).await {
                    Ok(outcome) => {
                        all.deleted += outcome.deleted;
                        all.errors.extend(outcome.errors.into_iter().map(|refused| WriteError { index, ..refused }));
                    }
                    Err(error) => all.errors.push(of_statement(error, index, all.deleted > 0)?),
                }
                if request.ordered && !all.errors.is_empty() {
                    break;
                }
            }
            Ok(all)
        })
        .await
    }

    pub(super) async fn find_and_modify_judged(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        refuse_ticket(request.ticket)?;
        let inner = Arc::clone(&self.inner);
        self.in_turn(async move {
            let (namespace, durability) = (request.namespace.clone(), request.durability);
            let trial = inner.trial(&namespace, &request.filter, &request.variables).await?;
            let outcome = trial.image.store.find_and_modify(request).await?;
            // It is one document at most: nothing can be written in part.
            inner.write_back(trial, &namespace, durability).await?;
            Ok(outcome)
        })
        .await
    }
}

/// An error of a statement belongs to it, unless nobody knows what it did.
fn of_statement(error: Error, index: usize, has_effect: bool) -> Result<WriteError> {
    if error.class() == ErrorClass::Command && error.applied() == Applied::No {
        return Ok(WriteError { index, error });
    }
    Err(if has_effect { error.in_doubt() } else { error })
}

/// How many documents were written before one was refused.
struct Partly {
    count: u64,
    refused: WriteError,
}

/// A statement's image, and what it was before.
struct Trial {
    image: Image,
    before: Documents,
}

impl Inner {
    /// What a statement is tried on.
    async fn trial(&self, namespace: &Namespace, filter: &RawDocument, variables: &RawDocument) -> Result<Trial> {
        let image = if self.has_indexes(namespace).await? {
            self.whole(namespace).await?
        } else {
            self.of_filter(namespace, filter, variables).await?
        };
        let before = image.documents().await?;
        Ok(Trial { image, before })
    }

    async fn update_statement(&self, request: Update) -> Result<UpdateOutcome> {
        let (namespace, durability) = (request.namespace.clone(), request.durability);
        let trial = self.trial(&namespace, &request.statements[0].filter, &request.variables).await?;
        let outcome = trial.image.store.update(request).await?;
        match self.write_back(trial, &namespace, durability).await? {
            None => Ok(outcome),
            Some(Partly { count, refused }) => {
                Ok(UpdateOutcome { matched: count, modified: count, upserted: Vec::new(), errors: vec![refused] })
            }
        }
    }

    async fn delete_statement(&self, request: Delete) -> Result<DeleteOutcome> {
        let (namespace, durability) = (request.namespace.clone(), request.durability);
        let trial = self.trial(&namespace, &request.statements[0].filter, &request.variables).await?;
        let outcome = trial.image.store.delete(request).await?;
        match self.write_back(trial, &namespace, durability).await? {
            None => Ok(outcome),
            Some(Partly { count, refused }) => Ok(DeleteOutcome { deleted: count, errors: vec![refused] }),
        }
    }

    /// Writes what a trial has changed, document by document. Nothing is written if one of them needs what the server
    /// has not; what is refused after others were written, is said with their number.
    async fn write_back(&self, trial: Trial, namespace: &Namespace, durability: Durability) -> Result<Option<Partly>> {
        let changes = trial.image.changes_since(trial.before).await?;
        for change in &changes {
            if let Change::New(document) | Change::Changed(document) = change {
                needs::check(&Stored(document), &self.direct.server().capabilities)?;
            }
        }
        let mut count = 0;
        for change in changes {
            match self.write_one(namespace, change, durability).await {
                Ok(()) => count += 1,
                Err(error) if error.applied() == Applied::No && count > 0 => {
                    return Ok(Some(Partly { count, refused: WriteError { index: 0, error } }));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn write_one(&self, namespace: &Namespace, change: Change, durability: Durability) -> Result<()> {
        let namespace = namespace.clone();
        match change {
            Change::New(document) => {
                let insert = Insert { durability, ..Insert::new(namespace, vec![document]) };
                only(self.insert_plain(insert).await?.errors)
            }
            Change::Changed(document) => {
                let filter = by_id(insertion::id(&document)?.into());
                let statement = UpdateStatement::one(filter, UpdateSpec::Document(document));
                let update = Update { durability, ..Update::new(namespace, vec![statement]) };
                let outcome = self.direct.update(update).await?;
                only(outcome.errors)?;
                if outcome.matched == 1 { Ok(()) } else { Err(not_alone()) }
            }
            Change::Gone(id) => {
                let statement = DeleteStatement { filter: by_id(id), multi: false, hint: None };
                let outcome =
                    self.direct.delete(Delete { durability, ..Delete::new(namespace, vec![statement]) }).await?;
                only(outcome.errors)?;
                if outcome.deleted == 1 { Ok(()) } else { Err(not_alone()) }
            }
        }
    }

    /// Inserts into a collection whose only index is that on `_id`, which every server keeps.
    async fn insert_plain(&self, request: Insert) -> Result<InsertOutcome> {
        let namespace = request.namespace.clone();
        // FerretDB 1 does not say which key is taken.
        let complete = |error: Error, document: &RawDocument| match insertion::id(document) {
            Ok(id) if error.code() == Code::DuplicateKey => duplicate_key(&namespace, &IndexSpec::id(), &[Some(id)]),
            _ => error,
        };
        self.direct.run_insert(request, complete).await
    }

    /// Inserts into a collection with further indexes. In turn.
    async fn insert_indexed(&self, request: Insert) -> Result<InsertOutcome> {
        let image = self.whole(&request.namespace).await?;
        let mut all = InsertOutcome::default();
        for (index, document) in request.documents.into_iter().enumerate() {
            let one = |document| Insert {
                durability: request.durability,
                ..Insert::new(request.namespace.clone(), vec![document])
            };
            let inserted = async {
                let document = insertion::prepare(document, &*self.sources.ids)?;
                only(image.store.insert(one(document.clone())).await?.errors)?;
                only(self.insert_plain(one(document)).await?.errors)
            };
            match inserted.await {
                Ok(()) => all.inserted += 1,
                Err(error) => all.errors.push(of_statement(error, index, all.inserted > 0)?),
            }
            if request.ordered && !all.errors.is_empty() {
                break;
            }
        }
        Ok(all)
    }
}

fn only(errors: Vec<WriteError>) -> Result<()> {
    errors.into_iter().next().map_or(Ok(()), |refused| Err(refused.error))
}

/// A document was there a moment ago, in our own turn.
fn not_alone() -> Error {
    let text =
        "a document has changed meanwhile: somebody else writes to this server, which does not keep two writers apart";
    Error::command(Code::WriteConflict, text)
}
