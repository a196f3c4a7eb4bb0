//! Inserting documents.

use std::sync::Arc;

use bson::RawDocumentBuf;
use handfast_store::validation::{ExpensiveCheck, Verdict};
use handfast_store::{
    Insert, InsertOutcome, Inserted, Namespace, Result as StoreResult, Validation, WriteError, WriteKind, insertion,
};

use super::context::{WriteContext, after_steps};
use super::ticketed::{Record, TicketedWrite};
use crate::committer::{AnswerAfter, Writer, duplicate_id};
use crate::keys;

/// A document of a request, or the reason why it cannot be stored.
struct Prepared {
    /// The position in the request.
    index: usize,
    document: StoreResult<RawDocumentBuf>,
}

/// Inserts the documents in steps, between which other operations run.
pub(crate) async fn insert(context: &WriteContext, request: Insert) -> StoreResult<InsertOutcome> {
    let Insert { namespace, documents, ordered, durability, ticket, validation } = request;
    let ticketed = context.ticketed(ticket);
    let mut outcome = InsertOutcome::default();
    let mut documents = documents.into_iter().enumerate().peekable();
    let mut last_answer = None;
    while documents.peek().is_some() && (outcome.errors.is_empty() || !ordered) {
        let ids = &*context.sources.ids;
        let step: Vec<Prepared> = documents
            .by_ref()
            .take(context.options.step_documents_max.max(1))
            .map(|(index, document)| Prepared { index, document: insertion::prepare(document, ids) })
            .collect();
        let answer = if documents.peek().is_some() { AnswerAfter::Applied } else { durability.into() };
        let bytes = step.iter().flat_map(|prepared| &prepared.document).map(|document| document.as_bytes().len()).sum();
        let (mut step, mut verdict) = (step, None);
        while !step.is_empty() && (outcome.errors.is_empty() || !ordered) {
            let insert = InsertStep { namespace: namespace.clone(), uuid: context.new_uuid(), validation, ordered };
            let run = move |writer: &mut Writer<'_>| insert.run(writer, ticketed, step, verdict);
            let done = context.committer.submit(answer, bytes, run).await;
            let done = done.map_err(|error| after_steps(error, outcome.inserted > 0))?;
            outcome.inserted += done.outcome.inserted;
            outcome.errors.extend(done.outcome.errors);
            last_answer = Some(answer);
            step = done.rest;
            verdict = match done.expensive_check {
                Some(check) => {
                    let verdict = check.run(&context.sources).await;
                    Some(verdict.map_err(|error| after_steps(error, outcome.inserted > 0))?)
                }
                None => None,
            };
        }
    }
    if last_answer == Some(AnswerAfter::Applied) {
        let waited = context.wait_until_durable(durability).await;
        waited.map_err(|error| after_steps(error, outcome.inserted > 0))?;
    }
    Ok(outcome)
}

/// The insertion of the documents of one step.
struct InsertStep {
    namespace: Namespace,
    uuid: [u8; 16],
    validation: Validation,
    ordered: bool,
}

/// The documents of a step that one operation inserted, and those that are left.
struct InsertedPart {
    outcome: InsertOutcome,
    /// The documents for the next operation, of which the first one waits for this check.
    rest: Vec<Prepared>,
    expensive_check: Option<Box<ExpensiveCheck>>,
}

impl InsertStep {
    /// Inserts the documents up to one that the validator of the collection takes too long for. With a ticket, each has its own result;
    /// a record that several share is written once. An error of the step itself rolls all of it back.
    fn run(
        &self,
        writer: &mut Writer<'_>,
        ticketed: Option<TicketedWrite>,
        documents: Vec<Prepared>,
        verdict: Option<Verdict>,
    ) -> StoreResult<InsertedPart> {
        let (mut outcome, mut rest, mut expensive_check) = (InsertOutcome::default(), Vec::new(), None);
        let mut record = None;
        writer.set_verdicts(verdict.map(Arc::new).into_iter().collect());
        let mut documents = documents.into_iter();
        while let Some(Prepared { index, document }) = documents.next() {
            let insert = |writer: &mut Writer<'_>| {
                let document = document.as_ref().map_err(Clone::clone)?;
                insert_one(writer, &self.namespace, self.uuid, document, self.validation).map(|()| Inserted)
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
                    if let Some(check) = writer.take_expensive_check() {
                        expensive_check = Some(check);
                        rest.push(Prepared { index, document });
                        rest.extend(documents);
                        break;
                    }
                    outcome.errors.push(WriteError { index, error });
                    if self.ordered {
                        break;
                    }
                }
            }
        }
        if let Some(record) = record {
            record.stage(writer)?;
        }
        Ok(InsertedPart { outcome, rest, expensive_check })
    }
}

/// Returns the record of a ticket. Stages the current record if the ticket belongs to another one.
fn record_of<'r>(
    writer: &mut Writer<'_>,
    current: &'r mut Option<Record>,
    ticketed: TicketedWrite,
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

/// Stages the insertion of a prepared document.
pub(crate) fn insert_one(
    writer: &mut Writer<'_>,
    namespace: &Namespace,
    uuid: [u8; 16],
    document: &RawDocumentBuf,
    validation: Validation,
) -> StoreResult<()> {
    let id = insertion::id(document)?;
    let id_key = keys::of_id(id);
    let collection = writer.ensure_collection(namespace, uuid)?;
    writer.validate(&collection, None, document, validation)?;
    if writer.get(collection.id, &id_key)?.is_some() {
        return Err(duplicate_id(namespace, id));
    }
    writer.put(&collection, &id_key, None, document, WriteKind::default())
}
