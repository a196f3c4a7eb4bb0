mod arrays;
mod bounds;
mod necessary;
mod sample;

use bson::oid::ObjectId;
use bson::raw::CString;
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Decimal128, RawBson, RawBsonRef, RawDocumentBuf, Regex, Timestamp, rawdoc};

use super::{BitCondition, Filter, Operand, Predicate, RegexTest};
use crate::{Code, CompileOptions, Context, Error, Result};

fn context() -> Context {
    Context::new(DateTime::from_millis(0), Timestamp { time: 0, increment: 0 }, 0)
}

fn compile(filter: &RawDocumentBuf) -> Result<Filter> {
    Filter::compile(filter, &CompileOptions::default())
}

fn matches(filter: &RawDocumentBuf, document: &RawDocumentBuf) -> bool {
    compile(filter).unwrap().matches(document, &context()).unwrap()
}

/// Checks that a filter matches the first documents and does not match the others.
#[track_caller]
fn check<const N: usize, const M: usize>(
    filter: RawDocumentBuf,
    found: [RawDocumentBuf; N],
    not_found: [RawDocumentBuf; M],
) {
    for document in found {
        assert!(matches(&filter, &document), "{filter:?} should find {document:?}");
    }
    for document in not_found {
        assert!(!matches(&filter, &document), "{filter:?} should not find {document:?}");
    }
}

fn regex(pattern: &str, options: &str) -> RawBson {
    RawBson::RegularExpression(Regex {
        pattern: CString::try_from(pattern).unwrap(),
        options: CString::try_from(options).unwrap(),
    })
}

fn decimal(text: &str) -> Decimal128 {
    text.parse().unwrap()
}

fn binary(bytes: &[u8]) -> RawBson {
    RawBson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
}

const NULL: RawBson = RawBson::Null;

#[test]
fn equality_compares_values_and_array_elements() {
    check(rawdoc! {}, [rawdoc! {}, rawdoc! { "a": 1 }], []);
    check(
        rawdoc! { "a": 1 },
        [
            rawdoc! { "a": 1 },
            rawdoc! { "a": 1.0 },
            rawdoc! { "a": 1_i64 },
            rawdoc! { "a": decimal("1.00") },
            rawdoc! { "a": [2, 1] },
        ],
        [rawdoc! { "a": 2 }, rawdoc! { "a": "1" }, rawdoc! { "a": [[1]] }, rawdoc! { "b": 1 }, rawdoc! { "a": true }],
    );
    // A literal array equals the array as a whole or an element that is such an array.
    check(
        rawdoc! { "a": [1, 2] },
        [rawdoc! { "a": [1, 2] }, rawdoc! { "a": [[1, 2], 3] }, rawdoc! { "a": [1.0, 2_i64] }],
        [rawdoc! { "a": [2, 1] }, rawdoc! { "a": [1, 2, 3] }, rawdoc! { "a": 1 }],
    );
    check(rawdoc! { "a": { "$eq": [1, 2] } }, [rawdoc! { "a": [[1, 2]] }], [rawdoc! { "a": [1] }]);
    // A literal document equals field by field, in order.
    check(
        rawdoc! { "a": { "x": 1, "y": 2 } },
        [rawdoc! { "a": { "x": 1, "y": 2 } }, rawdoc! { "a": [{ "x": 1, "y": 2.0 }] }],
        [rawdoc! { "a": { "y": 2, "x": 1 } }, rawdoc! { "a": { "x": 1 } }, rawdoc! { "a": { "x": 1, "y": 2, "z": 3 } }],
    );
    check(rawdoc! { "a": {} }, [rawdoc! { "a": {} }], [rawdoc! { "a": { "x": 1 } }, rawdoc! {}]);
    check(rawdoc! { "a": "x" }, [rawdoc! { "a": RawBson::Symbol("x".into()) }], [rawdoc! { "a": "X" }]);
    check(
        rawdoc! { "a": f64::NAN },
        [rawdoc! { "a": f64::NAN }, rawdoc! { "a": decimal("NaN") }],
        [rawdoc! { "a": 0 }],
    );
    check(rawdoc! { "a": RawBson::MinKey }, [rawdoc! { "a": RawBson::MinKey }], [rawdoc! {}, rawdoc! { "a": 1 }]);
    check(rawdoc! { "a": -0.0 }, [rawdoc! { "a": 0 }], []);
    // A filter has several conditions, and the same path twice.
    check(rawdoc! { "a": 1, "b": 2 }, [rawdoc! { "b": 2, "a": 1 }], [rawdoc! { "a": 1 }, rawdoc! { "b": 2 }]);
    check(rawdoc! { "a": 1, "a": 2 }, [rawdoc! { "a": [1, 2] }], [rawdoc! { "a": 1 }]);
    // Fields with the names of a DBRef are no operators.
    check(rawdoc! { "a": { "$ref": "c", "$id": 1 } }, [rawdoc! { "a": { "$ref": "c", "$id": 1 } }], [rawdoc! {}]);
    let links = |id: i32| rawdoc! { "a": [5, { "$ref": "c", "$id": id, "$db": "d", "n": id }] };
    for filter in [
        rawdoc! { "a": { "$elemMatch": { "$id": 1 } } },
        rawdoc! { "a": { "$elemMatch": { "$ref": "c", "$id": 1, "$db": "d" } } },
        rawdoc! { "a": { "$elemMatch": { "n": 1, "$ref": "c" } } },
        rawdoc! { "a": { "$elemMatch": { "$or": [{ "$id": 1 }, { "$db": "e" }] } } },
    ] {
        check(filter, [links(1)], [links(2), rawdoc! { "a": [1] }]);
    }
    check(rawdoc! { "$id": 1 }, [rawdoc! { "$id": 1 }], [rawdoc! { "$id": 2 }]);
    // Their values are compared, and hold no operators.
    check(rawdoc! { "$id": { "$in": [1] } }, [rawdoc! { "$id": { "$in": [1] } }], [rawdoc! { "$id": 1 }]);
}

