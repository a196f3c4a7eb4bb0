//! What a serializable transaction has read, for the commit to look at again.

use std::collections::{BTreeMap, HashMap};

use bson::{RawBson, RawDocumentBuf};
use handfast_mql::key;
use handfast_store::{Namespace, Read};

/// Different filters on one collection that are remembered; beyond, the whole collection counts as read.
const FILTERS_MAX: usize = 64;
/// Documents of one collection that are remembered by `_id`; beyond, the whole collection counts as read.
const DOCUMENTS_MAX: usize = 10_000;

/// What was read, by collection.
#[derive(Default)]
pub(super) struct Reads {
    by_namespace: HashMap<Namespace, OfNamespace>,
}

#[derive(Default)]
struct OfNamespace {
    documents: BTreeMap<Vec<u8>, RawBson>,
    filters: Vec<(RawDocumentBuf, RawDocumentBuf)>,
    everything: bool,
}

impl Reads {
    pub(super) fn note(&mut self, read: Read) {
        match read {
            Read::Document(namespace, id) => {
                let of = self.by_namespace.entry(namespace).or_default();
                let mut encoded = Vec::new();
                key::encode(id.as_raw_bson_ref(), &mut encoded);
                of.documents.insert(encoded, id);
                of.everything |= of.documents.len() > DOCUMENTS_MAX;
            }
            Read::Matching { namespace, filter, variables } => {
                let of = self.by_namespace.entry(namespace).or_default();
                let known = of.filters.iter().any(|known| known.0 == filter && known.1 == variables);
                if !known {
                    of.filters.push((filter, variables));
                }
                of.everything |= of.filters.len() > FILTERS_MAX;
            }
        }
    }

    pub(super) fn into_list(self) -> Vec<Read> {
        let mut list = Vec::new();
        for (namespace, of) in self.by_namespace {
            if of.everything {
                let (filter, variables) = (RawDocumentBuf::new(), RawDocumentBuf::new());
                list.push(Read::Matching { namespace, filter, variables });
                continue;
            }
            list.extend(of.documents.into_values().map(|id| Read::Document(namespace.clone(), id)));
            let matching = |(filter, variables)| Read::Matching { namespace: namespace.clone(), filter, variables };
            list.extend(of.filters.into_iter().map(matching));
        }
        list
    }
}
