//! Inserting documents.

use bson::RawDocumentBuf;
use handfast_store::{Insert, InsertOutcome, Inserted, Namespace, Result as StoreResult, WriteError, insertion};

use super::after_steps;
use super::ticketed::{Record, Ticketed};
use crate::committer::{Answer, Writer, duplicate_id};
use crate::keys;
use crate::store::EmbeddedStore;

/// A document with its place in the request, or why it cannot be stored.
type Prepared = (usize, StoreResult<RawDocumentBuf>);

impl EmbeddedStore {
    pub(crate) async fn insert_documents(&self, request: Insert) -> StoreResult<InsertOutcome> {
        let Insert { namespace, documents, ordered, durability, ticket } = request;
        let ticketed = self.ticketed(ticket);
        let mut outcome = InsertOutcome::default();
        let mut documents = documents.into_iter().enumerate().peekable();
        let mut last_answer = None;
        while documents.peek().is_some() && (outcome.errors.is_empty() || !ordered) {
            let step: Vec<Prepared> = documents
                .by_ref()
                .take(self.inner.options.step_documents_max.max(1))
                .map(|(place, document)| (place, insertion::prepare(document, &*self.inner.sources.ids)))
                .collect();
            let answer = if documents.peek().is_some() { Answer::Applied } else { durability.into() };
            let bytes = step.iter().flat_map(|(_, document)| document).map(|document| document.as_bytes().len()).sum();
            let (namespace, uuid) = (namespace.clone(), self.uuid());
            let done = self
                .inner
                .committer
                .submit(answer, bytes, move |writer| insert_step(writer, &namespace, uuid, ticketed, step, ordered));
            let done = done.await.map_err(|error| after_steps(error, outcome.inserted > 0))?;
            outcome.inserted += done.inserted;
            outcome.errors.extend(done.errors);
            last_answer = Some(answer);
        }
        if last_answer == Some(Answer::Applied) {
            self.settle(durability).await.map_err(|error| after_steps(error, outcome.inserted > 0))?;
        }
        Ok(outcome)
    }
}

/// With a ticket, each document has a result of its own; those that share a record are written with it once. An error
/// of the step itself takes all of it back.
fn insert_step(
    writer: &mut Writer<'_>,
    namespace: &Namespace,
    uuid: [u8; 16],
    ticketed: Option<Ticketed>,
    documents: Vec<Prepared>,
    ordered: bool,
) -> StoreResult<InsertOutcome> {
    let mut outcome = InsertOutcome::default();
    let mut record = None;
    for (index, document) in documents {
        let insert = |writer: &mut Writer<'_>| {
            document.and_then(|document| insert_one(writer, namespace, uuid, &document)).map(|()| Inserted)
        };
        let done = match ticketed.map(|ticketed| ticketed.of_statement(index)) {
            None => insert(writer),
            Some(ticketed) => {
                let record = record_of(writer, &mut record, ticketed)?;
                match record.result(ticketed.ticket) {
                    Ok(None) => {
                        let done = insert(writer);
                        done.iter().try_for_each(|done| record.add(ticketed.ticket, done))?;
                        done
                    }
                    Ok(Some(first)) => Ok(first),
                    Err(error) => Err(error),
                }
            }
        };
        match done {
            Ok(Inserted) => outcome.inserted += 1,
            Err(error) => {
                outcome.errors.push(WriteError { index, error });
                if ordered {
                    break;
                }
            }
        }
    }
    if let Some(record) = record {
        record.stage(writer)?;
    }
    Ok(outcome)
}

/// The record of a ticket; the one before it is complete if this is another.
fn record_of<'r>(
    writer: &mut Writer<'_>,
    current: &'r mut Option<Record>,
    ticketed: Ticketed,
) -> StoreResult<&'r mut Record> {
    let record = match current.take() {
        Some(record) if record.is_of(ticketed.ticket) => record,
        complete => {
            if let Some(record) = complete {
                record.stage(writer)?;
            }
            Record::read(writer, ticketed)?
        }
    };
    Ok(current.insert(record))
}

/// Inserts a document that is prepared.
pub(crate) fn insert_one(
    writer: &mut Writer<'_>,
    namespace: &Namespace,
    uuid: [u8; 16],
    document: &RawDocumentBuf,
) -> StoreResult<()> {
    let id = insertion::id(document)?;
    let id_key = keys::of_id(id);
    let collection = writer.ensure_collection(namespace, uuid)?;
    if writer.get(collection.id, &id_key)?.is_some() {
        return Err(duplicate_id(namespace, id));
    }
    writer.put(&collection, &id_key, None, document)
}
