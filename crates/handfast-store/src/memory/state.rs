//! The state as a value: collections, their documents and index entries, and the history that finds conflicts.

use std::sync::Arc;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::{Code, Context, key};
use imbl::{OrdMap, OrdSet, Vector};

use super::{DELETIONS_KEPT_MAX, VERSIONS_KEPT_MAX};
use crate::index::Index;
use crate::validation::{NewState, Validator};
use crate::view::{self, ViewCatalog};
use crate::{
    CollectionOptions, Error, Hint, IndexSpec, Namespace, Result, Validation, ViewDefinition, default_collation,
    insertion,
};

/// The encoded key of an `_id`, in the order of the values.
pub(super) type IdKey = Arc<[u8]>;

/// Encodes an `_id`.
pub(super) fn id_key(id: RawBsonRef<'_>) -> IdKey {
    key::encoded(id).into()
}

#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) collections: OrdMap<Namespace, Collection>,
    /// The number of the commit that made this state.
    pub(super) commit: u64,
    /// The size of all documents in bytes.
    pub(super) bytes: u64,
    last_record: i64,
    /// The last deletion of each document that is still remembered, as the number of its commit.
    deleted: OrdMap<(Namespace, IdKey), u64>,
    /// The last commit of which a deletion was forgotten.
    deleted_forgotten: u64,
    /// The commit that last dropped or renamed each collection.
    dropped: OrdMap<Namespace, u64>,
    /// Versions of documents when they were written and when they were replaced, oldest first.
    versions: Vector<KeptVersion>,
    /// The last commit of which a version was forgotten.
    versions_forgotten: u64,
}

/// A version of a document that a commit wrote or replaced.
#[derive(Clone)]
struct KeptVersion {
    commit: u64,
    namespace: Namespace,
    stored: Arc<Stored>,
}

#[derive(Clone)]
pub(super) struct Collection {
    pub(super) uuid: [u8; 16],
    pub(super) options: CollectionOptions,
    pub(super) validator: Option<Arc<Validator>>,
    pub(super) documents: OrdMap<IdKey, Arc<Stored>>,
    pub(super) size_bytes: u64,
    /// The indexes besides `_id_`, which is the map of documents itself.
    pub(super) indexes: Vec<IndexState>,
}

pub(super) struct Stored {
    pub(super) document: RawDocumentBuf,
    /// The commit that wrote this version.
    pub(super) commit: u64,
    pub(super) record: i64,
}

#[derive(Clone)]
pub(super) struct IndexState {
    pub(super) index: Arc<Index>,
    /// The keys, each with the `_id` of its document.
    pub(super) entries: OrdSet<(Arc<[u8]>, IdKey)>,
    pub(super) bytes: u64,
}

/// The index that a hint names.
pub(super) enum Hinted<'a> {
    Id,
    Natural { backwards: bool },
    Index(&'a IndexState),
}

impl State {
    /// Begins a write, which makes the next commit.
    pub(super) fn begin(&mut self) {
        self.commit += 1;
    }

    /// Checks a document's new state by the validator of its collection.
    pub(super) fn validate(
        &self,
        namespace: &Namespace,
        before: Option<&RawDocument>,
        after: &RawDocument,
        validation: Validation,
        context: &Context,
    ) -> Result<()> {
        let validator = self.collections.get(namespace).and_then(|collection| collection.validator.as_ref());
        let state = NewState { namespace, before, after, validation };
        validator.map_or(Ok(()), |validator| validator.check(state, context))
    }

    /// Returns the commit that last wrote or deleted a document, as far as it matters for a commit that read at `read_at`.
    pub(super) fn changed_at(&self, namespace: &Namespace, id: &IdKey) -> u64 {
        let stored = self.collections.get(namespace).and_then(|collection| collection.documents.get(id));
        let here = stored.map_or(0, |stored| stored.commit);
        let deleted = self.deleted.get(&(namespace.clone(), Arc::clone(id))).copied();
        let gone = if stored.is_some() { 0 } else { deleted.unwrap_or(self.deleted_forgotten) };
        here.max(gone).max(self.dropped.get(namespace).copied().unwrap_or(0))
    }

    /// Returns whether the result of a query has changed at any time since `read_at`.
    pub(super) fn answers_differently(
        &self,
        namespace: &Namespace,
        read_at: u64,
        matches: impl Fn(&RawDocumentBuf) -> bool,
    ) -> bool {
        if read_at < self.versions_forgotten || self.dropped.get(namespace).is_some_and(|dropped| *dropped > read_at) {
            return true;
        }
        for version in self.versions.iter().rev() {
            if version.commit <= read_at {
                break;
            }
            if version.namespace == *namespace && matches(&version.stored.document) {
                return true;
            }
        }
        false
    }

