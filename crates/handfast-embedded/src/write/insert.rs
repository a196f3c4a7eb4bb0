//! Inserting documents.

use bson::RawDocumentBuf;
use handfast_store::{Insert, InsertOutcome, Namespace, Result as StoreResult, WriteError, insertion};

use crate::committer::{Answer, Writer, duplicate_id};
use crate::keys;
use crate::store::EmbeddedStore;

/// A document with its place in the request, or why it cannot be stored.
type Prepared = (usize, StoreResult<RawDocumentBuf>);

impl EmbeddedStore {
    pub(crate) async fn insert_documents(&self, request: Insert) -> StoreResult<InsertOutcome> {
        super::change::refuse_ticket(request.ticket)?;
        let Insert { namespace, documents, ordered, durability, ticket: _ } = request;
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
                .submit(answer, bytes, move |writer| insert_step(writer, &namespace, uuid, step, ordered));
            let done = done.await?;
            outcome.inserted += done.inserted;
            outcome.errors.extend(done.errors);
            last_answer = Some(answer);
        }
        if last_answer == Some(Answer::Applied) {
            self.settle(durability).await?;
        }
        Ok(outcome)
    }
}

fn insert_step(
    writer: &mut Writer<'_>,
    namespace: &Namespace,
    uuid: [u8; 16],
    documents: Vec<Prepared>,
    ordered: bool,
) -> StoreResult<InsertOutcome> {
    let mut outcome = InsertOutcome::default();
    for (index, document) in documents {
        match document.and_then(|document| insert_one(writer, namespace, uuid, &document)) {
            Ok(()) => outcome.inserted += 1,
            Err(error) => {
                outcome.errors.push(WriteError { index, error });
                if ordered {
                    break;
                }
            }
        }
    }
    Ok(outcome)
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
