//! Checks every record.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use bson::RawDocument;
use handfast_store::Namespace;

use super::{CheckReport, Progress, Remedy};
use crate::catalog::{Catalog, Collection, CollectionIndex};
use crate::engine::{Direction, Keyspace, Remaining, SalvageItem, SalvageScan, View, prefix_range};
use crate::format::{
    CollectionId, IndexId, MetadataKey, StoredDocument, Verify, collection_prefix, describe, document_key, index_key,
    index_prefix, open_index_entry,
};
use crate::{keys, salvage};

/// Records between two reports of progress.
const PROGRESS_RECORDS: u64 = 1_000;

/// Receives the progress, and may stop the check.
type OnProgress<'p> = &'p mut dyn FnMut(&Progress) -> ControlFlow<()>;

struct RecordCheck<'s> {
    view: &'s dyn View,
    report: &'s mut CheckReport,
    on_progress: OnProgress<'s>,
    stopped: bool,
    progress: Progress,
    /// Indexes of the collection in which an entry could not be looked up, with the reason.
    failed_lookups: BTreeMap<IndexId, String>,
}

/// Checks all collections of a catalog.
pub(super) fn check_all(view: &dyn View, catalog: &Catalog, report: &mut CheckReport, on_progress: OnProgress<'_>) {
    let expected = catalog.collections().map(|collection| {
        let documents = catalog.counts(collection.id).documents;
        documents * (1 + collection.indexes.len() as u64)
    });
    let progress = Progress { records_expected: expected.sum(), ..Progress::default() };
    let mut check = RecordCheck::new(view, report, on_progress, progress);
    for collection in catalog.collections() {
        check.collection(collection, catalog);
    }
    check.keys_of_no_collection(catalog);
    let _ = (check.on_progress)(&check.progress);
}

/// Checks one collection, and returns the number of entries of each complete index. Stopped early, it has not checked all.
pub(super) fn check_one(
    view: &dyn View,
    catalog: &Catalog,
    collection: &Collection,
    report: &mut CheckReport,
    on_progress: OnProgress<'_>,
) -> Vec<u64> {
    RecordCheck::new(view, report, on_progress, Progress::default()).collection(collection, catalog)
}

impl<'s> RecordCheck<'s> {
    fn new(view: &'s dyn View, report: &'s mut CheckReport, on_progress: OnProgress<'s>, progress: Progress) -> Self {
        RecordCheck { view, report, on_progress, stopped: false, progress, failed_lookups: BTreeMap::new() }
    }

    /// Returns the number of entries of each complete index.
    fn collection(&mut self, collection: &Collection, catalog: &Catalog) -> Vec<u64> {
        self.report.collections += 1;
        self.progress.stage = collection.namespace.to_string();
        self.failed_lookups.clear();
        self.documents(collection, catalog);
        let mut counts = Vec::new();
        for index in collection.indexes.iter().filter(|index| index.complete) {
            let before = self.report.entries;
            self.entries(collection, index);
            counts.push(self.report.entries - before);
        }
        counts
    }

    /// Counts a record, and returns whether the check continues.
    fn step(&mut self) -> bool {
        self.progress.records += 1;
        if self.progress.records.is_multiple_of(PROGRESS_RECORDS) && !self.stopped {
            self.stopped = (self.on_progress)(&self.progress).is_break();
        }
        !self.stopped
    }

