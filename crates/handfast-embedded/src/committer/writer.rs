//! The access of a running operation to the store: it reads the newest state, and stages changes to it.
//!
//! A document and its entries in all indexes are staged together or not at all: everything that can be refused (a
//! unique key that is taken, an array under two fields of an index, a key that is too long) is checked before the
//! first byte is staged.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::change_stream::{is_logged, is_logged_database, record};
use handfast_store::index::duplicate_key;
use handfast_store::validation::{ExpensiveCheck, NewState, Verdict};
use handfast_store::{
    CollectionOptions, CommitTimestamp, Error as StoreError, IndexSpec, Namespace, Result as StoreResult, Ticket,
    Validation, WriteKind, insertion, view,
};
use xxhash_rust::xxh3::xxh3_64;

use super::State;
use super::change_log::{LogWriter, Records};
use super::staged::Lookup;
use crate::catalog::{Catalog, Collection, CollectionIndex, Counts};
use crate::engine::{Direction, Keyspace, prefix_range};
use crate::error::Error;
use crate::format::{
    ChangeLogState, CollectionId, IndexId, MetadataKey, StoredDocument, document_key, document_value, index_key,
    index_prefix, index_value, metadata_value, open_index_entry,
};
use crate::keys;

/// The newest state for one operation, and the changes that it stages.
pub(crate) struct Writer<'s> {
    state: &'s mut State,
    /// The timestamp of this operation's changes, once there is one.
    timestamp: Option<CommitTimestamp>,
    /// A failure of the engine after which nothing more may be written.
    pub(super) failure: Option<Error>,
    /// The records of the log of changes.
    pub(super) records: Records,
    checks: Checks,
}

/// The checks of validators in one operation.
struct Checks {
    /// The verdicts that were computed off thread for this operation, by the hashes of the documents.
    verdicts: HashMap<u64, Vec<Arc<Verdict>>>,
    /// The steps that checks may still take.
    steps_left: u64,
    /// The checks that need too many steps for the committer.
    expensive: Vec<ExpensiveCheck>,
}

/// The changes of one document's keys in all indexes, before its unique keys are checked.
pub(crate) struct KeyChanges(Vec<IndexChange>);

/// The changes of one document's keys in one index.
struct IndexChange {
    index: Arc<CollectionIndex>,
    added: Vec<Vec<u8>>,
    removed: Vec<Vec<u8>>,
    multikey: u32,
}

impl<'s> Writer<'s> {
    pub(super) fn new(state: &'s mut State) -> Self {
        let checks =
            Checks { verdicts: HashMap::new(), steps_left: state.options.turn_steps_max, expensive: Vec::new() };
        Writer { state, timestamp: None, failure: None, records: Records::default(), checks }
    }

    /// Returns the steps that an evaluation may take in an operation, while other operations wait.
    pub(crate) fn steps_max(&self) -> u64 {
        self.state.options.turn_steps_max
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.state.catalog
    }

