//! Writes: splits them into commands, sends these one after the other, and adds up the answers.

use bson::{RawDocument, RawDocumentBuf};
use handfast_store::insertion;
use handfast_store::{
    Delete, DeleteOutcome, Error, FindAndModify, FindAndModifyOutcome, Insert, InsertOutcome, Result, Ticket, Update,
    UpdateOutcome, WriteError,
};

use super::DirectStore;
use crate::batch::split;
use crate::command;
use crate::error::{Effect, unsupported};
use crate::needs::{self, Stored};
use crate::reply;

impl DirectStore {
    /// Inserts documents. `complete` may change the error of a refused document.
    pub(crate) async fn run_insert(
        &self,
        request: Insert,
        complete: impl Fn(Error, &RawDocument) -> Error + Send + Sync,
    ) -> Result<InsertOutcome> {
        refuse_ticket(request.ticket)?;
        let Insert { namespace, documents, ordered, durability, validation, .. } = request;
        let (mut outcome, mut refused) = (InsertOutcome::default(), Vec::new());
        // The positions in the request of the documents that are sent.
        let (mut indexes, mut sent) = (Vec::new(), Vec::new());
        for (index, document) in documents.into_iter().enumerate() {
            let prepared = insertion::prepare(document, &*self.sources.ids);
            let checked = prepared.and_then(|document| {
                needs::check(&Stored(&document), &self.server.capabilities)?;
                Ok(document)
            });
            match checked {
                Ok(document) => {
                    indexes.push(index);
                    sent.push(document);
                }
                Err(error) => {
                    refused.push(WriteError { index, error });
                    if ordered {
                        break;
                    }
                }
            }
        }
        for range in split(sent.iter().map(|document| document.as_bytes().len()), self.remote.statements_max) {
            let command = command::insert(&namespace, &sent[range.clone()], ordered).put_validation(validation);
            let effect = if range.len() == 1 { Effect::One } else { Effect::Several };
            let reply = self
                .remote
                .write(&namespace, command, durability, effect)
                .await
                .map_err(|error| after(error, outcome.inserted > 0))?;
            let InsertOutcome { inserted, errors } = reply::insert(&reply, range.start, range.len(), ordered)?;
            outcome.inserted += inserted;
            outcome.errors.extend(errors.into_iter().map(|WriteError { index, error }| match sent.get(index) {
                Some(document) => WriteError { index: indexes[index], error: complete(error, document) },
                None => WriteError { index, error },
            }));
            if ordered && !outcome.errors.is_empty() {
                break;
            }
        }
        if !ordered || outcome.errors.is_empty() {
            outcome.errors.extend(refused);
        }
        outcome.errors.sort_by_key(|error| error.index);
        Ok(outcome)
    }

    pub(super) async fn run_update(&self, request: Update) -> Result<UpdateOutcome> {
        needs::check(&request, &self.server.capabilities)?;
        refuse_ticket(request.ticket)?;
        let Update { namespace, statements, ordered, durability, variables, .. } = request;
        let multi: Vec<_> = statements.iter().map(|statement| statement.multi).collect();
        let keep_empty_timestamps = statements.iter().any(|statement| statement.keep_empty_timestamps);
        let validation = statements.first().map(|statement| statement.validation).unwrap_or_default();
        let statements: Vec<_> =
            statements.iter().map(|statement| command::update_statement(statement, &variables)).collect();
        let mut all = UpdateOutcome::default();
        for range in split(sizes(&statements), self.remote.statements_max) {
            let command = command::update(&namespace, &statements[range.clone()], ordered, &variables)
                .put_validation(validation)
                .put_keep_empty_timestamps(keep_empty_timestamps);
            let effect = effect(&multi[range.clone()]);
            let has_effect = all.modified > 0 || !all.upserted.is_empty();
            let reply = self
                .remote
                .write(&namespace, command, durability, effect)
                .await
                .map_err(|error| after(error, has_effect))?;
            let outcome = reply::update(&reply, range.start)?;
            all.matched += outcome.matched;
            all.modified += outcome.modified;
            all.upserted.extend(outcome.upserted);
            all.errors.extend(outcome.errors);
            if ordered && !all.errors.is_empty() {
                break;
            }
        }
        Ok(all)
    }

    pub(super) async fn run_delete(&self, request: Delete) -> Result<DeleteOutcome> {
        needs::check(&request, &self.server.capabilities)?;
        refuse_ticket(request.ticket)?;
        let Delete { namespace, statements, ordered, durability, variables, .. } = request;
        let multi: Vec<_> = statements.iter().map(|statement| statement.multi).collect();
        let statements: Vec<_> =
            statements.iter().map(|statement| command::delete_statement(statement, &variables)).collect();
        let mut all = DeleteOutcome::default();
        for range in split(sizes(&statements), self.remote.statements_max) {
            let command = command::delete(&namespace, &statements[range.clone()], ordered, &variables);
            let effect = effect(&multi[range.clone()]);
            let reply = self
                .remote
                .write(&namespace, command, durability, effect)
                .await
                .map_err(|error| after(error, all.deleted > 0))?;
            let outcome = reply::delete(&reply, range.start)?;
            all.deleted += outcome.deleted;
            all.errors.extend(outcome.errors);
            if ordered && !all.errors.is_empty() {
                break;
            }
        }
        Ok(all)
    }

    pub(super) async fn run_find_and_modify(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        needs::check(&request, &self.server.capabilities)?;
        refuse_ticket(request.ticket)?;
        let command = command::find_and_modify(&request);
        let reply = self.remote.write(&request.namespace, command, request.durability, Effect::One).await?;
        reply::find_and_modify(&reply)
    }
}

fn sizes(statements: &[RawDocumentBuf]) -> impl Iterator<Item = usize> {
    statements.iter().map(|statement| statement.as_bytes().len())
}

/// Returns the effect of a command with these statements, each for one document or many.
fn effect(multi: &[bool]) -> Effect {
    match multi {
        [false] => Effect::One,
        _ => Effect::Several,
    }
}

/// Marks an error as of unknown outcome if earlier commands of the request had an effect.
fn after(error: Error, has_effect: bool) -> Error {
    if has_effect { error.in_doubt() } else { error }
}

/// Refuses a request with a ticket, as the server cannot store it in the same step.
pub(crate) fn refuse_ticket(ticket: Option<Ticket>) -> Result<()> {
    let text = "a server that is atomic one document at a time keeps no tickets: a transaction can";
    ticket.map_or(Ok(()), |_| Err(unsupported(text.to_owned())))
}
