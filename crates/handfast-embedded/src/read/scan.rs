//! Reads the candidates of a query from the engine: by `_id`, by a range of an index, or by a scan of the collection.
//!
//! A scan can stop after any document and continue later, on the same snapshot: it keeps the last key, not an open iterator
//! of the engine, which would keep memory in use between two pages.
//!
//! A scan reports the damage that it can detect: a wrong checksum, an index entry without its document, and at the end of a
//! whole collection a number of documents that differs from the one counted with the commits.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

use handfast_store::{Namespace, PlanSummary, Result as StoreResult};

use crate::catalog::{Collection, CollectionIndex};
use crate::engine::{Direction, Keyspace, Range, View, prefix_range};
use crate::error::{Error, Result};
use crate::format::{
    INDEX_PREFIX_BYTES, StoredDocument, Verify, collection_prefix, describe, document_key, index_prefix,
    open_index_entry,
};

/// The access path to the candidates of a query.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// The scan reads nothing, because no document can match.
    Nothing,
    /// The documents with these `_id` keys, in this order.
    Points(Vec<Vec<u8>>),
    /// All documents, or those between two `_id` keys.
    Documents { range: Range, direction: Direction },
    /// Documents by the entries of an index between encoded keys; the ranges do not overlap, and are in the order of
    /// the direction.
    Index { index: Arc<CollectionIndex>, ranges: Vec<Range>, direction: Direction },
}

impl Access {
    /// Returns the scan of a whole collection.
    pub(crate) fn everything(direction: Direction) -> Self {
        Access::Documents { range: (Bound::Unbounded, Bound::Unbounded), direction }
    }

    /// Returns what the log of slow commands says about it.
    pub(crate) fn summary(&self) -> PlanSummary {
        match self {
            Access::Nothing => PlanSummary::Eof,
            Access::Points(_) => PlanSummary::IdHack,
            Access::Documents { .. } => PlanSummary::CollectionScan,
            Access::Index { index, .. } => PlanSummary::IndexScan(index.spec().key.clone()),
        }
    }
}

/// The numbers of keys and documents that a scan has read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Examined {
    pub(crate) keys: u64,
    pub(crate) documents: u64,
}

/// A scan, with its position.
pub(crate) struct Scan {
    collection: Arc<Collection>,
    steps: VecDeque<Step>,
    direction: Direction,
    duplicates: Option<Duplicates>,
    pub(crate) examined: Examined,
    /// The number of documents of the collection at the snapshot, if all are scanned.
    expected: Option<u64>,
}

/// Recognises the duplicates of documents in an index with keys from arrays. The scan returns a document at the first of its entries,
/// which follows from the document itself, so no state is kept.
struct Duplicates {
    index: Arc<CollectionIndex>,
    /// All ranges of the scan, in order.
    ranges: Vec<Range>,
}

enum Step {
    Point(Vec<u8>),
    Documents(Range),
    Index(Range),
}

/// The keys by which a document was found.
pub(crate) struct Found<'f> {
    pub(crate) id_key: &'f [u8],
    /// The key of the index, if the scan uses one.
    pub(crate) entry: Option<&'f [u8]>,
}

/// Receives the documents of a scan, and may stop it.
pub(crate) type Visitor<'v> = dyn FnMut(Found<'_>, StoredDocument) -> StoreResult<ControlFlow<()>> + 'v;

/// Whether a scan may have more documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Paused,
    Done,
}

/// A view that documents are read from.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) view: Arc<dyn View>,
    pub(crate) verify: Verify,
}

impl Reader {
    pub(crate) fn get(&self, namespace: &Namespace, key: &[u8]) -> Result<Option<StoredDocument>> {
        let value = self.view.get(Keyspace::Documents, key);
        let stored =
            value.and_then(|value| value.map(|value| StoredDocument::open(key, value, self.verify)).transpose());
        stored.map_err(|error| error.in_collection(namespace))
    }
}

impl Scan {
    /// Returns a scan at its start. `expected` is the number of documents of the collection at the snapshot, if known.
    pub(crate) fn new(collection: Arc<Collection>, access: Access, expected: Option<u64>) -> Self {
        let prefix = collection_prefix(collection.id);
        let mut scan = Scan {
            collection: collection.clone(),
            steps: VecDeque::new(),
            direction: Direction::Forward,
            duplicates: None,
            examined: Examined::default(),
            expected: None,
        };
        match access {
            Access::Nothing => {}
            Access::Points(keys) => scan.steps.extend(keys.into_iter().map(Step::Point)),
            Access::Documents { range, direction } => {
                let whole = range == (Bound::Unbounded, Bound::Unbounded);
                scan.expected = expected.filter(|_| whole);
                scan.direction = direction;
                scan.steps.push_back(Step::Documents(with_prefix(&prefix, range)));
            }
            Access::Index { index, ranges, direction } => {
                let prefix = index_prefix(collection.id, index.id);
                scan.direction = direction;
                let ranges: Vec<Range> = ranges.into_iter().map(|range| with_prefix(&prefix, range)).collect();
                scan.steps.extend(ranges.iter().cloned().map(Step::Index));
                scan.duplicates = (index.multikey != 0).then_some(Duplicates { index, ranges });
            }
        }
        scan
    }

