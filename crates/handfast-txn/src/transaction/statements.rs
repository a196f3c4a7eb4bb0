//! Requests that write, statement by statement.
//!
//! A statement with a ticket is done once: its result is a document that is written with the others, so that both are committed, or
//! neither. A repeated request finds the result in its snapshot. Of two requests at the same time both write that document, and one of
//! them runs again.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_store::ticket::{Recorded, check_statements};
use handfast_store::{
    Changed, Delete, DeleteOutcome, DeleteStatement, Deleted, ErrorClass, Find, FindAndModify, FindAndModifyOutcome,
    IdSource, Insert, InsertOutcome, Inserted, Namespace, Result, Ticket, Update, UpdateOutcome, UpdateStatement,
    WriteError, default_collation, insertion,
};

use super::write_buffer::WriteMode;
use super::{Inner, Transaction};
use crate::error::is_transient;

/// The number of documents of an insert that are looked up together.
const LOOKED_UP_TOGETHER: usize = 1000;

impl Transaction {
    /// Inserts documents, each once if the request has a ticket.
    pub(crate) async fn insert_once(&self, request: Insert) -> Result<InsertOutcome> {
        let work = async {
            let mut outcome = InsertOutcome::default();
            let ids = &*self.inner.shared.sources.ids;
            let mut documents: Vec<_> =
                request.documents.into_iter().map(|document| identified(document, ids)).collect();
            let mut looked_up = 0;
            for index in 0..documents.len() {
                if index == looked_up {
                    looked_up = documents.len().min(index + LOOKED_UP_TOGETHER);
                    self.inner.look_up(&request.namespace, &documents[index..looked_up]).await?;
                }
                let document = std::mem::take(&mut documents[index]);
                let ticket = request.ticket.map(|ticket| ticket.of_statement(index));
                let insert = async {
                    let inserted = self.inner.insert_one(&request.namespace, document, request.validation).await;
                    inserted.map(|()| Inserted)
                };
                let result = self.inner.once(ticket, insert).await;
                outcome.inserted += u64::from(result.is_ok());
                if after(result, index, request.ordered, &mut outcome.errors)?.is_break() {
                    break;
                }
            }
            Ok(outcome)
        };
        self.inner.run_write(work).await
    }

    /// Runs update statements, each once if the request has a ticket.
    pub(crate) async fn update_once(&self, request: Update) -> Result<UpdateOutcome> {
        check_statements(request.ticket, request.statements.iter().map(|statement| statement.multi))?;
        let variables = self.inner.under_default(&request.namespace, &request.variables)?;
        let request = Update { variables, ..request };
        let work = async {
            let mut outcome = UpdateOutcome::default();
            for (index, statement) in request.statements.iter().enumerate() {
                let result = match request.ticket.map(|ticket| ticket.of_statement(index)) {
                    None => {
                        let count = |changed| outcome.count(index, changed);
                        self.inner.run_update(&request, statement, count).await
                    }
                    ticket => {
                        let changed = self.inner.once(ticket, self.inner.update_one(&request, statement)).await;
                        changed.map(|changed| outcome.count(index, changed))
                    }
                };
                if after(result, index, request.ordered, &mut outcome.errors)?.is_break() {
                    break;
                }
            }
            Ok(outcome)
        };
        self.inner.run_write(work).await
    }

    /// Runs delete statements, each once if the request has a ticket.
    pub(crate) async fn delete_once(&self, request: Delete) -> Result<DeleteOutcome> {
        check_statements(request.ticket, request.statements.iter().map(|statement| statement.multi))?;
        let variables = self.inner.under_default(&request.namespace, &request.variables)?;
        let request = Delete { variables, ..request };
        let work = async {
            let mut outcome = DeleteOutcome::default();
            for (index, statement) in request.statements.iter().enumerate() {
                let result = match request.ticket.map(|ticket| ticket.of_statement(index)) {
                    None => self.inner.run_delete(&request, statement, &mut outcome.deleted).await,
                    ticket => {
                        let deleted = self.inner.once(ticket, self.inner.delete_one(&request, statement)).await;
                        deleted.map(|Deleted(one)| outcome.deleted += u64::from(one))
                    }
                };
                if after(result, index, request.ordered, &mut outcome.errors)?.is_break() {
                    break;
                }
            }
            Ok(outcome)
        };
        self.inner.run_write(work).await
    }