    fn remember(&mut self, namespace: &Namespace, stored: &Arc<Stored>) {
        let (commit, namespace, stored) = (self.commit, namespace.clone(), Arc::clone(stored));
        self.versions.push_back(KeptVersion { commit, namespace, stored });
        if self.versions.len() > VERSIONS_KEPT_MAX
            && let Some(forgotten) = self.versions.pop_front()
        {
            self.versions_forgotten = forgotten.commit;
        }
    }

    /// Creates a collection if it does not exist.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166) if there is a view of this name.
    pub(super) fn collection_or_new(&mut self, namespace: &Namespace, uuid: impl FnOnce() -> [u8; 16]) -> Result<()> {
        self.refuse_view(namespace)?;
        if !self.collections.contains_key(namespace) {
            let collection = Collection {
                uuid: uuid(),
                options: CollectionOptions::default(),
                validator: None,
                documents: OrdMap::new(),
                size_bytes: 0,
                indexes: Vec::new(),
            };
            self.collections.insert(namespace.clone(), collection);
        }
        Ok(())
    }

    /// Returns the default collation of a collection, if it has one.
    pub(super) fn default_collation(&self, namespace: &Namespace) -> Option<&RawDocumentBuf> {
        default_collation::of(self.options(namespace))
    }

    /// Refuses a request that a view cannot carry out.
    pub(super) fn refuse_view(&self, namespace: &Namespace) -> Result<()> {
        self.options(namespace).map_or(Ok(()), |options| view::refuse(namespace, options))
    }

    /// Removes a collection with its documents and returns it.
    pub(super) fn take(&mut self, namespace: &Namespace) -> Option<Collection> {
        let collection = self.collections.remove(namespace)?;
        self.dropped.insert(namespace.clone(), self.commit);
        self.bytes -= collection.size_bytes;
        Some(collection)
    }

    /// Adds a removed collection under a name that is free.
    pub(super) fn give(&mut self, namespace: &Namespace, collection: Collection) {
        self.bytes += collection.size_bytes;
        self.dropped.insert(namespace.clone(), self.commit);
        self.collections.insert(namespace.clone(), collection);
    }

    /// Removes a document from its collection and its indexes.
    pub(super) fn remove(&mut self, namespace: &Namespace, id: &IdKey) -> Result<Option<Arc<Stored>>> {
        let Some(collection) = self.collections.get_mut(namespace) else { return Ok(None) };
        let Some(stored) = collection.documents.remove(id) else { return Ok(None) };
        for index in &mut collection.indexes {
            index.remove(id, &stored.document)?;
        }
        let bytes = stored.document.as_bytes().len() as u64;
        collection.size_bytes -= bytes;
        self.bytes -= bytes;
        self.note_deletion(namespace, id);
        self.remember(namespace, &stored);
        Ok(Some(stored))
    }

    /// Records the deletion of a document, whether or not it was visible to others.
    pub(super) fn note_deletion(&mut self, namespace: &Namespace, id: &IdKey) {
        self.deleted.insert((namespace.clone(), Arc::clone(id)), self.commit);
        if self.deleted.len() > DELETIONS_KEPT_MAX {
            self.deleted_forgotten = self.commit;
            self.deleted.clear();
        }
    }

