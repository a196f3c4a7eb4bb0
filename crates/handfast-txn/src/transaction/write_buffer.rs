//! The writes of a transaction, before its commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bson::{RawBson, RawDocument, RawDocumentBuf};
use handfast_mql::key;
use handfast_store::change::Change;
use handfast_store::index::Index;
use handfast_store::{
    AtomicBatch, BatchWrite, Before, Creation, DocumentWrite, Namespace, Result as StoreResult, Validation, WriteKind,
};
use imbl::OrdMap;

use super::write_budget::{Reservation, WriteBudget, bytes_of_unique_key, bytes_of_write};
use crate::{Indexes, TransactionOptions};

/// An encoded `_id`: equal for equal values.
pub(super) type IdKey = Arc<[u8]>;

/// The documents of one collection that the transaction has written. Cheap to clone.
pub(super) type CollectionWrites = OrdMap<IdKey, BufferedDocument>;

/// A document that the transaction has written.
#[derive(Clone)]
pub(super) struct BufferedDocument {
    id: RawBson,
    /// `None` if the document is deleted.
    pub(super) document: Option<Arc<RawDocumentBuf>>,
    /// The document in the snapshot.
    before: Before,
    mode: WriteMode,
    /// The place of its first write in the order of first writes.
    place: u32,
}

/// The kind of a write, and whether the validator of the collection is applied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteMode {
    pub(super) kind: WriteKind,
    pub(super) validation: Validation,
}

impl WriteMode {
    pub(super) fn of(change: &Change) -> Self {
        WriteMode { kind: change.kind(), validation: change.validation() }
    }
}

pub(super) struct DocumentChange {
    pub(super) id: RawBson,
    pub(super) key: IdKey,
    /// The document as the transaction sees it before this change.
    pub(super) before: Option<RawDocumentBuf>,
    /// `None` if the document is deleted.
    pub(super) after: Option<RawDocumentBuf>,
    pub(super) mode: WriteMode,
}

/// Holds the writes of a transaction until its commit.
pub(super) struct WriteBuffer {
    writes: BTreeMap<Namespace, CollectionWrites>,
    /// The collections that the transaction creates.
    creations: BTreeMap<Namespace, Creation>,
    /// The indexes, without the one on `_id`, of the collections that were written to.
    indexes: HashMap<Namespace, Indexes>,
    /// The written document that has each unique key.
    holders: HashMap<UniqueKey, IdKey>,
    /// The number of documents written so far.
    places: u32,
    /// The bytes that are left for before-images.
    before_bytes_left: usize,
    reservation: Reservation,
}

/// The most bytes of before-images that a transaction keeps: some thousand documents, with what they take besides. The store reads the others again,
/// while all other writes wait.
const BEFORE_BYTES_MAX: usize = 1024 * 1024;