#[test]
fn null_means_null_or_missing() {
    let absent = [rawdoc! {}, rawdoc! { "a": NULL }, rawdoc! { "a": RawBson::Undefined }, rawdoc! { "a": [1, NULL] }];
    check(rawdoc! { "a": NULL }, absent.clone(), [rawdoc! { "a": 0 }, rawdoc! { "a": [] }, rawdoc! { "a": [[NULL]] }]);
    check(rawdoc! { "a": { "$in": [NULL, 7] } }, absent.clone(), [rawdoc! { "a": 0 }, rawdoc! { "a": [] }]);
    check(rawdoc! { "a": { "$gte": NULL } }, absent.clone(), [rawdoc! { "a": 0 }]);
    check(rawdoc! { "a": { "$lte": NULL } }, absent, [rawdoc! { "a": 0 }]);
    check(rawdoc! { "a": { "$gt": NULL } }, [], [rawdoc! {}, rawdoc! { "a": NULL }, rawdoc! { "a": 1 }]);
    check(
        rawdoc! { "a": { "$ne": NULL } },
        [rawdoc! { "a": 0 }, rawdoc! { "a": [] }],
        [rawdoc! {}, rawdoc! { "a": NULL }],
    );
    // A nested scalar has no fields; an array without documents has no value to compare.
    check(
        rawdoc! { "a.b": NULL },
        [
            rawdoc! {},
            rawdoc! { "a": NULL },
            rawdoc! { "a": 4 },
            rawdoc! { "a": {} },
            rawdoc! { "a": { "b": NULL } },
            rawdoc! { "a": [{}] },
            rawdoc! { "a": [{ "b": 1 }, { "c": 1 }] },
        ],
        [
            rawdoc! { "a": { "b": 1 } },
            rawdoc! { "a": [] },
            rawdoc! { "a": [1, 2] },
            rawdoc! { "a": [{ "b": 1 }] },
            rawdoc! { "a": [[]] },
        ],
    );
}