    fn documents(&mut self, collection: &Collection, catalog: &Catalog) {
        let namespace = &collection.namespace;
        let (mut documents, mut bytes, mut undamaged) = (0, 0, 0);
        let range = prefix_range(&collection_prefix(collection.id));
        for item in SalvageScan::new(self.view, Remaining::new(Keyspace::Documents, range)) {
            if !self.step() {
                return;
            }
            let (key, value) = match item {
                SalvageItem::Row(key, value) => (key, value),
                SalvageItem::Unreadable(keys) => {
                    let text = format!("{namespace}: {}", salvage::describe(self.view, &keys));
                    self.report.add(Remedy::None, text);
                    self.report.mark_unreadable(namespace);
                    continue;
                }
            };
            documents += 1;
            match StoredDocument::open(&key, value, Verify::Checksums) {
                Ok(stored) => {
                    undamaged += 1;
                    bytes += stored.bytes().len() as u64;
                    self.document(collection, &key, &stored);
                }
                Err(error) => {
                    self.report.add(Remedy::None, error.in_collection(namespace).description());
                    self.report.mark_unreadable(namespace);
                }
            }
        }
        self.report.documents += documents;
        let counted = catalog.counts(collection.id);
        if self.report.unreadable.contains(namespace) {
            let text = format!("{namespace}: {undamaged} of {} documents can be read", counted.documents);
            self.report.add(Remedy::None, text);
        } else if (counted.documents, counted.bytes) != (documents, bytes) {
            let text = format!(
                "{namespace}: {} documents of {} bytes were counted, there are {documents} of {bytes}",
                counted.documents, counted.bytes
            );
            self.report.add(Remedy::Count(namespace.clone()), text);
        }
    }

    fn document(&mut self, collection: &Collection, key: &[u8], stored: &StoredDocument) {
        let Ok(document) = stored.document() else {
            return;
        };
        match keys::of_document_id(document) {
            Ok(id_key) if id_key == key[4..] => {}
            _ => {
                let text =
                    format!("{}: {} holds another _id", collection.namespace, describe(Keyspace::Documents, key));
                self.report.add(Remedy::None, text);
            }
        }
        for index in collection.indexes.iter().filter(|index| index.complete) {
            self.document_in_index(collection, index, &key[4..], document);
        }
    }

    fn document_in_index(
        &mut self,
        collection: &Collection,
        index: &CollectionIndex,
        id_key: &[u8],
        document: &RawDocument,
    ) {
        let held = match index.index.keys(document) {
            Ok(held) => held,
            Err(error) => {
                let text = format!("a document cannot be indexed: {error}");
                return self.index_finding(&collection.namespace, index, &text);
            }
        };
        if held.multikey | index.multikey != index.multikey {
            self.index_finding(&collection.namespace, index, "it has keys from arrays, and is not marked as multikey");
        }
        for encoded in held.keys {
            let Some(key) = index_key(collection.id, index.id, &encoded, id_key) else {
                continue;
            };
            match self.view.get(Keyspace::Indexes, &key) {
                // Its value is checked with the entries.
                Ok(Some(_)) => {}
                Ok(None) => {
                    let text = format!("an entry is missing: {}", describe(Keyspace::Indexes, &key));
                    self.index_finding(&collection.namespace, index, &text);
                }
                // The scan of the entries finds this damage, unless it can read all of them.
                Err(error) => {
                    self.failed_lookups.entry(index.id).or_insert(error.description());
                }
            }
        }
    }

    fn index_finding(&mut self, namespace: &Namespace, index: &CollectionIndex, text: &str) {
        let name = &index.spec().name;
        let remedy = Remedy::BuildIndex(namespace.clone(), name.clone());
        self.report.add(remedy, format!("index {name} of {namespace}: {text}"));
    }