    /// Changes or removes one document, once if the request has a ticket.
    pub(crate) async fn find_and_modify_once(&self, request: FindAndModify) -> Result<FindAndModifyOutcome> {
        let variables = self.inner.under_default(&request.namespace, &request.variables)?;
        let request = FindAndModify { variables, ..request };
        let work = self.inner.once(request.ticket, self.inner.run_find_and_modify(&request));
        self.inner.run_write(work).await
    }
}

impl Inner {
    /// Returns the variables of a request under the default collation of its collection.
    fn under_default(&self, namespace: &Namespace, variables: &RawDocumentBuf) -> Result<RawDocumentBuf> {
        let default = self.default_collation(namespace)?;
        Ok(default_collation::with_default(variables.clone(), default.as_ref()))
    }

    /// Reads documents into the snapshot's cache with one request, if looking them up one by one would take a request each.
    async fn look_up(&self, namespace: &Namespace, documents: &[RawDocumentBuf]) -> Result<()> {
        if documents.len() < 2 || self.shared.engine.plain().is_some() {
            return Ok(());
        }
        // A value that cannot be an `_id` is refused when its document is inserted.
        let ids = documents.iter().flat_map(|document| document.get("_id")).flatten();
        let ids = ids.filter(|id| !matches!(id, RawBsonRef::RegularExpression(_) | RawBsonRef::Array(_)));
        let ids: RawArrayBuf = ids.map(RawBson::from).collect();
        let snapshot = self.open(|open| Ok(open.snapshot()))?;
        match snapshot.find(Find::new(namespace.clone(), rawdoc! { "_id": { "$in": ids } })).await {
            Err(error) if is_transient(&error) || error.class() == ErrorClass::Outage => Err(error),
            // The insert of the document at fault returns the error.
            Err(_) | Ok(_) => Ok(()),
        }
    }

    /// Does a write, unless its ticket was used: then it returns the recorded result.
    async fn once<T: Recorded>(
        self: &Arc<Self>,
        ticket: Option<Ticket>,
        write: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Some(ticket) = ticket else { return write.await };
        let (records, id) = (Ticket::namespace()?, ticket.record_id());
        let before = self.get(&records, id.as_raw_bson_ref()).await?;
        let result = before.as_deref().map(|record| ticket.result(record)).transpose()?.flatten();
        if let Some(result) = result {
            return T::from_result(&result);
        }
        let done = write.await?;
        if let Some(result) = done.to_result() {
            let kept = match ticket.record(before.as_deref(), &result, self.shared.sources.steady_now()) {
                Ok(record) => self.put(&records, before, Some(record), WriteMode::default()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &kept
                && !is_transient(error)
            {
                // The write is buffered already, and must not be committed without its record.
                self.refuse(error);
            }
            kept?;
        }
        Ok(done)
    }

    /// Runs a statement that changes one document.
    async fn update_one(self: &Arc<Self>, request: &Update, statement: &UpdateStatement) -> Result<Changed> {
        let mut became = Changed::Nothing;
        self.run_update(request, statement, |changed| became = changed).await?;
        Ok(became)
    }

    /// Runs a statement that deletes one document.
    async fn delete_one(self: &Arc<Self>, request: &Delete, statement: &DeleteStatement) -> Result<Deleted> {
        let mut deleted = 0;
        self.run_delete(request, statement, &mut deleted).await?;
        Ok(Deleted(deleted > 0))
    }
}

/// Returns the document with an `_id`. A document that cannot be stored is returned as it is: its insert returns the error.
fn identified(document: RawDocumentBuf, ids: &dyn IdSource) -> RawDocumentBuf {
    match document.get("_id") {
        Ok(None) => insertion::prepare(document.clone(), ids).unwrap_or(document),
        Ok(Some(_)) | Err(_) => document,
    }
}

/// Returns whether a request goes on after one of its statements. A conflict, or a store that is out of reach, ends the request and the
/// transaction.
fn after<T>(result: Result<T>, index: usize, ordered: bool, errors: &mut Vec<WriteError>) -> Result<ControlFlow<()>> {
    let Err(error) = result else { return Ok(ControlFlow::Continue(())) };
    if is_transient(&error) || error.class() == ErrorClass::Outage {
        return Err(error);
    }
    errors.push(WriteError { index, error });
    Ok(if ordered { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}
