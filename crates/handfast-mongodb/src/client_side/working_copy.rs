//! Copies the documents that a request may match into a store in memory.

use std::collections::BTreeMap;

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::key::encoded;
use handfast_mql::{Code, CompileOptions, Filter};
use handfast_store::selection::named_ids;
use handfast_store::{
    BatchLimit, CollectionOptions, CreateIndexes, Cursor, DocumentStore, Error, Find, Insert, MemoryStore, Namespace,
    Result, StoreExt, insertion,
};

use super::Inner;

/// The size limit of a copy, which is in memory while the request runs.
pub(super) const WORKING_COPY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The size of a page that is read from the server.
const STEP: BatchLimit = BatchLimit { documents: 1000, bytes: 16 * 1024 * 1024 };

/// A copy of the documents of a collection, or of some of them.
pub(super) struct WorkingCopy {
    pub(super) store: MemoryStore,
    namespace: Namespace,
}

/// Documents in the order of their encoded `_id`s.
pub(super) type Documents = BTreeMap<Vec<u8>, RawDocumentBuf>;

/// A change that has to be written back to the server.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// Inserts a new document.
    Insert(RawDocumentBuf),
    /// Replaces a document.
    Replace(RawDocumentBuf),
    /// Deletes the document with this `_id`.
    Delete(RawBson),
}

impl Inner {
    /// Copies a whole collection with its indexes. It exists in the copy if it does on the server.
    pub(super) async fn copy_collection(&self, namespace: &Namespace) -> Result<WorkingCopy> {
        let copy = WorkingCopy { store: MemoryStore::new(self.sources.clone()), namespace: namespace.clone() };
        let infos = self.direct.list_collections(namespace.database()).await?;
        if !infos.iter().any(|info| info.name == namespace.collection()) {
            return Ok(copy);
        }
        copy.store.create_collection(namespace, CollectionOptions::default()).await?;
        let indexes: Vec<_> = self.indexes(namespace).await?.iter().filter(|index| !index.is_id()).cloned().collect();
        if !indexes.is_empty() {
            copy.store.create_indexes(CreateIndexes { namespace: namespace.clone(), indexes }).await?;
        }
        copy.fill(self.direct.find(Find::new(namespace.clone(), RawDocumentBuf::new())).await?).await?;
        Ok(copy)
    }

    /// Copies the documents that a filter can match, without indexes.
    pub(super) async fn copy_matching(
        &self,
        namespace: &Namespace,
        filter: &RawDocument,
        variables: &RawDocument,
    ) -> Result<WorkingCopy> {
        let copy = WorkingCopy { store: MemoryStore::new(self.sources.clone()), namespace: namespace.clone() };
        let options = CompileOptions::with_variables(variables)?;
        let filter = Filter::compile(filter, &options)?;
        let context = self.sources.context(variables);
        let wanted = match named_ids(&filter.necessary_conditions(&context)) {
            Some(ids) if ids.is_empty() => return Ok(copy),
            Some(ids) if ids.iter().copied().all(is_plain) => by_ids(&ids),
            _ => RawDocumentBuf::new(),
        };
        copy.fill(self.direct.find(Find::new(namespace.clone(), wanted)).await?).await?;
        Ok(copy)
    }
}

impl WorkingCopy {
    async fn fill(&self, mut cursor: Box<dyn Cursor>) -> Result<()> {
        let mut bytes = 0_usize;
        loop {
            let page = cursor.next_page(STEP).await?;
            bytes += page.documents.iter().map(|document| document.as_bytes().len()).sum::<usize>();
            if bytes > WORKING_COPY_BYTES_MAX {
                let namespace = &self.namespace;
                let text = format!(
                    "{namespace} is larger than {WORKING_COPY_BYTES_MAX} bytes: too large to be evaluated in memory"
                );
                return Err(Error::command(Code::ExceededMemoryLimit, text));
            }
            let outcome = self.store.insert(Insert::new(self.namespace.clone(), page.documents)).await?;
            if let Some(refused) = outcome.errors.into_iter().next() {
                return Err(refused.error);
            }
            if page.exhausted {
                return Ok(());
            }
        }
    }

    /// Returns all documents of the copy.
    pub(super) async fn documents(&self) -> Result<Documents> {
        let all = self.store.find_all(Find::new(self.namespace.clone(), RawDocumentBuf::new())).await?;
        all.into_iter().map(|document| Ok((encoded(insertion::id(&document)?), document))).collect()
    }

    /// Returns the changes since these were the documents of the copy, in the order of `_id`s.
    pub(super) async fn changes_since(&self, mut before: Documents) -> Result<Vec<Change>> {
        let mut changes = BTreeMap::new();
        for (key, document) in self.documents().await? {
            match before.remove(&key) {
                None => drop(changes.insert(key, Change::Insert(document))),
                Some(old) if old != document => drop(changes.insert(key, Change::Replace(document))),
                Some(_) => {}
            }
        }
        for (key, document) in before {
            changes.insert(key, Change::Delete(insertion::id(&document)?.into()));
        }
        Ok(changes.into_values().collect())
    }
}

/// Returns whether every server finds a document by an `_id` of this type.
fn is_plain(id: RawBsonRef<'_>) -> bool {
    matches!(id, RawBsonRef::String(_) | RawBsonRef::ObjectId(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_))
}

/// Returns a filter for `_id`s that FerretDB 1 answers fastest: it reads the whole collection for any other.
fn by_ids(ids: &[RawBsonRef<'_>]) -> RawDocumentBuf {
    match *ids {
        [id] => by_id(id.into()),
        _ => rawdoc! { "_id": { "$in": ids.iter().copied().map(RawBson::from).collect::<RawArrayBuf>() } },
    }
}

/// Returns the filter for one `_id`.
pub(super) fn by_id(id: RawBson) -> RawDocumentBuf {
    match id {
        RawBson::Document(_) => rawdoc! { "_id": { "$eq": id } },
        id => rawdoc! { "_id": id },
    }
}
