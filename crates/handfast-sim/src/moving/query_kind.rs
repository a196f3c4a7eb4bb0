//! Queries for the documents of a range of keys.

use std::ops::Range;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::{Find, Namespace};

/// A kind of query for the documents of a range of keys. All kinds find the same documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// All documents; the caller drops those of other keys.
    AllDocuments,
    /// All documents by `_id`; the caller drops those of other keys.
    ById,
    /// Documents by the field `key`, which exchanges change and an index may cover.
    Range,
    /// Documents by the field `key` and by a second condition that all documents of keys meet.
    RangeAndText,
    /// `$expr` on the length of a text, which fails for a document without one.
    TextLength,
    /// `$expr` on the size of an array, which fails for a document without one.
    ArraySize,
    /// `$expr` on an array's elements, which fails for a document without one.
    ArrayElement,
    /// `$expr` on the number of all fields.
    AllFields,
}

impl QueryKind {
    /// All kinds.
    pub const ALL: [QueryKind; 8] = [
        QueryKind::AllDocuments,
        QueryKind::ById,
        QueryKind::Range,
        QueryKind::RangeAndText,
        QueryKind::TextLength,
        QueryKind::ArraySize,
        QueryKind::ArrayElement,
        QueryKind::AllFields,
    ];

    /// Returns whether the query fails for a document without the fields that all documents of keys have.
    pub fn is_strict(self) -> bool {
        matches!(self, QueryKind::TextLength | QueryKind::ArraySize | QueryKind::ArrayElement)
    }

    /// Returns whether the query also finds documents of other keys.
    pub fn finds_others(self) -> bool {
        matches!(self, QueryKind::AllDocuments | QueryKind::ById)
    }

    /// Returns the filter for these keys.
    pub fn filter(self, keys: &Range<i64>) -> RawDocumentBuf {
        let expression = |condition: RawDocumentBuf| {
            let (from, to) = (rawdoc! { "$gte": ["$key", keys.start] }, rawdoc! { "$lt": ["$key", keys.end] });
            rawdoc! { "$expr": { "$and": [condition, from, to] } }
        };
        match self {
            QueryKind::AllDocuments => rawdoc! { "key": { "$exists": true } },
            QueryKind::ById => rawdoc! { "_id": { "$gte": 0 } },
            QueryKind::Range => rawdoc! { "key": { "$gte": keys.start, "$lt": keys.end } },
            QueryKind::RangeAndText => {
                rawdoc! { "text": { "$exists": true }, "key": { "$gte": keys.start, "$lt": keys.end } }
            }
            QueryKind::TextLength => expression(rawdoc! { "$gt": [{ "$strLenCP": "$text" }, 0] }),
            QueryKind::ArraySize => expression(rawdoc! { "$eq": [{ "$size": "$tags" }, 2] }),
            QueryKind::ArrayElement => expression(rawdoc! { "$in": ["here", "$tags"] }),
            QueryKind::AllFields => {
                expression(rawdoc! { "$eq": [{ "$size": { "$objectToArray": "$$ROOT" } }, "$fields"] })
            }
        }
    }

    /// Returns a find of these keys.
    pub fn find(self, namespace: &Namespace, keys: &Range<i64>) -> Find {
        Find::new(namespace.clone(), self.filter(keys))
    }
}
