use bson::{Bson, DateTime, Document, RawArrayBuf, RawDocument, RawDocumentBuf, Timestamp, doc, rawdoc};
use handfast_mql::{CompileOptions, Context, Filter};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{LEVELS_MAX, pushed_down};

fn context() -> Context {
    Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0)
}

fn compiled(filter: &RawDocument) -> Filter {
    Filter::compile(filter, &CompileOptions::default()).unwrap()
}

/// Returns the filter that is sent, without the condition that excludes tombstones, and whether it is exact.
fn sent(filter: &RawDocument) -> (Document, bool) {
    let weaker = pushed_down(&compiled(filter), &context());
    let mut sent = Document::try_from(&weaker.filter).unwrap();
    assert_eq!(sent.remove("_hf.del"), Some(Bson::Document(doc! { "$ne": true })), "{filter:?}");
    (sent, weaker.is_exact)
}

/// The store compares strings by their bytes: a condition on one would leave out documents that match under a collation.
#[test]
fn a_collation_keeps_conditions_on_strings_here() {
    let english = rawdoc! { "COLLATION": { "locale": "en", "strength": 2 } };
    let options = CompileOptions::with_variables(&english).unwrap();
    let context = context().with_variables(english);
    for (filter, expected) in [
        (rawdoc! { "a": "x", "b": 1 }, doc! { "b": { "$eq": 1 } }),
        (rawdoc! { "a": { "$in": [1, "x"] }, "b": { "$gt": "x" } }, doc! {}),
        (rawdoc! { "a": { "$ne": "x" } }, doc! {}),
        (rawdoc! { "a": ["x"], "b": { "c": "x" } }, doc! {}),
        (rawdoc! { "$or": [{ "a": 1 }, { "b": "x" }] }, doc! {}),
        (rawdoc! { "a": { "$elemMatch": { "$gt": "x" } } }, doc! {}),
        (rawdoc! { "$expr": { "$eq": ["$a", "x"] } }, doc! {}),
    ] {
        let weaker = pushed_down(&Filter::compile(&filter, &options).unwrap(), &context);
        let mut sent = Document::try_from(&weaker.filter).unwrap();
        sent.remove("_hf.del");
        assert_eq!((sent, weaker.is_exact), (expected, false), "{filter:?}");
    }
}

#[test]
fn what_means_the_same_everywhere_is_sent() {
    let check = |filter: RawDocumentBuf, expected: Document| assert_eq!(sent(&filter), (expected, true), "{filter:?}");
    check(rawdoc! {}, doc! {});
    check(rawdoc! { "a": 1 }, doc! { "a": { "$eq": 1 } });
    check(rawdoc! { "a": { "$gt": 1 }, "b.c": "x" }, doc! { "a": { "$gt": 1 }, "b.c": { "$eq": "x" } });
    check(rawdoc! { "a": { "$gt": 1, "$lt": 5 } }, doc! { "a": { "$gt": 1 }, "$and": [{ "a": { "$lt": 5 } }] });
    check(rawdoc! { "a": { "$in": [2, 1] } }, doc! { "a": { "$in": [1, 2] } });
    check(rawdoc! { "a": { "$all": [1, 2] } }, doc! { "a": { "$eq": 1 }, "$and": [{ "a": { "$eq": 2 } }] });
    check(rawdoc! { "a": { "$ne": 1 } }, doc! { "$nor": [{ "a": { "$eq": 1 } }] });
    check(rawdoc! { "a": { "$exists": false } }, doc! { "$nor": [{ "a": { "$exists": true } }] });
    check(rawdoc! { "a": { "x": [1] } }, doc! { "a": { "$eq": { "x": [1] } } });
    check(rawdoc! { "a": null, "$comment": "why" }, doc! { "a": { "$eq": Bson::Null } });
    check(
        rawdoc! { "$or": [{ "a": 1 }, { "b": 2, "c": 3 }], "_id": { "$gt": 5 } },
        doc! { "$or": [{ "a": { "$eq": 1 } }, { "b": { "$eq": 2 }, "c": { "$eq": 3 } }], "_id": { "$gt": 5 } },
    );
    check(
        rawdoc! { "$or": [{ "a": 1 }, { "b": 2 }], "$and": [{ "$or": [{ "a": 3 }, { "b": 4 }] }] },
        doc! {
            "$or": [{ "a": { "$eq": 1 } }, { "b": { "$eq": 2 } }],
            "$and": [{ "$or": [{ "a": { "$eq": 3 } }, { "b": { "$eq": 4 } }] }],
        },
    );
}

