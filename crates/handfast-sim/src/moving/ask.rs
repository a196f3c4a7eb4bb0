//! The ways to ask for the documents of some keys.

use std::ops::Range;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{Find, Namespace};

/// A way to ask for the documents of some keys. Each finds the same documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// All documents, those of other keys left out afterwards.
    Everything,
    /// By `_id`, likewise.
    Places,
    /// By the key's field, which others change, as an index has it.
    Range,
    /// Likewise, with another condition that all documents meet.
    Whole,
    /// `$expr` on the length of a text, which fails for a document without one.
    TextLength,
    /// `$expr` on the size of an array, which fails for a document without one.
    ArraySize,
    /// `$expr` on an array's elements, which fails for a document without one.
    ArrayElement,
    /// `$expr` on the number of all fields.
    AllFields,
}

impl Ask {
    /// All of them.
    pub const ALL: [Ask; 8] = [
        Ask::Everything,
        Ask::Places,
        Ask::Range,
        Ask::Whole,
        Ask::TextLength,
        Ask::ArraySize,
        Ask::ArrayElement,
        Ask::AllFields,
    ];

    /// Whether it fails for a document without the fields that all documents of keys have.
    pub fn is_strict(self) -> bool {
        matches!(self, Ask::TextLength | Ask::ArraySize | Ask::ArrayElement)
    }

    /// Whether it finds documents of other keys, too.
    pub fn finds_others(self) -> bool {
        matches!(self, Ask::Everything | Ask::Places)
    }

    /// The filter for these keys.
    pub fn filter(self, keys: &Range<i64>) -> RawDocumentBuf {
        let expression = |condition: RawDocumentBuf| {
            let (from, to) = (rawdoc! { "$gte": ["$key", keys.start] }, rawdoc! { "$lt": ["$key", keys.end] });
            rawdoc! { "$expr": { "$and": [condition, from, to] } }
        };
        match self {
            Ask::Everything => rawdoc! { "key": { "$exists": true } },
            Ask::Places => rawdoc! { "_id": { "$gte": 0 } },
            Ask::Range => rawdoc! { "key": { "$gte": keys.start, "$lt": keys.end } },
            Ask::Whole => rawdoc! { "text": { "$exists": true }, "key": { "$gte": keys.start, "$lt": keys.end } },
            Ask::TextLength => expression(rawdoc! { "$gt": [{ "$strLenCP": "$text" }, 0] }),
            Ask::ArraySize => expression(rawdoc! { "$eq": [{ "$size": "$tags" }, 2] }),
            Ask::ArrayElement => expression(rawdoc! { "$in": ["here", "$tags"] }),
            Ask::AllFields => expression(rawdoc! { "$eq": [{ "$size": { "$objectToArray": "$$ROOT" } }, "$fields"] }),
        }
    }

    /// A find of these keys.
    pub fn find(self, namespace: &Namespace, keys: &Range<i64>) -> Find {
        Find::new(namespace.clone(), self.filter(keys))
    }
}
