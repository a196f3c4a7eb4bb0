//! What a request may be about, in a store in memory.

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

/// The documents of an image at most: they are in memory as long as the request runs.
pub(super) const IMAGE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How much is read at a time.
const STEP: BatchLimit = BatchLimit { documents: 1000, bytes: 16 * 1024 * 1024 };

/// The documents of a collection, or some of them.
pub(super) struct Image {
    pub(super) store: MemoryStore,
    namespace: Namespace,
}

/// A document by its `_id`, in the order of `_id`s.
pub(super) type Documents = BTreeMap<Vec<u8>, RawDocumentBuf>;

/// What has to be written back.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// A document that was not there.
    New(RawDocumentBuf),
    /// One that is another now.
    Changed(RawDocumentBuf),
    /// The `_id` of one that is gone.
    Gone(RawBson),
}

impl Inner {
    /// The whole collection with its indexes; it exists in the image if it does on the server.
    pub(super) async fn whole(&self, namespace: &Namespace) -> Result<Image> {
        let image = Image { store: MemoryStore::new(self.sources.clone()), namespace: namespace.clone() };
        let infos = self.direct.list_collections(namespace.database()).await?;
        if !infos.iter().any(|info| info.name == namespace.collection()) {
            return Ok(image);
        }
        image.store.create_collection(namespace, CollectionOptions::default()).await?;
        let indexes: Vec<_> = self.indexes(namespace).await?.iter().filter(|index| !index.is_id()).cloned().collect();
        if !indexes.is_empty() {
            image.store.create_indexes(CreateIndexes { namespace: namespace.clone(), indexes }).await?;
        }
        image.fill(self.direct.find(Find::new(namespace.clone(), RawDocumentBuf::new())).await?).await?;
        Ok(image)
    }

    /// The documents that a filter can match, without indexes.
    pub(super) async fn of_filter(
        &self,
        namespace: &Namespace,
        filter: &RawDocument,
        variables: &RawDocument,
    ) -> Result<Image> {
        let image = Image { store: MemoryStore::new(self.sources.clone()), namespace: namespace.clone() };
        let options = CompileOptions::with_variables(variables)?;
        let wanted = match named_ids(&Filter::compile(filter, &options)?) {
            Some(ids) if ids.is_empty() => return Ok(image),
            Some(ids) if ids.iter().copied().all(is_plain) => by_ids(&ids),
            _ => RawDocumentBuf::new(),
        };
        image.fill(self.direct.find(Find::new(namespace.clone(), wanted)).await?).await?;
        Ok(image)
    }
}

impl Image {
    async fn fill(&self, mut cursor: Box<dyn Cursor>) -> Result<()> {
        let mut bytes = 0_usize;
        loop {
            let page = cursor.next_page(STEP).await?;
            bytes += page.documents.iter().map(|document| document.as_bytes().len()).sum::<usize>();
            if bytes > IMAGE_BYTES_MAX {
                let namespace = &self.namespace;
                let text =
                    format!("{namespace} is larger than {IMAGE_BYTES_MAX} bytes: too large to be judged in memory");
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

    /// All its documents.
    pub(super) async fn documents(&self) -> Result<Documents> {
        let all = self.store.find_all(Find::new(self.namespace.clone(), RawDocumentBuf::new())).await?;
        all.into_iter().map(|document| Ok((encoded(insertion::id(&document)?), document))).collect()
    }

    /// What has changed since these were its documents, in the order of `_id`s.
    pub(super) async fn changes_since(&self, mut before: Documents) -> Result<Vec<Change>> {
        let mut changes = BTreeMap::new();
        for (key, document) in self.documents().await? {
            match before.remove(&key) {
                None => drop(changes.insert(key, Change::New(document))),
                Some(old) if old != document => drop(changes.insert(key, Change::Changed(document))),
                Some(_) => {}
            }
        }
        for (key, document) in before {
            changes.insert(key, Change::Gone(insertion::id(&document)?.into()));
        }
        Ok(changes.into_values().collect())
    }
}

/// Whether any server finds a document by such an `_id`.
fn is_plain(id: RawBsonRef<'_>) -> bool {
    matches!(id, RawBsonRef::String(_) | RawBsonRef::ObjectId(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_))
}

/// The filter that such servers find a document by fastest: FerretDB 1 reads the whole collection for any other.
fn by_ids(ids: &[RawBsonRef<'_>]) -> RawDocumentBuf {
    match *ids {
        [id] => by_id(id.into()),
        _ => rawdoc! { "_id": { "$in": ids.iter().copied().map(RawBson::from).collect::<RawArrayBuf>() } },
    }
}

/// The filter for one `_id`.
pub(super) fn by_id(id: RawBson) -> RawDocumentBuf {
    match id {
        RawBson::Document(_) => rawdoc! { "_id": { "$eq": id } },
        id => rawdoc! { "_id": id },
    }
}
