//! Allocations per document, which must not increase, counted by an allocator of the test's own.

use bson::{DateTime, RawDocumentBuf, Timestamp, oid::ObjectId, rawdoc};
use handfast_mql::{CompileOptions, Context, Filter};

/// Returns 19.99.
fn decimal() -> bson::Decimal128 {
    handfast_mql::Decimal::new(false, 1999, -2).encode()
}

fn document() -> RawDocumentBuf {
    rawdoc! {
        "_id": ObjectId::from_bytes([7; 12]),
        "name": "a name of some length, so that it would show if it were copied",
        "qty": 12.5,
        "price": decimal(),
        "tags": ["red", "blue", "a longer tag to be looked at"],
        "items": [{ "sku": "a", "n": 1 }, { "sku": "b", "n": [1, 2, 3] }],
        "nested": { "a": { "b": { "c": 5_i64 } } },
    }
}

#[test]
fn matching_allocates_nothing() {
    let document = document();
    let context = Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0);
    for (filter, expected) in [
        (rawdoc! { "_id": ObjectId::from_bytes([7; 12]) }, true),
        (rawdoc! { "qty": { "$gte": 10, "$lt": 20_i64 }, "tags": "blue" }, true),
        (rawdoc! { "price": { "$lt": 19.991 } }, true),
        (rawdoc! { "price": { "$in": [1, 2.5, decimal()] } }, true),
        (rawdoc! { "nested.a.b.c": 5, "nested.a.x": bson::RawBson::Null }, true),
        (rawdoc! { "items": { "$elemMatch": { "sku": "b", "n": { "$all": [1, 3] } } } }, true),
        (rawdoc! { "items.n": { "$size": 3 }, "items.0.sku": "a" }, true),
        (rawdoc! { "nested": { "a": { "b": { "c": 5 } } } }, true),
        (rawdoc! { "$or": [{ "missing": { "$exists": true } }, { "qty": { "$mod": [5, 2] } }] }, true),
        (rawdoc! { "$nor": [{ "name": { "$type": "int" } }, { "tags": { "$nin": ["red"] } }] }, true),
        (rawdoc! { "qty": { "$bitsAnySet": [1] } }, false),
        (rawdoc! { "name": { "$ne": "x" }, "tags": { "$not": { "$size": 2 } } }, true),
    ] {
        let compiled = Filter::compile(&filter, &CompileOptions::default()).unwrap();
        let mut matched = None;
        let counted = allocation_counter::measure(|| matched = Some(compiled.matches_position(&document, &context)));
        assert_eq!(matched.unwrap().unwrap().is_some(), expected, "{filter:?}");
        assert_eq!(counted.count_total, 0, "{filter:?} allocated {} bytes", counted.bytes_total);
    }
}

/// An engine for patterns keeps scratch space between searches; after the first search it allocates no
/// more.
#[test]
fn regular_expressions_allocate_once() {
    let document = document();
    let context = Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0);
    let filter =
        Filter::compile(&rawdoc! { "name": { "$regex": "^a name.*looked?" } }, &CompileOptions::default()).unwrap();
    filter.matches(&document, &context).unwrap();
    let counted = allocation_counter::measure(|| {
        filter.matches(&document, &context).unwrap();
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn encoding_a_key_does_not_reallocate() {
    let document = document();
    let mut key = Vec::with_capacity(1024);
    let counted = allocation_counter::measure(|| {
        for (name, value) in document.iter().map(Result::unwrap) {
            // The digits of a decimal that no double equals are written as text first.
            if name != "price" {
                handfast_mql::key::encode(value, &mut key);
            }
        }
    });
    assert_eq!(counted.count_total, 0);
}

/// Shows that the counter counts, so that the tests can fail.
#[test]
fn the_counter_sees_an_allocation() {
    let counted = allocation_counter::measure(|| drop(document()));
    assert!(counted.count_total > 0);
}
