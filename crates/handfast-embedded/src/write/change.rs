//! Updating, deleting, and finding-and-modifying documents.

use std::sync::Arc;

use bson::{RawBson, RawDocument, RawDocumentBuf};
use handfast_mql::{CompileOptions, Filter, Sort};
use handfast_store::change::{Change, Claim, joined};
use handfast_store::{
    Delete, DeleteOutcome, DeleteStatement, Error as StoreError, FindAndModify, FindAndModifyOutcome, Namespace,
    Result as StoreResult, Ticket, Update, UpdateOutcome, UpdateStatement, WriteError, insertion,
};

use super::insert::insert_one;
use super::target::{Absent, Apply, Target};
use crate::catalog::Collection;
use crate::committer::{Answer, Writer};
use crate::format::StoredDocument;
use crate::store::EmbeddedStore;

/// What became of one document.
enum Changed {
    Modified,
    Same,
    Upserted(RawBson),
}

impl EmbeddedStore {
    pub(crate) async fn run_update(&self, request: Update) -> StoreResult<UpdateOutcome> {
        refuse_ticket(request.ticket)?;
        let Update { namespace, statements, ordered, durability, variables, ticket: _ } = request;
        let answer = final_answer(statements.len(), durability.into());
        let mut outcome = UpdateOutcome::default();
        for (place, statement) in statements.into_iter().enumerate() {
            let result = self.update_statement(&namespace, &statement, &variables, answer).await;
            let error = match result {
                Ok((changes, error)) => {
                    count(&mut outcome, place, changes);
                    error
                }
                // What may have happened must not be taken for one refused statement.
                Err(error) if error.applied() == handfast_store::Applied::Maybe => return Err(error),
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                outcome.errors.push(WriteError { index: place, error });
                if ordered {
                    break;
                }
            }
        }
        self.settle(durability).await?;
        Ok(outcome)
    }

    async fn update_statement(
        &self,
        namespace: &Namespace,
        statement: &UpdateStatement,
        variables: &RawDocument,
        answer: Answer,
    ) -> StoreResult<(Vec<Changed>, Option<StoreError>)> {
        let change = Arc::new(Change::of_statement(statement, variables)?);
        let variables = joined(variables, &statement.constants)?;
        let target = Arc::new(Target {
            namespace: namespace.clone(),
            filter: change.filter().clone(),
            sort: change.sort().clone(),
            hint: statement.hint.clone(),
            context: self.inner.sources.context(&variables),
        });
        let bytes = statement.filter.as_bytes().len() + size_of_update(statement);
        let apply = self.apply_change(target.clone(), change.clone());
        let absent = change.is_upsert().then(|| self.insert_absent(target.clone(), change.clone()));
        if change.is_multi() {
            let (changes, error) = self.change_all(target.clone(), bytes, apply.clone()).await?;
            if !changes.is_empty() || error.is_some() || absent.is_none() {
                return Ok((changes, error));
            }
        }
        if change.is_multi() && absent.is_none() {
            return Ok((Vec::new(), None));
        }
        let changed = self.change_one(target, answer, bytes, apply, absent).await?;
        Ok((changed.into_iter().collect(), None))
    }