#[test]
fn what_can_fail_or_sees_more_is_left_out() {
    let check = |filter: RawDocumentBuf, expected: Document| assert_eq!(sent(&filter), (expected, false), "{filter:?}");
    let fails = || rawdoc! { "$expr": { "$eq": [{ "$size": "$tags" }, 1] } };
    check(fails(), doc! {});
    check(rawdoc! { "a": 1, "$expr": { "$eq": ["$$ROOT", 1] } }, doc! { "a": { "$eq": 1 } });
    check(rawdoc! { "$and": [{ "a": 1 }, fails()] }, doc! { "a": { "$eq": 1 } });
    check(rawdoc! { "$or": [{ "a": 1 }, fails()] }, doc! {});
    check(
        rawdoc! { "$or": [{ "a": 1 }, { "b": 2, "$expr": true }] },
        doc! { "$or": [{ "a": { "$eq": 1 } }, { "b": { "$eq": 2 } }] },
    );
    check(rawdoc! { "$nor": [{ "a": 1 }, fails()] }, doc! { "$nor": [{ "a": { "$eq": 1 } }] });
    check(rawdoc! { "$nor": [{ "a": 1, "$expr": true }] }, doc! {});
    check(rawdoc! { "_hf": null }, doc! {});
    check(rawdoc! { "_hf.c": { "$not": { "$gt": 1 } }, "a": 1 }, doc! { "a": { "$eq": 1 } });
    // The only conditions on the `_id` that are pushed down are comparisons.
    check(rawdoc! { "_id": { "$type": "double" } }, doc! {});
    check(rawdoc! { "a": { "$type": "double" }, "b": { "$size": 1 }, "c": { "$mod": [2, 0] } }, doc! {});
    check(rawdoc! { "a": { "$gt": bson::RawBson::MinKey } }, doc! {});
    check(rawdoc! { "a": { "$gt": { "x": 1 } } }, doc! {});
    check(rawdoc! { "a..b": 1, "a.$x": 1, "": 1 }, doc! {});
}

#[test]
fn equalities_of_expressions_are_sent() {
    let check = |expression: RawDocumentBuf, expected: Document| {
        assert_eq!(sent(&rawdoc! { "$expr": expression.clone() }), (expected, false), "{expression:?}");
    };
    check(rawdoc! { "$eq": ["$a", 1] }, doc! { "a": { "$eq": 1 } });
    check(
        rawdoc! { "$and": [{ "$in": ["$a", [1, 2]] }, { "$eq": ["x", "$b.c"] }] },
        doc! { "a": { "$in": [1, 2] }, "b.c": { "$eq": "x" } },
    );
    // These compare otherwise than a filter, or with the field that users do not see.
    for expression in [
        rawdoc! { "$gt": ["$a", 1] },
        rawdoc! { "$eq": ["$a", [1]] },
        rawdoc! { "$eq": ["$a", "$b"] },
        rawdoc! { "$eq": ["$_hf.c", 1] },
        rawdoc! { "$or": [{ "$eq": ["$a", 1] }] },
    ] {
        check(expression, doc! {});
    }
    // A negation must not exclude more than its condition.
    assert_eq!(sent(&rawdoc! { "$nor": [{ "$expr": { "$eq": ["$a", 1] } }] }), (doc! {}, false));
    let branches = rawdoc! { "$or": [{ "b": 1 }, { "$expr": { "$eq": ["$a", 1] } }] };
    assert_eq!(sent(&branches), (doc! { "$or": [{ "b": { "$eq": 1 } }, { "a": { "$eq": 1 } }] }, false));
}

