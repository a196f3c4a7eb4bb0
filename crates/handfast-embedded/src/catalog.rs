//! The catalog of collections and indexes.
//!
//! The catalog is an immutable value: a reader has the one of its snapshot, the committer makes the next one from it. On disk
//! each collection is one record of the metadata map, which changes in the same batch as the data that it describes (the first
//! document with an array under an index is in the batch that marks the index as multikey).

use std::sync::Arc;

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_store::index::Index;
use handfast_store::validation::Validator;
use handfast_store::view::ViewCatalog;
use handfast_store::{CollectionOptions, IndexSpec, Namespace, Result as StoreResult, ViewDefinition};
use imbl::OrdMap;

use crate::engine::{Keyspace, View, prefix_range};
use crate::error::{Error, Result};
use crate::format::{CollectionId, IndexId, MetadataKey, metadata_value, open_metadata};

#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub(crate) id: CollectionId,
    pub(crate) namespace: Namespace,
    pub(crate) uuid: [u8; 16],
    pub(crate) options: CollectionOptions,
    /// The validator of the options.
    pub(crate) validator: Option<Arc<Validator>>,
    /// Without `_id_`, whose entries are the documents themselves.
    pub(crate) indexes: Vec<Arc<CollectionIndex>>,
    next_index: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct CollectionIndex {
    pub(crate) id: IndexId,
    pub(crate) index: Index,
    /// Bit n is set if a document has, or had, an array on the path of field n. It is never cleared.
    pub(crate) multikey: u32,
    /// Whether the index has every document. Before that, writes keep it up to date and no query uses it.
    pub(crate) complete: bool,
}

impl CollectionIndex {
    pub(crate) fn spec(&self) -> &IndexSpec {
        self.index.spec()
    }
}

/// The number and bytes of a collection's documents, updated with every commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
}

/// All collections. A clone shares the unchanged parts, so the committer can make one for every operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    by_name: OrdMap<Namespace, Arc<Collection>>,
    next_collection: u32,
    counts: OrdMap<CollectionId, Counts>,
    /// The dropped collections and indexes whose keys are not removed yet.
    pub(crate) dropped: Vec<MetadataKey>,
}

impl Catalog {
    /// Reads the catalog of a view.
    pub(crate) fn load(view: &dyn View) -> Result<Self> {
        let mut catalog = Catalog { next_collection: 1, ..Catalog::default() };
        let next = MetadataKey::NextCollection.encode();
        if let Some(value) = view.get(Keyspace::Metadata, &next)? {
            catalog.next_collection = u32::from_le_bytes(sized(open_metadata(&next, &value)?)?);
        }
        for row in
            view.range(Keyspace::Metadata, prefix_range(MetadataKey::COLLECTIONS), crate::engine::Direction::Forward)
        {
            let (key, value) = row?;
            let collection = Collection::decode(&key, open_metadata(&key, &value)?)?;
            let counts = MetadataKey::Counts(collection.id).encode();
            if let Some(value) = view.get(Keyspace::Metadata, &counts)? {
                let counts = Counts::decode(open_metadata(&counts, &value)?)?;
                catalog.counts.insert(collection.id, counts);
            }
            catalog.by_name.insert(collection.namespace.clone(), Arc::new(collection));
        }
        for row in view.range(Keyspace::Metadata, prefix_range(MetadataKey::DROPPED), crate::engine::Direction::Forward)
        {
            let (key, value) = row?;
            open_metadata(&key, &value)?;
            let dropped = MetadataKey::decode_dropped(&key);
            catalog.dropped.push(dropped.ok_or_else(|| Error::Corrupt("a key of something dropped".to_owned()))?);
        }
        Ok(catalog)
    }

    pub(crate) fn get(&self, namespace: &Namespace) -> Option<&Arc<Collection>> {
        self.by_name.get(namespace)
    }

    pub(crate) fn by_id(&self, id: CollectionId) -> Option<&Arc<Collection>> {
        self.by_name.values().find(|collection| collection.id == id)
    }

    /// Returns all collections, sorted by name.
    pub(crate) fn collections(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.by_name.values()
    }

    /// Returns the collections of a database, sorted by name.
    pub(crate) fn database(&self, database: &str) -> impl Iterator<Item = &Arc<Collection>> {
        self.by_name.values().filter(move |collection| collection.namespace.database() == database)
    }

    pub(crate) fn counts(&self, id: CollectionId) -> Counts {
        self.counts.get(&id).copied().unwrap_or_default()
    }

    pub(crate) fn set_counts(&mut self, id: CollectionId, counts: Counts) {
        self.counts.insert(id, counts);
    }

    /// Returns the id of a new collection; `None` after four billion.
    pub(crate) fn take_collection_id(&mut self) -> Option<CollectionId> {
        let id = self.next_collection;
        self.next_collection = id.checked_add(1)?;
        Some(CollectionId(id))
    }

    pub(crate) fn next_collection_value(&self) -> Vec<u8> {
        metadata_value(&MetadataKey::NextCollection.encode(), &self.next_collection.to_le_bytes())
    }

    /// Puts a collection in, or its new state in place of the old.
    pub(crate) fn put(&mut self, collection: Arc<Collection>) {
        self.by_name.insert(collection.namespace.clone(), collection);
    }

    /// Takes a collection out.
    pub(crate) fn remove(&mut self, namespace: &Namespace) -> Option<Arc<Collection>> {
        let collection = self.by_name.remove(namespace)?;
        self.counts.remove(&collection.id);
        Some(collection)
    }

    /// Takes a name out: its collection gets another one.
    pub(crate) fn remove_name(&mut self, namespace: &Namespace) {
        self.by_name.remove(namespace);
    }
}

