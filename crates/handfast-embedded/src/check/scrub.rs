//! Looks at every record.

use bson::RawDocument;
use handfast_store::Namespace;

use super::{CheckReport, Progress, Remedy};
use crate::catalog::{Catalog, Collection, CollectionIndex};
use crate::engine::{Direction, Keyspace, Range, View, after_prefix, prefix_range};
use crate::format::{
    CollectionId, MetadataKey, StoredDocument, Verify, collection_prefix, describe, document_key, index_key,
    index_prefix, open_index_entry,
};
use crate::keys;

/// Records between two reports of progress.
const PROGRESS_RECORDS: u64 = 10_000;

struct Scrub<'s> {
    view: &'s dyn View,
    report: &'s mut CheckReport,
    progress: &'s mut dyn FnMut(&Progress),
    at: Progress,
}

pub(super) fn scrub(view: &dyn View, catalog: &Catalog, report: &mut CheckReport, progress: &mut dyn FnMut(&Progress)) {
    let expected = catalog.collections().map(|collection| {
        let documents = catalog.counts(collection.id).documents;
        documents * (1 + collection.indexes.len() as u64)
    });
    let at = Progress { records_expected: expected.sum(), ..Progress::default() };
    let mut scrub = Scrub { view, report, progress, at };
    for collection in catalog.collections() {
        scrub.report.collections += 1;
        scrub.at.stage = collection.namespace.to_string();
        scrub.documents(collection, catalog);
        for index in collection.indexes.iter().filter(|index| index.complete) {
            scrub.entries(collection, index);
        }
    }
    scrub.strays(catalog);
    (scrub.progress)(&scrub.at);
}

impl Scrub<'_> {
    fn step(&mut self) {
        self.at.records += 1;
        if self.at.records.is_multiple_of(PROGRESS_RECORDS) {
            (self.progress)(&self.at);
        }
    }

    fn documents(&mut self, collection: &Collection, catalog: &Catalog) {
        let (mut documents, mut bytes, mut whole) = (0, 0, true);
        for row in
            self.view.range(Keyspace::Documents, prefix_range(&collection_prefix(collection.id)), Direction::Forward)
        {
            self.step();
            let (key, value) = match row {
                Ok(row) => row,
                Err(error) => {
                    whole = false;
                    let text = format!("{}: documents cannot be read from here on: {error}", collection.namespace);
                    self.report.find(Remedy::None, text);
                    break;
                }
            };
            documents += 1;
            match StoredDocument::open(&key, value, Verify::Checksums) {
                Ok(stored) => {
                    bytes += stored.bytes().len() as u64;
                    self.document(collection, &key, &stored);
                }
                Err(error) => {
                    whole = false;
                    self.report.find(Remedy::None, format!("{}: {error}", collection.namespace));
                }
            }
        }
        self.report.documents += documents;
        let counted = catalog.counts(collection.id);
        if whole && (counted.documents, counted.bytes) != (documents, bytes) {
            let text = format!(
                "{}: {} documents of {} bytes were counted, there are {documents} of {bytes}",
                collection.namespace, counted.documents, counted.bytes
            );
            self.report.find(Remedy::Count(collection.namespace.clone()), text);
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
                self.report.find(Remedy::None, text);
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
            self.index_finding(&collection.namespace, index, "it holds keys of arrays and does not know it");
        }
        for encoded in held.keys {
            let Some(key) = index_key(collection.id, index.id, &encoded, id_key) else {
                continue;
            };
            match self.view.get(Keyspace::Indexes, &key) {
                // Its value is looked at with the entries.
                Ok(Some(_)) => {}
                Ok(None) => {
                    let text = format!("an entry is missing: {}", describe(Keyspace::Indexes, &key));
                    self.index_finding(&collection.namespace, index, &text);
                }
                Err(error) => self.index_finding(&collection.namespace, index, &error.to_string()),
            }
        }
    }

    fn index_finding(&mut self, namespace: &Namespace, index: &CollectionIndex, text: &str) {
        let name = &index.spec().name;
        let remedy = Remedy::BuildIndex(namespace.clone(), name.clone());
        self.report.find(remedy, format!("index {name} of {namespace}: {text}"));
    }

    fn entries(&mut self, collection: &Collection, index: &CollectionIndex) {
        let mut before: Option<(Vec<u8>, Vec<u8>)> = None;
        let range = prefix_range(&index_prefix(collection.id, index.id));
        for row in self.view.range(Keyspace::Indexes, range, Direction::Forward) {
            self.step();
            let (key, value) = match row {
                Ok(row) => row,
                Err(error) => {
                    let text = format!("entries cannot be read from here on: {error}");
                    return self.index_finding(&collection.namespace, index, &text);
                }
            };
            self.report.entries += 1;
            let (encoded, id_key) = match open_index_entry(&key, &value, Verify::Checksums) {
                Ok(parts) => parts,
                Err(error) => {
                    self.index_finding(&collection.namespace, index, &error.to_string());
                    continue;
                }
            };
            if let Some(text) = self.entry(collection, index, encoded, id_key) {
                let text = format!("{}: {text}", describe(Keyspace::Indexes, &key));
                self.index_finding(&collection.namespace, index, &text);
            }
            if let Some((before, before_id)) = &before
                && index.spec().unique
                && *before == encoded
                && *before_id != id_key
            {
                let text = format!("two documents share the unique key of {}", describe(Keyspace::Indexes, &key));
                self.index_finding(&collection.namespace, index, &text);
            }
            before = Some((encoded.to_vec(), id_key.to_vec()));
        }
    }

    /// What is wrong with an entry.
    fn entry(&self, collection: &Collection, index: &CollectionIndex, encoded: &[u8], id_key: &[u8]) -> Option<String> {
        let key = document_key(collection.id, id_key)?;
        match self.view.get(Keyspace::Documents, &key) {
            Ok(None) => Some("there is no such document".to_owned()),
            // What is wrong with a document is found with the documents.
            Err(_) => None,
            Ok(Some(value)) => {
                let stored = StoredDocument::open(&key, value, Verify::Checksums).ok()?;
                let held = index.index.keys(stored.document().ok()?).ok()?;
                (!held.keys.contains(encoded)).then(|| "its document has another key".to_owned())
            }
        }
    }

    /// Keys under numbers that no collection has. What is dropped and not yet removed is known.
    fn strays(&mut self, catalog: &Catalog) {
        for keyspace in [Keyspace::Documents, Keyspace::Indexes] {
            let mut range: Range = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            while let Some(row) = self.view.range(keyspace, range.clone(), Direction::Forward).next() {
                // What cannot be read was found above.
                let Ok((key, _)) = row else {
                    break;
                };
                let Some(number) = key.first_chunk::<4>() else {
                    self.report.find(Remedy::None, format!("a key is too short: {}", describe(keyspace, &key)));
                    break;
                };
                let id = CollectionId(u32::from_be_bytes(*number));
                let known = catalog.by_id(id).is_some() || catalog.dropped.contains(&MetadataKey::Dropped(id));
                if !known {
                    let text = format!("keys belong to no collection, the first is {}", describe(keyspace, &key));
                    self.report.find(Remedy::None, text);
                }
                match after_prefix(number) {
                    std::ops::Bound::Excluded(next) => range.0 = std::ops::Bound::Included(next),
                    _ => break,
                }
            }
        }
    }
}