#[test]
fn a_regular_expression_is_sent_if_it_is_a_text() {
    let check = |source: &str, is_sent: bool| {
        let expected = if is_sent {
            doc! { "a": { "$regex": source } }
        } else {
            doc! {}
        };
        assert_eq!(sent(&rawdoc! { "a": { "$regex": source } }), (expected, false), "{source}");
    };
    ["^abc", "abc", "^a\\.b", "é 1"].iter().for_each(|source| check(source, true));
    ["^a.c", "(a+)+$", "a|b", "\\d", "a*", "[a]", "a$"].iter().for_each(|source| check(source, false));
    assert_eq!(sent(&rawdoc! { "a": { "$regex": "a", "$options": "i" } }), (doc! {}, false));
}

#[test]
fn elements_are_compared() {
    let check = |filter: RawDocumentBuf, expected: Document| assert_eq!(sent(&filter), (expected, false), "{filter:?}");
    check(
        rawdoc! { "a": { "$elemMatch": { "$gt": 1, "$type": "int" } } },
        doc! { "a": { "$elemMatch": { "$gt": 1 } } },
    );
    // The `_hf` of an element is a field of the user.
    check(
        rawdoc! { "a": { "$elemMatch": { "_hf": 1, "b": { "$size": 1 } } } },
        doc! { "a": { "$elemMatch": { "_hf": { "$eq": 1 } } } },
    );
    check(rawdoc! { "a": { "$elemMatch": { "b": { "$size": 1 } } } }, doc! {});
    check(rawdoc! { "a": { "$not": { "$elemMatch": { "$gt": 1 } } } }, doc! {});
}

#[test]
fn no_more_levels_are_sent_than_a_store_takes() {
    let mut filter = rawdoc! { "a": 1 };
    for _ in 0..LEVELS_MAX {
        filter = rawdoc! { "$nor": [filter] };
    }
    assert_eq!(sent(&filter), (doc! {}, false));
    let large =
        rawdoc! { "a": { "$in": (0..16).map(|n| format!("{n}{}", "x".repeat(1024 * 1024))).collect::<RawArrayBuf>() } };
    assert_eq!(sent(&large), (doc! {}, false));
}

fn value() -> impl Strategy<Value = Bson> {
    let scalar = prop_oneof![
        3 => (0..4).prop_map(Bson::Int32),
        1 => (0..4).prop_map(|number| Bson::Double(f64::from(number))),
        1 => Just(Bson::Null),
        2 => "[ab]{0,2}".prop_map(Bson::String),
    ];
    scalar.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Bson::Array),
            vec(("[ab]", inner), 0..3).prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    select(vec!["_id", "a", "b", "a.b", "a.0", "_hf", "_hf.c", "_hf.del"]).prop_map(str::to_owned)
}

/// Generates conditions on a field, of all kinds.
fn condition() -> impl Strategy<Value = Bson> {
    let of =
        |operator: &'static str, operand: Bson| Bson::Document([(operator.to_owned(), operand)].into_iter().collect());
    let compare = (select(vec!["$eq", "$ne", "$lt", "$lte", "$gt", "$gte"]), value());
    let leaf = prop_oneof![
        4 => compare.prop_map(move |(operator, operand)| of(operator, operand)),
        2 => (select(vec!["$in", "$nin", "$all"]), vec(value(), 0..3)).prop_map(move |(operator, list)| of(operator, list.into())),
        1 => any::<bool>().prop_map(move |exists| of("$exists", exists.into())),
        1 => (0..3_i32).prop_map(move |size| of("$size", size.into())),
        1 => select(vec!["int", "double", "string", "array", "object"]).prop_map(move |name| of("$type", name.into())),
        1 => select(vec!["^a", "a", "b$", "^(a|b)"]).prop_map(move |source| of("$regex", source.into())),
        1 => (1..3, 0..2).prop_map(move |(by, left)| of("$mod", vec![Bson::Int32(by), Bson::Int32(left)].into())),
    ];
    leaf.prop_recursive(2, 4, 1, move |inner| {
        (select(vec!["$not", "$elemMatch"]), inner).prop_map(move |(operator, inner)| of(operator, inner))
    })
}

