//! Several documents in one atomic step, for transactions: snapshots, and a commit in which the first committer wins.

use async_trait::async_trait;
use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::{Code, CompileOptions, Context, Filter};
use handfast_store::index::{Index, key_conflict};
use handfast_store::{
    AtomicBatch, AtomicStore, BatchWrite, Before, CommitTimestamp, Creation, Cursor, DocumentWrite,
    Error as StoreError, Find, Namespace, Read, Result as StoreResult, Snapshot as StoreSnapshot, insertion,
};

use super::indexes::add_to_catalog;
use super::judge::PATIENCE;
use super::ticketed::once;
use crate::committer::{Snapshot, Writer};
use crate::format::{CollectionId, StoredDocument, document_key};
use crate::keys;
use crate::store::EmbeddedStore;

struct OpenSnapshot {
    store: EmbeddedStore,
    snapshot: Snapshot,
}

#[async_trait]
impl StoreSnapshot for OpenSnapshot {
    fn timestamp(&self) -> CommitTimestamp {
        self.snapshot.timestamp()
    }

    async fn get(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> StoreResult<Option<RawDocumentBuf>> {
        self.store.get_at(&self.snapshot, namespace, id)
    }

    async fn find(&self, request: Find) -> StoreResult<Box<dyn Cursor>> {
        self.store.find_at(self.snapshot.clone(), &request)
    }

    fn is_unchanged(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> bool {
        let key = self.key(namespace, id);
        key.is_some_and(|key| self.store.shared().recent.is_unchanged(&key, self.snapshot.timestamp()))
    }
}

impl OpenSnapshot {
    /// A document's key; none if there is none that it could have.
    fn key(&self, namespace: &Namespace, id: RawBsonRef<'_>) -> Option<Vec<u8>> {
        let collection = self.store.collection(&self.snapshot, namespace)?;
        document_key(collection.id, &keys::of_id(id))
    }
}

#[async_trait]
impl AtomicStore for EmbeddedStore {
    async fn snapshot(&self) -> StoreResult<Box<dyn StoreSnapshot>> {
        Ok(Box::new(OpenSnapshot { store: self.clone(), snapshot: self.snapshot_now() }))
    }

    async fn commit(&self, mut batch: AtomicBatch) -> StoreResult<CommitTimestamp> {
        let reads = std::mem::take(&mut batch.reads).into_iter().map(|read| self.compile_read(read));
        let reads = reads.collect::<StoreResult<Vec<_>>>()?;
        let (uuid, ticketed) = (self.uuid(), self.ticketed(batch.ticket));
        let bytes = batch.writes.iter().map(|write| size(&write.write) + size_before(&write.before)).sum();
        let answer = batch.durability.into();
        let turn = move |writer: &mut Writer<'_>| once(writer, ticketed, |writer| commit(writer, &batch, &reads, uuid));
        self.inner.committer.submit(answer, bytes, turn).await
    }
}

fn size(write: &DocumentWrite) -> usize {
    match write {
        DocumentWrite::Put(document) => document.as_bytes().len(),
        DocumentWrite::Delete => 64,
    }
}

fn size_before(before: &Before) -> usize {
    match before {
        Before::Document(document) => document.as_bytes().len(),
        Before::Nothing | Before::Unread => 0,
    }
}

/// All or nothing: what is staged before an error is taken back with the operation.
fn commit(
    writer: &mut Writer<'_>,
    batch: &AtomicBatch,
    reads: &[Compiled],
    uuid: [u8; 16],
) -> StoreResult<CommitTimestamp> {
    // Removals first, so that a unique key can move from one document of the batch to another.
    let (deletes, puts): (Vec<_>, Vec<_>) = batch.writes.iter().partition(|write| write.is_delete());
    let mut budget = Budget { steps: writer.steps_max().saturating_mul(PATIENCE), bytes: CHECK_BYTES_MAX };
    for read in reads {
        check_read(writer, batch.read_at, read, &mut budget)?;
    }
    for creation in &batch.creations {
        create(writer, creation)?;
    }
    let deletes = before_all(writer, batch.read_at, deletes)?;
    let puts = before_all(writer, batch.read_at, puts)?;
    for (before, BatchWrite { namespace, id, .. }) in deletes {
        let Some(collection) = writer.collection(namespace) else { continue };
        let id_key = keys::of_id(id.as_raw_bson_ref());
        match before {
            Some(before) => writer.remove(&collection, &id_key, before.document()?)?,
            None => writer.remove_nothing(collection.id, &id_key)?,
        }
    }
    put_all(writer, batch.read_at, puts, uuid)?;
    Ok(writer.timestamp())
}

/// A document in its newest state.
enum Newest<'b> {
    /// As it was read before this turn.
    Known(&'b RawDocument),
    Read(StoredDocument),
}

impl Newest<'_> {
    fn document(&self) -> StoreResult<&RawDocument> {
        Ok(match self {
            Newest::Known(document) => document,
            Newest::Read(stored) => stored.document()?,
        })
    }
}

/// Each write with what is there before it, which is what the snapshot has: no document comes up twice.
fn before_all<'b>(
    writer: &Writer<'_>,
    read_at: CommitTimestamp,
    writes: Vec<&'b BatchWrite>,
) -> StoreResult<Vec<(Option<Newest<'b>>, &'b BatchWrite)>> {
    let before = |write: &'b BatchWrite| {
        let BatchWrite { namespace, id, before, .. } = write;
        Ok((newest(writer, read_at, namespace, id.as_raw_bson_ref(), before)?, write))
    };
    writes.into_iter().map(before).collect()
}

