//! Commits the writes of a transaction in one operation, in which the first committer wins.

use std::sync::{Arc, Mutex, PoisonError};

use bson::{RawBson, RawBsonRef, RawDocument};
use handfast_mql::{Code, CompileOptions, Context, Filter};
use handfast_store::index::{Index, key_conflict};
use handfast_store::validation::{ExpensiveCheck, Verdict};
use handfast_store::{
    AtomicBatch, BatchWrite, Before, CommitTimestamp, Creation, DocumentWrite, Error as StoreError, Namespace, Read,
    Result as StoreResult, default_collation, insertion,
};

use super::context::WriteContext;
use super::evaluation::MANY_STEPS_FACTOR;
use super::indexes::add_to_catalog;
use super::ticketed::once_per_ticket;
use crate::committer::Writer;
use crate::format::{CollectionId, StoredDocument, document_key};
use crate::keys;

/// Verdicts of validators on states of documents that others change before the next operation.
const SPARE_VERDICTS: usize = 16;

/// Commits a batch in one operation. If validators take too long for it, the operation is repeated with their verdicts.
pub(crate) async fn commit(context: &WriteContext, mut batch: AtomicBatch) -> StoreResult<CommitTimestamp> {
    let reads = std::mem::take(&mut batch.reads).into_iter().map(|read| compile_read(context, read));
    let reads = reads.collect::<StoreResult<Vec<_>>>()?;
    let (uuid, ticketed) = (context.new_uuid(), context.ticketed(batch.ticket));
    let bytes = batch.writes.iter().map(|write| size(&write.write) + size_before(&write.before)).sum();
    let answer = batch.durability.into();
    // One for each write, and some for documents that others change meanwhile.
    let verdicts_max = batch.writes.len() + SPARE_VERDICTS;
    let (batch, reads) = (Arc::new(batch), Arc::new(reads));
    let mut verdicts: Vec<Arc<Verdict>> = Vec::new();
    loop {
        let expensive: Arc<Mutex<Vec<ExpensiveCheck>>> = Arc::default();
        let (batch, reads, known, found) = (batch.clone(), reads.clone(), verdicts.clone(), expensive.clone());
        let operation = move |writer: &mut Writer<'_>| {
            writer.set_verdicts(known);
            let done = once_per_ticket(writer, ticketed, |writer| {
                writer.set_transaction(batch.ticket);
                stage_batch(writer, &batch, &reads, uuid)
            });
            *found.lock().unwrap_or_else(PoisonError::into_inner) = writer.take_expensive_checks();
            done
        };
        let done = context.committer.submit(answer, bytes, operation).await;
        let expensive = std::mem::take(&mut *expensive.lock().unwrap_or_else(PoisonError::into_inner));
        if expensive.is_empty() || verdicts.len() + expensive.len() > verdicts_max {
            return done;
        }
        // All of it was rolled back: the next operation has the verdicts of the validators, or other documents in their place.
        for check in expensive {
            verdicts.push(Arc::new(check.run(&context.sources).await?));
        }
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

/// Stages all of the batch; an error rolls back the operation.
fn stage_batch(
    writer: &mut Writer<'_>,
    batch: &AtomicBatch,
    reads: &[CompiledRead],
    uuid: [u8; 16],
) -> StoreResult<CommitTimestamp> {
    // Removals first, so that a unique key can move from one document of the batch to another.
    let (deletes, puts): (Vec<_>, Vec<_>) = batch.writes.iter().partition(|write| write.is_delete());
    let mut budget =
        CheckBudget { steps: writer.steps_max().saturating_mul(MANY_STEPS_FACTOR), bytes: CHECK_BYTES_MAX };
    for read in reads {
        check_read(writer, batch.read_at, read, &mut budget)?;
    }
    for creation in &batch.creations {
        create(writer, creation)?;
    }
    let deletes = prepare_all(writer, batch.read_at, deletes)?;
    let puts = prepare_all(writer, batch.read_at, puts)?;
    for Prepared { id_key, before, write: BatchWrite { namespace, place, .. } } in deletes {
        let Some(collection) = writer.collection(namespace) else { continue };
        writer.set_place(*place);
        match before {
            Some(before) => writer.remove(&collection, &id_key, before.document()?)?,
            None => writer.record_deletion_of_absent(collection.id, &id_key)?,
        }
    }
    put_all(writer, batch.read_at, puts, uuid)?;
    Ok(writer.timestamp())
}

/// A document in its newest state.
enum Newest<'b> {
    /// The state that the batch says, which has not changed since.
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

/// A write, with the key and the newest state of its document, which is the snapshot's: no document of a batch is written twice.
struct Prepared<'b> {
    id_key: Vec<u8>,
    before: Option<Newest<'b>>,
    write: &'b BatchWrite,
}