#[test]
fn ranges_stay_within_their_type() {
    check(
        rawdoc! { "a": { "$gt": 5 } },
        [
            rawdoc! { "a": 6 },
            rawdoc! { "a": 5.5 },
            rawdoc! { "a": decimal("5.1") },
            rawdoc! { "a": [1, 9] },
            rawdoc! { "a": f64::INFINITY },
        ],
        [
            rawdoc! { "a": 5 },
            rawdoc! { "a": "9" },
            rawdoc! { "a": [] },
            rawdoc! { "a": f64::NAN },
            rawdoc! {},
            rawdoc! { "a": [[9]] },
        ],
    );
    check(
        rawdoc! { "a": { "$lt": 5 } },
        [rawdoc! { "a": 4 }, rawdoc! { "a": f64::NEG_INFINITY }],
        [rawdoc! { "a": 5 }, rawdoc! { "a": f64::NAN }, rawdoc! { "a": NULL }, rawdoc! { "a": false }],
    );
    check(rawdoc! { "a": { "$lte": f64::NAN } }, [rawdoc! { "a": f64::NAN }], [rawdoc! { "a": 1 }]);
    check(rawdoc! { "a": { "$gt": f64::NAN } }, [], [rawdoc! { "a": f64::NAN }, rawdoc! { "a": 1 }]);
    check(
        rawdoc! { "a": { "$gte": "b", "$lt": "d" } },
        [rawdoc! { "a": "c" }, rawdoc! { "a": "b" }],
        [rawdoc! { "a": "d" }, rawdoc! { "a": 3 }],
    );
    // Each bound may be met by a different element.
    check(
        rawdoc! { "a": { "$gt": 1, "$lt": 3 } },
        [rawdoc! { "a": [0, 5] }, rawdoc! { "a": 2 }],
        [rawdoc! { "a": [3, 4] }],
    );
    check(
        rawdoc! { "a": { "$gt": [1, 2] } },
        [rawdoc! { "a": [1, 3] }, rawdoc! { "a": [[2]] }],
        [rawdoc! { "a": [1, 2] }, rawdoc! { "a": 5 }],
    );
    check(
        rawdoc! { "a": { "$gt": { "x": 1 } } },
        [rawdoc! { "a": { "x": 2 } }],
        [rawdoc! { "a": { "x": 1 } }, rawdoc! { "a": 5 }],
    );
    check(
        rawdoc! { "a": { "$gte": DateTime::from_millis(5) } },
        [rawdoc! { "a": DateTime::from_millis(5) }],
        [rawdoc! { "a": Timestamp { time: 9, increment: 0 } }, rawdoc! { "a": 9 }],
    );
    check(
        rawdoc! { "a": { "$lt": ObjectId::from_bytes([9; 12]) } },
        [rawdoc! { "a": ObjectId::from_bytes([1; 12]) }],
        [rawdoc! { "a": "1" }],
    );
    check(rawdoc! { "a": { "$lt": true } }, [rawdoc! { "a": false }], [rawdoc! { "a": 0 }]);
    // The ends of the order compare with everything.
    check(
        rawdoc! { "a": { "$gt": RawBson::MinKey } },
        [rawdoc! { "a": 1 }, rawdoc! {}, rawdoc! { "a": "x" }],
        [rawdoc! { "a": RawBson::MinKey }],
    );
    check(rawdoc! { "a": { "$gte": RawBson::MinKey } }, [rawdoc! { "a": RawBson::MinKey }], []);
    check(
        rawdoc! { "a": { "$lt": RawBson::MaxKey } },
        [rawdoc! { "a": 1 }, rawdoc! { "a": f64::NAN }],
        [rawdoc! { "a": RawBson::MaxKey }],
    );
    check(rawdoc! { "a": { "$gt": RawBson::MaxKey } }, [], [rawdoc! { "a": 1 }]);
}

#[test]
fn in_and_nin_and_negations_match() {
    check(
        rawdoc! { "a": { "$in": [1, "x", [7]] } },
        [rawdoc! { "a": 1.0 }, rawdoc! { "a": ["y", "x"] }, rawdoc! { "a": [7] }, rawdoc! { "a": [[7]] }],
        [rawdoc! { "a": 7 }, rawdoc! {}, rawdoc! { "a": "y" }],
    );
    check(rawdoc! { "a": { "$in": [] } }, [], [rawdoc! {}, rawdoc! { "a": 1 }]);
    check(
        rawdoc! { "a": { "$in": [regex("^ab", ""), 5] } },
        [rawdoc! { "a": "abc" }, rawdoc! { "a": 5 }],
        [rawdoc! { "a": "xab" }],
    );
    check(
        rawdoc! { "a": { "$nin": [1, 2] } },
        [rawdoc! { "a": 3 }, rawdoc! {}, rawdoc! { "a": [] }],
        [rawdoc! { "a": 1 }, rawdoc! { "a": [3, 2] }],
    );
    check(rawdoc! { "a": { "$nin": [] } }, [rawdoc! {}, rawdoc! { "a": 1 }], []);
    check(
        rawdoc! { "a": { "$ne": 1 } },
        [rawdoc! { "a": 2 }, rawdoc! {}, rawdoc! { "a": "1" }],
        [rawdoc! { "a": 1 }, rawdoc! { "a": [1, 2] }],
    );
    check(
        rawdoc! { "a": { "$not": { "$gt": 5 } } },
        [rawdoc! { "a": 5 }, rawdoc! {}, rawdoc! { "a": "x" }],
        [rawdoc! { "a": 6 }, rawdoc! { "a": [1, 6] }],
    );
    // The negation is of the conjunction of both conditions.
    check(
        rawdoc! { "a": { "$not": { "$gt": 1, "$lt": 3 } } },
        [rawdoc! { "a": 5 }, rawdoc! { "a": 1 }],
        [rawdoc! { "a": 2 }, rawdoc! { "a": [0, 5] }],
    );
    check(rawdoc! { "a": { "$not": regex("^x", "i") } }, [rawdoc! { "a": "y" }, rawdoc! {}], [rawdoc! { "a": "Xy" }]);
    check(rawdoc! { "a": { "$not": { "$not": { "$eq": 1 } } } }, [rawdoc! { "a": 1 }], [rawdoc! { "a": 2 }]);
}

