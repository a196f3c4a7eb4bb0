//! Which documents a find looks at, and in which order.

use std::collections::{HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use handfast_mql::{Code, Filter};

use super::state::{Collection, Hinted, IdKey, IndexState, Stored};
use crate::selection::{Candidate, check_bounds, named_keys};
use crate::{Error, Find, Hint, Result};

/// Documents taken from a map at a time: each time costs a search.
const CHUNK_DOCUMENTS: usize = 64;

/// The way to the documents that may match.
pub(super) enum Way {
    /// All, by `_id`.
    Scan { collection: Collection, after: Option<IdKey>, backwards: bool, done: bool },
    /// Those with these `_id`s.
    Ids { collection: Collection, ids: VecDeque<IdKey> },
    /// Those of an index, by their keys.
    Index(Box<IndexWay>),
}

pub(super) struct IndexWay {
    collection: Collection,
    index: IndexState,
    after: Bound<(Arc<[u8]>, IdKey)>,
    /// The first key that is not wanted any more.
    end: Option<Vec<u8>>,
    /// A document with several keys comes once.
    seen: HashSet<IdKey>,
}

/// A document on the way, with the key that led to it.
pub(super) type Step = (Arc<Stored>, Option<Arc<[u8]>>);

impl Way {
    /// The way that a filter allows and a hint wants.
    pub(super) fn choose(collection: &Collection, filter: &Filter, hint: Option<&Hint>) -> Result<Way> {
        Way::between(collection, filter, hint, None, None)
    }

    /// The way of a find, whose bounds are checked.
    pub(super) fn of_find(collection: &Collection, filter: &Filter, find: &Find) -> Result<Way> {
        check_bounds(find)?;
        Way::between(collection, filter, find.hint.as_ref(), find.min.as_deref(), find.max.as_deref())
    }

    fn between(
        collection: &Collection,
        filter: &Filter,
        hint: Option<&Hint>,
        min: Option<&bson::RawDocument>,
        max: Option<&bson::RawDocument>,
    ) -> Result<Way> {
        let collection = collection.clone();
        match hint.map(|hint| collection.hinted(hint)).transpose()? {
            Some(Hinted::Index(index)) => {
                let index = index.clone();
                let after = match min {
                    Some(min) => Bound::Included((index.index.bound(min)?.into(), IdKey::from([]))),
                    None => Bound::Unbounded,
                };
                let end = max.map(|max| index.index.bound(max)).transpose()?;
                Ok(Way::Index(Box::new(IndexWay { collection, index, after, end, seen: HashSet::new() })))
            }
            Some(_) if min.is_some() || max.is_some() => {
                let text = "the store in memory takes min and max on an index other than the one on _id";
                Err(Error::command(Code::BadValue, text))
            }
            Some(Hinted::Natural { backwards }) => Ok(Way::Scan { collection, after: None, backwards, done: false }),
            Some(Hinted::Id) | None => Ok(match named_keys(filter) {
                Some(ids) => Way::Ids { collection, ids: ids.into_iter().map(IdKey::from).collect() },
                None => Way::Scan { collection, after: None, backwards: false, done: false },
            }),
        }
    }

    /// All documents on the way.
    pub(super) fn steps(mut self) -> impl Iterator<Item = Step> + Send {
        let mut chunk = VecDeque::new();
        std::iter::from_fn(move || {
            if chunk.is_empty() {
                self.fill(&mut chunk);
            }
            chunk.pop_front()
        })
    }

    /// All documents on the way, with what a find wants to know of them.
    pub(super) fn candidates(self, find: &Find) -> impl Iterator<Item = Result<Candidate>> + Send + use<> {
        let index = match &self {
            Way::Index(way) if find.return_key => Some(Arc::clone(&way.index.index)),
            _ => None,
        };
        let show_record = find.show_record_id;
        self.steps().map(move |(stored, key)| {
            let document = stored.document.clone();
            let key = match (&index, key) {
                (Some(index), Some(key)) => index.shown(&document, &key)?,
                _ => None,
            };
            Ok(Candidate { document, key, record: show_record.then_some(stored.record) })
        })
    }

    fn fill(&mut self, chunk: &mut VecDeque<Step>) {
        match self {
            Way::Ids { collection, ids } => {
                while let Some(id) = ids.pop_front() {
                    if let Some(stored) = collection.documents.get(&id) {
                        return chunk.push_back((Arc::clone(stored), None));
                    }
                }
            }
            Way::Scan { collection, after, backwards, done } => {
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
            Way::Index(way) => way.fill(chunk),
        }
    }
}

impl IndexWay {
    fn fill(&mut self, chunk: &mut VecDeque<Step>) {
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
