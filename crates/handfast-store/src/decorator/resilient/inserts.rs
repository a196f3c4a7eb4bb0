//! Repeated inserts: documents that the first attempt has stored count as inserted.

use std::collections::{HashMap, HashSet};

use bson::raw::cstr;
use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::{Resilient, failure, network_failure};
use crate::insertion::{id, prepare};
use crate::{Applied, DocumentStore, Find, IdSource, Insert, InsertOutcome, Result, StoreExt, WriteError};

/// A document of the request, with its index there.
#[derive(Clone)]
struct SentDocument {
    index: usize,
    document: RawDocumentBuf,
    /// The `_id` was generated for this request, so that a stored document with it is this one.
    id_is_ours: bool,
    /// The first attempt may have inserted the document.
    may_be_in: bool,
}

impl<S: DocumentStore + ?Sized> Resilient<S> {
    /// Inserts documents, and sends those again that may not be stored.
    pub(super) async fn insert_twice(&self, request: Insert) -> Result<InsertOutcome> {
        let Insert { documents, .. } = request;
        let frame = Insert { documents: Vec::new(), ..request };
        let sent = documents.into_iter().enumerate().map(|(index, document)| identified(index, document, &*self.ids));
        let sent: Vec<SentDocument> = sent.collect();
        let first = self.send(&frame, &sent).await;
        match failure(&first, |outcome| network_failure(&outcome.errors)) {
            None => first,
            Some(error) => {
                tracing::debug!(%error, "documents are inserted once more");
                let in_doubt = error.applied() == Applied::Maybe;
                let again = self.insert_the_rest(&frame, sent, in_doubt).await;
                again.map_err(|error| if in_doubt { error.in_doubt() } else { error })
            }
        }
    }

    async fn send(&self, frame: &Insert, sent: &[SentDocument]) -> Result<InsertOutcome> {
        let documents = sent.iter().map(|sent| sent.document.clone()).collect();
        self.store.insert(Insert { documents, ..frame.clone() }).await
    }

    /// Inserts the documents that are not stored yet. Of several documents with the same `_id`, only the first may be stored. The
    /// first attempt may still be under way and arrive in between, so each duplicate is read again.
    async fn insert_the_rest(
        &self,
        frame: &Insert,
        mut rest: Vec<SentDocument>,
        in_doubt: bool,
    ) -> Result<InsertOutcome> {
        let mut outcome = InsertOutcome::default();
        if in_doubt {
            let mut ids = HashSet::new();
            for sent in &mut rest {
                sent.may_be_in = id(&sent.document).is_ok_and(|id| ids.insert(key(id)));
            }
            let ours = self.ours(frame, rest.iter()).await?;
            outcome.inserted += ours.len() as u64;
            rest.retain(|sent| !ours.contains(&sent.index));
        }
        while !rest.is_empty() {
            let reply = self.send(frame, &rest).await?;
            outcome.inserted += reply.inserted;
            let duplicates = reply.errors.iter().filter(|refused| refused.error.code() == Code::DuplicateKey);
            let duplicates = duplicates.filter_map(|refused| rest.get(refused.index));
            let ours = if in_doubt { self.ours(frame, duplicates).await? } else { HashSet::new() };
            outcome.inserted += ours.len() as u64;
            let mut passed = rest.len();
            for WriteError { index, error } in reply.errors {
                let Some(sent) = rest.get(index) else { continue };
                if ours.contains(&sent.index) {
                    // An ordered request did not try the documents after this one.
                    passed = if frame.ordered { index + 1 } else { passed };
                    continue;
                }
                let error = if in_doubt && error.code() == Code::DuplicateKey { error.in_doubt() } else { error };
                outcome.errors.push(WriteError { index: sent.index, error });
            }
            let goes_on = frame.ordered && outcome.errors.is_empty();
            rest = if goes_on { rest.split_off(passed) } else { Vec::new() };
        }
        Ok(outcome)
    }

    /// Returns the indexes of the documents that the first attempt has stored.
    async fn ours<'p>(&self, frame: &Insert, sent: impl Iterator<Item = &'p SentDocument>) -> Result<HashSet<usize>> {
        let mut sought = HashMap::new();
        let mut ids = RawArrayBuf::new();
        for sent in sent.filter(|sent| sent.may_be_in) {
            let id = id(&sent.document)?;
            ids.push(id);
            sought.insert(key(id), sent);
        }
        if sought.is_empty() {
            return Ok(HashSet::new());
        }
        let find = Find::new(frame.namespace.clone(), rawdoc! { "_id": { "$in": ids } });
        let mut ours = HashSet::new();
        for there in self.store.find_all(find).await? {
            let Some(sent) = sought.get(&key(id(&there)?)) else { continue };
            if sent.id_is_ours || there == sent.document {
                ours.insert(sent.index);
            }
        }
        Ok(ours)
    }
}

/// Encodes an `_id` as bytes that are equal for equal values of the same type.
fn key(id: RawBsonRef<'_>) -> Vec<u8> {
    let mut key = RawDocumentBuf::new();
    key.append(cstr!("_id"), id);
    key.into_bytes()
}

/// Prepares a document for both attempts. The store itself refuses an invalid one.
fn identified(index: usize, document: RawDocumentBuf, ids: &dyn IdSource) -> SentDocument {
    let id_is_ours = matches!(document.get("_id"), Ok(None));
    let document = prepare(document.clone(), ids).unwrap_or(document);
    SentDocument { index, document, id_is_ours, may_be_in: false }
}
