//! The writes of a transaction, before its commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bson::{RawBson, RawDocument, RawDocumentBuf};
use handfast_mql::key;
use handfast_store::index::Index;
use handfast_store::{AtomicBatch, BatchWrite, Before, Creation, DocumentWrite, Namespace, Result as StoreResult};
use imbl::OrdMap;

use super::room::{Room, Taken, bytes_of_unique_key, bytes_of_write};
use crate::{Indexes, TransactionOptions};

/// The key of an `_id`: equal for equal values.
pub(super) type IdKey = Arc<[u8]>;

/// The documents of one collection as the transaction has written them. Cheap to clone.
pub(super) type Writes = OrdMap<IdKey, Written>;

/// One of them.
#[derive(Clone)]
pub(super) struct Written {
    id: RawBson,
    /// None if it is deleted.
    pub(super) document: Option<Arc<RawDocumentBuf>>,
    /// What the snapshot has there.
    before: Before,
}

/// A new state of a document.
pub(super) struct Write {
    pub(super) id: RawBson,
    /// How the transaction sees it before this write.
    pub(super) before: Option<RawDocumentBuf>,
    /// None if it is deleted.
    pub(super) after: Option<RawDocumentBuf>,
}

/// All writes.
pub(super) struct Own {
    writes: BTreeMap<Namespace, Writes>,
    /// Collections made in this transaction.
    creations: BTreeMap<Namespace, Creation>,
    /// Indexes, besides the one on `_id`, of the collections that were written to.
    indexes: HashMap<Namespace, Indexes>,
    /// Who of the written documents has a unique key.
    holders: HashMap<UniquePlace, IdKey>,
    /// What the documents that the writes take the place of may still take.
    before_bytes_left: usize,
    taken: Taken,
}

/// How much a transaction keeps of what was there before its writes, so that the store need not read that again: it reads
/// what does not fit in.
const BEFORE_BYTES_MAX: usize = 64 * 1024;

/// What one takes beside its bytes: two allocations, and a count of who has it.
const BEFORE_OVERHEAD_BYTES: usize = 96;

/// A key of a unique index of this name.
type UniquePlace = (Namespace, String, Vec<u8>);

pub(super) fn id_key(id: bson::RawBsonRef<'_>) -> IdKey {
    key::encoded(id).into()
}

