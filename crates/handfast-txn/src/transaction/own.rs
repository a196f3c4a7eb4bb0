//! The writes of a transaction, before its commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bson::{RawBson, RawDocument, RawDocumentBuf};
use handfast_mql::key;
use handfast_store::index::Index;
use handfast_store::{Creation, DocumentWrite, Namespace, Result as StoreResult};
use imbl::OrdMap;

use super::room::{Room, Taken, WRITE_OVERHEAD_BYTES};
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
}

/// All writes.
pub(super) struct Own {
    writes: BTreeMap<Namespace, Writes>,
    /// Collections made in this transaction.
    creations: BTreeMap<Namespace, Creation>,
    /// Indexes, besides the one on `_id`, of the collections that were written to.
    indexes: HashMap<Namespace, Indexes>,
    /// Who of the written documents has a unique key.
    holders: HashMap<(Namespace, String, Vec<u8>), IdKey>,
    taken: Taken,
}

pub(super) fn id_key(id: bson::RawBsonRef<'_>) -> IdKey {
    let mut encoded = Vec::new();
    key::encode(id, &mut encoded);
    encoded.into()
}

impl Own {
    /// None yet; what they take is counted in this room.
    pub(super) fn new(room: Arc<Room>) -> Self {
        Own {
            writes: BTreeMap::new(),
            creations: BTreeMap::new(),
            indexes: HashMap::new(),
            holders: HashMap::new(),
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
    /// Those of the documents that were put into it: `DuplicateKey` (11000), `CannotIndexParallelArrays` (171).
    pub(super) fn create(&mut self, creation: Creation) -> StoreResult<()> {
        let namespace = &creation.namespace;
        let compiled = creation.indexes.iter().cloned().map(|spec| Index::compile(spec).map(Arc::new));
        let indexes = compiled.collect::<StoreResult<Indexes>>()?;
        let mut holders = HashMap::new();
        for (id, written) in self.writes.get(namespace).into_iter().flatten() {
            let Some(document) = written.document.as_deref() else { continue };
            for index in indexes.iter() {
                for key in index.keys(document)?.keys {
                    let place = (namespace.clone(), index.spec().name.clone(), key);
                    if index.spec().unique && holders.contains_key(&place) {
                        return Err(index.duplicate(namespace, document, &place.2));
                    }
                    holders.insert(place, Arc::clone(id));
                }
            }
        }
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
        (id, document): (RawBson, Option<RawDocumentBuf>),
        options: &TransactionOptions,
    ) -> StoreResult<()> {
        let key = id_key(id.as_raw_bson_ref());
        let size = |document: Option<&RawDocumentBuf>| {
            document.map_or(0, |document| document.as_bytes().len()) + key.len() + WRITE_OVERHEAD_BYTES
        };
        let before = self.get(namespace, &key);
        let freed = before.as_ref().map_or(0, |before| size(before.document.as_deref()));
        self.taken.change(freed, size(document.as_ref()), options.write_bytes_max, options.all_write_bytes_max)?;
        for index in indexes.iter().filter(|index| index.spec().unique) {
            if let Some(before) = before.as_ref().and_then(|before| before.document.as_deref()) {
                for taken in index.keys(before)?.keys {
                    self.holders.remove(&(namespace.clone(), index.spec().name.clone(), taken));
                }
            }
            if let Some(document) = &document {
                for taken in index.keys(document)?.keys {
                    self.holders.insert((namespace.clone(), index.spec().name.clone(), taken), Arc::clone(&key));
                }
            }
        }
        let written = Written { id, document: document.map(Arc::new) };
        self.writes.entry(namespace.clone()).or_default().insert(key, written);
        Ok(())
    }

    /// As a batch has it, with the room that it takes.
    pub(super) fn into_batch(self) -> (Vec<Creation>, Vec<(Namespace, RawBson, DocumentWrite)>, Taken) {
        let mut writes = Vec::new();
        for (namespace, documents) in self.writes {
            for (_, written) in documents {
                let write = match written.document {
                    Some(document) => DocumentWrite::Put(Arc::unwrap_or_clone(document)),
                    None => DocumentWrite::Delete,
                };
                writes.push((namespace.clone(), written.id, write));
            }
        }
        (self.creations.into_values().collect(), writes, self.taken)
    }
}

/// The `_id` of a document and its key.
pub(super) fn identity(document: &RawDocument) -> StoreResult<(RawBson, IdKey)> {
    let id = handfast_store::insertion::id(document)?;
    Ok((RawBson::from(id), id_key(id)))
}