fn expression() -> impl Strategy<Value = Document> {
    select(vec![
        doc! { "$expr": { "$eq": [{ "$size": "$a" }, 1] } },
        doc! { "$expr": { "$gt": [{ "$strLenCP": "$b" }, 0] } },
        doc! { "$expr": { "$eq": [{ "$size": { "$objectToArray": "$$ROOT" } }, 2] } },
        doc! { "$expr": { "$eq": [{ "$type": "$_hf" }, "missing"] } },
        doc! { "$expr": { "$eq": ["$a", 1] } },
        doc! { "$expr": { "$and": [{ "$eq": ["$a.b", Bson::Null] }, { "$in": ["$b", [1, "a", { "a": 1 }]] }] } },
        doc! { "$expr": { "$in": ["$_id", [1, 2.0]] } },
        doc! { "$expr": { "$eq": ["$_hf.c", "$$REMOVE"] } },
        doc! { "$expr": { "$ne": ["$_hf.c", 8] } },
        doc! { "$expr": { "$eq": ["$a", [1]] } },
        doc! { "$expr": { "$lt": ["$a", 2] } },
    ])
}

fn filter() -> impl Strategy<Value = Document> {
    let leaf = prop_oneof![
        5 => (path(), condition()).prop_map(|(path, condition)| [(path, condition)].into_iter().collect::<Document>()),
        1 => expression(),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        (select(vec!["$and", "$or", "$nor"]), vec(inner, 1..4))
            .prop_map(|(operator, all)| [(operator.to_owned(), Bson::from(all))].into_iter().collect::<Document>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// A document that matches a filter matches the pushed-down filter as well in its stored form, which has the hidden field at its end and may
    /// spell the `_id` differently.
    #[test]
    fn a_matching_document_is_found(filter in filter(), fields in vec(("[ab]", value()), 0..3), id in 0..4, respelled: bool) {
        let context = context();
        let filter = RawDocumentBuf::try_from(&filter).unwrap();
        let Ok(compiled_filter) = Filter::compile(&filter, &CompileOptions::default()) else { return Ok(()) };
        let weaker = pushed_down(&compiled_filter, &context);
        let asked = compiled(&weaker.filter);
        let fields: Document = fields.into_iter().collect();
        let with = |id: Bson, rest: Document| {
            let mut document = doc! { "_id": id };
            document.extend(rest);
            RawDocumentBuf::try_from(&document).unwrap()
        };
        let hidden = doc! { "v": 9_i64, "c": 8_i64, "s": 7_i64 };
        let shown = with(if respelled { Bson::Double(f64::from(id)) } else { Bson::Int32(id) }, fields.clone());
        let mut stored = fields;
        stored.insert("_hf", hidden.clone());
        let stored = with(Bson::Int32(id), stored);
        let is_asked_for = asked.matches(&stored, &context).unwrap();
        let matches = compiled_filter.matches(&shown, &context);
        match matches {
            Ok(matches) => {
                prop_assert!(!matches || is_asked_for, "{filter:?} is asked for as {:?}", weaker.filter);
                prop_assert!(!weaker.is_exact || matches == is_asked_for, "{filter:?} is not {:?}", weaker.filter);
            }
            Err(_) => prop_assert!(!weaker.is_exact),
        }
        prop_assert_eq!(is_asked_for, asked.matches(&shown, &context).unwrap());
        let mut of_tombstone = hidden;
        of_tombstone.insert("del", true);
        let tombstone = with(Bson::Int32(id), doc! { "_hf": of_tombstone });
        prop_assert!(!asked.matches(&tombstone, &context).unwrap(), "{filter:?} finds tombstones");
    }
}