#[test]
fn and_or_and_nor_combine_conditions() {
    check(rawdoc! { "$and": [{ "a": 1 }, { "b": 2 }] }, [rawdoc! { "a": 1, "b": 2 }], [rawdoc! { "a": 1 }]);
    check(rawdoc! { "$or": [{ "a": 1 }, { "b": 2 }] }, [rawdoc! { "a": 1 }, rawdoc! { "b": 2 }], [rawdoc! { "a": 2 }]);
    check(
        rawdoc! { "$nor": [{ "a": 1 }, { "b": 2 }] },
        [rawdoc! {}, rawdoc! { "a": 2 }],
        [rawdoc! { "a": 1 }, rawdoc! { "b": 2 }],
    );
    check(
        rawdoc! { "c": 3, "$or": [{ "a": 1 }, { "$and": [{ "b": 1 }, { "b": 2 }] }] },
        [rawdoc! { "c": 3, "b": [1, 2] }],
        [rawdoc! { "c": 3 }, rawdoc! { "a": 1 }],
    );
    check(rawdoc! { "$or": [{}] }, [rawdoc! {}], []);
    check(rawdoc! { "$comment": "why", "a": 1 }, [rawdoc! { "a": 1 }], [rawdoc! {}]);
}

#[test]
fn existence_and_type_are_tested() {
    check(rawdoc! { "a": { "$exists": true } }, [rawdoc! { "a": NULL }, rawdoc! { "a": [] }], [rawdoc! {}]);
    check(rawdoc! { "a": { "$exists": false } }, [rawdoc! {}], [rawdoc! { "a": NULL }]);
    check(rawdoc! { "a": { "$exists": 0.0 } }, [rawdoc! {}], [rawdoc! { "a": 1 }]);
    check(rawdoc! { "a": { "$exists": "" } }, [rawdoc! { "a": 1 }], [rawdoc! {}]);
    check(
        rawdoc! { "a.b": { "$exists": true } },
        [rawdoc! { "a": [1, { "b": 1 }] }],
        [rawdoc! { "a": [{ "c": 1 }] }, rawdoc! { "a": 1 }],
    );
    check(
        rawdoc! { "a.b": { "$exists": false } },
        [rawdoc! { "a": [] }, rawdoc! { "a": [1] }, rawdoc! { "a": 1 }],
        [rawdoc! { "a": [{ "b": 1 }, {}] }],
    );
    check(
        rawdoc! { "a.1": { "$exists": true } },
        [rawdoc! { "a": [1, 2] }, rawdoc! { "a": { "1": 2 } }],
        [rawdoc! { "a": [1] }],
    );

    check(
        rawdoc! { "a": { "$type": "string" } },
        [rawdoc! { "a": "x" }, rawdoc! { "a": [1, "x"] }],
        [rawdoc! { "a": 1 }, rawdoc! {}],
    );
    check(rawdoc! { "a": { "$type": 2 } }, [rawdoc! { "a": "x" }], [rawdoc! { "a": 2 }]);
    check(
        rawdoc! { "a": { "$type": "number" } },
        [rawdoc! { "a": 1 }, rawdoc! { "a": 1_i64 }, rawdoc! { "a": 1.5 }, rawdoc! { "a": decimal("1") }],
        [rawdoc! { "a": "1" }],
    );
    check(rawdoc! { "a": { "$type": "array" } }, [rawdoc! { "a": [] }, rawdoc! { "a": [1] }], [rawdoc! { "a": 1 }]);
    check(
        rawdoc! { "a": { "$type": ["null", "bool"] } },
        [rawdoc! { "a": NULL }, rawdoc! { "a": true }],
        [rawdoc! {}, rawdoc! { "a": 0 }],
    );
    check(rawdoc! { "a": { "$type": -1 } }, [rawdoc! { "a": RawBson::MinKey }], [rawdoc! { "a": RawBson::MaxKey }]);
    check(rawdoc! { "a": { "$type": 127.0 } }, [rawdoc! { "a": RawBson::MaxKey }], [rawdoc! { "a": RawBson::MinKey }]);
}

