//! The read set of a serializable transaction, which the commit validates.
//!
//! It lists documents and filters up to a bound. Beyond the bound the whole collection counts as read, which can only add conflicts.

use std::collections::{BTreeMap, HashMap};

use bson::{RawBson, RawDocumentBuf};
use handfast_mql::key;
use handfast_store::{Namespace, Read};

/// The most filters that are listed for a collection.
const FILTERS_MAX: usize = 64;
/// The most bytes of the filters of a collection, with their variables.
const FILTER_BYTES_MAX: usize = 1024 * 1024;
/// The most documents that are listed for a collection by `_id`.
const DOCUMENTS_MAX: usize = 10_000;
/// The most bytes of these `_id`s.
const ID_BYTES_MAX: usize = 1024 * 1024;

/// The reads of a transaction by collection.
#[derive(Default)]
pub(super) struct ReadSet {
    by_namespace: HashMap<Namespace, CollectionReads>,
}

enum CollectionReads {
    Listed(ListedReads),
    Everything,
}

#[derive(Default)]
struct ListedReads {
    documents: BTreeMap<Vec<u8>, RawBson>,
    id_bytes: usize,
    /// Filters with their variables.
    filters: Vec<(RawDocumentBuf, RawDocumentBuf)>,
    filter_bytes: usize,
}

impl ReadSet {
    pub(super) fn note(&mut self, read: Read) {
        let namespace = match &read {
            Read::Document(namespace, _) | Read::Matching { namespace, .. } => namespace.clone(),
        };
        let of = self.by_namespace.entry(namespace).or_insert_with(|| CollectionReads::Listed(ListedReads::default()));
        if let CollectionReads::Listed(listed) = of {
            listed.note(read);
            if listed.is_too_much() {
                *of = CollectionReads::Everything;
            }
        }
    }

    pub(super) fn into_list(self) -> Vec<Read> {
        let mut list = Vec::new();
        for (namespace, of) in self.by_namespace {
            match of {
                CollectionReads::Everything => list.push(everything(namespace)),
                CollectionReads::Listed(ListedReads { documents, filters, .. }) => {
                    list.extend(documents.into_values().map(|id| Read::Document(namespace.clone(), id)));
                    let matching =
                        |(filter, variables)| Read::Matching { namespace: namespace.clone(), filter, variables };
                    list.extend(filters.into_iter().map(matching));
                }
            }
        }
        list
    }
}

impl ListedReads {
    fn note(&mut self, read: Read) {
        match read {
            Read::Document(_, id) => {
                let encoded = key::encoded(id.as_raw_bson_ref());
                let bytes = 2 * encoded.len();
                if self.documents.insert(encoded, id).is_none() {
                    self.id_bytes += bytes;
                }
            }
            Read::Matching { filter, variables, .. } => {
                let known = self.filters.iter().any(|known| known.0 == filter && known.1 == variables);
                if !known {
                    self.filter_bytes += filter.as_bytes().len() + variables.as_bytes().len();
                    self.filters.push((filter, variables));
                }
            }
        }
    }

    fn is_too_much(&self) -> bool {
        self.documents.len() > DOCUMENTS_MAX
            || self.id_bytes > ID_BYTES_MAX
            || self.filters.len() > FILTERS_MAX
            || self.filter_bytes > FILTER_BYTES_MAX
    }
}

/// Returns a read of all documents of a collection.
pub(super) fn everything(namespace: Namespace) -> Read {
    Read::Matching { namespace, filter: RawDocumentBuf::new(), variables: RawDocumentBuf::new() }
}

#[cfg(test)]
mod tests {
    use bson::{RawBson, RawDocumentBuf, rawdoc};
    use handfast_store::{Namespace, Read};

    use super::{FILTER_BYTES_MAX, ID_BYTES_MAX, ReadSet, everything};

    fn namespace() -> Namespace {
        Namespace::new("d", "c").unwrap()
    }

    fn matching(filter: RawDocumentBuf) -> Read {
        Read::Matching { namespace: namespace(), filter, variables: RawDocumentBuf::new() }
    }

    fn kept(reads: impl IntoIterator<Item = Read>) -> Vec<Read> {
        let mut all = ReadSet::default();
        reads.into_iter().for_each(|read| all.note(read));
        all.into_list()
    }

    #[test]
    fn the_same_is_kept_once() {
        let reads = || [matching(rawdoc! { "a": 1 }), Read::Document(namespace(), RawBson::Int32(1))];
        assert_eq!(kept(reads().into_iter().chain(reads())).len(), 2);
    }

    #[test]
    fn what_is_too_much_to_remember_is_everything() {
        let numbered = |count| (0..count).map(|n| matching(rawdoc! { "a": n }));
        assert_eq!(kept(numbered(64)).len(), 64);
        assert_eq!(kept(numbered(65)), [everything(namespace())]);
        assert_eq!(kept(numbered(10_000)), [everything(namespace())]);
        let large = matching(rawdoc! { "a": "x".repeat(FILTER_BYTES_MAX) });
        assert_eq!(kept([large]), [everything(namespace())]);
        let documents = |count| (0..count).map(|id| Read::Document(namespace(), RawBson::Int32(id)));
        assert_eq!(kept(documents(10_000)).len(), 10_000);
        assert_eq!(kept(documents(10_001)), [everything(namespace())]);
        let long = Read::Document(namespace(), RawBson::String("x".repeat(ID_BYTES_MAX)));
        assert_eq!(kept([long]), [everything(namespace())]);
    }
}