fn put_all(
    writer: &mut Writer<'_>,
    read_at: CommitTimestamp,
    puts: Vec<(Option<Newest<'_>>, &BatchWrite)>,
    uuid: [u8; 16],
) -> StoreResult<()> {
    // Unique keys may be swapped between documents of the batch: the entries that the batch gives up go first.
    let mut prepared = Vec::with_capacity(puts.len());
    for (before, BatchWrite { namespace, id, write, .. }) in puts {
        let DocumentWrite::Put(document) = write else {
            continue;
        };
        if keys::of_id(insertion::id(document)?) != keys::of_id(id.as_raw_bson_ref()) {
            let text = "the document of a batch has another _id than the batch says";
            return Err(StoreError::command(Code::BadValue, text));
        }
        insertion::check_id(id.as_raw_bson_ref())?;
        insertion::check_size(document)?;
        let collection = writer.ensure_collection(namespace, uuid)?;
        let id_key = keys::of_id(id.as_raw_bson_ref());
        writer.give_up_keys(&collection, &id_key, before.as_ref().map(Newest::document).transpose()?, document)?;
        prepared.push((namespace, id_key, before, document));
    }
    for (namespace, id_key, before, document) in prepared {
        let before = before.as_ref().map(Newest::document).transpose()?;
        let collection = writer.ensure_collection(namespace, uuid)?;
        writer.put(&collection, &id_key, before, document).or_else(|error| {
            let taken = error.code() == Code::DuplicateKey;
            if taken && writer.keys_were_taken_since(&collection, &id_key, document, read_at)? {
                return Err(key_conflict(&error));
            }
            Err(error)
        })?;
    }
    Ok(())
}

/// A read whose filter is compiled: that is not done while others wait.
enum Compiled {
    Document(Namespace, RawBson),
    Matching(Box<Search>),
}

struct Search {
    namespace: Namespace,
    filter: Filter,
    context: Context,
}

impl EmbeddedStore {
    fn compile_read(&self, read: Read) -> StoreResult<Compiled> {
        Ok(match read {
            Read::Document(namespace, id) => Compiled::Document(namespace, id),
            Read::Matching { namespace, filter, variables } => {
                let filter = Filter::compile(&filter, &CompileOptions::with_variables(&variables)?)?;
                let context = self.inner.sources.context(&variables);
                Compiled::Matching(Box::new(Search { namespace, filter, context }))
            }
        })
    }
}

/// Bytes of changed documents that one batch's filters are held against, in the committer's turn.
const CHECK_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the check of a batch's reads may still do while other writes wait. When it is used up, what was read counts as
/// changed: a conflict too many, never one too few.
struct Budget {
    /// Items of loops.
    steps: u64,
    bytes: usize,
}

fn check_read(
    writer: &mut Writer<'_>,
    read_at: CommitTimestamp,
    read: &Compiled,
    budget: &mut Budget,
) -> StoreResult<()> {
    let Search { namespace, filter, context } = match read {
        Compiled::Document(namespace, id) => {
            return check_unchanged(writer, read_at, namespace, id.as_raw_bson_ref());
        }
        Compiled::Matching(search) => &**search,
    };
    context.bound_steps(budget.steps);
    let matches = |document: &[u8]| {
        budget.bytes = budget.bytes.saturating_sub(document.len());
        let document = RawDocument::from_bytes(document).map_err(handfast_mql::Error::from)?;
        // A filter that fails for a document that changed would not give the same answer again.
        Ok(budget.bytes == 0 || filter.matches(document, context).unwrap_or(true))
    };
    let found = match writer.collection(namespace) {
        Some(collection) => writer.found_since(collection.id, read_at, matches),
        None => Ok(false),
    };
    budget.steps = context.bound_steps(u64::MAX);
    let changed = if budget.steps == 0 { true } else { found? };
    if changed || writer.dropped_since(namespace, read_at) {
        let text = format!("write conflict: what was read of {namespace} has been changed after the snapshot");
        return Err(StoreError::command(Code::WriteConflict, text));
    }
    Ok(())
}

fn create(writer: &mut Writer<'_>, creation: &Creation) -> StoreResult<()> {
    let namespace = &creation.namespace;
    if writer.collection(namespace).is_some() {
        let text = format!("write conflict: the collection {namespace} was made by somebody else meanwhile");
        return Err(StoreError::command(Code::WriteConflict, text));
    }
    let indexes = creation.indexes.iter().cloned().map(Index::compile).collect::<StoreResult<Vec<_>>>()?;
    add_to_catalog(writer, namespace, creation.uuid, indexes).map(|_| ())
}

/// A document in its newest state, which is the snapshot's.
///
/// # Errors
/// `WriteConflict` (112) if it has been changed since; `BadValue` for something else that is said to have been there.
fn newest<'b>(
    writer: &Writer<'_>,
    read_at: CommitTimestamp,
    namespace: &Namespace,
    id: RawBsonRef<'_>,
    known: &'b Before,
) -> StoreResult<Option<Newest<'b>>> {
    let Some(place) = place(writer, read_at, namespace, id)? else { return Ok(None) };
    let said = match known {
        Before::Unread => return place.read_again(writer, read_at),
        Before::Nothing => None,
        Before::Document(document) => Some(&***document),
    };
    if let Some(document) = said
        && keys::of_id(insertion::id(document)?) != place.id_key
    {
        let text = "a batch says that another document was in the place of one that it writes";
        return Err(StoreError::command(Code::BadValue, text));
    }
    if !place.is_unchanged(writer, read_at) {
        return place.read_again(writer, read_at);
    }
    if cfg!(debug_assertions) {
        let stored = place.read(writer, read_at)?;
        let said = said.map(RawDocument::as_bytes);
        assert_eq!(stored.as_ref().map(StoredDocument::bytes), said, "a batch says what was not there");
    }
    Ok(said.map(Newest::Known))
}