    fn apply_change(&self, target: Arc<Target>, change: Arc<Change>) -> Arc<Apply<Changed>> {
        Arc::new(
            move |writer: &mut Writer<'_>, collection: &Arc<Collection>, id_key: &[u8], stored: &StoredDocument| {
                let Some(applied) = change.apply(stored.document()?, &target.context)? else {
                    return Ok(None);
                };
                if !applied.modified {
                    return Ok(Some(Changed::Same));
                }
                writer.put(collection, id_key, Some(stored), &applied.document)?;
                Ok(Some(Changed::Modified))
            },
        )
    }

    fn insert_absent(&self, target: Arc<Target>, change: Arc<Change>) -> Arc<Absent<Changed>> {
        let (ids, uuid) = (self.inner.sources.ids.clone(), self.uuid());
        Arc::new(move |writer: &mut Writer<'_>| {
            let document = change.insertion(&*ids, &target.context)?;
            insert_one(writer, &target.namespace, uuid, &document)?;
            Ok(Changed::Upserted(insertion::id(&document)?.into()))
        })
    }

    pub(crate) async fn run_delete(&self, request: Delete) -> StoreResult<DeleteOutcome> {
        refuse_ticket(request.ticket)?;
        let Delete { namespace, statements, ordered, durability, variables, ticket: _ } = request;
        let answer = final_answer(statements.len(), durability.into());
        let mut outcome = DeleteOutcome::default();
        for (place, statement) in statements.into_iter().enumerate() {
            let result = self.delete_statement(&namespace, statement, &variables, answer).await;
            let error = match result {
                Ok((deleted, error)) => {
                    outcome.deleted += deleted;
                    error
                }
                Err(error) if error.applied() == handfast_store::Applied::Maybe => return Err(error),
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                outcome.errors.push(WriteError { index: place, error });
                if ordered {
                    break;
                }
            }
        }
        self.settle(durability).await?;
        Ok(outcome)
    }

    async fn delete_statement(
        &self,
        namespace: &Namespace,
        statement: DeleteStatement,
        variables: &RawDocument,
        answer: Answer,
    ) -> StoreResult<(u64, Option<StoreError>)> {
        let options = CompileOptions::with_variables(variables)?;
        let target = Arc::new(Target {
            namespace: namespace.clone(),
            filter: Filter::compile(&statement.filter, &options)?,
            sort: Sort::compile(&RawDocumentBuf::new())?,
            hint: statement.hint,
            context: self.inner.sources.context(variables),
        });
        let bytes = statement.filter.as_bytes().len();
        let judged = target.clone();
        let apply: Arc<Apply<()>> = Arc::new(move |writer, collection, id_key, stored| {
            if !judged.filter.matches(stored.document()?, &judged.context)? {
                return Ok(None);
            }
            writer.remove(collection, id_key, stored).map(Some)
        });
        if statement.multi {
            let (deleted, error) = self.change_all(target, bytes, apply).await?;
            return Ok((deleted.len() as u64, error));
        }
        let deleted = self.change_one(target, answer, bytes, apply, None).await?;
        Ok((u64::from(deleted.is_some()), None))
    }

    pub(crate) async fn run_find_and_modify(&self, request: FindAndModify) -> StoreResult<FindAndModifyOutcome> {
        refuse_ticket(request.ticket)?;
        let claim = Arc::new(Claim::compile(&request)?);
        let target = Arc::new(Target {
            namespace: request.namespace.clone(),
            filter: claim.filter().clone(),
            sort: claim.sort().clone(),
            hint: request.hint.clone(),
            context: self.inner.sources.context(&request.variables),
        });
        let (claimed, judged) = (claim.clone(), target.clone());
        let apply: Arc<Apply<FindAndModifyOutcome>> = Arc::new(move |writer, collection, id_key, stored| {
            let before = stored.document()?.to_owned();
            let after = match claimed.change() {
                Some(change) => {
                    let Some(applied) = change.apply(&before, &judged.context)? else {
                        return Ok(None);
                    };
                    Some(applied)
                }
                None if !judged.filter.matches(&before, &judged.context)? => return Ok(None),
                None => None,
            };
            match &after {
                Some(applied) if applied.modified => writer.put(collection, id_key, Some(stored), &applied.document)?,
                Some(_) => {}
                None => writer.remove(collection, id_key, stored)?,
            }
            // If the answer cannot be made (a projection that fails), the change is taken back with the operation.
            claimed.changed(before, after.map(|applied| applied.document), &judged.context).map(Some)
        });
        let absent = claim.change().filter(|change| change.is_upsert()).map(|_| self.claim_absent(&target, &claim));
        let bytes = request.filter.as_bytes().len();
        let durability = request.durability;
        let outcome = self.change_one(target, durability.into(), bytes, apply, absent).await?;
        match outcome {
            Some(outcome) => Ok(outcome),
            None => {
                // "Nothing matches" may come from what is not synced yet.
                self.settle(durability).await?;
                Ok(FindAndModifyOutcome::default())
            }
        }
    }

    fn claim_absent(&self, target: &Arc<Target>, claim: &Arc<Claim>) -> Arc<Absent<FindAndModifyOutcome>> {
        let (ids, uuid) = (self.inner.sources.ids.clone(), self.uuid());
        let (target, claim) = (target.clone(), claim.clone());
        Arc::new(move |writer: &mut Writer<'_>| {
            let Some(change) = claim.change() else {
                return Ok(FindAndModifyOutcome::default());
            };
            let document = change.insertion(&*ids, &target.context)?;
            insert_one(writer, &target.namespace, uuid, &document)?;
            claim.upserted(&document, &target.context)
        })
    }
}

/// Only batches have tickets here.
pub(crate) fn refuse_ticket(ticket: Option<Ticket>) -> StoreResult<()> {
    let text = "the embedded store takes tickets with batches only";
    ticket.map_or(Ok(()), |_| Err(StoreError::command(handfast_mql::Code::CommandNotSupported, text)))
}

/// A request of one statement waits for the sync with it; one of many waits once, at its end.
fn final_answer(statements: usize, answer: Answer) -> Answer {
    if statements == 1 { answer } else { Answer::Applied }
}

fn size_of_update(statement: &UpdateStatement) -> usize {
    match &statement.update {
        handfast_store::UpdateSpec::Document(document) => document.as_bytes().len(),
        handfast_store::UpdateSpec::Pipeline(stages) => stages.iter().map(|stage| stage.as_bytes().len()).sum(),
    }
}

fn count(outcome: &mut UpdateOutcome, place: usize, changes: Vec<Changed>) {
    for change in changes {
        match change {
            Changed::Modified => {
                outcome.matched += 1;
                outcome.modified += 1;
            }
            Changed::Same => outcome.matched += 1,
            Changed::Upserted(id) => outcome.upserted.push((place, id)),
        }
    }
}
