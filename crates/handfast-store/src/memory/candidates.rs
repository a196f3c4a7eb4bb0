//! The access paths of a find: which documents it reads, and in which order.

use std::collections::{HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use handfast_mql::Code;
use handfast_mql::filter::NecessaryConditions;

use super::state::{Collection, Hinted, IdKey, IndexState, Stored};
use crate::selection::{Candidate, check_bounds, named_keys};
use crate::{Error, Find, Hint, Result};

/// The number of documents that one search of a map reads.
const CHUNK_DOCUMENTS: usize = 64;

/// The way in which a query reads the documents that may match.
pub(super) enum AccessPath {
    /// All documents in the order of `_id`.
    Scan { collection: Collection, after: Option<IdKey>, backwards: bool, done: bool },
    /// The documents with these `_id`s.
    Ids { collection: Collection, ids: VecDeque<IdKey> },
    /// The documents of an index in the order of their keys.
    Index(Box<IndexScan>),
}

pub(super) struct IndexScan {
    collection: Collection,
    index: IndexState,
    after: Bound<(Arc<[u8]>, IdKey)>,
    /// The first key behind the range.
    end: Option<Vec<u8>>,
    /// Documents that were returned, as a document may have several keys.
    seen: HashSet<IdKey>,
}

/// A document, with the index key that led to it.
pub(super) type FoundDocument = (Arc<Stored>, Option<Arc<[u8]>>);

impl AccessPath {
    /// Chooses the access path for the conditions of a filter, and a hint.
    pub(super) fn choose(
        collection: &Collection,
        conditions: &NecessaryConditions<'_>,
        hint: Option<&Hint>,
    ) -> Result<AccessPath> {
        AccessPath::between(collection, conditions, hint, None, None)
    }

    /// Chooses the access path for a find and checks its bounds.
    pub(super) fn for_find(
        collection: &Collection,
        conditions: &NecessaryConditions<'_>,
        find: &Find,
    ) -> Result<AccessPath> {
        check_bounds(find)?;
        AccessPath::between(collection, conditions, find.hint.as_ref(), find.min.as_deref(), find.max.as_deref())
    }

    fn between(
        collection: &Collection,
        conditions: &NecessaryConditions<'_>,
        hint: Option<&Hint>,
        min: Option<&bson::RawDocument>,
        max: Option<&bson::RawDocument>,
    ) -> Result<AccessPath> {
        let collection = collection.clone();
        match hint.map(|hint| collection.hinted(hint)).transpose()? {
            Some(Hinted::Index(index)) => {
                let index = index.clone();
                let after = match min {
                    Some(min) => Bound::Included((index.index.bound(min)?.into(), IdKey::from([]))),
                    None => Bound::Unbounded,
                };
                let end = max.map(|max| index.index.bound(max)).transpose()?;
                Ok(AccessPath::Index(Box::new(IndexScan { collection, index, after, end, seen: HashSet::new() })))
            }
            Some(_) if min.is_some() || max.is_some() => {
                let text = "the store in memory takes min and max on an index other than the one on _id";
                Err(Error::command(Code::BadValue, text))
            }
            Some(Hinted::Natural { backwards }) => {
                Ok(AccessPath::Scan { collection, after: None, backwards, done: false })
            }
            Some(Hinted::Id) | None => Ok(match named_keys(conditions) {
                Some(ids) => AccessPath::Ids { collection, ids: ids.into_iter().map(IdKey::from).collect() },
                None => AccessPath::Scan { collection, after: None, backwards: false, done: false },
            }),
        }
    }

    /// Iterates over the documents.
    pub(super) fn documents(mut self) -> impl Iterator<Item = FoundDocument> + Send {
        let mut chunk = VecDeque::new();
        std::iter::from_fn(move || {
            if chunk.is_empty() {
                self.fill(&mut chunk);
            }
            chunk.pop_front()
        })
    }

    /// Iterates over the documents with the keys and record ids that the find asks for.
    pub(super) fn candidates(self, find: &Find) -> impl Iterator<Item = Result<Candidate>> + Send + use<> {
        let index = match &self {
            AccessPath::Index(path) if find.return_key => Some(Arc::clone(&path.index.index)),
            _ => None,
        };
        let show_record = find.show_record_id;
        self.documents().map(move |(stored, key)| {
            let document = stored.document.clone();
            let key = match (&index, key) {
                (Some(index), Some(key)) => index.shown(&document, &key)?,
                _ => None,
            };
            Ok(Candidate { document, key, record: show_record.then_some(stored.record) })
        })
    }

    fn fill(&mut self, chunk: &mut VecDeque<FoundDocument>) {
        match self {
            AccessPath::Ids { collection, ids } => {
                while let Some(id) = ids.pop_front() {
                    if let Some(stored) = collection.documents.get(&id) {
                        return chunk.push_back((Arc::clone(stored), None));
                    }
                }
            }
            AccessPath::Scan { collection, after, backwards, done } => {
                let documents = &collection.documents;
                let taken: Vec<_> = match (after.as_ref(), *backwards) {
                    _ if *done => Vec::new(),
                    (None, false) => documents.iter().take(CHUNK_DOCUMENTS).collect(),
                    (Some(after), false) => {
                        let range = (Bound::Excluded(&**after), Bound::Unbounded);
                        documents.range::<_, [u8]>(range).take(CHUNK_DOCUMENTS).collect()
                    }
                    (None, true) => documents.iter().rev().take(CHUNK_DOCUMENTS).collect(),
                    (Some(after), true) => {
                        let range = (Bound::Unbounded, Bound::Excluded(&**after));
                        documents.range::<_, [u8]>(range).rev().take(CHUNK_DOCUMENTS).collect()
                    }
                };
                *done = taken.is_empty();
                *after = taken.last().map(|(id, _)| Arc::clone(id)).or(after.take());
                chunk.extend(taken.into_iter().map(|(_, stored)| (Arc::clone(stored), None)));
            }
            AccessPath::Index(path) => path.fill(chunk),
        }
    }
}

impl IndexScan {
    fn fill(&mut self, chunk: &mut VecDeque<FoundDocument>) {
        let mut last = None;
        for entry in self.index.entries.range((self.after.clone(), Bound::Unbounded)) {
            if self.end.as_ref().is_some_and(|end| *entry.0 >= **end) || chunk.len() >= CHUNK_DOCUMENTS {
                break;
            }
            last = Some(entry.clone());
            if self.seen.insert(Arc::clone(&entry.1))
                && let Some(stored) = self.collection.documents.get(&entry.1)
            {
                chunk.push_back((Arc::clone(stored), Some(Arc::clone(&entry.0))));
            }
        }
        if let Some(last) = last {
            self.after = Bound::Excluded(last);
        }
    }
}