fn prepare_all<'b>(
    writer: &Writer<'_>,
    read_at: CommitTimestamp,
    writes: Vec<&'b BatchWrite>,
) -> StoreResult<Vec<Prepared<'b>>> {
    let prepare = |write: &'b BatchWrite| {
        let id_key = keys::of_id(write.id.as_raw_bson_ref());
        Ok(Prepared { before: newest(writer, read_at, write, &id_key)?, id_key, write })
    };
    writes.into_iter().map(prepare).collect()
}

/// Checks all documents of the batch. Validators that need too many steps are told all together, as each repetition of the batch costs as
/// much as the batch.
fn validate_all(writer: &mut Writer<'_>, puts: &[Prepared<'_>], uuid: [u8; 16]) -> StoreResult<()> {
    // Cheap checks are free. Those that are cut use up a budget, after which others are cut earlier.
    let (mut cuts_left, mut too_expensive) = (MANY_STEPS_FACTOR, None);
    for Prepared { id_key, before, write } in puts {
        let BatchWrite { namespace, id, write: DocumentWrite::Put(document), validation, .. } = write else {
            continue;
        };
        if !has_id(document, id.as_raw_bson_ref(), id_key)? {
            let text = "the document of a batch has another _id than the batch says";
            return Err(StoreError::command(Code::BadValue, text));
        }
        insertion::check_id(id.as_raw_bson_ref())?;
        insertion::check_size(document)?;
        let collection = writer.ensure_collection(namespace, uuid)?;
        let old = before.as_ref().map(Newest::document).transpose()?;
        let steps_max = if cuts_left > 0 { writer.steps_max() } else { writer.steps_max() / MANY_STEPS_FACTOR };
        let expensive_before = writer.expensive_checks();
        writer.bound_checks(steps_max);
        match writer.validate(&collection, old, document, *validation) {
            Err(error) if writer.expensive_checks() > expensive_before => {
                cuts_left = cuts_left.saturating_sub(1);
                too_expensive = Some(error);
            }
            checked => checked?,
        }
    }
    too_expensive.map_or(Ok(()), Err)
}

fn put_all(
    writer: &mut Writer<'_>,
    read_at: CommitTimestamp,
    puts: Vec<Prepared<'_>>,
    uuid: [u8; 16],
) -> StoreResult<()> {
    validate_all(writer, &puts, uuid)?;
    // Documents of the batch may swap unique keys: the entries that the batch no longer needs are removed first.
    let mut prepared = Vec::with_capacity(puts.len());
    for Prepared { id_key, before, write } in puts {
        let BatchWrite { namespace, write: DocumentWrite::Put(document), .. } = write else { continue };
        let collection = writer.ensure_collection(namespace, uuid)?;
        let old = before.as_ref().map(Newest::document).transpose()?;
        let changes = writer.key_changes(&collection, &id_key, old, Some(document))?;
        writer.stage_removed_keys(&collection, &id_key, &changes);
        prepared.push((write, id_key, before, document, changes));
    }
    for (BatchWrite { namespace, place, kind, .. }, id_key, before, document, changes) in prepared {
        writer.set_place(*place);
        let before = before.as_ref().map(Newest::document).transpose()?;
        let collection = writer.ensure_collection(namespace, uuid)?;
        writer.put_with_keys(&collection, &id_key, before, document, *kind, changes).or_else(|error| {
            let taken = error.code() == Code::DuplicateKey;
            if taken && writer.keys_were_taken_since(&collection, &id_key, document, read_at)? {
                return Err(key_conflict(&error));
            }
            Err(error)
        })?;
    }
    Ok(())
}

/// A read whose filter is compiled beside the committer.
enum CompiledRead {
    Document(Namespace, RawBson),
    Matching(Box<CompiledFilter>),
}

struct CompiledFilter {
    namespace: Namespace,
    filter: Filter,
    context: Context,
}

fn compile_read(context: &WriteContext, read: Read) -> StoreResult<CompiledRead> {
    Ok(match read {
        Read::Document(namespace, id) => CompiledRead::Document(namespace, id),
        Read::Matching { namespace, filter, variables } => {
            let filter = Filter::compile(&filter, &CompileOptions::with_variables(&variables)?)?;
            let context = context.sources.context(&variables);
            CompiledRead::Matching(Box::new(CompiledFilter { namespace, filter, context }))
        }
    })
}

/// Bytes of changed documents that the check of one batch compares with its filters, while other writes wait.
const CHECK_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The work that the check of a batch's reads may still do while other writes wait. When it is used up, the reads count as
/// changed: a conflict may be unnecessary; none is missed.
struct CheckBudget {
    /// Items of loops.
    steps: u64,
    bytes: usize,
}