impl ViewCatalog for Catalog {
    fn options(&self, namespace: &Namespace) -> Option<&CollectionOptions> {
        self.get(namespace).map(|collection| &collection.options)
    }

    fn views(&self, database: &str) -> Vec<(&Namespace, &ViewDefinition)> {
        let of = self.database(database);
        of.filter_map(|collection| Some((&collection.namespace, collection.options.view.as_ref()?))).collect()
    }
}

impl Collection {
    /// Creates an empty collection.
    pub(crate) fn new(id: CollectionId, namespace: Namespace, uuid: [u8; 16]) -> Self {
        let options = CollectionOptions::default();
        Collection { id, namespace, uuid, options, validator: None, indexes: Vec::new(), next_index: 1 }
    }

    /// Sets the options.
    ///
    /// # Errors
    /// Returns the error of an invalid validator.
    pub(crate) fn set_options(&mut self, options: CollectionOptions) -> StoreResult<()> {
        self.validator = Validator::compile(&options)?;
        self.options = options;
        Ok(())
    }

    /// Definitions of all indexes, `_id_` first; those that are being built too if asked for.
    pub(crate) fn index_specs(&self) -> Vec<IndexSpec> {
        let mut specs = vec![IndexSpec::id()];
        specs.extend(self.indexes.iter().map(|index| index.spec().clone()));
        specs
    }

    /// Adds an index. It is complete at once only if the collection is empty.
    pub(crate) fn add_index(&mut self, index: Index, complete: bool) -> IndexId {
        let id = IndexId(self.next_index);
        self.next_index += 1;
        self.indexes.push(Arc::new(CollectionIndex { id, index, multikey: 0, complete }));
        id
    }

    /// Encodes the record of the metadata map.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("database"), self.namespace.database());
        document.append(cstr!("collection"), self.namespace.collection());
        let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: self.uuid.to_vec() };
        document.append(cstr!("uuid"), uuid);
        document.append(cstr!("nextIndex"), i64::from(self.next_index));
        let mut indexes = bson::RawArrayBuf::new();
        for index in &self.indexes {
            let mut entry = RawDocumentBuf::new();
            entry.append(cstr!("id"), i64::from(index.id.0));
            entry.append(cstr!("multikey"), i64::from(index.multikey));
            entry.append(cstr!("complete"), index.complete);
            entry.append(cstr!("spec"), index.spec().to_document());
            indexes.push(entry);
        }
        document.append(cstr!("indexes"), indexes);
        let options = self.options.to_document();
        if !options.is_empty() {
            document.append(cstr!("options"), options);
        }
        metadata_value(&MetadataKey::Collection(self.id).encode(), document.as_bytes())
    }

    fn decode(key: &[u8], content: &[u8]) -> Result<Self> {
        let wrong = |what: &str| Error::Corrupt(format!("the record of a collection: {what}"));
        let document = RawDocument::from_bytes(content).map_err(|_| wrong("no BSON"))?;
        let id = key.get(1..).and_then(|id| id.try_into().ok()).map(u32::from_be_bytes).ok_or_else(|| wrong("key"))?;
        let text = |field| document.get_str(field).map_err(|_| wrong(field));
        let namespace =
            Namespace::new(text("database")?, text("collection")?).map_err(|error| wrong(error.message()))?;
        let uuid = match document.get("uuid") {
            Ok(Some(RawBsonRef::Binary(binary))) => binary.bytes.try_into().map_err(|_| wrong("uuid"))?,
            _ => return Err(wrong("uuid")),
        };
        let mut collection = Collection::new(CollectionId(id), namespace, uuid);
        collection.next_index = number(document, "nextIndex").ok_or_else(|| wrong("nextIndex"))?;
        for entry in document.get_array("indexes").map_err(|_| wrong("indexes"))? {
            let Ok(RawBsonRef::Document(entry)) = entry else {
                return Err(wrong("indexes"));
            };
            let spec = entry.get_document("spec").map_err(|_| wrong("spec"))?;
            let index = IndexSpec::from_document(spec).and_then(Index::compile);
            collection.indexes.push(Arc::new(CollectionIndex {
                id: IndexId(number(entry, "id").ok_or_else(|| wrong("id"))?),
                index: index.map_err(|error| wrong(error.message()))?,
                multikey: number(entry, "multikey").ok_or_else(|| wrong("multikey"))?,
                complete: entry.get_bool("complete").map_err(|_| wrong("complete"))?,
            }));
        }
        if document.get("options").map_err(|_| wrong("options"))?.is_some() {
            let options = document.get_document("options").map_err(|_| wrong("options"))?;
            let set = CollectionOptions::from_document(options).and_then(|options| collection.set_options(options));
            set.map_err(|error| wrong(error.message()))?;
        }
        Ok(collection)
    }
}

fn number(document: &RawDocument, field: &str) -> Option<u32> {
    document.get_i64(field).ok().and_then(|number| u32::try_from(number).ok())
}

impl Counts {
    pub(crate) fn encode(self, id: CollectionId) -> Vec<u8> {
        let content = [self.documents.to_le_bytes(), self.bytes.to_le_bytes()].concat();
        metadata_value(&MetadataKey::Counts(id).encode(), &content)
    }

    fn decode(content: &[u8]) -> Result<Self> {
        let halves: [u8; 16] = sized(content)?;
        let (documents, bytes) = halves.split_at(8);
        Ok(Counts { documents: u64::from_le_bytes(sized(documents)?), bytes: u64::from_le_bytes(sized(bytes)?) })
    }
}

fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| Error::Corrupt("a metadata record has another length than it should".to_owned()))
}
