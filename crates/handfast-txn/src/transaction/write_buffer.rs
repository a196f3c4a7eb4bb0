//! The writes of a transaction, before its commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bson::{RawBson, RawDocument, RawDocumentBuf};
use handfast_mql::key;
use handfast_store::index::Index;
use handfast_store::{AtomicBatch, BatchWrite, Before, Creation, DocumentWrite, Namespace, Result as StoreResult};
use imbl::OrdMap;

use super::write_budget::{Reservation, WriteBudget, bytes_of_unique_key, bytes_of_write};
use crate::{Indexes, TransactionOptions};

/// The key of an `_id`: equal for equal values.
pub(super) type IdKey = Arc<[u8]>;

/// The documents of one collection as the transaction has written them. Cheap to clone.
pub(super) type CollectionWrites = OrdMap<IdKey, BufferedDocument>;

/// One of them.
#[derive(Clone)]
pub(super) struct BufferedDocument {
    id: RawBson,
    /// None if it is deleted.
    pub(super) document: Option<Arc<RawDocumentBuf>>,
    /// What the snapshot has there.
    before: Before,
}

/// A new state of a document.
pub(super) struct DocumentChange {
    pub(super) id: RawBson,
    /// How the transaction sees it before this write.
    pub(super) before: Option<RawDocumentBuf>,
    /// None if it is deleted.
    pub(super) after: Option<RawDocumentBuf>,
}

/// All writes.
pub(super) struct WriteBuffer {
    writes: BTreeMap<Namespace, CollectionWrites>,
    /// Collections made in this transaction.
    creations: BTreeMap<Namespace, Creation>,
    /// Indexes, besides the one on `_id`, of the collections that were written to.
    indexes: HashMap<Namespace, Indexes>,
    /// Who of the written documents has a unique key.
    holders: HashMap<UniqueKey, IdKey>,
    /// What the documents that the writes take the place of may still take.
    before_bytes_left: usize,
    reservation: Reservation,
}

/// How much a transaction keeps of what was there before its writes, so that the store need not read that again: it reads
/// what does not fit in.
const BEFORE_BYTES_MAX: usize = 64 * 1024;

/// What one takes beside its bytes: two allocations, and a count of who has it.
const BEFORE_OVERHEAD_BYTES: usize = 96;

/// A key of a unique index.
#[derive(Clone, PartialEq, Eq, Hash)]
struct UniqueKey {
    namespace: Namespace,
    index: String,
    key: Vec<u8>,
}

impl UniqueKey {
    fn bytes(&self) -> usize {
        bytes_of_unique_key(&self.index, &self.key)
    }
}

pub(super) fn id_key(id: bson::RawBsonRef<'_>) -> IdKey {
    key::encoded(id).into()
}