/// The memory that a before-image takes besides its bytes: two allocations and a reference count.
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
    /// Returns an empty buffer that counts its bytes in a budget. Before-images are kept only if the engine uses them.
    pub(super) fn new(budget: Arc<WriteBudget>, keeps_before: bool) -> Self {
        WriteBuffer {
            writes: BTreeMap::new(),
            creations: BTreeMap::new(),
            indexes: HashMap::new(),
            holders: HashMap::new(),
            places: 0,
            before_bytes_left: if keeps_before { BEFORE_BYTES_MAX } else { 0 },
            reservation: Reservation::of(budget),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.creations.is_empty() && self.writes.values().all(CollectionWrites::is_empty)
    }

    pub(super) fn of(&self, namespace: &Namespace) -> CollectionWrites {
        self.writes.get(namespace).cloned().unwrap_or_default()
    }

    pub(super) fn get(&self, namespace: &Namespace, id: &IdKey) -> Option<BufferedDocument> {
        self.writes.get(namespace)?.get(id).cloned()
    }

    /// Returns the collection if the transaction creates it.
    pub(super) fn creation(&self, namespace: &Namespace) -> Option<&Creation> {
        self.creations.get(namespace)
    }

    /// Returns whether the transaction writes documents into a collection.
    pub(super) fn has_documents(&self, namespace: &Namespace) -> bool {
        let put = |writes: &CollectionWrites| writes.values().any(|written| written.document.is_some());
        self.writes.get(namespace).is_some_and(put)
    }

    /// Returns the collections that the transaction creates or writes documents into.
    pub(super) fn namespaces(&self) -> Vec<Namespace> {
        let written = self.writes.keys().filter(|namespace| self.has_documents(namespace));
        self.creations.keys().chain(written).cloned().collect()
    }

    /// Creates a collection, or adds indexes to one that the transaction creates.
    ///
    /// # Errors
    /// `DuplicateKey` (11000) or `CannotIndexParallelArrays` (171) if written documents violate an index; those of [`WriteBuffer::write`].
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

    /// Returns the cached indexes of a collection.
    pub(super) fn indexes(&self, namespace: &Namespace) -> Option<Indexes> {
        self.indexes.get(namespace).cloned()
    }

    pub(super) fn cache_indexes(&mut self, namespace: &Namespace, indexes: Indexes) {
        self.indexes.insert(namespace.clone(), indexes);
    }

    /// Returns the written document that has a unique key.
    pub(super) fn holder(&self, namespace: &Namespace, index: &Index, key: &[u8]) -> Option<&IdKey> {
        let (namespace, index, key) = (namespace.clone(), index.spec().name.clone(), key.to_vec());
        self.holders.get(&UniqueKey { namespace, index, key })
    }

    /// Writes a document of a collection with these indexes.
    ///
    /// # Errors
    /// `TransactionTooLarge` (257), `WriteConflict` (112).
    pub(super) fn write(
        &mut self,
        namespace: &Namespace,
        indexes: &[Arc<Index>],
        DocumentChange { id, key, before, after, mode }: DocumentChange,
        options: &TransactionOptions,
    ) -> StoreResult<()> {
        let keys_of = |document: Option<&RawDocumentBuf>| -> StoreResult<Vec<UniqueKey>> {
            let Some(document) = document else { return Ok(Vec::new()) };
            let unique = indexes.iter().filter(|index| index.spec().unique);
            let of_each = unique.map(|index| unique_keys(namespace, index, document));
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
            // Before its first write of a document, the transaction sees what the snapshot has.
            None => self.before_image(before, options),
        };
        let need = |before: &Before| size(before, after.as_ref(), &added);
        let before = match self.reservation.change(freed, need(&before), options) {
            Ok(()) => before,
            // A before-image only saves time: the write goes on without it.
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
        let place = earlier.as_ref().map_or(self.places, |earlier| earlier.place);
        self.places += u32::from(earlier.is_none());
        // A document that was deleted or replaced before is another one, whatever changed it since.
        let was_replaced = earlier
            .as_ref()
            .is_some_and(|earlier| earlier.document.is_none() || earlier.mode.kind == WriteKind::Replacement);
        let kind = if was_replaced { WriteKind::Replacement } else { mode.kind };
        // A change that keeps what was written without the validator may be invalid for that reason alone.
        let was_bypassed =
            earlier.is_some_and(|earlier| earlier.document.is_some() && earlier.mode.validation == Validation::Bypass);
        let validation = if was_bypassed { Validation::Bypass } else { mode.validation };
        let mode = WriteMode { kind, validation };
        let document = after.map(shrunk_to_fit).transpose()?.map(Arc::new);
        let written = BufferedDocument { id, document, before, mode, place };
        self.writes.entry(namespace.clone()).or_default().insert(key, written);
        Ok(())
    }

    /// Returns the before-image to keep of a document of the snapshot. The second half of the room of all transactions is for what they write.
    fn before_image(&self, before: Option<RawDocumentBuf>, options: &TransactionOptions) -> Before {
        let Some(document) = before else { return Before::Nothing };
        let kept = Before::Document(Arc::new(document));
        let has_room = self.reservation.bytes_of_all() <= options.all_write_bytes_max / 2;
        if has_room && bytes_of_before(&kept) <= self.before_bytes_left { kept } else { Before::Unread }
    }

    /// Moves the writes into a batch and returns the reservation of their bytes.
    pub(super) fn into_batch(self, batch: &mut AtomicBatch) -> Reservation {
        for (namespace, documents) in self.writes {
            for (_, written) in documents {
                let write = match written.document {
                    Some(document) => DocumentWrite::Put(Arc::unwrap_or_clone(document)),
                    None => DocumentWrite::Delete,
                };
                let write = BatchWrite::new(namespace.clone(), written.id, write).after(written.before);
                let WriteMode { kind, validation } = written.mode;
                batch.writes.push(write.logged_as(kind, written.place).with_validation(validation));
            }
        }
        batch.creations = self.creations.into_values().collect();
        self.reservation
    }
}

/// Frees the unused capacity of a document, which the budget does not count.
fn shrunk_to_fit(document: RawDocumentBuf) -> StoreResult<RawDocumentBuf> {
    let mut bytes = document.into_bytes();
    bytes.shrink_to_fit();
    Ok(RawDocumentBuf::from_bytes(bytes).map_err(handfast_mql::Error::from)?)
}

/// Returns the keys of a document in a unique index, and none for another index.
///
/// # Errors
/// `CannotIndexParallelArrays` (171), whatever the index is.
fn unique_keys(namespace: &Namespace, index: &Index, document: &RawDocument) -> StoreResult<Vec<UniqueKey>> {
    let keys = index.keys(document)?.keys;
    let kept = keys.into_iter().filter(|_| index.spec().unique);
    Ok(kept.map(|key| UniqueKey { namespace: namespace.clone(), index: index.spec().name.clone(), key }).collect())
}

/// Returns the bytes that a before-image takes.
fn bytes_of_before(before: &Before) -> usize {
    match before {
        Before::Document(document) => document.as_bytes().len() + BEFORE_OVERHEAD_BYTES,
        Before::Nothing | Before::Unread => 0,
    }
}

/// Returns the `_id` of a document, and its encoded form.
pub(super) fn identity(document: &RawDocument) -> StoreResult<(RawBson, IdKey)> {
    let id = handfast_store::insertion::id(document)?;
    Ok((RawBson::from(id), id_key(id)))
}
