//! Random documents for property tests: few names and few values, so that updates, projections and sorts meet them.

use bson::{Bson, Document};
use proptest::prelude::*;

/// Generates any value, up to three levels deep.
pub(crate) fn value() -> impl Strategy<Value = Bson> {
    let scalar = prop_oneof![
        4 => (-3_i32..4).prop_map(Bson::Int32),
        1 => Just(Bson::Null),
        1 => "[xy]{0,2}".prop_map(Bson::String),
        1 => (-2_i32..3).prop_map(|number| Bson::Double(number.into())),
    ];
    scalar.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            proptest::collection::vec(("[abc01]", inner), 0..4)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

/// Generates a document with fields `a`, `b`, `c`.
pub(crate) fn document() -> impl Strategy<Value = Document> {
    proptest::collection::vec(("[abc]", value()), 0..4).prop_map(|fields| fields.into_iter().collect())
}