impl WriteBuffer {
    /// None yet; what they take is counted in this room. What was there before them is kept only if somebody uses it.
    pub(super) fn new(budget: Arc<WriteBudget>, keeps_before: bool) -> Self {
        WriteBuffer {
            writes: BTreeMap::new(),
            creations: BTreeMap::new(),
            indexes: HashMap::new(),
            holders: HashMap::new(),
            before_bytes_left: if keeps_before { BEFORE_BYTES_MAX } else { 0 },
            reservation: Reservation::of(budget),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.creations.is_empty() && self.writes.values().all(CollectionWrites::is_empty)
    }

    /// What was written to a collection.
    pub(super) fn of(&self, namespace: &Namespace) -> CollectionWrites {
        self.writes.get(namespace).cloned().unwrap_or_default()
    }

    pub(super) fn get(&self, namespace: &Namespace, id: &IdKey) -> Option<BufferedDocument> {
        self.writes.get(namespace)?.get(id).cloned()
    }

    /// The collection, if the transaction made it.
    pub(super) fn creation(&self, namespace: &Namespace) -> Option<&Creation> {
        self.creations.get(namespace)
    }

    /// Whether documents were put into a collection.
    pub(super) fn has_documents(&self, namespace: &Namespace) -> bool {
        let put = |writes: &CollectionWrites| writes.values().any(|written| written.document.is_some());
        self.writes.get(namespace).is_some_and(put)
    }

    /// The collections that were made, or that documents were put into.
    pub(super) fn namespaces(&self) -> Vec<Namespace> {
        let written = self.writes.keys().filter(|namespace| self.has_documents(namespace));
        self.creations.keys().chain(written).cloned().collect()
    }

    /// Makes a collection, or makes it with more indexes.
    ///
    /// # Errors
    /// Those of the documents that were put into it: `DuplicateKey` (11000), `CannotIndexParallelArrays` (171); those of
    /// [`WriteBuffer::write`].
    pub(super) fn create(&mut self, creation: Creation, options: &TransactionOptions) -> StoreResult<()> {
        let namespace = &creation.namespace;
        let compiled = creation.indexes.iter().cloned().map(|spec| Index::compile(spec).map(Arc::new));
        let indexes = compiled.collect::<StoreResult<Indexes>>()?;
        let mut holders = HashMap::new();
        for (id, written) in self.writes.get(namespace).into_iter().flatten() {
            let Some(document) = written.document.as_deref() else { continue };
            for index in indexes.iter() {
                for key in unique_keys(namespace, index, document)? {
                    if holders.contains_key(&key) {
                        return Err(index.duplicate(namespace, document, &key.key));
                    }
                    holders.insert(key, Arc::clone(id));
                }
            }
        }
        let freed = self.holders.keys().filter(|key| key.namespace == *namespace).map(UniqueKey::bytes).sum();
        let more = holders.keys().map(UniqueKey::bytes).sum();
        self.reservation.change(freed, more, options)?;
        self.holders.retain(|key, _| key.namespace != *namespace);
        self.holders.extend(holders);
        self.indexes.insert(namespace.clone(), indexes);
        self.creations.insert(creation.namespace.clone(), creation);
        Ok(())
    }

    /// The indexes of a collection, if they are known yet.
    pub(super) fn indexes(&self, namespace: &Namespace) -> Option<Indexes> {
        self.indexes.get(namespace).cloned()
    }

    pub(super) fn cache_indexes(&mut self, namespace: &Namespace, indexes: Indexes) {
        self.indexes.insert(namespace.clone(), indexes);
    }

    /// Which written document has a unique key.
    pub(super) fn holder(&self, namespace: &Namespace, index: &Index, key: &[u8]) -> Option<&IdKey> {
        let (namespace, index, key) = (namespace.clone(), index.spec().name.clone(), key.to_vec());
        self.holders.get(&UniqueKey { namespace, index, key })
    }

    /// CollectionWrites a document of a collection with these indexes.
    ///
    /// # Errors
    /// `TransactionTooLarge` (257), `WriteConflict` (112).
    pub(super) fn write(
        &mut self,
        namespace: &Namespace,
        indexes: &[Arc<Index>],
        DocumentChange { id, before, after }: DocumentChange,
        options: &TransactionOptions,
    ) -> StoreResult<()> {
        let key = id_key(id.as_raw_bson_ref());
        let keys_of = |document: Option<&RawDocumentBuf>| -> StoreResult<Vec<UniqueKey>> {
            let Some(document) = document else { return Ok(Vec::new()) };
            let of_each = indexes.iter().map(|index| unique_keys(namespace, index, document));
            Ok(of_each.collect::<StoreResult<Vec<_>>>()?.concat())
        };
        let size = |before: &Before, document: Option<&RawDocumentBuf>, keys: &[UniqueKey]| {
            let bytes = document.map_or(0, |document| document.as_bytes().len()) + bytes_of_before(before);
            bytes_of_write(&key, bytes) + keys.iter().map(UniqueKey::bytes).sum::<usize>()
        };
        let earlier = self.get(namespace, &key);
        let old = earlier.as_ref().and_then(|earlier| earlier.document.as_deref());
        let (removed, added) = (keys_of(old)?, keys_of(after.as_ref())?);
        let freed = earlier.as_ref().map_or(0, |earlier| size(&earlier.before, old, &removed));
        let before = match &earlier {
            Some(earlier) => earlier.before.clone(),
            // Without a write of its own, what the transaction sees is what the snapshot has.
            None => self.before_image(before),
        };
        let need = |before: &Before| size(before, after.as_ref(), &added);
        let before = match self.reservation.change(freed, need(&before), options) {
            Ok(()) => before,
            // What is kept only to be faster does not stand in the way.
            Err(_) if earlier.is_none() => {
                self.reservation.change(freed, need(&Before::Unread), options)?;
                Before::Unread
            }
            Err(error) => return Err(error),
        };
        if earlier.is_none() {
            self.before_bytes_left -= bytes_of_before(&before);
        }
        for unique in &removed {
            self.holders.remove(unique);
        }
        self.holders.extend(added.into_iter().map(|unique| (unique, Arc::clone(&key))));
        let written = BufferedDocument { id, document: after.map(shrunk_to_fit).transpose()?.map(Arc::new), before };
        self.writes.entry(namespace.clone()).or_default().insert(key, written);
        Ok(())
    }

    /// What is kept of a document of the snapshot.
    fn before_image(&self, before: Option<RawDocumentBuf>) -> Before {
        let Some(document) = before else { return Before::Nothing };
        let kept = Before::Document(Arc::new(document));
        if bytes_of_before(&kept) <= self.before_bytes_left { kept } else { Before::Unread }
    }

    /// Puts it into a batch; the room that it takes.
    pub(super) fn into_batch(self, batch: &mut AtomicBatch) -> Reservation {
        for (namespace, documents) in self.writes {
            for (_, written) in documents {
                let write = match written.document {
                    Some(document) => DocumentWrite::Put(Arc::unwrap_or_clone(document)),
                    None => DocumentWrite::Delete,
                };
                batch.writes.push(BatchWrite::new(namespace.clone(), written.id, write).after(written.before));
            }
        }
        batch.creations = self.creations.into_values().collect();
        self.reservation
    }
}

/// A document in as many bytes as it has: one that has grown may hold twice as many, and they are not counted.
fn shrunk_to_fit(document: RawDocumentBuf) -> StoreResult<RawDocumentBuf> {
    let mut bytes = document.into_bytes();
    bytes.shrink_to_fit();
    Ok(RawDocumentBuf::from_bytes(bytes).map_err(handfast_mql::Error::from)?)
}

/// The keys of a document in an index, if that is a unique one.
///
/// # Errors
/// `CannotIndexParallelArrays` (171), whatever the index is.
fn unique_keys(namespace: &Namespace, index: &Index, document: &RawDocument) -> StoreResult<Vec<UniqueKey>> {
    let keys = index.keys(document)?.keys;
    let kept = keys.into_iter().filter(|_| index.spec().unique);
    Ok(kept.map(|key| UniqueKey { namespace: namespace.clone(), index: index.spec().name.clone(), key }).collect())
}

/// What is taken by a document that is kept of the snapshot.
fn bytes_of_before(before: &Before) -> usize {
    match before {
        Before::Document(document) => document.as_bytes().len() + BEFORE_OVERHEAD_BYTES,
        Before::Nothing | Before::Unread => 0,
    }
}

/// The `_id` of a document and its key.
pub(super) fn identity(document: &RawDocument) -> StoreResult<(RawBson, IdKey)> {
    let id = handfast_store::insertion::id(document)?;
    Ok((RawBson::from(id), id_key(id)))
}