    /// Calls the visitor for each document until it breaks or there are no more.
    pub(crate) fn run(&mut self, reader: &Reader, visit: &mut Visitor<'_>) -> StoreResult<Progress> {
        while let Some(step) = self.steps.pop_front() {
            let rest = match step {
                Step::Point(id_key) => self.point(reader, &id_key, visit)?,
                Step::Documents(range) => self.documents(reader, range, visit)?.map_break(Some),
                Step::Index(range) => self.index(reader, range, visit)?.map_break(Some),
            };
            if let ControlFlow::Break(rest) = rest {
                if let Some(rest) = rest {
                    self.steps.push_front(rest);
                }
                return Ok(Progress::Paused);
            }
        }
        match self.expected.take() {
            Some(expected) if expected != self.examined.documents => Err(Error::Corrupt(format!(
                "collection {} has {} documents, {expected} were written",
                self.collection.namespace, self.examined.documents
            ))
            .into()),
            _ => Ok(Progress::Done),
        }
    }

    fn point(
        &mut self,
        reader: &Reader,
        id_key: &[u8],
        visit: &mut Visitor<'_>,
    ) -> StoreResult<ControlFlow<Option<Step>>> {
        self.examined.keys += 1;
        let Some(key) = document_key(self.collection.id, id_key) else {
            return Ok(ControlFlow::Continue(()));
        };
        match reader.get(&self.collection.namespace, &key)? {
            Some(stored) => {
                self.examined.documents += 1;
                Ok(visit(Found { id_key, entry: None }, stored)?.map_break(|()| None))
            }
            None => Ok(ControlFlow::Continue(())),
        }
    }

    fn documents(&mut self, reader: &Reader, range: Range, visit: &mut Visitor<'_>) -> StoreResult<ControlFlow<Step>> {
        for row in reader.view.range(Keyspace::Documents, range.clone(), self.direction) {
            let opened = row.and_then(|(key, value)| Ok((StoredDocument::open(&key, value, reader.verify)?, key)));
            let (stored, key) = opened.map_err(|error| error.in_collection(&self.collection.namespace))?;
            self.examined.documents += 1;
            if visit(Found { id_key: &key[4..], entry: None }, stored)?.is_break() {
                return Ok(ControlFlow::Break(Step::Documents(self.rest_after(range, &key))));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn index(&mut self, reader: &Reader, range: Range, visit: &mut Visitor<'_>) -> StoreResult<ControlFlow<Step>> {
        for row in reader.view.range(Keyspace::Indexes, range.clone(), self.direction) {
            let namespace = &self.collection.namespace;
            let (key, value) = row.map_err(|error| error.in_collection(namespace))?;
            self.examined.keys += 1;
            let opened = open_index_entry(&key, &value, reader.verify);
            let (entry, id_key) = opened.map_err(|error| error.in_collection(namespace))?;
            let document =
                document_key(self.collection.id, id_key).map(|key| reader.get(namespace, &key)).transpose()?;
            let Some(stored) = document.flatten() else {
                let entry = describe(Keyspace::Indexes, &key);
                return Err(Error::Corrupt(format!("{namespace}: {entry}: there is no such document")).into());
            };
            if let Some(duplicates) = &self.duplicates
                && !duplicates.is_first(self.direction, &key, id_key, &stored)?
            {
                continue;
            }
            self.examined.documents += 1;
            if visit(Found { id_key, entry: Some(entry) }, stored)?.is_break() {
                return Ok(ControlFlow::Break(Step::Index(self.rest_after(range, &key))));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the part of a range after a key, in the direction of the scan.
    fn rest_after(&self, (start, end): Range, key: &[u8]) -> Range {
        match self.direction {
            Direction::Forward => (Bound::Excluded(key.to_vec()), end),
            Direction::Backward => (start, Bound::Excluded(key.to_vec())),
        }
    }
}

impl Duplicates {
    /// Returns whether an entry is the first one of its document in the scan.
    fn is_first(&self, direction: Direction, key: &[u8], id_key: &[u8], stored: &StoredDocument) -> StoreResult<bool> {
        let held = self.index.index.keys(stored.document()?)?.keys;
        // The collection and the index are those of the entry.
        let prefix = key.get(..INDEX_PREFIX_BYTES).unwrap_or_default();
        let own = held.iter().map(|encoded| [prefix, encoded, id_key].concat());
        let mut own = own.filter(|own| self.holds(direction, own)).peekable();
        if own.peek().is_none() {
            let entry = describe(Keyspace::Indexes, key);
            return Err(Error::Corrupt(format!("{entry}: its document has another key")).into());
        }
        let first = match direction {
            Direction::Forward => own.min(),
            Direction::Backward => own.max(),
        };
        Ok(first.as_deref() == Some(key))
    }

    fn holds(&self, direction: Direction, key: &Vec<u8>) -> bool {
        let position = self.ranges.partition_point(|(start, end)| match direction {
            Direction::Forward => !within(Bound::Unbounded, end.as_ref(), key),
            Direction::Backward => !within(start.as_ref(), Bound::Unbounded, key),
        });
        self.ranges.get(position).is_some_and(|(start, end)| within(start.as_ref(), end.as_ref(), key))
    }
}

fn within(start: Bound<&Vec<u8>>, end: Bound<&Vec<u8>>, key: &Vec<u8>) -> bool {
    RangeBounds::<Vec<u8>>::contains(&(start, end), key)
}

/// Returns a range of keys with a prefix before each.
fn with_prefix(prefix: &[u8], (start, end): Range) -> Range {
    let put = |bound: Bound<Vec<u8>>| bound.map(|key| [prefix, &key].concat());
    let (whole_start, whole_end) = prefix_range(prefix);
    let start = if start == Bound::Unbounded { whole_start } else { put(start) };
    let end = if end == Bound::Unbounded { whole_end } else { put(end) };
    (start, end)
}