fn check_read(
    writer: &mut Writer<'_>,
    read_at: CommitTimestamp,
    read: &CompiledRead,
    budget: &mut CheckBudget,
) -> StoreResult<()> {
    let CompiledFilter { namespace, filter, context } = match read {
        CompiledRead::Document(namespace, id) => {
            return check_unchanged(writer, read_at, namespace, id.as_raw_bson_ref());
        }
        CompiledRead::Matching(compiled) => &**compiled,
    };
    context.bound_steps(budget.steps);
    let matches = |document: &[u8]| {
        budget.bytes = budget.bytes.saturating_sub(document.len());
        let document = RawDocument::from_bytes(document).map_err(handfast_mql::Error::from)?;
        // A filter that fails for a changed document would not give the same result again.
        Ok(budget.bytes == 0 || filter.matches(document, context).unwrap_or(true))
    };
    let found = match writer.collection(namespace) {
        Some(collection) => writer.match_changed_since(collection.id, read_at, matches),
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
        let text = format!("write conflict: the collection {namespace} was created by another client meanwhile");
        return Err(StoreError::command(Code::WriteConflict, text));
    }
    let default = creation.options.collation.as_ref();
    let compile = |spec| default_collation::of_index(spec, default).and_then(Index::compile);
    let indexes = creation.indexes.iter().cloned().map(compile).collect::<StoreResult<Vec<_>>>()?;
    add_to_catalog(writer, namespace, creation.uuid, indexes)?;
    let collection = writer.ensure_collection(namespace, creation.uuid)?;
    writer.set_options(&collection, creation.options.clone())
}

/// Returns whether a document has this `_id`, whose key is given. Equal bytes need no key to be compared.
fn has_id(document: &RawDocument, id: RawBsonRef<'_>, id_key: &[u8]) -> StoreResult<bool> {
    let own = insertion::id(document)?;
    Ok(own == id || keys::of_id(own) == id_key)
}

/// Returns the document of a write in its newest state, which is the snapshot's.
///
/// # Errors
/// `WriteConflict` (112) if the document has changed since; `BadValue` (2) if the batch says that it was another document.
fn newest<'b>(
    writer: &Writer<'_>,
    read_at: CommitTimestamp,
    BatchWrite { namespace, id, before, .. }: &'b BatchWrite,
    id_key: &[u8],
) -> StoreResult<Option<Newest<'b>>> {
    let Some(key) = document_key_of(writer, read_at, namespace, id_key)? else { return Ok(None) };
    let said = match before {
        Before::Unread => return key.read_again(writer, read_at),
        Before::Nothing => None,
        Before::Document(document) => Some(&***document),
    };
    if let Some(document) = said
        && !has_id(document, id.as_raw_bson_ref(), id_key)?
    {
        let text = "a batch says that another document was in the place of one that it writes";
        return Err(StoreError::command(Code::BadValue, text));
    }
    if !key.is_unchanged(writer, read_at) {
        return key.read_again(writer, read_at);
    }
    if cfg!(debug_assertions) {
        let stored = key.read(writer, read_at)?;
        let said = said.map(RawDocument::as_bytes);
        assert_eq!(stored.as_ref().map(StoredDocument::bytes), said, "a batch says what was not there");
    }
    Ok(said.map(Newest::Known))
}

/// Fails with `WriteConflict` (112) if a document has changed after a snapshot.
fn check_unchanged(
    writer: &Writer<'_>,
    read_at: CommitTimestamp,
    namespace: &Namespace,
    id: RawBsonRef<'_>,
) -> StoreResult<()> {
    match document_key_of(writer, read_at, namespace, &keys::of_id(id))? {
        Some(key) if !key.is_unchanged(writer, read_at) => key.read(writer, read_at).map(|_| ()),
        _ => Ok(()),
    }
}

/// The key of a document of a collection.
struct DocumentKey<'n> {
    namespace: &'n Namespace,
    collection: CollectionId,
    id_key: &'n [u8],
}

/// Returns the key of a document; `None` if the collection exists neither now nor at the snapshot.
///
/// # Errors
/// `WriteConflict` (112) if the collection was dropped or renamed after the snapshot.
fn document_key_of<'n>(
    writer: &Writer<'_>,
    read_at: CommitTimestamp,
    namespace: &'n Namespace,
    id_key: &'n [u8],
) -> StoreResult<Option<DocumentKey<'n>>> {
    if writer.dropped_since(namespace, read_at) {
        return Err(changed(namespace));
    }
    let collection = writer.collection(namespace);
    Ok(collection.map(|collection| DocumentKey { namespace, collection: collection.id, id_key }))
}

impl DocumentKey<'_> {
    fn is_unchanged(&self, writer: &Writer<'_>, read_at: CommitTimestamp) -> bool {
        writer.is_unchanged(self.collection, self.id_key, read_at)
    }

    /// Reads the document on the committer, and counts that.
    fn read_again<'b>(&self, writer: &Writer<'_>, read_at: CommitTimestamp) -> StoreResult<Option<Newest<'b>>> {
        writer.count_read();
        self.read(writer, read_at).map(|stored| stored.map(Newest::Read))
    }

    fn read(&self, writer: &Writer<'_>, read_at: CommitTimestamp) -> StoreResult<Option<StoredDocument>> {
        let stored = writer.get(self.collection, self.id_key)?;
        let is_changed = match &stored {
            Some(stored) => stored.timestamp > read_at,
            None => {
                let key = document_key(self.collection, self.id_key);
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