    pub(crate) fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.state.catalog.get(namespace).cloned()
    }

    /// Returns the timestamp of the newest change before this operation.
    pub(crate) fn started_at(&self) -> CommitTimestamp {
        self.timestamp.map_or(self.state.timestamp, |own| CommitTimestamp(own.0 - 1))
    }

    /// Returns the timestamp of this operation's changes.
    pub(crate) fn timestamp(&mut self) -> CommitTimestamp {
        let next = CommitTimestamp(self.state.timestamp.0 + 1);
        let timestamp = *self.timestamp.get_or_insert(next);
        self.state.timestamp = timestamp;
        timestamp
    }

    /// Returns the timestamp of the last change of a collection since the store was opened, or 0.
    pub(crate) fn last_change(&self, collection: CollectionId) -> CommitTimestamp {
        self.state.changes.get(&collection).copied().unwrap_or_default()
    }

    /// Returns whether a document has certainly not changed after a timestamp, nor in this operation. `false` for timestamps after
    /// [`Writer::started_at`].
    pub(crate) fn is_unchanged(&self, collection: CollectionId, id_key: &[u8], since: CommitTimestamp) -> bool {
        let key = document_key(collection, id_key).filter(|_| since <= self.started_at());
        key.is_some_and(|key| self.state.shared.recent_changes.is_unchanged(&key, since))
    }

    /// Counts a document that an atomic batch reads again before it writes it.
    pub(crate) fn count_read(&self) {
        self.state.shared.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a document that does not exist now may have been deleted after a snapshot.
    pub(crate) fn deleted_since(&self, key: &[u8], snapshot: CommitTimestamp) -> bool {
        self.state.deletions.since(key, snapshot)
    }

    /// Returns whether a document that matches was changed, inserted or deleted in a collection after a snapshot. `true` if the
    /// log does not reach back so far.
    pub(crate) fn match_changed_since(
        &mut self,
        collection: CollectionId,
        snapshot: CommitTimestamp,
        matches: impl FnMut(&[u8]) -> StoreResult<bool>,
    ) -> StoreResult<bool> {
        self.state.read_log.start(self.state.timestamp);
        if self.last_change(collection) <= snapshot {
            return Ok(false);
        }
        Ok(self.state.read_log.any_since(snapshot, collection, matches)?.unwrap_or(true))
    }

    /// Returns whether the collection of this name was dropped, or got or lost the name, after a snapshot.
    pub(crate) fn dropped_since(&self, namespace: &Namespace, snapshot: CommitTimestamp) -> bool {
        self.state.deletions.namespace_since(namespace, snapshot)
    }

    /// Applies the staged writes of earlier operations of the group, and returns a view with them, for a search within this
    /// operation. This operation must not have staged anything yet.
    pub(crate) fn apply_staged(&mut self) -> StoreResult<Arc<dyn crate::engine::View>> {
        if let Err(error) = self.state.apply() {
            self.failure = Some(error.clone());
            return Err(error.into());
        }
        Ok(self.state.view.clone())
    }

    /// Returns the newest state of a document.
    pub(crate) fn get(&self, collection: CollectionId, id_key: &[u8]) -> StoreResult<Option<StoredDocument>> {
        let Some(key) = document_key(collection, id_key) else {
            return Ok(None);
        };
        let value = match self.state.staged.get(Keyspace::Documents, &key) {
            Lookup::Value(value) => Some(value.into()),
            Lookup::Removed => None,
            Lookup::NotStaged => self.state.view.get(Keyspace::Documents, &key)?,
        };
        let verify = self.state.shared.verify;
        Ok(value.map(|value| StoredDocument::open(&key, value, verify)).transpose()?)
    }

    /// Sets the verdicts of validators that were computed off thread.
    pub(crate) fn set_verdicts(&mut self, verdicts: Vec<Arc<Verdict>>) {
        self.checks.verdicts.clear();
        for verdict in verdicts {
            self.checks.verdicts.entry(xxh3_64(verdict.after().as_bytes())).or_default().push(verdict);
        }
    }

    /// Limits the steps of all checks from now on; an operation begins with [`Writer::steps_max`].
    pub(crate) fn bound_checks(&mut self, steps_max: u64) {
        self.checks.steps_left = steps_max;
    }

    /// Returns the steps that checks may still take.
    pub(crate) fn check_steps_left(&self) -> u64 {
        self.checks.steps_left
    }

    /// Returns the check that needs too many steps for the committer, if [`Writer::validate`] has failed for this reason. The caller
    /// computes it off thread, and repeats the operation with the verdict.
    pub(crate) fn take_expensive_check(&mut self) -> Option<Box<ExpensiveCheck>> {
        self.checks.expensive.pop().map(Box::new)
    }

    /// Returns the number of checks of the operation that need too many steps.
    pub(crate) fn expensive_checks(&self) -> usize {
        self.checks.expensive.len()
    }

    /// Returns all checks of the operation that need too many steps.
    pub(crate) fn take_expensive_checks(&mut self) -> Vec<ExpensiveCheck> {
        std::mem::take(&mut self.checks.expensive)
    }

    /// Checks a document's new state by the validator of its collection. `before` is its newest state.
    ///
    /// # Errors
    /// `DocumentValidationFailure` (121), the errors of the validator, and an error for a check that needs too many steps
    /// ([`Writer::take_expensive_check`]).
    pub(crate) fn validate(
        &mut self,
        collection: &Collection,
        before: Option<&RawDocument>,
        after: &RawDocument,
        validation: Validation,
    ) -> StoreResult<()> {
        let Some(validator) = &collection.validator else { return Ok(()) };
        let state = NewState { namespace: &collection.namespace, before, after, validation };
        let Checks { verdicts, steps_left, expensive } = &mut self.checks;
        let known = if verdicts.is_empty() { None } else { verdicts.get(&xxh3_64(after.as_bytes())) };
        if let Some(result) = known.into_iter().flatten().find_map(|verdict| verdict.on(validator, &state)) {
            return result;
        }
        let context = self.state.sources.context(&RawDocumentBuf::new());
        validator.check_within(steps_left, state, &context).unwrap_or_else(|| {
            expensive.push(validator.expensive(state));
            let text = "the validator of the collection takes too many steps, while other writes wait";
            Err(StoreError::command(Code::OperationFailed, text))
        })
    }

    /// Stages a document's new state. `before` is its newest state.
    ///
    /// # Errors
    /// `DuplicateKey` (11000), `CannotIndexParallelArrays` (171), a key that is too long. Nothing is staged then.
    pub(crate) fn put(
        &mut self,
        collection: &Arc<Collection>,
        id_key: &[u8],
        before: Option<&RawDocument>,
        after: &RawDocument,
        kind: WriteKind,
    ) -> StoreResult<()> {
        let changes = self.key_changes(collection, id_key, before, Some(after))?;
        self.put_with_keys(collection, id_key, before, after, kind, changes)
    }

    /// Stages a document's new state with these changes of its keys.
    ///
    /// # Errors
    /// `DuplicateKey` (11000). Nothing is staged then.
    pub(crate) fn put_with_keys(
        &mut self,
        collection: &Arc<Collection>,
        id_key: &[u8],
        before: Option<&RawDocument>,
        after: &RawDocument,
        kind: WriteKind,
        changes: KeyChanges,
    ) -> StoreResult<()> {
        let key = document_key(collection.id, id_key).ok_or_else(|| keys::too_long("_id", id_key.len()))?;
        self.check_unique(collection, id_key, after, &changes.0)?;
        let timestamp = self.timestamp();
        let value = document_value(&key, timestamp, after.as_bytes());
        self.state.shared.recent_changes.record(&key, timestamp);
        self.state.staged.write(Keyspace::Documents, key, Some(value));
        if let Some(before) = before {
            self.state.read_log.record(timestamp, collection.id, before.as_bytes());
        }
        self.state.read_log.record(timestamp, collection.id, after.as_bytes());
        self.stage_index_changes(collection, id_key, changes);
        self.count(collection.id, before, Some(after));
        self.log_document(collection, before, Some(after), kind);
        Ok(())
    }

    /// Stages a document's removal: `before` is its newest state.
    pub(crate) fn remove(
        &mut self,
        collection: &Arc<Collection>,
        id_key: &[u8],
        before: &RawDocument,
    ) -> StoreResult<()> {
        let key = document_key(collection.id, id_key).ok_or_else(|| keys::too_long("_id", id_key.len()))?;
        let changes = self.key_changes(collection, id_key, Some(before), None)?;
        self.record_deletion(&key);
        let timestamp = self.timestamp();
        self.state.read_log.record(timestamp, collection.id, before.as_bytes());
        self.state.staged.write(Keyspace::Documents, key, None);
        self.stage_index_changes(collection, id_key, changes);
        self.count(collection.id, Some(before), None);
        self.log_document(collection, Some(before), None, WriteKind::default());
        Ok(())
    }

    /// Adds a record of a document to the log of changes.
    fn log_document(
        &mut self,
        collection: &Collection,
        before: Option<&RawDocument>,
        after: Option<&RawDocument>,
        kind: WriteKind,
    ) {
        if self.state.log.is_none() || !is_logged(&collection.namespace) {
            return;
        }
        // A stored document has an `_id`.
        let Some(Ok(id)) = after.or(before).map(insertion::id) else { return };
        let states = record::States { before, after, kind, keeps_images: false };
        if let Some(content) = record::of_document(&collection.namespace, id, states) {
            self.records.add(collection.uuid, content);
        }
    }

    /// Adds a record of a change of the catalog to the log of changes, if it is on. The operation must change something.
    pub(crate) fn log_catalog(
        &mut self,
        collection: &Collection,
        content: impl FnOnce(&Collection) -> bson::RawDocumentBuf,
    ) {
        if self.state.log.is_some() && is_logged(&collection.namespace) {
            self.records.add(collection.uuid, content(collection));
        }
    }

    /// Adds a record of a dropped database to the log of changes.
    pub(crate) fn log_drop_database(&mut self, database: &str) {
        if self.state.log.is_some() && is_logged_database(database) {
            self.records.add([0; 16], record::of_drop_database(database));
        }
    }

    /// Sets the place of the next records among those of the operation.
    pub(crate) fn set_place(&mut self, place: u32) {
        self.records.place = place;
    }

    /// Sets the transaction whose changes the operation commits.
    pub(crate) fn set_transaction(&mut self, transaction: Option<Ticket>) {
        self.records.transaction = transaction;
    }

    /// Begins the log of changes, unless it is on.
    pub(crate) fn begin_log(&mut self, id: u64) {
        if self.state.log.is_none() {
            let since = self.timestamp();
            self.state.log = Some(LogWriter::begin(id, since, &mut self.state.staged, &self.state.sources));
        }
    }

    /// Ends the log of changes. Its records are removed later.
    pub(crate) fn end_log(&mut self) {
        if self.state.log.take().is_some() {
            self.timestamp();
            self.state.staged.write(Keyspace::Metadata, MetadataKey::ChangeLog.encode(), None);
        }
    }

    /// Ends a log that could not be read when the store was opened, so that nothing is logged.
    pub(crate) fn end_unread_log(&mut self) {
        if self.state.log.is_none() {
            self.timestamp();
            self.state.staged.write(Keyspace::Metadata, MetadataKey::ChangeLog.encode(), None);
        }
    }

    /// Removes the oldest records, and stages the new state of the log, unless another log was begun meanwhile, or another trim has
    /// removed more.
    pub(crate) fn trim_log(&mut self, keys: Vec<Vec<u8>>, state: Option<ChangeLogState>) {
        let is_newest = match (self.state.log, state) {
            (Some(log), Some(state)) => log.state.id == state.id && log.state.since <= state.since,
            (None, None) => true,
            _ => false,
        };
        if !is_newest {
            return;
        }
        self.remove_keys(Keyspace::Changes, keys);
        if let (Some(log), Some(state)) = (&mut self.state.log, state) {
            log.state = state;
            log.stage_state(&mut self.state.staged);
        }
    }

    /// Records the deletion of a document that only its own transaction had inserted: another transaction that writes it conflicts.
    pub(crate) fn record_deletion_of_absent(&mut self, collection: CollectionId, id_key: &[u8]) -> StoreResult<()> {
        let key = document_key(collection, id_key).ok_or_else(|| keys::too_long("_id", id_key.len()))?;
        self.record_deletion(&key);
        Ok(())
    }

    fn record_deletion(&mut self, key: &[u8]) {
        let timestamp = self.timestamp();
        self.state.deletions.record(key, timestamp);
        self.state.shared.recent_changes.record(key, timestamp);
    }

    /// Stages the entries of one document in one index that is being built.
    ///
    /// # Errors
    /// Returns the errors of [`Writer::put`].
    pub(crate) fn index_document(
        &mut self,
        collection: &Arc<Collection>,
        index: &Arc<CollectionIndex>,
        id_key: &[u8],
        document: &RawDocument,
    ) -> StoreResult<()> {
        let changes = KeyChanges(vec![self.index_change(collection, index, id_key, None, Some(document))?]);
        self.check_unique(collection, id_key, document, &changes.0)?;
        self.timestamp();
        self.stage_index_changes(collection, id_key, changes);
        Ok(())
    }

    /// Returns the changes of a document's keys, from one state to the next.
    ///
    /// # Errors
    /// `CannotIndexParallelArrays` (171), a key that is too long.
    pub(crate) fn key_changes(
        &self,
        collection: &Collection,
        id_key: &[u8],
        before: Option<&RawDocument>,
        after: Option<&RawDocument>,
    ) -> StoreResult<KeyChanges> {
        let indexes = collection.indexes.iter();
        let changes = indexes.map(|index| self.index_change(collection, index, id_key, before, after));
        changes.collect::<StoreResult<_>>().map(KeyChanges)
    }

    fn index_change(
        &self,
        collection: &Collection,
        index: &Arc<CollectionIndex>,
        id_key: &[u8],
        before: Option<&RawDocument>,
        after: Option<&RawDocument>,
    ) -> StoreResult<IndexChange> {
        // A stored document was indexed, so this does not fail.
        let old = before.map(|before| index.index.held(before)).transpose()?.unwrap_or_default();
        let new = after.map(|after| index.index.held(after)).transpose()?.unwrap_or_default();
        let multikey = new.multikey;
        // Most changes leave the fields of most indexes as they are.
        if old.tuples == new.tuples {
            return Ok(IndexChange { index: index.clone(), added: Vec::new(), removed: Vec::new(), multikey });
        }
        let (old, new) = (index.index.encoded(&old), index.index.encoded(&new));
        let added: Vec<Vec<u8>> = new.difference(&old).cloned().collect();
        let is_too_long = |encoded: &&Vec<u8>| index_key(collection.id, index.id, encoded, id_key).is_none();
        if let Some(encoded) = added.iter().find(is_too_long) {
            return Err(keys::too_long(&index.spec().name, encoded.len()));
        }
        let removed = old.difference(&new).cloned().collect();
        Ok(IndexChange { index: index.clone(), added, removed, multikey })
    }

    /// Checks the keys that a change adds to unique indexes.
    ///
    /// # Errors
    /// Returns `DuplicateKey` (11000) if another document has such a key.
    fn check_unique(
        &self,
        collection: &Collection,
        id_key: &[u8],
        after: &RawDocument,
        changes: &[IndexChange],
    ) -> StoreResult<()> {
        for IndexChange { index, added, .. } in changes.iter().filter(|change| change.index.spec().unique) {
            for encoded in added {
                if self.holder(collection, index.id, encoded, id_key)?.is_some() {
                    return Err(index.index.duplicate(&collection.namespace, after, encoded));
                }
            }
        }
        Ok(())
    }

    /// Returns the `_id` key of another document that has this key in a unique index.
    fn holder(
        &self,
        collection: &Collection,
        index: IndexId,
        encoded: &[u8],
        id_key: &[u8],
    ) -> StoreResult<Option<Vec<u8>>> {
        let prefix = [&index_prefix(collection.id, index)[..], encoded].concat();
        let verify = self.state.shared.verify;
        let other = |key: &[u8], value: &[u8]| -> StoreResult<Option<Vec<u8>>> {
            let (entry, entry_id) = open_index_entry(key, value, verify)?;
            Ok((entry == encoded && entry_id != id_key).then(|| entry_id.to_vec()))
        };
        for (key, value) in self.state.staged.with_prefix(Keyspace::Indexes, &prefix) {
            if let Some(value) = value
                && let Some(holder) = other(key, value)?
            {
                return Ok(Some(holder));
            }
        }
        for row in self.state.view.range(Keyspace::Indexes, prefix_range(&prefix), Direction::Forward) {
            let (key, value) = row?;
            let staged = self.state.staged.get(Keyspace::Indexes, &key);
            if matches!(staged, Lookup::NotStaged)
                && let Some(holder) = other(&key, &value)?
            {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    /// Returns whether each unique key that another document holds was taken, or its holder changed, after a snapshot and by
    /// another operation. A transaction with a later snapshot would have failed earlier with the duplicate key, or not at all.
    pub(crate) fn keys_were_taken_since(
        &mut self,
        collection: &Collection,
        id_key: &[u8],
        document: &RawDocument,
        snapshot: CommitTimestamp,
    ) -> StoreResult<bool> {
        let own = self.timestamp();
        for index in collection.indexes.iter().filter(|index| index.spec().unique) {
            for encoded in index.index.keys(document)?.keys {
                let Some(holder) = self.holder(collection, index.id, &encoded, id_key)? else { continue };
                let changed = self.get(collection.id, &holder)?.map(|stored| stored.timestamp);
                if !changed.is_some_and(|changed| changed > snapshot && changed != own) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn stage_index_changes(&mut self, collection: &Arc<Collection>, id_key: &[u8], changes: KeyChanges) {
        self.stage_removed_keys(collection, id_key, &changes);
        for change in changes.0 {
            for encoded in &change.added {
                if let Some(key) = index_key(collection.id, change.index.id, encoded, id_key) {
                    let value = index_value(&key, encoded);
                    self.state.staged.write(Keyspace::Indexes, key, Some(value));
                }
            }
            self.stage_multikey(&collection.namespace, change.index.id, change.multikey);
        }
    }

    /// Stages the removal of the keys that a document's new state no longer has. The document itself must be put in the same operation.
    pub(crate) fn stage_removed_keys(&mut self, collection: &Collection, id_key: &[u8], changes: &KeyChanges) {
        for change in &changes.0 {
            for encoded in &change.removed {
                if let Some(key) = index_key(collection.id, change.index.id, encoded, id_key) {
                    self.state.staged.write(Keyspace::Indexes, key, None);
                }
            }
        }
    }

    /// Stages that an index has keys from arrays, in the same batch as the first of them.
    fn stage_multikey(&mut self, namespace: &Namespace, index: IndexId, multikey: u32) {
        let Some(collection) = self.collection(namespace) else {
            return;
        };
        let Some(position) = collection.indexes.iter().position(|candidate| candidate.id == index) else {
            return;
        };
        if collection.indexes[position].multikey | multikey == collection.indexes[position].multikey {
            return;
        }
        let mut changed = Collection::clone(&collection);
        Arc::make_mut(&mut changed.indexes[position]).multikey |= multikey;
        self.put_collection(Arc::new(changed));
    }

    fn count(&mut self, collection: CollectionId, before: Option<&RawDocument>, after: Option<&RawDocument>) {
        let timestamp = self.timestamp();
        self.state.changes.insert(collection, timestamp);
        let counted = self.state.catalog.counts(collection);
        let mut counts = counted;
        if let Some(before) = before {
            counts.documents = counts.documents.saturating_sub(1);
            counts.bytes = counts.bytes.saturating_sub(before.as_bytes().len() as u64);
        }
        if let Some(after) = after {
            counts.documents += 1;
            counts.bytes += after.as_bytes().len() as u64;
        }
        // A change that keeps a document's size, such as that of a number, leaves the counts as they are.
        if counts != counted {
            self.set_counts(collection, counts);
        }
    }

    pub(crate) fn set_counts(&mut self, collection: CollectionId, counts: Counts) {
        Arc::make_mut(&mut self.state.catalog).set_counts(collection, counts);
        let key = MetadataKey::Counts(collection).encode();
        self.state.staged.write(Keyspace::Metadata, key, Some(counts.encode(collection)));
    }

    /// Returns the collection of this name, and stages its creation if it does not exist.
    pub(crate) fn ensure_collection(&mut self, namespace: &Namespace, uuid: [u8; 16]) -> StoreResult<Arc<Collection>> {
        if let Some(collection) = self.collection(namespace) {
            view::refuse(namespace, &collection.options)?;
            return Ok(collection);
        }
        let collection = self.add_collection(namespace, uuid, CollectionOptions::default())?;
        // A transaction applies its writes in another order than they were made in: the collection comes before all of them.
        let place = std::mem::take(&mut self.records.place);
        self.log_catalog(&collection, |collection| record::of_create(&collection.namespace));
        self.records.place = place;
        Ok(collection)
    }

    /// Stages a new view.
    ///
    /// # Errors
    /// Returns the errors of an invalid definition. Nothing is staged then.
    pub(crate) fn create_view(
        &mut self,
        namespace: &Namespace,
        uuid: [u8; 16],
        options: CollectionOptions,
    ) -> StoreResult<()> {
        view::check_definition(&*self.state.catalog, namespace, &options)?;
        let view = self.add_collection(namespace, uuid, options)?;
        self.log_catalog(&view, |view| record::of_view(&view.namespace, "create", Some(&view.options)));
        Ok(())
    }

    /// Stages a new collection or view whose name is free.
    fn add_collection(
        &mut self,
        namespace: &Namespace,
        uuid: [u8; 16],
        options: CollectionOptions,
    ) -> StoreResult<Arc<Collection>> {
        let catalog = Arc::make_mut(&mut self.state.catalog);
        let id = catalog.take_collection_id().ok_or_else(|| {
            StoreError::command(Code::IllegalOperation, "four billion collections have been created in this store")
        })?;
        let next = catalog.next_collection_value();
        self.state.staged.write(Keyspace::Metadata, MetadataKey::NextCollection.encode(), Some(next));
        let mut collection = Collection::new(id, namespace.clone(), uuid);
        collection.set_options(options)?;
        let collection = Arc::new(collection);
        self.put_collection(collection.clone());
        Ok(collection)
    }

    /// Stages the options of a collection.
    ///
    /// # Errors
    /// Returns the error of an invalid validator. Nothing is staged then.
    pub(crate) fn set_options(&mut self, collection: &Collection, options: CollectionOptions) -> StoreResult<()> {
        if collection.options == options {
            return Ok(());
        }
        let mut changed = Collection::clone(collection);
        changed.set_options(options)?;
        self.put_collection(Arc::new(changed));
        Ok(())
    }

    /// Stages a collection's new state.
    pub(crate) fn put_collection(&mut self, collection: Arc<Collection>) {
        self.timestamp();
        let key = MetadataKey::Collection(collection.id).encode();
        self.state.staged.write(Keyspace::Metadata, key, Some(collection.encode()));
        Arc::make_mut(&mut self.state.catalog).put(collection);
    }

    /// Stages a collection's new name. The documents under both names are others now, although none of them changed.
    pub(crate) fn rename_collection(&mut self, collection: &Collection, to: &Namespace) {
        let timestamp = self.timestamp();
        self.state.deletions.record_namespace(&collection.namespace, timestamp);
        self.state.deletions.record_namespace(to, timestamp);
        self.state.shared.recent_changes.record_everything(timestamp);
        let mut renamed = Collection::clone(collection);
        renamed.namespace = to.clone();
        Arc::make_mut(&mut self.state.catalog).remove_name(&collection.namespace);
        self.put_collection(Arc::new(renamed));
    }

    /// Stages the drop of a collection. Its keys are removed later; its number is not used again.
    pub(crate) fn drop_collection(&mut self, collection: &Collection) {
        let timestamp = self.timestamp();
        self.state.deletions.record_namespace(&collection.namespace, timestamp);
        self.state.shared.recent_changes.record_everything(timestamp);
        let id = collection.id;
        self.state.staged.write(Keyspace::Metadata, MetadataKey::Collection(id).encode(), None);
        self.state.staged.write(Keyspace::Metadata, MetadataKey::Counts(id).encode(), None);
        Arc::make_mut(&mut self.state.catalog).remove(&collection.namespace);
        self.stage_key_removal(MetadataKey::Dropped(id));
    }

    /// Stages that the keys of a dropped collection or index are to be removed.
    pub(crate) fn stage_key_removal(&mut self, dropped: MetadataKey) {
        let key = dropped.encode();
        let value = metadata_value(&key, &[]);
        self.state.staged.write(Keyspace::Metadata, key, Some(value));
        Arc::make_mut(&mut self.state.catalog).dropped.push(dropped);
    }

    /// Stages that all keys of a dropped collection or index are removed.
    pub(crate) fn end_key_removal(&mut self, dropped: MetadataKey) {
        self.timestamp();
        self.state.staged.write(Keyspace::Metadata, dropped.encode(), None);
        Arc::make_mut(&mut self.state.catalog).dropped.retain(|other| *other != dropped);
    }

    /// Stages the removal of keys of a dropped collection or index.
    pub(crate) fn remove_keys(&mut self, keyspace: Keyspace, keys: Vec<Vec<u8>>) {
        self.timestamp();
        for key in keys {
            self.state.staged.write(keyspace, key, None);
        }
    }
}

/// Returns the error of a second document with the same `_id`.
pub(crate) fn duplicate_id(namespace: &Namespace, id: RawBsonRef<'_>) -> StoreError {
    duplicate_key(namespace, &IndexSpec::id(), &[Some(id)])
}