/// Whether a document is the one of a snapshot.
///
/// # Errors
/// `WriteConflict` (112) if it is not.
fn check_unchanged(
    writer: &Writer<'_>,
    read_at: CommitTimestamp,
    namespace: &Namespace,
    id: RawBsonRef<'_>,
) -> StoreResult<()> {
    match place(writer, read_at, namespace, id)? {
        Some(place) if !place.is_unchanged(writer, read_at) => place.read(writer, read_at).map(|_| ()),
        _ => Ok(()),
    }
}

/// Where a document is.
struct Place<'n> {
    namespace: &'n Namespace,
    collection: CollectionId,
    id_key: Vec<u8>,
}

/// None if there is no such collection, now or at the snapshot.
fn place<'n>(
    writer: &Writer<'_>,
    read_at: CommitTimestamp,
    namespace: &'n Namespace,
    id: RawBsonRef<'_>,
) -> StoreResult<Option<Place<'n>>> {
    if writer.dropped_since(namespace, read_at) {
        return Err(changed(namespace));
    }
    let collection = writer.collection(namespace);
    Ok(collection.map(|collection| Place { namespace, collection: collection.id, id_key: keys::of_id(id) }))
}

impl Place<'_> {
    fn is_unchanged(&self, writer: &Writer<'_>, read_at: CommitTimestamp) -> bool {
        writer.is_unchanged(self.collection, &self.id_key, read_at)
    }

    /// The long way, counted.
    fn read_again<'b>(&self, writer: &Writer<'_>, read_at: CommitTimestamp) -> StoreResult<Option<Newest<'b>>> {
        writer.count_read();
        self.read(writer, read_at).map(|stored| stored.map(Newest::Read))
    }

    fn read(&self, writer: &Writer<'_>, read_at: CommitTimestamp) -> StoreResult<Option<StoredDocument>> {
        let stored = writer.get(self.collection, &self.id_key)?;
        let is_changed = match &stored {
            Some(stored) => stored.timestamp > read_at,
            None => {
                let key = document_key(self.collection, &self.id_key);
                key.is_some_and(|key| writer.deleted_since(&key, read_at))
            }
        };
        if is_changed { Err(changed(self.namespace)) } else { Ok(stored) }
    }
}

fn changed(namespace: &Namespace) -> StoreError {
    let text = format!("write conflict: a document of {namespace} was changed after the snapshot");
    StoreError::command(Code::WriteConflict, text)
}