#[test]
fn regular_expressions_match_strings() {
    check(
        rawdoc! { "a": regex("^ab+c$", "") },
        [rawdoc! { "a": "abbc" }, rawdoc! { "a": [1, "abc"] }],
        [rawdoc! { "a": "xabc" }, rawdoc! { "a": 1 }, rawdoc! {}],
    );
    check(rawdoc! { "a": { "$regex": "AB", "$options": "i" } }, [rawdoc! { "a": "xabx" }], [rawdoc! { "a": "a b" }]);
    check(rawdoc! { "a": { "$options": "i", "$regex": "AB" } }, [rawdoc! { "a": "ab" }], []);
    check(rawdoc! { "a": { "$regex": regex("ab", "i") } }, [rawdoc! { "a": "AB" }], []);
    check(rawdoc! { "a": { "$regex": regex("ab", ""), "$options": "i" } }, [rawdoc! { "a": "AB" }], []);
    check(rawdoc! { "a": { "$regex": "^b", "$options": "m" } }, [rawdoc! { "a": "a\nb" }], [rawdoc! { "a": "ab" }]);
    check(rawdoc! { "a": { "$regex": "a.b", "$options": "s" } }, [rawdoc! { "a": "a\nb" }], []);
    check(rawdoc! { "a": { "$regex": "a.b" } }, [rawdoc! { "a": "axb" }], [rawdoc! { "a": "a\nb" }]);
    check(rawdoc! { "a": { "$regex": "a b # c", "$options": "x" } }, [rawdoc! { "a": "ab" }], [rawdoc! { "a": "a b" }]);
    check(rawdoc! { "a": { "$regex": "^a", "$ne": "ab" } }, [rawdoc! { "a": "ac" }], [rawdoc! { "a": "ab" }]);
    // Look-around and back-references need backtracking.
    check(rawdoc! { "a": { "$regex": "^(?!foo)" } }, [rawdoc! { "a": "bar" }], [rawdoc! { "a": "foobar" }]);
    check(rawdoc! { "a": { "$regex": r"^(.)\1$" } }, [rawdoc! { "a": "xx" }], [rawdoc! { "a": "xy" }]);
    // As a value it equals itself; $eq does not match with it.
    check(rawdoc! { "a": regex("b", "i") }, [rawdoc! { "a": regex("b", "i") }], [rawdoc! { "a": regex("b", "") }]);
    check(rawdoc! { "a": { "$eq": regex("b", "") } }, [rawdoc! { "a": regex("b", "") }], [rawdoc! { "a": "b" }]);
    // Symbols are strings.
    check(rawdoc! { "a": regex("b", "") }, [rawdoc! { "a": RawBson::Symbol("abc".into()) }], []);
    // A hostile pattern ends in an error.
    let filter = compile(&rawdoc! { "a": { "$regex": r"^(a|aa)+\1?(?=b)$" } }).unwrap();
    let error = filter.matches(&rawdoc! { "a": "a".repeat(60) }, &context()).unwrap_err();
    assert_eq!(error.code(), Code(51_156));
}

#[test]
fn regular_expressions_have_literal_prefixes() {
    let prefix = |pattern: &str, options: &str| RegexTest::compile(pattern, options).unwrap().prefix();
    for (pattern, expected) in [
        ("^abc", Some("abc")),
        (r"\Aabc", Some("abc")),
        ("^abc.*", Some("abc")),
        ("^abc*", Some("ab")),
        ("^abc?d", Some("ab")),
        ("^ab{2}", Some("a")),
        ("^ab+", Some("a")),
        (r"^a\.b", Some("a.b")),
        (r"^a\db", Some("a")),
        (r"^a\.*", Some("a")),
        ("^abc$", Some("abc")),
        ("^(abc)", None),
        ("^a|b", None),
        ("abc", None),
        ("^", None),
        ("^a*", None),
    ] {
        assert_eq!(prefix(pattern, "").as_deref(), expected, "{pattern}");
    }
    assert_eq!(prefix("^abc", "i"), None);
    assert_eq!(prefix("^abc", "m"), None);
    assert_eq!(prefix("^a b", "x"), None);
}

#[test]
fn mod_matches_numbers_by_remainder() {
    check(
        rawdoc! { "a": { "$mod": [4, 1] } },
        [rawdoc! { "a": 5 }, rawdoc! { "a": 5.9 }, rawdoc! { "a": decimal("9.5") }, rawdoc! { "a": [0, 1] }],
        [
            rawdoc! { "a": 4 },
            rawdoc! { "a": "5" },
            rawdoc! { "a": f64::NAN },
            rawdoc! { "a": f64::INFINITY },
            rawdoc! { "a": -3 },
            rawdoc! {},
        ],
    );
    check(rawdoc! { "a": { "$mod": [4, -3] } }, [rawdoc! { "a": -7 }], [rawdoc! { "a": 1 }]);
    check(rawdoc! { "a": { "$mod": [-4, 1] } }, [rawdoc! { "a": 5 }], []);
    check(rawdoc! { "a": { "$mod": [4.9, 1.9] } }, [rawdoc! { "a": 5 }], [rawdoc! { "a": 4 }]);
    check(rawdoc! { "a": { "$mod": [-1, 0] } }, [rawdoc! { "a": i64::MIN }], []);
}