    /// Returns whether every unique key that the document shares with another one was written after a commit by another write
    /// than this one.
    pub(super) fn keys_were_taken_since(
        &self,
        namespace: &Namespace,
        document: &RawDocumentBuf,
        read_at: u64,
    ) -> Result<bool> {
        let Some(collection) = self.collections.get(namespace) else { return Ok(true) };
        let own = id_key(insertion::id(document)?);
        for index in collection.indexes.iter().filter(|index| index.index.spec().unique) {
            for key in index.index.keys(document)?.keys {
                let Some(holder) = index.holder(&key.into()).filter(|holder| *holder != own) else { continue };
                let changed = collection.documents.get(&holder).map(|stored| stored.commit);
                if !changed.is_some_and(|changed| changed > read_at && changed != self.commit) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Adds a document with a new `_id` to an existing collection and its indexes.
    pub(super) fn add(&mut self, namespace: &Namespace, document: RawDocumentBuf, record: Option<i64>) -> Result<()> {
        let Some(collection) = self.collections.get_mut(namespace) else {
            return Err(Error::command(Code::NamespaceNotFound, format!("ns does not exist: {namespace}")));
        };
        let id = insertion::id(&document)?;
        let key = id_key(id);
        if collection.documents.contains_key(&key) {
            return Err(crate::index::duplicate_key(namespace, &IndexSpec::id(), &[Some(id)]));
        }
        for index in &mut collection.indexes {
            index.add(namespace, &key, &document)?;
        }
        let record = record.unwrap_or_else(|| {
            self.last_record += 1;
            self.last_record
        });
        let bytes = document.as_bytes().len() as u64;
        collection.size_bytes += bytes;
        self.bytes += bytes;
        let stored = Arc::new(Stored { document, commit: self.commit, record });
        collection.documents.insert(key, Arc::clone(&stored));
        self.remember(namespace, &stored);
        Ok(())
    }
}

impl ViewCatalog for State {
    fn options(&self, namespace: &Namespace) -> Option<&CollectionOptions> {
        self.collections.get(namespace).map(|collection| &collection.options)
    }

    fn views(&self, database: &str) -> Vec<(&Namespace, &ViewDefinition)> {
        let of = self.collections.iter().filter(|(namespace, _)| namespace.database() == database);
        of.filter_map(|(namespace, collection)| Some((namespace, collection.options.view.as_ref()?))).collect()
    }
}

impl Collection {
    /// Returns the definitions of all indexes, `_id_` first.
    pub(super) fn specs(&self) -> Vec<IndexSpec> {
        let others = self.indexes.iter().map(|index| index.index.spec().clone());
        let id = IndexSpec { collation: self.options.collation.clone(), ..IndexSpec::id() };
        std::iter::once(id).chain(others).collect()
    }

    /// Returns the index that a hint names.
    pub(super) fn hinted(&self, hint: &Hint) -> Result<Hinted<'_>> {
        let found = match hint {
            Hint::Name(name) if name == crate::index::ID_INDEX_NAME => Some(Hinted::Id),
            Hint::Name(name) => self.indexes.iter().find(|index| index.index.spec().name == *name).map(Hinted::Index),
            Hint::Key(key) => match key.iter().flatten().next() {
                Some((name, direction)) if name.as_str() == "$natural" => {
                    let backwards = matches!(direction, RawBsonRef::Int32(-1) | RawBsonRef::Int64(-1))
                        || direction.as_f64() == Some(-1.0);
                    Some(Hinted::Natural { backwards })
                }
                _ if crate::index::same_key(key, &IndexSpec::id().key) => Some(Hinted::Id),
                _ => {
                    let same = |index: &&IndexState| crate::index::same_key(&index.index.spec().key, key);
                    self.indexes.iter().find(same).map(Hinted::Index)
                }
            },
        };
        found.ok_or_else(hint_to_no_index)
    }
}

pub(super) fn hint_to_no_index() -> Error {
    let text = "error processing query: planner returned error: hint provided does not correspond to an existing index";
    Error::command(Code::BadValue, text)
}

impl IndexState {
    pub(super) fn new(index: Index) -> Self {
        IndexState { index: Arc::new(index), entries: OrdSet::new(), bytes: 0 }
    }

    pub(super) fn add(&mut self, namespace: &Namespace, id: &IdKey, document: &RawDocumentBuf) -> Result<()> {
        for key in self.index.keys(document)?.keys {
            let key: Arc<[u8]> = key.into();
            if self.index.spec().unique && self.holder(&key).is_some_and(|holder| holder != *id) {
                return Err(self.index.duplicate(namespace, document, &key));
            }
            self.bytes += (key.len() + id.len()) as u64;
            self.entries.insert((key, Arc::clone(id)));
        }
        Ok(())
    }

    fn remove(&mut self, id: &IdKey, document: &RawDocumentBuf) -> Result<()> {
        for key in self.index.keys(document)?.keys {
            let key: Arc<[u8]> = key.into();
            self.bytes -= (key.len() + id.len()) as u64;
            let removed = self.entries.remove(&(key, Arc::clone(id)));
            debug_assert!(removed.is_some(), "every key of a stored document is in the index");
        }
        Ok(())
    }

    /// Returns the `_id` of the first document that has a key.
    fn holder(&self, key: &Arc<[u8]>) -> Option<IdKey> {
        let from = (Arc::clone(key), IdKey::from([]));
        let (found, id) = self.entries.range(from..).next()?;
        (found == key).then(|| Arc::clone(id))
    }
}