    fn entries(&mut self, collection: &Collection, index: &CollectionIndex) {
        let namespace = &collection.namespace;
        let mut before: Option<(Vec<u8>, Vec<u8>)> = None;
        let mut failed_lookup = self.failed_lookups.remove(&index.id);
        let range = prefix_range(&index_prefix(collection.id, index.id));
        for item in SalvageScan::new(self.view, Remaining::new(Keyspace::Indexes, range)) {
            if !self.step() {
                return;
            }
            let (key, value) = match item {
                SalvageItem::Row(key, value) => (key, value),
                SalvageItem::Unreadable(keys) => {
                    failed_lookup = None;
                    let text = format!("entries cannot be read ({})", keys.causes.join(", "));
                    self.index_finding(namespace, index, &text);
                    continue;
                }
            };
            self.report.entries += 1;
            let (encoded, id_key) = match open_index_entry(&key, &value, Verify::Checksums) {
                Ok(parts) => parts,
                Err(error) => {
                    self.index_finding(namespace, index, &error.description());
                    continue;
                }
            };
            if let Some(text) = self.entry(collection, index, encoded, id_key) {
                let text = format!("{}: {text}", describe(Keyspace::Indexes, &key));
                self.index_finding(namespace, index, &text);
            }
            if let Some((before, before_id)) = &before
                && index.spec().unique
                && *before == encoded
                && *before_id != id_key
            {
                let text = format!("two documents share the unique key of {}", describe(Keyspace::Indexes, &key));
                self.index_finding(namespace, index, &text);
            }
            before = Some((encoded.to_vec(), id_key.to_vec()));
        }
        if let Some(text) = failed_lookup {
            self.index_finding(namespace, index, &format!("entries cannot be looked up: {text}"));
        }
    }

    /// Returns the damage of an entry.
    fn entry(
        &mut self,
        collection: &Collection,
        index: &CollectionIndex,
        encoded: &[u8],
        id_key: &[u8],
    ) -> Option<String> {
        let key = document_key(collection.id, id_key)?;
        match self.view.get(Keyspace::Documents, &key) {
            Ok(None) => Some("there is no such document".to_owned()),
            // The scan of the documents finds this damage, unless it can read all of them.
            Err(error) => {
                if !self.report.unreadable.contains(&collection.namespace) {
                    let text = format!("documents cannot be looked up by their _id: {}", error.description());
                    self.report.add(Remedy::None, format!("{}: {text}", collection.namespace));
                    self.report.mark_unreadable(&collection.namespace);
                }
                None
            }
            Ok(Some(value)) => {
                let stored = StoredDocument::open(&key, value, Verify::Checksums).ok()?;
                let held = index.index.keys(stored.document().ok()?).ok()?;
                (!held.keys.contains(encoded)).then(|| "its document has another key".to_owned())
            }
        }
    }

    /// Finds keys whose collection does not exist, except those of dropped collections that are not removed yet.
    fn keys_of_no_collection(&mut self, catalog: &Catalog) {
        for keyspace in [Keyspace::Documents, Keyspace::Indexes] {
            let mut from: Option<u32> = None;
            loop {
                let start = from.map_or(Bound::Unbounded, |from| Bound::Included(from.to_be_bytes().to_vec()));
                let mut rows = self.view.range(keyspace, (start, Bound::Unbounded), Direction::Forward);
                let next = match rows.next() {
                    Some(Ok((key, _))) => self.first_key_of_collection(catalog, keyspace, &key),
                    // This damage was found above; the next collection may be readable.
                    Some(Err(_)) => {
                        let known = catalog.collections().map(|collection| collection.id.0);
                        known.filter(|&id| from.is_none_or(|from| id > from)).min()
                    }
                    None => None,
                };
                let Some(next) = next else {
                    break;
                };
                from = Some(next);
            }
        }
    }

    /// Checks the first key with a collection's id. Returns the next id, if there may be one.
    fn first_key_of_collection(&mut self, catalog: &Catalog, keyspace: Keyspace, key: &[u8]) -> Option<u32> {
        let Some(number) = key.first_chunk::<4>() else {
            self.report.add(Remedy::None, format!("a key is too short: {}", describe(keyspace, key)));
            return None;
        };
        let number = u32::from_be_bytes(*number);
        let id = CollectionId(number);
        if catalog.by_id(id).is_none() && !catalog.dropped.contains(&MetadataKey::Dropped(id)) {
            let text = format!("keys belong to no collection, the first is {}", describe(keyspace, key));
            self.report.add(Remedy::None, text);
        }
        number.checked_add(1)
    }
}