#[test]
fn bits_of_numbers_and_binaries_are_tested() {
    let name = |condition| ["$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"][condition as usize];
    let ask = |condition: BitCondition, operand: RawBson, value: RawBson| {
        let mut inner = RawDocumentBuf::new();
        inner.append(CString::try_from(name(condition)).unwrap(), operand);
        matches(&rawdoc! { "a": inner }, &rawdoc! { "a": value })
    };
    use BitCondition::{AllClear, AllSet, AnyClear, AnySet};
    let int = RawBson::Int32;
    // 54 is 110110.
    for (condition, operand, expected) in [
        (AllSet, int(50), true),
        (AllSet, int(35), false),
        (AllClear, int(9), true),
        (AllClear, int(10), false),
        (AnySet, int(12), true),
        (AnySet, int(9), false),
        (AnyClear, int(13), true),
        (AnyClear, int(6), false),
        (AllSet, int(0), true),
        (AnySet, int(0), false),
        (AllSet, bson::rawbson!([1, 5]), true),
        (AllSet, bson::rawbson!([0]), false),
        (AllClear, bson::rawbson!([200]), true),
        (AllSet, binary(&[0x36]), true),
        (AllSet, binary(&[0, 1]), false),
    ] {
        for value in
            [int(54), RawBson::Int64(54), RawBson::Double(54.0), RawBson::Decimal128(decimal("54")), binary(&[54, 0])]
        {
            assert_eq!(ask(condition, operand.clone(), value.clone()), expected, "{condition:?} {operand:?} {value:?}");
        }
    }
    // A negative number has all high bits set, binary data ends in zeros.
    assert!(ask(AllSet, bson::rawbson!([63, 500]), int(-1)));
    assert!(!ask(AnySet, bson::rawbson!([500]), binary(&[255])));
    for value in
        [RawBson::Double(1.5), RawBson::String("1".into()), NULL, RawBson::Double(1e300), RawBson::Double(f64::NAN)]
    {
        assert!(!ask(AnyClear, int(255), value));
    }
    assert!(matches(&rawdoc! { "a": { "$bitsAllSet": 2 } }, &rawdoc! { "a": [1, 2] }));
}

#[test]
fn expr_evaluates_an_expression_for_each_document() {
    check(rawdoc! { "$expr": { "$gt": ["$a", "$b"] } }, [rawdoc! { "a": 2, "b": 1 }], [rawdoc! { "a": 1, "b": 2 }]);
    check(rawdoc! { "c": 1, "$expr": { "$eq": ["$$ROOT.a", 5] } }, [rawdoc! { "c": 1, "a": 5 }], [rawdoc! { "a": 5 }]);
    let options = CompileOptions { variables: vec!["least".into()], collation: None };
    let filter = Filter::compile(&rawdoc! { "$expr": { "$gte": ["$a", "$$least"] } }, &options).unwrap();
    let context = context().with_variables(rawdoc! { "least": 3 });
    assert!(filter.matches(&rawdoc! { "a": 3 }, &context).unwrap());
    assert!(!filter.matches(&rawdoc! { "a": 2 }, &context).unwrap());
    // An expression may fail on a document.
    let failing = compile(&rawdoc! { "$expr": { "$divide": [1, "$a"] } }).unwrap();
    assert!(failing.matches(&rawdoc! { "a": 0 }, &context).is_err());
    let undefined = compile(&rawdoc! { "$expr": "$$nobody" }).unwrap_err();
    assert_eq!(undefined.code(), Code(17_276));
}