impl Own {
    /// None yet; what they take is counted in this room. What was there before them is kept only if somebody uses it.
    pub(super) fn new(room: Arc<Room>, keeps_before: bool) -> Self {
        Own {
            writes: BTreeMap::new(),
            creations: BTreeMap::new(),
            indexes: HashMap::new(),
            holders: HashMap::new(),
            before_bytes_left: if keeps_before { BEFORE_BYTES_MAX } else { 0 },
            taken: Taken::of(room),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.creations.is_empty() && self.writes.values().all(Writes::is_empty)
    }

    /// What was written to a collection.
    pub(super) fn of(&self, namespace: &Namespace) -> Writes {
        self.writes.get(namespace).cloned().unwrap_or_default()
    }

    pub(super) fn get(&self, namespace: &Namespace, id: &IdKey) -> Option<Written> {
        self.writes.get(namespace)?.get(id).cloned()
    }

    /// The collection, if the transaction made it.
    pub(super) fn creation(&self, namespace: &Namespace) -> Option<&Creation> {
        self.creations.get(namespace)
    }

    /// Whether documents were put into a collection.
    pub(super) fn has_documents(&self, namespace: &Namespace) -> bool {
        let put = |writes: &Writes| writes.values().any(|written| written.document.is_some());
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
    /// [`Own::write`].
    pub(super) fn create(&mut self, creation: Creation, options: &TransactionOptions) -> StoreResult<()> {
        let namespace = &creation.namespace;
        let compiled = creation.indexes.iter().cloned().map(|spec| Index::compile(spec).map(Arc::new));
        let indexes = compiled.collect::<StoreResult<Indexes>>()?;
        let mut holders = HashMap::new();
        for (id, written) in self.writes.get(namespace).into_iter().flatten() {
            let Some(document) = written.document.as_deref() else { continue };
            for index in indexes.iter() {
                for place in places(namespace, index, document)? {
                    if holders.contains_key(&place) {
                        return Err(index.duplicate(namespace, document, &place.2));
                    }
                    holders.insert(place, Arc::clone(id));
                }
            }
        }
        let freed = self.holders.keys().filter(|place| place.0 == *namespace).map(bytes_of_place).sum();
        let more = holders.keys().map(bytes_of_place).sum();
        self.taken.change(freed, more, options)?;
        self.holders.retain(|place, _| place.0 != *namespace);
        self.holders.extend(holders);
        self.indexes.insert(namespace.clone(), indexes);
        self.creations.insert(creation.namespace.clone(), creation);
        Ok(())
    }

    /// The indexes of a collection, if they are known yet.
    pub(super) fn indexes(&self, namespace: &Namespace) -> Option<Indexes> {
        self.indexes.get(namespace).cloned()
    }

    pub(super) fn learn_indexes(&mut self, namespace: &Namespace, indexes: Indexes) {
        self.indexes.insert(namespace.clone(), indexes);
    }

    /// Which written document has a unique key.
    pub(super) fn holder(&self, namespace: &Namespace, index: &Index, key: &[u8]) -> Option<&IdKey> {
        self.holders.get(&(namespace.clone(), index.spec().name.clone(), key.to_vec()))
    }

    /// Writes a document of a collection with these indexes.
    ///
    /// # Errors
    /// `TransactionTooLarge` (257), `WriteConflict` (112).
    pub(super) fn write(
        &mut self,
        namespace: &Namespace,
        indexes: &[Arc<Index>],
        Write { id, before, after }: Write,
        options: &TransactionOptions,
    ) -> StoreResult<()> {
        let key = id_key(id.as_raw_bson_ref());
        let places = |document: Option<&RawDocumentBuf>| -> StoreResult<Vec<UniquePlace>> {
            let Some(document) = document else { return Ok(Vec::new()) };
            let of_each = indexes.iter().map(|index| places(namespace, index, document));
            Ok(of_each.collect::<StoreResult<Vec<_>>>()?.concat())
        };
        let size = |before: &Before, document: Option<&RawDocumentBuf>, places: &[UniquePlace]| {
            let bytes = document.map_or(0, |document| document.as_bytes().len()) + bytes_of_before(before);
            bytes_of_write(&key, bytes) + places.iter().map(bytes_of_place).sum::<usize>()
        };
        let earlier = self.get(namespace, &key);
        let old = earlier.as_ref().and_then(|earlier| earlier.document.as_deref());
        let (gone, come) = (places(old)?, places(after.as_ref())?);
        let freed = earlier.as_ref().map_or(0, |earlier| size(&earlier.before, old, &gone));
        let before = match &earlier {
            Some(earlier) => earlier.before.clone(),
            // Without a write of its own, what the transaction sees is what the snapshot has.
            None => self.kept(before),
        };
        let need = |before: &Before| size(before, after.as_ref(), &come);
        let before = match self.taken.change(freed, need(&before), options) {
            Ok(()) => before,
            // What is kept only to be faster does not stand in the way.
            Err(_) if earlier.is_none() => {
                self.taken.change(freed, need(&Before::Unread), options)?;
                Before::Unread
            }
            Err(error) => return Err(error),
        };
        if earlier.is_none() {
            self.before_bytes_left -= bytes_of_before(&before);
        }
        for place in &gone {
            self.holders.remove(place);
        }
        self.holders.extend(come.into_iter().map(|place| (place, Arc::clone(&key))));
        let written = Written { id, document: after.map(without_slack).transpose()?.map(Arc::new), before };
        self.writes.entry(namespace.clone()).or_default().insert(key, written);
        Ok(())
    }

    /// What is kept of a document of the snapshot.
    fn kept(&self, before: Option<RawDocumentBuf>) -> Before {
        let Some(document) = before else { return Before::Nothing };
        let kept = Before::Document(Arc::new(document));
        if bytes_of_before(&kept) <= self.before_bytes_left { kept } else { Before::Unread }
    }

    /// Puts it into a batch; the room that it takes.
    pub(super) fn into_batch(self, batch: &mut AtomicBatch) -> Taken {
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
        self.taken
    }
}

/// A document in as many bytes as it has: one that has grown may hold twice as many, and they are not counted.
fn without_slack(document: RawDocumentBuf) -> StoreResult<RawDocumentBuf> {
    let mut bytes = document.into_bytes();
    bytes.shrink_to_fit();
    Ok(RawDocumentBuf::from_bytes(bytes).map_err(handfast_mql::Error::from)?)
}

/// The keys of a document in an index, if that is a unique one.
///
/// # Errors
/// `CannotIndexParallelArrays` (171), whatever the index is.
fn places(namespace: &Namespace, index: &Index, document: &RawDocument) -> StoreResult<Vec<UniquePlace>> {
    let keys = index.keys(document)?.keys;
    let kept = keys.into_iter().filter(|_| index.spec().unique);
    Ok(kept.map(|key| (namespace.clone(), index.spec().name.clone(), key)).collect())
}

/// What is taken by a document that is kept of the snapshot.
fn bytes_of_before(before: &Before) -> usize {
    match before {
        Before::Document(document) => document.as_bytes().len() + BEFORE_OVERHEAD_BYTES,
        Before::Nothing | Before::Unread => 0,
    }
}

fn bytes_of_place((_, name, key): &UniquePlace) -> usize {
    bytes_of_unique_key(name, key)
}

/// The `_id` of a document and its key.
pub(super) fn identity(document: &RawDocument) -> StoreResult<(RawBson, IdKey)> {
    let id = handfast_store::insertion::id(document)?;
    Ok((RawBson::from(id), id_key(id)))
}