#[test]
fn invalid_filters_are_refused() {
    let error = |filter: RawDocumentBuf| -> Error { compile(&filter).unwrap_err() };
    for (filter, code, message) in [
        (rawdoc! { "a": { "$foo": 1 } }, 2, "unknown operator: $foo"),
        (rawdoc! { "a": { "$gt": 1, "b": 2 } }, 2, "unknown operator: b"),
        (rawdoc! { "a": { "$comment": "x" } }, 2, "unknown operator: $comment"),
        (
            rawdoc! { "$foo": 1 },
            2,
            "unknown top level operator: $foo. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (rawdoc! { "$and": 1 }, 2, "$and must be an array"),
        (rawdoc! { "$or": [] }, 2, "$and/$or/$nor must be a nonempty array"),
        (rawdoc! { "$nor": [1] }, 2, "$or/$and/$nor entries need to be full objects"),
        (rawdoc! { "a": { "$in": 1 } }, 2, "$in needs an array"),
        (rawdoc! { "a": { "$nin": {} } }, 2, "$nin needs an array"),
        (rawdoc! { "a": { "$in": [{ "$gt": 1 }] } }, 2, "cannot nest $ under $in"),
        (rawdoc! { "a": { "$not": 1 } }, 2, "$not needs a regex or a document"),
        (rawdoc! { "a": { "$not": {} } }, 2, "$not cannot be empty"),
        (rawdoc! { "a": { "$not": { "x": 1 } } }, 2, "unknown operator: x"),
        (rawdoc! { "a": { "$ne": regex("x", "") } }, 2, "Can't have regex as arg to $ne."),
        (rawdoc! { "a": { "$gt": regex("x", "") } }, 2, "Can't have RegEx as arg to predicate over field 'a'."),
        (rawdoc! { "a": RawBson::Undefined }, 2, "cannot compare to undefined"),
        (rawdoc! { "a": { "$all": 1 } }, 2, "$all needs an array"),
        (rawdoc! { "a": { "$all": [{ "$gt": 1 }] } }, 2, "no $ expressions in $all"),
        (rawdoc! { "a": { "$all": [1, { "$elemMatch": { "x": 1 } }] } }, 2, "$all/$elemMatch has to be consistent"),
        (rawdoc! { "a": { "$elemMatch": 1 } }, 2, "$elemMatch needs an Object"),
        (rawdoc! { "a": { "$elemMatch": { "$expr": true } } }, 2, "unknown operator: $expr"),
        (
            rawdoc! { "a": { "$elemMatch": { "x": 1, "$expr": true } } },
            2,
            "$expr can only be applied to the top-level document",
        ),
        (rawdoc! { "a": { "$size": "x" } }, 2, "Failed to parse $size. Expected a number"),
        (rawdoc! { "a": { "$size": -1 } }, 2, "Failed to parse $size. Expected a non-negative number"),
        (rawdoc! { "a": { "$size": 1.5 } }, 2, "Failed to parse $size. Expected an integer"),
        (rawdoc! { "a": { "$mod": 1 } }, 2, "malformed mod, needs to be an array"),
        (rawdoc! { "a": { "$mod": [] } }, 2, "malformed mod, not enough elements"),
        (rawdoc! { "a": { "$mod": [1] } }, 2, "malformed mod, not enough elements"),
        (rawdoc! { "a": { "$mod": [1, 2, 3] } }, 2, "malformed mod, too many elements"),
        (rawdoc! { "a": { "$mod": [0, 1] } }, 2, "divisor cannot be 0"),
        (rawdoc! { "a": { "$mod": [0.5, 1] } }, 2, "divisor cannot be 0"),
        (rawdoc! { "a": { "$mod": ["x", 1] } }, 2, "malformed mod, divisor not a number"),
        (rawdoc! { "a": { "$mod": [1, "x"] } }, 2, "malformed mod, remainder not a number"),
        (rawdoc! { "a": { "$mod": [f64::NAN, 1] } }, 2, "malformed mod, divisor value is invalid"),
        (rawdoc! { "a": { "$type": "strin" } }, 2, "Unknown type name alias: strin"),
        (rawdoc! { "a": { "$type": 20 } }, 2, "Invalid numerical type code: 20"),
        (rawdoc! { "a": { "$type": 0 } }, 2, "Invalid numerical type code: 0. Instead use {$exists:false}."),
        (rawdoc! { "a": { "$type": 1.5 } }, 2, "Invalid numerical type code: 1.5"),
        (rawdoc! { "a": { "$type": [] } }, 9, "must match at least one type"),
        (rawdoc! { "a": { "$type": {} } }, 14, "type must be represented as a number or a string"),
        (rawdoc! { "a": { "$options": "i" } }, 2, "$options needs a $regex"),
        (rawdoc! { "a": { "$regex": 1 } }, 2, "$regex has to be a string"),
        (rawdoc! { "a": { "$regex": "x", "$options": 1 } }, 2, "$options has to be a string"),
        (
            rawdoc! { "a": { "$regex": regex("x", "i"), "$options": "i" } },
            51_075,
            "options set in both $regex and $options",
        ),
        (rawdoc! { "a": { "$regex": "(" } }, 51_091, "Regular expression is invalid"),
        (rawdoc! { "a": { "$regex": "x", "$options": "z" } }, 51_108, "invalid flag in regex options: z"),
        (rawdoc! { "a": { "$regex": "x".repeat(32_765) } }, 51_091, "Regular expression is too long"),
        (rawdoc! { "a": { "$regex": "x\0" } }, 2, "Regular expression cannot contain an embedded null byte"),
        (
            rawdoc! { "a": { "$bitsAllSet": "x" } },
            2,
            "$bitsAllSet takes an Array, a number, or a BinData but received: string",
        ),
        (rawdoc! { "a": { "$bitsAllSet": -1 } }, 9, "Expected a non-negative number in: $bitsAllSet: -1"),
        (rawdoc! { "a": { "$bitsAllSet": 1.5 } }, 9, "Expected an integer: $bitsAllSet: 1.5"),
        (rawdoc! { "a": { "$bitsAnySet": [-1] } }, 2, "Failed to parse bit position. bit positions must be >= 0"),
        (rawdoc! { "$where": "1" }, 2, "$where is not supported"),
        (rawdoc! { "$text": { "$search": "x" } }, 27, "text index required for $text query"),
        (rawdoc! { "$jsonSchema": 1 }, 14, "$jsonSchema must be an object"),
        (
            rawdoc! { "a": { "$elemMatch": { "b": 1, "$jsonSchema": {} } } },
            2,
            "$jsonSchema can only be applied to the top-level document",
        ),
        (rawdoc! { "a": { "$near": [0, 0] } }, 2, "$near is not supported"),
        (rawdoc! { "a": { "$geoWithin": {} } }, 2, "$geoWithin is not supported"),
    ] {
        let error = error(filter.clone());
        assert_eq!(error.code(), Code(code), "{filter:?}: {error}");
        assert!(error.message().contains(message), "{filter:?}: {error}");
    }
}

#[test]
fn or_of_values_of_one_path_becomes_in() {
    let values = |filter: RawDocumentBuf| match compile(&filter).unwrap().predicates("a").next() {
        Some(Predicate::In(choices)) => choices.values().iter().map(|choice| format!("{:?}", choice.value())).collect(),
        _ => Vec::new(),
    };
    let found = values(rawdoc! { "$or": [{ "a": 3 }, { "a": { "$eq": 1 } }, { "a": { "$in": [3.0, 2] } }] });
    assert_eq!(found, ["Int32(1)", "Int32(2)", "Int32(3)"]);
    for other in [
        rawdoc! { "$or": [{ "a": 1 }, { "b": 2 }] },
        rawdoc! { "$or": [{ "a": 1 }, { "a": { "$gt": 2 } }] },
        rawdoc! { "$or": [{ "a": 1 }, { "a": 2, "b": 3 }] },
        rawdoc! { "$or": [{ "a": 1 }, { "a": { "$eq": regex("^x", "") } }] },
        rawdoc! { "$nor": [{ "a": 1 }, { "a": 2 }] },
    ] {
        assert!(values(other.clone()).is_empty(), "{other:?}");
    }
    let filter = rawdoc! { "$or": [{ "a": null }, { "a": { "$in": [regex("^x", "")] } }] };
    check(filter, [rawdoc! {}, rawdoc! { "a": "xy" }], [rawdoc! { "a": "y" }]);
}

#[test]
fn a_filter_returns_its_predicates_and_equalities() {
    let filter = compile(&rawdoc! {
        "a": { "$gte": 1, "$lt": 5 }, "b": 2, "$and": [{ "c": "x" }, { "a": { "$ne": 3 } }], "$or": [{ "d": 1 }],
        "e": { "$all": [7] }, "$nor": [{ "f": 1 }], "g": { "$in": [3, 1, 1.0] },
    })
    .unwrap();
    let equalities: Vec<_> = filter.equalities().map(|(path, value)| format!("{path}={value:?}")).collect();
    assert_eq!(equalities, ["b=Int32(2)", "c=String(\"x\")", "d=Int32(1)", "e=Int32(7)"]);
    let ranges: Vec<_> = filter
        .predicates("a")
        .map(|predicate| match predicate {
            Predicate::Compare(comparison, operand) => format!("{comparison:?} {:?}", operand.value()),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(ranges, ["GreaterOrEqual Int32(1)", "Less Int32(5)"]);
    let Some(Predicate::In(choices)) = filter.predicates("g").next() else { panic!("g is an $in") };
    let values: Vec<_> = choices.values().iter().map(Operand::value).collect();
    assert_eq!(values, [RawBsonRef::Int32(1), RawBsonRef::Int32(3)]);
    assert!(compile(&rawdoc! {}).unwrap().is_empty());
    assert!(compile(&rawdoc! { "$comment": 1 }).unwrap().is_empty());
    assert!(!filter.is_empty());
}

#[test]
fn a_schema_is_a_condition_beside_others() {
    let schema = rawdoc! { "$jsonSchema": { "required": ["a"] } };
    check(schema.clone(), [rawdoc! { "a": null }], [rawdoc! { "b": 1 }]);
    check(rawdoc! { "$nor": [schema.clone()] }, [rawdoc! { "b": 1 }], [rawdoc! { "a": 1 }]);
    check(rawdoc! { "$and": [schema, { "a": { "$gt": 1 } }] }, [rawdoc! { "a": 2 }], [rawdoc! { "a": 1 }, rawdoc! {}]);
}
